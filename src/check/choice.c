#include "check/choice.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* A whole number from 1 on and what follows it, a comma; NULL for anything else. */
static const char *take_count(const char *text, uint64_t *out)
{
    *out = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        *out = min_u64(*out * 10 + (uint64_t)(*text - '0'), UINT64_C(1) << 40);
    return *text == ',' && *out > 0 && *out <= UINT32_MAX ? text + 1 : NULL;
}

temper_status check_shape_parse(const char *text, check_shape *out, error *err)
{
    const char *at = text;
    uint64_t *counts[] = {&out->rows, &out->n, &out->k};
    *out = (check_shape){0};
    for (int i = 0; at != NULL && i < 3; i++)
        at = take_count(at, counts[i]);
    if (at == NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the shape \"%.100s\" is not M,N,K,TYPE with counts from 1 on, as in "
                         "512,2048,2048,Q4_0",
                         text);
    const dtype_info *info = NULL;
    for (uint32_t type = 0; info == NULL && type < 64; type++)
        if (dtype_find(type) != NULL && dtype_find(type)->loadable &&
            strcmp(dtype_name(type), at) == 0) {
            info = dtype_find(type);
            out->format = weight_format_of((dtype)type);
        }
    if (info == NULL)
        return error_set(
            err, TEMPER_BAD_ARGUMENT,
            "the shape \"%.100s\": there is no type \"%.40s\"; temper has " DTYPE_LOADABLE_NAMES,
            text, at);
    if (out->k % info->block != 0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the shape \"%.100s\": K is no multiple of %u, the block of %s", text,
                         (unsigned)info->block, at);
    return TEMPER_OK;
}

temper_status check_shape_allow(gpu_device *device, bool exact, temper_lossy lossy,
                                check_shape *shape, error *err)
{
    if (exact && lossy != TEMPER_LOSSY_NONE)
        return error_set(err, TEMPER_BAD_ARGUMENT, "products are exact or %s, not both",
                         temper_lossy_name(lossy));
    shape->fixed = !exact;
    shape->lossy = lossy;
    shape->half = shape->half_sums = false;
    if (exact)
        return TEMPER_OK;
    const temper_status status = op_matmul_check(device, &shape->half, err);
    return status == TEMPER_OK ? op_matmul_check_lossy(device, lossy, &shape->half_sums, err)
                               : status;
}

static op_attention_shape attention_of(const check_shape *s)
{
    const uint32_t rows = (uint32_t)s->rows;
    return (op_attention_shape){.rows = rows,
                                .q_heads = 32,
                                .kv_heads = 8,
                                .head_dim = 64,
                                .scale = 0.125f,
                                .longest = rows,
                                .half = s->attention};
}

temper_status check_shape_allow_attention(gpu_device *device, bool exact, check_shape *shape,
                                          error *err)
{
    const op_attention_shape attention = attention_of(shape);
    error why = {0};
    shape->attention = false;
    const temper_status status =
        exact ? TEMPER_OK : op_attention_check(device, &attention, &shape->attention, &why, err);
    snprintf(shape->attention_why, sizeof shape->attention_why, "%.*s",
             (int)sizeof shape->attention_why - 1,
             exact ? "f16 operands are not asked for (--exact)" : why.text);
    return status;
}

/* What a table is asked about it. */
static op_shape shape_for(gpu_device *device, const op_table *table, const check_shape *s)
{
    op_shape shape = {.rows = s->rows, .n = s->n, .k = s->k, .format = s->format};
    if (table == &op_table_matmul) {
        shape.workgroup_memory = gpu_device_limits(device)->max_workgroup_memory;
        shape.invocations = min_u64(gpu_device_limits(device)->max_invocations,
                                    gpu_device_limits(device)->max_workgroup_x);
        shape.fixed = s->fixed;
        shape.scratch = true;
        shape.half = s->half;
        shape.holds = true;
        shape.half_sums = s->half_sums;
        shape.lossy = s->lossy;
        shape.tile = op_tile_best(&shape);
        return shape;
    }
    if (table == &op_table_attention) {
        const op_attention_shape attention = attention_of(s);
        return op_attention_question(device, &attention, false);
    }
    /* Norms see the product's input, a sampler its output; neither has a weight. */
    shape.format = (weight_format){0};
    shape.k = 0;
    shape.greedy = table == &op_table_sample;
    if (table == &op_table_rmsnorm || table == &op_table_layernorm)
        shape.n = s->k;
    return shape;
}

/* ---- why ------------------------------------------------------------------------------------- */

static void list_features(uint32_t features, char *text, size_t size)
{
    text[0] = '\0';
    for (uint32_t bit = 1; bit != 0 && bit <= features; bit <<= 1) {
        const size_t at = strlen(text);
        if ((features & bit) != 0)
            snprintf(text + at, size - at, "%s%s", at == 0 ? "" : " and ",
                     gpu_feature_name((gpu_feature)bit));
    }
}

static void say_closed(const op_kernel_row *row, char *text, size_t size)
{
    snprintf(text, size, "lossy, and not asked for: opened by --lossy");
    for (int i = TEMPER_LOSSY_NONE + 1; temper_lossy_name((temper_lossy)i) != NULL; i++) {
        const size_t at = strlen(text);
        if ((row->lossy & OP_OPENED_BY(i)) != 0)
            snprintf(text + at, size - at, " %s", temper_lossy_name((temper_lossy)i));
    }
}

