#include "support/model_test.h"

#include <math.h>
#include <unistd.h>

#include "gpu/gpu.h"

const device_mask test_masks[] = {
    {"everything", NULL, false, false},
    {"robust", NULL, false, true},
    {"without f16", "f16", false, false},
    {"without subgroups", "subgroups", false, false},
    {"without immediates", "immediates", false, false},
    {"bare", "f16,subgroups,subgroup-matrix,timestamps,immediates", true, true},
};

const size_t test_mask_count = sizeof test_masks / sizeof test_masks[0];

temper_device *test_device(const device_mask *mask)
{
    static const char *const defaults[] = {
#define X(field, name, initial, higher) name "=" #initial,
        GPU_LIMIT_TABLE(X)
#undef X
    };
    temper_error err = {0};
    temper_device *device = NULL;
    temper_device_desc desc = {.without = mask->without, .robust = mask->robust};
    if (mask->default_limits) {
        desc.limits = defaults;
        desc.limit_count = sizeof defaults / sizeof defaults[0];
    }
    assert_ok(temper_device_open(&desc, &device, &err));
    print_message("on %s, %s\n", temper_device_name(device), mask->name);
    return device;
}

temper_engine *test_engine(temper_device *device, const char *path, uint32_t max_rows)
{
    char full[4096];
    temper_error err = {0};
    temper_engine *engine = NULL;
    snprintf(full, sizeof full, "%s%s", path[0] == '/' ? "" : TEST_GOLDEN "/", path);
    const temper_engine_desc desc = {.model = full, .device = device, .max_rows = max_rows};
    assert_ok(temper_engine_open(&desc, &engine, &err));
    return engine;
}

void test_nothing_left(const temper_device *device)
{
    const temper_device_stats stats = temper_device_get_stats(device);
    assert_int_equal(stats.weight_bytes, 0);
    assert_int_equal(stats.cache_bytes, 0);
    assert_int_equal(stats.scratch_bytes, 0);
}

const char *test_default_model(void)
{
    static const char path[] = TEST_PARTS "/../models/SmolLM2-135M-Instruct-Q4_1.gguf";
    if (access(path, R_OK) != 0)
        fail_msg("the default model is not at %s: run tools/setup", path);
    return path;
}

json_t *test_golden(const char *path)
{
    char full[4096];
    json_error_t why;
    snprintf(full, sizeof full, "%s/%s", TEST_GOLDEN, path);
    json_t *golden = json_load_file(full, 0, &why);
    if (golden == NULL)
        fail_msg("%s: %s", full, why.text);
    return golden;
}

temper_tokens test_ids(const json_t *list)
{
    temper_tokens tokens = {.count = json_array_size(list)};
    tokens.ids = calloc(tokens.count + 1, sizeof *tokens.ids);
    assert_non_null(tokens.ids);
    for (size_t i = 0; i < tokens.count; i++)
        tokens.ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return tokens;
}

double test_worst(const float *logits, const json_t *ids, const json_t *values, double range)
{
    double worst = 0.0;
    assert_true(json_array_size(values) > 0 && range > 0.0);
    for (size_t i = 0; i < json_array_size(values); i++) {
        const size_t id = ids != NULL ? (size_t)json_integer_value(json_array_get(ids, i)) : i;
        const double wanted = json_number_value(json_array_get(values, i));
        const double difference = fabs((double)logits[id] - wanted) / range;
        if (!(difference <= worst))
            worst = difference;
    }
    return worst;
}
