/*
 * device.c - adapters, features, limits, opening and closing.
 */
#include "device_common.h"

#include "base/mem.h"

static const gpu_limits webgpu_defaults = {
#define X(field, name, initial, higher) .field = initial,
    GPU_LIMIT_TABLE(X)
#undef X
};

static const gpu_limit_override default_overrides[] = {
#define X(field, name, initial, higher) {name, initial},
    GPU_LIMIT_TABLE(X)
#undef X
};

static gpu_adapter_info first_adapter(void)
{
    gpu_adapter_info info;
    uint32_t count = 0;

    assert_ok(gpu_adapters(&info, 1, &count, err));
    assert_true(count >= 1);
    return info;
}

/* ---- adapters ------------------------------------------------------------------------------- */

static int type_order(const gpu_adapter_info *info)
{
    return (!info->usable) * 10 + (strcmp(info->type, "discrete GPU") == 0     ? 0
                                   : strcmp(info->type, "integrated GPU") == 0 ? 1
                                   : strcmp(info->type, "CPU") == 0            ? 3
                                                                               : 2);
}

static void test_adapters_are_listed_best_first(void **state)
{
    (void)state;
    gpu_adapter_info rows[16];
    uint32_t count = 0, none = 0;

    assert_ok(gpu_adapters(rows, 16, &count, err));
    assert_in_range(count, 1, 16);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(rows[i].name[0] != '\0');
        assert_true(rows[i].backend[0] != '\0' && rows[i].type[0] != '\0');
        assert_true(rows[i].usable == (rows[i].reason[0] == '\0'));
        if (i > 0)
            assert_true(type_order(&rows[i - 1]) <= type_order(&rows[i]));
        if ((rows[i].features & GPU_FEATURE_SUBGROUPS) != 0)
            assert_true(rows[i].subgroup_min >= 1 && rows[i].subgroup_min <= rows[i].subgroup_max);
        assert_true((rows[i].matrix_count > 0) ==
                    ((rows[i].features & GPU_FEATURE_SUBGROUP_MATRIX) != 0));
    }
    assert_true(rows[0].usable);
#define X(field, name, initial, higher)                                                            \
    assert_true(higher ? rows[0].limits.field >= webgpu_defaults.field                             \
                       : rows[0].limits.field <= webgpu_defaults.field);
    GPU_LIMIT_TABLE(X)
#undef X
    /* Without room for rows the count still comes. */
    assert_ok(gpu_adapters(NULL, 0, &none, err));
    assert_int_equal(none, count);
}

static void test_adapter_by_number_and_name(void **state)
{
    (void)state;
    const gpu_adapter_info first = first_adapter();
    char upper[8] = "";
    gpu_device *device = NULL;

    for (size_t i = 0; i + 1 < sizeof upper && first.name[i] != '\0'; i++)
        upper[i] = (char)(first.name[i] >= 'a' && first.name[i] <= 'z' ? first.name[i] - 32
                                                                       : first.name[i]);
    const char *good[] = {NULL, "0", upper, first.name, first.driver};
    for (uint32_t i = 0; i < COUNT(good); i++) {
        device = open_device(&(gpu_device_desc){.adapter = good[i]});
        assert_string_equal(gpu_device_adapter(device)->name, first.name);
        gpu_device_release(device);
    }
    const struct {
        const char *name, *text;
    } bad[] = {{"", "no adapter is called \"\"; number 0 is "},
               {"99", "there is no adapter 99; number 0 is "},
               {"4294967296", "there is no adapter 4294967296; number 0 is "},
               {"no such card", "no adapter is called \"no such card\"; number 0 is "},
               {"-1", "no adapter is called \"-1\"; number 0 is "}};
    for (uint32_t i = 0; i < COUNT(bad); i++) {
        assert_fails(gpu_device_open(&(gpu_device_desc){.adapter = bad[i].name}, &device, err),
                     TEMPER_BAD_ARGUMENT, bad[i].text);
        assert_null(device);
    }
}

/* Without a driver there is no adapter, or one that computes nothing; either way the text says what
 * was found, and what to do. */
