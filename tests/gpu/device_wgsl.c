/*
 * device_wgsl.c - what the gpu room does to kernels as text, and what it reads out of them. Needs
 * no device.
 */
#include "device_common.h"

#include "gpu/wgsl.h"

/* ---- options and parameters ----------------------------------------------------------------- */

static const gpu_kernel_option options[] = {
    {"N", false, 4}, {"W", true, 8}, {"LONG_NAME", false, 0}};

static gpu_kernel kernel_of(const char *source, uint32_t params_bytes)
{
    return (gpu_kernel){.name = "probe",
                        .source = source,
                        .params_bytes = params_bytes,
                        .options = options,
                        .option_count = COUNT(options)};
}

#define DIRECTIVE "requires immediate_address_space; "
#define PARAMS "@group(1) @binding(0) var<uniform> params: Params;"

static void test_prepare(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        uint32_t params_bytes;
        const char *immediates;
        const char *wanted; /* NULL: refused, and `wrong` says why */
        const char *wrong;
    } rows[] = {
        {"a", 0, NULL, "a", NULL},
        {"a", 0, DIRECTIVE, "a", NULL},
        {"{{N}}", 0, NULL, "17", NULL},
        {"x{{N}}{{N}}y\n{{LONG_NAME}}", 0, NULL, "x1717y\n4294967295", NULL},
        {"{ { {N} } }", 0, NULL, "{ { {N} } }", NULL},
        {"{{M}}", 0, NULL, NULL, "{{M}}"},
        {"{{N}", 0, NULL, NULL, "{{"},
        {"{{W}}", 0, NULL, NULL, "{{W}}"},
        {PARAMS, 8, NULL, PARAMS, NULL},
        {PARAMS, 8, DIRECTIVE, DIRECTIVE "var<immediate> params: Params;", NULL},
        {PARAMS, 8, "", "var<immediate> params: Params;", NULL},
        {"// first\n  " PARAMS "\nb", 8, DIRECTIVE,
         DIRECTIVE "// first\n  var<immediate> params: Params;\nb", NULL},
        {"// " PARAMS "\n" PARAMS, 8, DIRECTIVE,
         DIRECTIVE "// " PARAMS "\nvar<immediate> params: Params;", NULL},
        {"a", 8, NULL, NULL, "missing"},
        {"// " PARAMS, 8, NULL, NULL, "missing"},
        {PARAMS, 0, NULL, NULL, "is there"},
        {"", 0, NULL, "", NULL},
    };
    const uint32_t values[] = {17, 99, UINT32_MAX};

    for (uint32_t i = 0; i < COUNT(rows); i++) {
        const gpu_kernel kernel = kernel_of(rows[i].source, rows[i].params_bytes);
        strbuf out = {0};
        if (rows[i].wanted != NULL) {
            assert_ok(wgsl_prepare(&kernel, values, rows[i].immediates, &out, err));
            assert_string_equal(strbuf_text(&out), rows[i].wanted);
        } else {
            assert_fails(wgsl_prepare(&kernel, values, rows[i].immediates, &out, err),
                         TEMPER_INTERNAL, rows[i].wrong);
        }
        strbuf_free(&out);
    }
}

/* ---- bindings ------------------------------------------------------------------------------- */

#define X_READ "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
#define X_WRITE "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n"
#define Y_WRITE "@binding(1) @group(0) var<storage, read_write> y: array<f32>;\n"

static void test_bindings(void **state)
{
    (void)state;
    static const gpu_kernel_binding read_write[] = {{"x", GPU_READ, 4}, {"y", GPU_READ_WRITE, 4}};
    static const struct {
        const char *source;
        const char *wrong;
    } rows[] = {
        {X_READ Y_WRITE, NULL},
        {Y_WRITE X_READ, NULL},
        {"@group(0) @binding(0) var<storage> x: array<f32>;" Y_WRITE, NULL},
        {"// " X_WRITE X_READ Y_WRITE PARAMS, NULL},
        {"/* /* " X_WRITE " */ */" X_READ "fn f() { var a = 1; }" Y_WRITE, NULL},
        {X_WRITE Y_WRITE, "not read"},
        {X_READ "@group(0) @binding(1) var<storage, read> y: array<f32>;", "not read_write"},
        {X_READ "@group(0) @binding(1) var<storage> y: array<f32>;", "not read_write"},
        {X_READ "@group(0) @binding(1) var<storage, read_write> z: array<f32>;", "another"},
        {X_READ "@group(0) @binding(2) var<storage, read_write> y: array<f32>;", "missing"},
        {X_READ "@group(0) @binding(1) var<uniform> y: array<f32>;", "no storage"},
        {X_READ, "1 storage bindings"},
        {"", "0 storage bindings"},
    };
    gpu_kernel kernel = kernel_of("", 0);

    kernel.bindings = read_write;
    kernel.binding_count = 2;
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        if (rows[i].wrong == NULL)
            assert_ok(wgsl_check_bindings(&kernel, rows[i].source, err));
        else
            assert_fails(wgsl_check_bindings(&kernel, rows[i].source, err), TEMPER_INTERNAL,
                         rows[i].wrong);
    }
}

/* ---- workgroups ----------------------------------------------------------------------------- */

#define PARENTHESES "((((((((((((((((((((((((("
#define MAIN "@compute @workgroup_size(1) fn main() {}"

