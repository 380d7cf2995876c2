/*
 * list.c - the list of all cases and rows, running one of them, opening a device for them.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check/context.h"
#include "op/choices.h"
#include "op/rows.h"

static const check_group *const groups[] = {
    &check_lookup,
    &check_rmsnorm,
    &check_matmul,
    &check_products,
    &check_product_edges,
    &check_halves,
    &check_agreement,
    &check_fused,
    &check_lossy,
    &check_rope_store,
    &check_attention,
    &check_step_of_attention,
    &check_attention_agreement,
    &check_silu_gate,
    &check_add,
    &check_sample,
    &check_penalize,
    &check_bias_logits,
    &check_best,
    &check_nll,
    &check_layernorm,
    &check_head_norm,
    &check_gelu_gate,
    &check_gelu,
    &check_bias,
    &check_add_positions,
    &check_softcap,
    &check_gather_ids,
};
enum { GROUPS = sizeof groups / sizeof *groups };

static const check_group *find(uint32_t index, uint32_t *within)
{
    for (uint32_t g = 0; g < GROUPS; g++) {
        const uint32_t count = groups[g]->count();
        if (index < count) {
            *within = index;
            return groups[g];
        }
        index -= count;
    }
    return NULL;
}

uint32_t check_case_count(void)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < GROUPS; g++)
        count += groups[g]->count();
    return count;
}

check_case check_case_at(uint32_t index)
{
    uint32_t within = 0;
    const check_group *group = find(index, &within);
    assert(group != NULL);
    check_case c = {.op = group->op};
    group->describe(within, &c);
    return c;
}

static bool glob(const char *pattern, const char *text)
{
    for (; *pattern != 0; pattern++, text++) {
        if (*pattern == '*') {
            for (; *text != 0; text++)
                if (glob(pattern + 1, text))
                    return true;
            return glob(pattern + 1, text);
        }
        if (*pattern != *text)
            return false;
    }
    return *text == 0;
}

bool check_matches(const check_case *c, const char *pattern)
{
    char full[128];
    snprintf(full, sizeof full, "%s/%s", c->op, c->name);
    return glob(pattern, c->op) || glob(pattern, full);
}

static void close_context(check_context *c)
{
    for (uint32_t i = 0; i < c->weight_count; i++)
        op_weight_destroy(c->weights[i]);
    for (uint32_t i = 0; i < c->buffer_count; i++)
        gpu_buffer_destroy(c->buffers[i]);
    for (uint32_t i = 0; i < c->block_count; i++)
        mem_free(c->blocks[i]);
}

static bool only_preferred;

void check_only_preferred(bool only)
{
    only_preferred = only;
}

temper_status check_run(gpu_device *device, uint32_t index, const check_timing *timing,
                        check_result *result, error *err)
{
    uint32_t within = 0;
    const check_group *group = find(index, &within);
    assert(group != NULL);
    *result = (check_result){.ok = true};
    check_context c = {.device = device,
                       .timing = timing,
                       .time = timing != NULL,
                       .only_preferred = only_preferred,
                       .result = result,
                       .err = err};
    group->run(&c, within);
    error guards = {0};
    const temper_status guarded =
        c.status == TEMPER_OK ? gpu_check_guards(device, &guards) : TEMPER_OK;
    if (guarded != TEMPER_OK &&
        guarded != TEMPER_BAD_ARGUMENT) /* the latter: opened without guards */
        check_that(&c, false, "%s", guards.text);
    close_context(&c);
    if (c.abandoned) {
        *result = (check_result){.ok = true, .skipped = true};
        return TEMPER_OK;
    }
    if (c.status != TEMPER_OK)
        result->ok = false;
    return c.status;
}

bool check_row_at(gpu_device *device, uint32_t i, check_row *out)
{
    for (const op_table *const *table = op_tables; *table != NULL; table++) {
        if (i >= (*table)->count) {
            i -= (*table)->count;
            continue;
        }
        const op_kernel_row *row = &(*table)->rows[i];
        *out = (check_row){
            .op = (*table)->op,
            .row = row->name,
            .kernel = row->kernel->name,
            .features = row->kernel->needs,
            .invocations = row->invocations,
            .workgroup_memory = row->workgroup_memory,
            .runs = device != NULL && op_row_runs(device, row),
            .why = row->why,
        };
        return true;
    }
    return false;
}

/* ---- a device -------------------------------------------------------------------------------- */

enum { LIMITS = 32, LIMIT_NAME = 64 };

static temper_status parse_limit(const char *text, char name[LIMIT_NAME], gpu_limit_override *out,
                                 error *err)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals != NULL ? (size_t)(equals - text) : 0;
    char *end = NULL;
    errno = 0;
    const unsigned long long value = equals != NULL ? strtoull(equals + 1, &end, 10) : 0;
    if (length == 0 || length >= LIMIT_NAME || end == equals + 1 || *end != 0 || errno != 0 ||
        equals[1] == '-')
        return error_set(err, TEMPER_BAD_ARGUMENT, "limit \"%s\": NAME=VALUE is expected", text);
    memcpy(name, text, length);
    name[length] = 0;
    *out = (gpu_limit_override){.name = name, .value = value};
    return TEMPER_OK;
}

temper_status check_open(const temper_device_desc *desc, bool guard, gpu_device **out, error *err)
{
    *out = NULL;
    char names[LIMITS][LIMIT_NAME];
    gpu_limit_override limits[LIMITS];
    gpu_device_desc gpu = {
        .adapter = desc->adapter, .limits = limits, .robust = desc->robust, .guard = guard};
    temper_status status = TEMPER_OK;
    if (desc->without != NULL)
        status = gpu_features_parse(desc->without, &gpu.without_features, err);
    if (status == TEMPER_OK && desc->limit_count > LIMITS)
        status = error_set(err, TEMPER_BAD_ARGUMENT, "%u limits; at most %d", desc->limit_count,
                           (int)LIMITS);
    for (uint32_t i = 0; status == TEMPER_OK && i < desc->limit_count; i++) {
        status = parse_limit(desc->limits[i], names[i], &limits[i], err);
        gpu.limit_count = i + 1;
    }
    if (status == TEMPER_OK)
        status = gpu_device_open(&gpu, out, err);
    if (status == TEMPER_OK && desc->tuning != NULL)
        op_choices_load(*out, desc->tuning);
    return status;
}