static void test_no_driver_is_an_error_with_advice(void **state)
{
    (void)state;
    const char *before = getenv("VK_DRIVER_FILES");
    char *kept = before != NULL ? strdup(before) : NULL;
    gpu_device *device = NULL;

    setenv("VK_DRIVER_FILES", "/nowhere/no_icd.json", 1);
    assert_fails(gpu_device_open(NULL, &device, err), TEMPER_NO_DEVICE, "/nowhere/no_icd.json");
    assert_null(device);
    uint32_t count = 99;
    gpu_adapter_info rows[4];
    assert_ok(gpu_adapters(rows, 4, &count, err));
    for (uint32_t i = 0; i < count && i < 4; i++)
        assert_false(rows[i].usable);

    if (kept != NULL)
        setenv("VK_DRIVER_FILES", kept, 1);
    else
        unsetenv("VK_DRIVER_FILES");
    free(kept);
    gpu_device_release(open_device(NULL));
}

/* ---- features ------------------------------------------------------------------------------- */

static void test_features_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        uint32_t features;
        const char *wrong; /* NULL: right */
    } rows[] = {
        {"", 0, NULL},
        {"f16", GPU_FEATURE_F16, NULL},
        {"f16,subgroups", GPU_FEATURE_F16 | GPU_FEATURE_SUBGROUPS, NULL},
        {"subgroup-matrix,timestamps,immediates",
         GPU_FEATURE_SUBGROUP_MATRIX | GPU_FEATURE_TIMESTAMPS | GPU_FEATURE_IMMEDIATES, NULL},
        {"f16,f16", GPU_FEATURE_F16, NULL},
        {"F16", 0, "F16"},
        {"f1", 0, "\"f1\""},
        {"f16,", 0, "f16,"},
        {",f16", 0, "\"\""},
        {"f16 ,subgroups", 0, "\"f16 \""},
        {"subgroups,shader-f16", 0, "shader-f16"},
    };
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        uint32_t features = 77;
        if (rows[i].wrong == NULL) {
            assert_ok(gpu_features_parse(rows[i].list, &features, err));
            assert_int_equal(features, rows[i].features);
        } else {
            assert_fails(gpu_features_parse(rows[i].list, &features, err), TEMPER_BAD_ARGUMENT,
                         rows[i].wrong);
            assert_int_equal(features, 77);
        }
    }
    assert_string_equal(gpu_feature_name(GPU_FEATURE_SUBGROUP_MATRIX), "subgroup-matrix");
    assert_null(gpu_feature_name((gpu_feature)0));
}

static const gpu_kernel needs_f16 = {
    .name = "needs_f16",
    .source = "enable f16;\n"
              "@group(0) @binding(0) var<storage, read_write> x: array<f16>;\n"
              "@compute @workgroup_size(1) fn main() { x[0] = x[1] + 1.0h; }\n",
    .bindings = poke_bindings,
    .binding_count = 1,
    .needs = GPU_FEATURE_F16};

static const gpu_kernel needs_subgroups = {
    .name = "needs_subgroups",
    .source = "enable subgroups;\n"
              "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
              "@compute @workgroup_size(64)\n"
              "fn main(@builtin(local_invocation_index) i: u32) { x[i] = subgroupAdd(i); }\n",
    .bindings = poke_bindings,
    .binding_count = 1,
    .needs = GPU_FEATURE_SUBGROUPS};

static const gpu_kernel needs_matrix = {
    .name = "needs_matrix",
    .source = "enable chromium_experimental_subgroup_matrix;\n"
              "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
              "@compute @workgroup_size(32) fn main() { x[0] = 1u; }\n",
    .bindings = poke_bindings,
    .binding_count = 1,
    .needs = GPU_FEATURE_SUBGROUP_MATRIX};