static void test_measure(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        uint32_t x, y, z; /* x 0: refused */
        uint32_t memory;
    } rows[] = {
        {"@compute @workgroup_size(64) fn main() {}", 64, 1, 1, 0},
        {"@compute @workgroup_size(8, 4, 2,) fn main() {}", 8, 4, 2, 0},
        {"@workgroup_size(0x10u, 2i) @compute fn main() {}", 16, 2, 1, 0},
        {"override W: u32 = 64; @compute @workgroup_size(W) fn main() {}", 99, 1, 1, 0},
        {"@id(3) override W = 64; @compute @workgroup_size(W * 2) fn main() {}", 198, 1, 1, 0},
        {"override V: u32 = W + 1; override W: u32; @compute @workgroup_size(V) fn main() {}", 100,
         1, 1, 0},
        {"const A = 2 + 3 * 4; @compute @workgroup_size(A) fn main() {}", 14, 1, 1, 0},
        {"const A = (2 + 3) * 4 - 6 / 2 % 2; @compute @workgroup_size(A) fn main() {}", 19, 1, 1,
         0},
        {"const A = 1 << 4 | 64 >> 3 & 12; @compute @workgroup_size(A) fn main() {}", 24, 1, 1, 0},
        {"const A = min(W, 5) + max(2u, 3u) + u32(1); override W: u32 = 2;"
         "@compute @workgroup_size(A) fn main() {}",
         9, 1, 1, 0},
        {"var<workgroup> a: u32;" MAIN, 1, 1, 1, 16},
        {"var<workgroup> a: array<f32, 256>; var<workgroup> b: array<f16, 3>;" MAIN, 1, 1, 1, 1040},
        {"var<workgroup> a: array<vec3<f32>, 5>;" MAIN, 1, 1, 1, 80},
        {"var<workgroup> a: array<vec4h, 5>;" MAIN, 1, 1, 1, 48},
        {"var<workgroup> a: array<array<vec2<f32>, 3>, 4>;" MAIN, 1, 1, 1, 96},
        {"var<workgroup> a: array<atomic<u32>, (8 >> 1) + 1,>;" MAIN, 1, 1, 1, 32},
        {"var<workgroup> a: mat4x3<f32>;" MAIN, 1, 1, 1, 64},
        {"var<workgroup> a: mat2x2h;" MAIN, 1, 1, 1, 16},
        {"struct S { a: f32, b: vec3<f32>, c: f16, }; var<workgroup> s: array<S, 2>;" MAIN, 1, 1, 1,
         64},
        {"alias T = array<f32, N>; const N = 6; var<workgroup> t: T;" MAIN, 1, 1, 1, 32},
        {"fn f() { const A = 1; var x = A; } const A = 2; @compute @workgroup_size(A) fn main() {}",
         2, 1, 1, 0},
        {"// var<workgroup> a: u32;\n/* @workgroup_size(9) */" MAIN, 1, 1, 1, 0},
        /* What cannot be worked out is refused. */
        {"", 0, 0, 0, 0},
        {"@compute @workgroup_size(B) fn main() {}", 0, 0, 0, 0},
        {"@compute @workgroup_size(1 / 0) fn main() {}", 0, 0, 0, 0},
        {"@compute @workgroup_size(0) fn main() {}", 0, 0, 0, 0},
        {"@compute @workgroup_size(1 - 2) fn main() {}", 0, 0, 0, 0},
        {"@compute @workgroup_size(1.5) fn main() {}", 0, 0, 0, 0},
        {"const A = A; @compute @workgroup_size(A) fn main() {}", 0, 0, 0, 0},
        {"const A = B; const B = A; @compute @workgroup_size(A) fn main() {}", 0, 0, 0, 0},
        {"const A = 65536 * 65536 * 65536; @compute @workgroup_size(A) fn main() {}", 0, 0, 0, 0},
        {"alias T = T; var<workgroup> t: T;" MAIN, 0, 0, 0, 0},
        {"var<workgroup> a: array<f32>;" MAIN, 0, 0, 0, 0},
        {"var<workgroup> a: array<f32, 0>;" MAIN, 0, 0, 0, 0},
        {"var<workgroup> a: mystery;" MAIN, 0, 0, 0, 0},
        {"struct S { @align(32) a: f32 }; var<workgroup> s: S;" MAIN, 0, 0, 0, 0},
        {"var<workgroup> a: array<f32, " PARENTHESES PARENTHESES PARENTHESES PARENTHESES, 0, 0, 0,
         0},
    };
    const uint32_t values[] = {17, 99, 0};
    const gpu_kernel kernel = kernel_of("", 0);

    for (uint32_t i = 0; i < COUNT(rows); i++) {
        wgsl_workgroup group;
        if (rows[i].x == 0) {
            assert_fails(wgsl_measure(&kernel, rows[i].source, values, &group, err),
                         TEMPER_UNSUPPORTED, "probe");
            continue;
        }
        assert_ok(wgsl_measure(&kernel, rows[i].source, values, &group, err));
        if (group.size[0] != rows[i].x || group.size[1] != rows[i].y ||
            group.size[2] != rows[i].z || group.memory != rows[i].memory)
            fail_msg("\"%s\": %u x %u x %u, %u bytes", rows[i].source, (unsigned)group.size[0],
                     (unsigned)group.size[1], (unsigned)group.size[2], (unsigned)group.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_bindings),
        cmocka_unit_test(test_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