static void say(gpu_device *device, const op_kernel_row *row, op_verdict verdict, char *text,
                size_t size)
{
    const gpu_limits *limits = gpu_device_limits(device);
    char features[96];
    text[0] = '\0';
    switch (verdict) {
    case OP_ROW_MAY:
        break;
    case OP_ROW_LACKS_FEATURE:
        list_features(row->kernel->needs & ~gpu_device_features(device), features, sizeof features);
        snprintf(text, size, "needs %s, which the device lacks", features);
        break;
    case OP_ROW_LANES:
        snprintf(text, size, "needs %" PRIu32 " lanes a workgroup; the device has %" PRIu64,
                 row->invocations, min_u64(limits->max_invocations, limits->max_workgroup_x));
        break;
    case OP_ROW_MEMORY:
        snprintf(text, size, "needs %" PRIu32 " bytes of workgroup memory; the device has %" PRIu64,
                 row->workgroup_memory, limits->max_workgroup_memory);
        break;
    case OP_ROW_BINDINGS:
        snprintf(text, size, "needs %" PRIu32 " storage buffers; the device has %" PRIu64,
                 row->kernel->binding_count, limits->max_storage_buffers);
        break;
    case OP_ROW_DEVICE:
        snprintf(text, size, "the device lacks its matrix shape or subgroup size");
        break;
    case OP_ROW_SOFTWARE:
        snprintf(text, size, "left alone on a software device, where it is slower");
        break;
    case OP_ROW_CLOSED:
        say_closed(row, text, size);
        break;
    case OP_ROW_SHAPE:
        snprintf(text, size, "does not take this shape");
        break;
    case OP_ROW_YIELDS:
        snprintf(text, size, "takes this shape; f16 matrices with f32 sums are faster");
        break;
    case OP_ROW_SLOWER:
        snprintf(text, size, "takes this shape; another tile is thought faster");
        break;
    }
}

static const op_kernel_row *row_at(uint32_t i, const op_table **table)
{
    for (const op_table *const *at = op_tables; *at != NULL; at++) {
        if (i < (*at)->count) {
            *table = *at;
            return &(*at)->rows[i];
        }
        i -= (*at)->count;
    }
    return NULL;
}

void check_row_reason(gpu_device *device, uint32_t i, char *reason, size_t size)
{
    const op_table *table = NULL;
    const op_kernel_row *row = row_at(i, &table);
    assert(row != NULL);
    say(device, row, op_row_verdict(device, row, NULL), reason, size);
}

/* Microseconds of a row in a choice; 0 when it is not there. */
static double measured(const op_choice *choice, const op_kernel_row *row)
{
    for (uint32_t i = 0; choice != NULL && i < choice->count; i++)
        if (choice->order[i].row == row)
            return choice->order[i].us;
    return 0;
}

bool check_choice_at(gpu_device *device, const check_shape *s, uint32_t i, check_choice *out)
{
    const op_table *table = NULL;
    const op_kernel_row *row = row_at(i, &table);
    if (row == NULL)
        return false;
    const op_shape shape = shape_for(device, table, s);
    const op_kernel_row *taken = op_choose(device, table, &shape);
    const op_choice *choice = op_choices_find(op_choices_of(device), table, &shape);
    const op_verdict verdict = op_row_verdict(device, row, &shape);
    const double us = measured(choice, row);
    *out = (check_choice){
        .op = table->op, .row = row->name, .kernel = row->kernel->name, .chosen = row == taken};
    if (row == taken && us > 0)
        snprintf(out->reason, sizeof out->reason, "the fastest as measured, %.1f us", us);
    else if (row == taken && row->lossy != 0)
        snprintf(out->reason, sizeof out->reason, "asked for: --lossy %s",
                 temper_lossy_name(s->lossy));
    else if (row == taken)
        snprintf(out->reason, sizeof out->reason, "%s",
                 table->count == 1 ? "the only row" : "the first of the table that may");
    else if (verdict == OP_ROW_SHAPE && row->tile != NULL && !s->half)
        snprintf(out->reason, sizeof out->reason,
                 "closed by the self-check, or by --exact: f16 operands are not allowed");
    else if (verdict == OP_ROW_SHAPE && table == &op_table_attention &&
             row->kernel == &kernel_attention_matrix && s->attention_why[0] != '\0')
        snprintf(out->reason, sizeof out->reason, "closed: %s", s->attention_why);
    else if (verdict == OP_ROW_CLOSED && (row->lossy & OP_OPENED_BY(s->lossy)) != 0)
        snprintf(out->reason, sizeof out->reason, "closed by the self-check of f16 sums");
    else if (verdict != OP_ROW_MAY && (verdict != OP_ROW_SLOWER || us == 0))
        say(device, row, verdict, out->reason, sizeof out->reason);
    else if (us > 0)
        snprintf(out->reason, sizeof out->reason, "slower as measured, %.1f us", us);
    else
        snprintf(out->reason, sizeof out->reason, "may too; %s comes before it", taken->name);
    return true;
}