static void test_each_feature_can_be_taken_away(void **state)
{
    (void)state;
    const uint32_t offered = first_adapter().features;
    const struct {
        gpu_feature feature;
        const gpu_kernel *kernel; /* one that needs it; NULL: none does */
    } rows[] = {
        {GPU_FEATURE_F16, &needs_f16},
        {GPU_FEATURE_SUBGROUPS, &needs_subgroups},
        {GPU_FEATURE_SUBGROUP_MATRIX, &needs_matrix},
        {GPU_FEATURE_TIMESTAMPS, NULL},
        {GPU_FEATURE_IMMEDIATES, NULL},
    };
    gpu_device *full = open_device(NULL);

    assert_int_equal(gpu_device_features(full), offered);
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        const uint32_t bit = (uint32_t)rows[i].feature;
        gpu_device *device = open_device(&(gpu_device_desc){.without_features = bit});
        assert_int_equal(gpu_device_features(device) & bit, 0);
        const uint32_t lost = offered & ~gpu_device_features(device);
        assert_true((lost & ~bit) == 0 || (rows[i].feature == GPU_FEATURE_SUBGROUPS &&
                                           (lost & ~bit) == GPU_FEATURE_SUBGROUP_MATRIX));
        if (rows[i].kernel != NULL) {
            gpu_pipeline_get(device, rows[i].kernel, NULL);
            assert_fails(gpu_pipelines_wait(device, err), TEMPER_UNSUPPORTED, rows[i].kernel->name);
            gpu_pipeline_get(device, rows[i].kernel, NULL);
            gpu_pipeline_get(full, rows[i].kernel, NULL);
            if (offered & bit)
                assert_ok(gpu_pipelines_wait(full, err));
            else
                assert_fails(gpu_pipelines_wait(full, err), TEMPER_UNSUPPORTED,
                             gpu_feature_name(rows[i].feature));
        }
        gpu_device_release(device);
    }
    gpu_device_release(full);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void test_limits_by_name(void **state)
{
    (void)state;
    const gpu_limits offered = first_adapter().limits;
    gpu_device *device = NULL;
    const struct {
        gpu_limit_override override;
        const char *wrong;
    } rows[] = {
        {{"maxBufferSise", 1}, "maxBufferSise"},
        {{"", 1}, "unknown limit"},
        {{"maxBufferSize", offered.max_buffer_size + 1}, "maxBufferSize"},
        {{"maxStorageBuffersPerShaderStage", UINT64_MAX}, "maxStorageBuffersPerShaderStage"},
        {{"minStorageBufferOffsetAlignment", offered.storage_alignment / 2},
         "minStorageBufferOffsetAlignment"},
        {{"minStorageBufferOffsetAlignment", 300}, "power of two"},
        {{"minUniformBufferOffsetAlignment", 0}, "minUniformBufferOffsetAlignment"},
    };
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        const gpu_device_desc desc = {.limits = &rows[i].override, .limit_count = 1};
        assert_fails(gpu_device_open(&desc, &device, err), TEMPER_BAD_ARGUMENT, rows[i].wrong);
        assert_null(device);
    }
}

static gpu_device *open_limited(const char *name, uint64_t value)
{
    const gpu_limit_override override = {name, value};
    return open_device(&(gpu_device_desc){.limits = &override, .limit_count = 1});
}

/* Everything that the other tests do works on a device that has WebGPU's defaults and no more. */
static void test_default_limits_only(void **state)
{
    (void)state;
    gpu_device *device = open_device(&(gpu_device_desc){
        .limits = default_overrides,
        .limit_count = COUNT(default_overrides),
        .without_features = GPU_FEATURE_F16 | GPU_FEATURE_SUBGROUPS | GPU_FEATURE_IMMEDIATES});
    const gpu_limits *limits = gpu_device_limits(device);
    float values[64] = {0};

    assert_memory_equal(limits, &webgpu_defaults, sizeof webgpu_defaults);
    gpu_buffer *x = new_buffer(device, 256, "x"), *y = new_buffer(device, 256, "y");
    gpu_recorder *rec = gpu_record_begin(device);
    record_affine(rec, gpu_pipeline_get(device, &affine, NULL), x, y,
                  (affine_params){.n = 64, .b = 3});
    assert_ok(gpu_submit(rec, NULL, err));
    read_view(device, gpu_whole(y), values);
    for (int i = 0; i < 64; i++)
        assert_float_equal(values[i], 3, 0);

    /* 257 invocations are past the defaults. */
    gpu_pipeline_get(device, &affine, &(affine_values){257, 0});
    assert_fails(gpu_pipelines_wait(device, err), TEMPER_UNSUPPORTED,
                 "affine takes 257, the device's maxComputeWorkgroupSizeX is 256");
    gpu_buffer_destroy(x);
    gpu_buffer_destroy(y);
    gpu_device_release(device);
}

