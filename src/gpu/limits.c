/*
 * limits.c - features and limits by name, and what a device's limits become under overrides.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "gpu/gpu_internal.h"

static const struct {
    gpu_feature feature;
    const char *name;
} feature_names[] = {
    {GPU_FEATURE_F16, "f16"},
    {GPU_FEATURE_SUBGROUPS, "subgroups"},
    {GPU_FEATURE_SUBGROUP_MATRIX, "subgroup-matrix"},
    {GPU_FEATURE_TIMESTAMPS, "timestamps"},
    {GPU_FEATURE_IMMEDIATES, "immediates"},
};

enum { FEATURE_COUNT = sizeof feature_names / sizeof feature_names[0] };

const char *gpu_feature_name(gpu_feature feature)
{
    for (size_t i = 0; i < FEATURE_COUNT; i++)
        if (feature_names[i].feature == feature)
            return feature_names[i].name;
    return NULL;
}

temper_status gpu_features_parse(const char *list, uint32_t *features, error *err)
{
    assert(list != NULL && features != NULL);
    uint32_t found = 0;

    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, ",");
        size_t i = 0;

        while (i < FEATURE_COUNT && (strlen(feature_names[i].name) != length ||
                                     memcmp(feature_names[i].name, at, length) != 0))
            i++;
        if (i == FEATURE_COUNT)
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "unknown feature \"%.*s\": known are f16, subgroups, subgroup-matrix, "
                             "timestamps, immediates",
                             length < 100 ? (int)length : 100, at);
        found |= (uint32_t)feature_names[i].feature;
        at += length;
        /* A comma announces another name, so that a trailing one is an empty name and refused. */
        if (*at == ',' && *++at == '\0')
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "the list of features \"%.100s\" ends with a comma", list);
    }
    *features = found;
    return TEMPER_OK;
}

const char *gpu_purpose_name(gpu_purpose purpose)
{
    switch (purpose) {
    case GPU_PURPOSE_WEIGHTS: return "weights";
    case GPU_PURPOSE_CACHE: return "cache";
    case GPU_PURPOSE_SCRATCH: return "scratch";
    case GPU_PURPOSE_INPUT: return "input";
    case GPU_PURPOSE_STAGING: return "staging";
    case GPU_PURPOSE_COUNT: break;
    }
    return "unknown";
}

typedef struct limit_row {
    const char *name;
    size_t offset;
    bool higher;    /* higher is better */
} limit_row;

static const limit_row limit_rows[] = {
#define X(field, name, initial, higher) {name, offsetof(gpu_limits, field), higher},
    GPU_LIMIT_TABLE(X)
#undef X
};

enum { LIMIT_COUNT = sizeof limit_rows / sizeof limit_rows[0] };

static uint64_t *limit_at(gpu_limits *limits, const limit_row *row)
{
    return (uint64_t *)(void *)((char *)limits + row->offset);
}

static temper_status override_limit(const gpu_adapter_info *info, const gpu_limit_override *wanted,
                                    gpu_limits *limits, error *err)
{
    const limit_row *row = NULL;

    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (wanted->name != NULL && strcmp(wanted->name, limit_rows[i].name) == 0)
            row = &limit_rows[i];
    if (row == NULL) {
        char known[512] = "";
        size_t used = 0;

        for (size_t i = 0; i < LIMIT_COUNT && used < sizeof known; i++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                     limit_rows[i].name);
        return error_set(err, TEMPER_BAD_ARGUMENT, "unknown limit \"%.100s\": known are %s",
                         wanted->name != NULL ? wanted->name : "", known);
    }

    const uint64_t offered = *limit_at(limits, row);
    if (row->higher ? wanted->value > offered : wanted->value < offered)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "limit %s=%" PRIu64 ": the adapter %s offers %" PRIu64
                         ", and a limit can only be made worse",
                         row->name, wanted->value, info->name, offered);
    if (!row->higher && (wanted->value & (wanted->value - 1)) != 0)
        return error_set(err, TEMPER_BAD_ARGUMENT, "limit %s=%" PRIu64 " is no power of two",
                         row->name, wanted->value);
    *limit_at(limits, row) = wanted->value;
    return TEMPER_OK;
}

temper_status gpu_limits_resolve(const gpu_adapter_info *info, const gpu_device_desc *desc,
                                 gpu_limits *out, error *err)
{
    gpu_limits limits = info->limits;

    for (uint32_t i = 0; i < desc->limit_count; i++) {
        /* Twice the same name: each is held against the adapter, the last one counts. */
        gpu_limits one = info->limits;
        if (override_limit(info, &desc->limits[i], &one, err) != TEMPER_OK)
            return TEMPER_BAD_ARGUMENT;
        for (size_t k = 0; k < LIMIT_COUNT; k++)
            if (strcmp(limit_rows[k].name, desc->limits[i].name) == 0)
                *limit_at(&limits, &limit_rows[k]) = *limit_at(&one, &limit_rows[k]);
    }
    /* A binding cannot be larger than the buffer it lies in, and some adapters tell otherwise. */
    limits.max_storage_binding = min_u64(limits.max_storage_binding, limits.max_buffer_size);
    *out = limits;
    return TEMPER_OK;
}