/* A weight of 155 MB meets a binding limit of 128 MiB: an error as one view, right as two. */
static void test_weight_larger_than_a_binding(void **state)
{
    (void)state;
    enum { WORDS = 155 * 1000 * 1000 / 4 / 64 * 64, HALF = WORDS / 2 };
    gpu_device *device = open_limited("maxStorageBufferBindingSize", 134217728);
    gpu_buffer *big = new_buffer(device, (uint64_t)WORDS * 4, "token_embd.weight");
    gpu_pipeline *pipeline = gpu_pipeline_get(device, &poke, NULL);
    const gpu_view whole[] = {gpu_whole(big)};
    const gpu_view lower[] = {{big, 0, (uint64_t)HALF * 4}};
    const gpu_view upper[] = {{big, (uint64_t)HALF * 4, (uint64_t)(WORDS - HALF) * 4}};
    uint32_t last[2];

    gpu_recorder *rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, pipeline, whole, &(poke_params){WORDS - 1, 1}, 1, 1, 1);
    assert_fails(gpu_submit(rec, NULL, err), TEMPER_BAD_ARGUMENT, "token_embd.weight");

    rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, pipeline, lower, &(poke_params){HALF - 1, 11}, 1, 1, 1);
    gpu_record_dispatch(rec, pipeline, upper, &(poke_params){WORDS - HALF - 1, 12}, 1, 1, 1);
    assert_ok(gpu_submit(rec, NULL, err));
    read_view(device, (gpu_view){big, (uint64_t)(HALF - 1) * 4, 4}, &last[0]);
    read_view(device, (gpu_view){big, (uint64_t)(WORDS - 1) * 4, 4}, &last[1]);
    assert_int_equal(last[0], 11);
    assert_int_equal(last[1], 12);
    gpu_buffer_destroy(big);
    gpu_device_release(device);
}

static void test_buffer_limit_below_binding_limit(void **state)
{
    (void)state;
    gpu_device *device = open_limited("maxBufferSize", 1 << 20);
    gpu_buffer *buffer = NULL;

    assert_int_equal(gpu_device_limits(device)->max_buffer_size, 1 << 20);
    assert_int_equal(gpu_device_limits(device)->max_storage_binding, 1 << 20);
    assert_fails(
        gpu_buffer_create(device, (1 << 20) + 1, GPU_PURPOSE_WEIGHTS, "too large", &buffer, err),
        TEMPER_UNSUPPORTED, "too large");
    assert_fails(gpu_buffer_create(device, UINT64_MAX, GPU_PURPOSE_WEIGHTS, "huge", &buffer, err),
                 TEMPER_UNSUPPORTED, "huge");
    assert_null(buffer);
    buffer = new_buffer(device, 1 << 20, "just right");
    gpu_recorder *rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, gpu_pipeline_get(device, &poke, NULL), (gpu_view[]){gpu_whole(buffer)},
                        &(poke_params){(1 << 18) - 1, 5}, 1, 1, 1);
    assert_ok(gpu_submit(rec, NULL, err));
    uint32_t last = 0;
    read_view(device, (gpu_view){buffer, (1 << 20) - 4, 4}, &last);
    assert_int_equal(last, 5);
    gpu_buffer_destroy(buffer);
    gpu_device_release(device);
}

static const gpu_kernel_binding two_bindings[] = {{"a", GPU_READ, 4}, {"b", GPU_READ_WRITE, 4}};
static const gpu_kernel_option tile_options[] = {
    {"X", true, 8}, {"Y", true, 8}, {"Z", true, 1}, {"TILE", true, 16}};

static const gpu_kernel tile = {
    .name = "tile",
    .source = "override X: u32 = 8; override Y: u32 = 8; override Z: u32 = 1;\n"
              "override TILE: u32 = 16;\n"
              "var<workgroup> staged: array<vec4<f32>, TILE * 4>;\n"
              "@group(0) @binding(0) var<storage, read> a: array<f32>;\n"
              "@group(0) @binding(1) var<storage, read_write> b: array<f32>;\n"
              "@compute @workgroup_size(X, Y, Z)\n"
              "fn main(@builtin(local_invocation_index) i: u32) {\n"
              "    staged[i % (TILE * 4)] = vec4<f32>(a[i]);\n"
              "    workgroupBarrier();\n"
              "    b[i] = staged[0].x;\n"
              "}\n",
    .bindings = two_bindings,
    .binding_count = COUNT(two_bindings),
    .options = tile_options,
    .option_count = COUNT(tile_options)};

/* Limits below WebGPU's defaults are this room's to enforce. */
static void test_limits_below_the_defaults(void **state)
{
    (void)state;
    static const struct {
        const char *limit;
        uint64_t value;
        uint32_t options[4];
        bool fits;
    } rows[] = {
        {"maxComputeWorkgroupSizeX", 16, {16, 1, 1, 16}, true},
        {"maxComputeWorkgroupSizeX", 16, {17, 1, 1, 16}, false},
        {"maxComputeWorkgroupSizeY", 4, {1, 4, 1, 16}, true},
        {"maxComputeWorkgroupSizeY", 4, {1, 5, 1, 16}, false},
        {"maxComputeWorkgroupSizeZ", 2, {1, 1, 2, 16}, true},
        {"maxComputeWorkgroupSizeZ", 2, {1, 1, 3, 16}, false},
        {"maxComputeInvocationsPerWorkgroup", 128, {16, 8, 1, 16}, true},
        {"maxComputeInvocationsPerWorkgroup", 127, {16, 8, 1, 16}, false},
        {"maxComputeWorkgroupStorageSize", 1024, {8, 8, 1, 16}, true},
        {"maxComputeWorkgroupStorageSize", 1024, {8, 8, 1, 17}, false},
        {"maxStorageBuffersPerShaderStage", 2, {8, 8, 1, 16}, true},
        {"maxStorageBuffersPerShaderStage", 1, {8, 8, 1, 16}, false},
    };
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        gpu_device *device = open_limited(rows[i].limit, rows[i].value);
        gpu_pipeline_get(device, &tile, rows[i].options);
        if (rows[i].fits)
            assert_ok(gpu_pipelines_wait(device, err));
        else
            assert_fails(gpu_pipelines_wait(device, err), TEMPER_UNSUPPORTED, rows[i].limit);
        gpu_device_release(device);
    }

    gpu_device *device = open_limited("maxComputeWorkgroupsPerDimension", 100);
    gpu_buffer *x = new_buffer(device, 1024, "x");
    const gpu_view views[] = {gpu_whole(x)};
    gpu_pipeline *pipeline = gpu_pipeline_get(device, &increment, NULL);
    gpu_recorder *rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, pipeline, views, NULL, 100, 1, 1);
    assert_ok(gpu_submit(rec, NULL, err));
    rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, pipeline, views, NULL, 101, 1, 1);
    assert_fails(gpu_submit(rec, NULL, err), TEMPER_BAD_ARGUMENT,
                 "maxComputeWorkgroupsPerDimension is 100");
    gpu_buffer_destroy(x);
    gpu_device_release(device);

    /* A larger alignment than any real device's. */
    device = open_limited("minStorageBufferOffsetAlignment", 1024);
    x = new_buffer(device, 4096, "x");
    pipeline = gpu_pipeline_get(device, &increment, NULL);
    rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, pipeline, (gpu_view[]){{x, 1024, 4}}, NULL, 1, 1, 1);
    assert_ok(gpu_submit(rec, NULL, err));
    rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, pipeline, (gpu_view[]){{x, 512, 4}}, NULL, 1, 1, 1);
    assert_fails(gpu_submit(rec, NULL, err), TEMPER_BAD_ARGUMENT,
                 "minStorageBufferOffsetAlignment");
    gpu_buffer_destroy(x);
    gpu_device_release(device);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void test_twenty_opens_and_closes(void **state)
{
    (void)state;
    const uint64_t host_before = mem_live_bytes();

    for (int i = 0; i < 20; i++) {
        gpu_device *device = open_device(&(gpu_device_desc){.guard = i % 2 == 1});
        gpu_buffer *x = new_buffer(device, 1 << 20, "x"), *y = new_buffer(device, 1 << 20, "y");
        float first = 0;

        gpu_recorder *rec = gpu_record_begin(device);
        record_affine(rec, gpu_pipeline_get(device, &affine, NULL), x, y,
                      (affine_params){.n = 100, .b = (float)i});
        assert_ok(gpu_submit(rec, NULL, err));
        read_view(device, (gpu_view){y, 0, 4}, &first);
        assert_float_equal(first, i, 0);
        assert_true(gpu_device_counters(device).live_bytes[GPU_PURPOSE_SCRATCH] >= 2 << 20);
        gpu_buffer_destroy(x);
        gpu_buffer_destroy(y);
        assert_int_equal(gpu_device_counters(device).live_bytes[GPU_PURPOSE_SCRATCH], 0);
        gpu_trim(device);
        assert_int_equal(gpu_device_counters(device).live_total, 0);
        assert_true(gpu_device_counters(device).peak_total >= 2 << 20);
        gpu_device_reset_peak(device);
        assert_int_equal(gpu_device_counters(device).peak_total, 0);
        gpu_device_release(device);
        assert_int_equal(mem_live_bytes(), host_before);
    }
}

static void test_references(void **state)
{
    (void)state;
    gpu_device *device = open_device(NULL);

    assert_ptr_equal(gpu_device_retain(device), device);
    gpu_device_release(device);
    assert_ok(gpu_device_status(device, err));
    gpu_buffer *left = new_buffer(device, 64, "left behind");
    assert_string_equal(gpu_buffer_label(left), "left behind");
    gpu_device_release(device);
    gpu_device_release(NULL);
}

static void test_two_devices_at_once(void **state)
{
    (void)state;
    gpu_device *a = open_device(NULL), *b = open_device(&(gpu_device_desc){.robust = true});
    gpu_buffer *x = new_buffer(a, 4, "x"), *y = new_buffer(b, 4, "y");
    uint32_t value = 0;

    assert_false(gpu_device_robust(a));
    assert_true(gpu_device_robust(b));
    for (int i = 0; i < 2; i++) {
        gpu_device *device = i == 0 ? a : b;
        gpu_recorder *rec = gpu_record_begin(device);
        gpu_record_dispatch(rec, gpu_pipeline_get(device, &poke, NULL),
                            (gpu_view[]){gpu_whole(i == 0 ? x : y)},
                            &(poke_params){0, (uint32_t)i + 40}, 1, 1, 1);
        assert_ok(gpu_submit(rec, NULL, err));
    }
    read_view(a, gpu_whole(x), &value);
    assert_int_equal(value, 40);
    gpu_buffer_destroy(x);
    gpu_device_release(a);
    read_view(b, gpu_whole(y), &value);
    assert_int_equal(value, 41);
    gpu_buffer_destroy(y);
    gpu_device_release(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adapters_are_listed_best_first),
        cmocka_unit_test(test_adapter_by_number_and_name),
        cmocka_unit_test(test_no_driver_is_an_error_with_advice),
        cmocka_unit_test(test_features_by_name),
        cmocka_unit_test(test_each_feature_can_be_taken_away),
        cmocka_unit_test(test_limits_by_name),
        cmocka_unit_test(test_default_limits_only),
        cmocka_unit_test(test_weight_larger_than_a_binding),
        cmocka_unit_test(test_buffer_limit_below_binding_limit),
        cmocka_unit_test(test_limits_below_the_defaults),
        cmocka_unit_test(test_twenty_opens_and_closes),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_two_devices_at_once),
    };
    return cmocka_run_group_tests(tests, print_adapter, NULL);
}
