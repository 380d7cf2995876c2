/*
 * embed.c - tools/embed: what it reads of a WGSL file, what it refuses with file and line, and what
 * it writes. The program is included with another name for its main; it exits on errors, so those
 * run in a child.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define main embed_main
#include "../../tools/embed.c"
#undef main

#include "gpu/kernel.h"

extern const gpu_kernel *const kernel_list[];

static char folder[] = "/tmp/temper-embed-XXXXXX";
static char path[7][64];

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    static const char *const names[] = {
        "sum.wgsl", "out.h", "out.c", "log", "pieces/one.wgsl", "pieces/two.wgsl", "pieces",
    };
    for (int i = 0; i < 7; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
    return mkdir(path[6], 0700);
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        unlink(path[i]);
    return rmdir(path[6]) == 0 ? rmdir(folder) : -1;
}

static void write_text_to(int which, const char *text)
{
    FILE *file = fopen(path[which], "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_text(const char *text)
{
    write_text_to(0, text);
}

static char *read_text(int which)
{
    size_t length;
    return read_file(path[which], &length);
}

/* Runs `embed kernels` on the text in a child; returns its exit code, stderr in path[3]. */
static int embed(const char *text)
{
    write_text(text);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (freopen(path[3], "wb", stderr) == NULL)
            _exit(99);
        char *args[] = {"embed", "kernels", path[1], path[2], path[0], NULL};
        embed_main(5, args);
        fflush(stderr);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define ENTRY "@compute @workgroup_size(64) fn main() {}\n"
#define X "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
#define PARAMS "@group(1) @binding(0) var<uniform> params: Params;\n"

static void reads_declarations(void **state)
{
    (void)state;
    const int code = embed(
        "/* nested /* comments */ hide: @group(0) @binding(7) */\n"
        "// option TILE = 4\n"
        "enable f16, subgroups;\n"
        "override LANES: u32 = 64u;\n"
        "// option LAST = 0x10\n"
        "struct Other { a: vec4<f32>, }\n"
        "struct Params { rows: u32, shift: i32, eps: f32, }\n"
        "@group(0) @binding(0) var<storage, read> x: array<vec4<f16>>;\n"
        "@group(0) @binding(1)\n var<storage, read_write> y : array< atomic<u32> > ;\n"
        "@group(0) @binding(2) var<storage, read> z: array<vec2u>;\n" PARAMS
        "const TEN = 10u; var<workgroup> tile: array<array<f32, {{TILE}}>, 4>;\n"
        "fn helper(a: u32) -> u32 { if (a > 1u) { return a; } return {{LAST}}u; }\n"
        "@compute @workgroup_size(LANES, 1) fn main(@builtin(workgroup_id) g: vec3<u32>) { }\n");
    char *log = read_text(3);
    if (code != 0)
        fail_msg("%s", log);
    free(log);
    char *header = read_text(1), *source = read_text(2);
    static const char *const in_header[] = {
        "struct kernel_sum_params {\n    uint32_t rows;\n    int32_t shift;\n    float eps;\n};",
        "gpu_view x; /* read */\n    gpu_view y; /* read_write */\n    gpu_view z; /* read */\n};",
        "uint32_t tile; /* default 4 */\n    uint32_t lanes; /* default 64 */",
        "uint32_t lanes; /* default 64 */\n    uint32_t last; /* default 16 */",
        "views->x, views->y, views->z",
    };
    for (uint32_t i = 0; i < sizeof in_header / sizeof *in_header; i++)
        assert_non_null(strstr(header, in_header[i]));
    static const char *const in_source[] = {
        "{\"x\", GPU_READ, 8},\n    {\"y\", GPU_READ_WRITE, 4},\n    {\"z\", GPU_READ, 8},",
        "{\"TILE\", false, 4u},\n    {\"LANES\", true, 64u},\n    {\"LAST\", false, 16u},",
        ".params_bytes = 12,",
        ".needs = GPU_FEATURE_F16 | GPU_FEATURE_SUBGROUPS,",
    };
    for (uint32_t i = 0; i < sizeof in_source / sizeof *in_source; i++)
        assert_non_null(strstr(source, in_source[i]));
    free(header);
    free(source);
}

static void refuses_with_file_and_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line, *message;
    } wrong[] = {
        {"\n@group(0) @binding(1) var<storage, read> x: array<f32>;\n" ENTRY,
         ":2:", "@binding(0) is next"},
        {X "\n@group(0) @binding(0) var<storage, read> y: array<f32>;\n" ENTRY,
         ":3:", "@binding(1) is next"},
        {"@group(0) @binding(0) var<storage> x: array<f32>;\n" ENTRY, ":1:", "expected `,`"},
        {"@group(0) @binding(0) var<storage, write> x: array<f32>;\n" ENTRY,
         ":1:", "expected `read`"},
        {"@group(0) @binding(0) var<storage, read> x: f32;\n" ENTRY, ":1:", "expected `array`"},
        {"@group(0) @binding(0) var<storage, read> x: array<vec3<f32>>;\n" ENTRY, ":1:", "vec3"},
        {"@group(2) @binding(0) var<storage, read> x: array<f32>;\n" ENTRY, ":1:", "only group 0"},
        {X "struct Params {\n a: vec2<f32>,\n}\n" PARAMS ENTRY, ":3:", "Params.a"},
        {X "struct Params { a: u32 }\n" ENTRY, ":4:", "go together"},
        {X PARAMS ENTRY, ":4:", "go together"},
        {X "struct Params {\n a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32, i: "
           "u32,\n"
           " j: u32, k: u32, l: u32, m: u32, n: u32, o: u32, p: u32,\n q: u32 }\n" PARAMS ENTRY,
         ":5:", "64 bytes"},
        {X "override SIZE: u32;\n" ENTRY, ":2:", "expected `=`"},
        {X "override SIZE: f32 = 1.0;\n" ENTRY, ":2:", "SIZE"},
        {X "override SIZE: u32 = 1; override SIZE: u32 = 2;\n" ENTRY,
         ":2:", "SIZE is declared twice"},
        {X "// option SIZE\n" ENTRY, ":2:", "SIZE"},
        {X "const A = {{SIZE}};\n" ENTRY, ":2:", "{{SIZE}}"},
        {X "// option SIZE = 1\nconst A = {{SIZE};\n" ENTRY, ":3:", "without }}"},
        {X "enable f64;\n" ENTRY, ":2:", "f64"},
        {X "/* no end\n" ENTRY, ":2:", "without an end"},
        {X "fn f() {\n" ENTRY, ":2:", "without an end"},
        {X "}\n" ENTRY, ":2:", "brace"},
        {X, ":2:", "fn main"},
        {X ENTRY ENTRY, ":3:", "one entry point"},
        {X "@compute @workgroup_size(1) fn other() {}\n", ":2:", "other"},
        {ENTRY, ":2:", "no storage binding"},
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int code = embed(wrong[i].text);
        char *log = read_text(3);
        if (code != 1 || strstr(log, "sum.wgsl") == NULL || strstr(log, wrong[i].line) == NULL ||
            strstr(log, wrong[i].message) == NULL)
            fail_msg("case %u: code %d, \"%s\" has no %s or \"%s\"", i, code, log, wrong[i].line,
                     wrong[i].message);
        free(log);
    }
}

/* Bindings, options and needs of a piece are the kernel's; the text holds both. */
static void expands_pieces(void **state)
{
    (void)state;
    write_text_to(4, "// The first.\n" X "override WIDE: u32 = 3;\n");
    write_text_to(5, "// option MANY = 5\nfn many() -> u32 { return {{MANY}}u; }\n");
    const int code = embed("enable f16;\n// use one\n// use two\n// a word on // use one\n"
                           "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n" ENTRY);
    char *log = read_text(3);
    if (code != 0)
        fail_msg("%s", log);
    free(log);
    char *header = read_text(1), *source = read_text(2);
    assert_non_null(strstr(header, "gpu_view x; /* read */\n    gpu_view y; /* read_write */\n"));
    assert_non_null(strstr(header, "uint32_t wide; /* default 3 */\n    uint32_t many; /* default "
                                   "5 */"));
    assert_non_null(strstr(source, "{\"x\", GPU_READ, 4},\n    {\"y\", GPU_READ_WRITE, 4},"));
    free(header);
    free(source);

    char *args[] = {"embed", "texts", path[6], path[0], NULL};
    assert_int_equal(embed_main(4, args), 0);
    char written[96];
    snprintf(written, sizeof written, "%s/sum.wgsl", path[6]);
    size_t length;
    char *text = read_file(written, &length);
    assert_string_equal(text,
                        "enable f16;\n// use one\n// The first.\n" X
                        "override WIDE: u32 = 3;\n// use two\n// option MANY = 5\n"
                        "fn many() -> u32 { return 5u; }\n// a word on // use one\n"
                        "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n" ENTRY);
    free(text);
    unlink(written);
}

static void refuses_wrong_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *one, *two, *text, *place, *message;
    } wrong[] = {
        {"", "", X "// use three\n" ENTRY, "sum.wgsl:2:", "there is no piece"},
        {"", "", X "// use ../sum\n" ENTRY, "sum.wgsl:2:", "a name is expected"},
        {"", "", X "// use one two\n" ENTRY, "sum.wgsl:2:", "a line of its own"},
        {"// 1\n", "// 2\n", X "// use one\n// use two\n// use one\n" ENTRY,
         "sum.wgsl:4:", "one is used twice"},
        {"// 1\n// use two\n", "// 2\n", X "// use one\n" ENTRY, "one.wgsl", "uses no piece"},
        {"// use one\n", "", X "// use one\n" ENTRY, "one.wgsl", "uses no piece"},
        {"", "", X "// use one\n" ENTRY, "one.wgsl", "a line's end"},
        {"// 1", "", X "// use one\n" ENTRY, "one.wgsl", "a line's end"},
        /* Lines are counted in the file that has the mistake. */
        {"// 1\n// 2\noverride A: f32 = 1.0;\n", "// 2\n", X "// use two\n// use one\n" ENTRY,
         "one.wgsl:3:", "override A"},
        {"// 1\n// 2\n", "// 1\n// 2\n// 3\n",
         X "// use two\n// use one\noverride A: f32 = 1.0;\n" ENTRY, "sum.wgsl:4:", "override A"},
        {X, "// 2\n", X "// use one\n" ENTRY, "one.wgsl:1:", "@binding(1) is next"},
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_text_to(4, wrong[i].one);
        write_text_to(5, wrong[i].two);
        const int code = embed(wrong[i].text);
        char *log = read_text(3);
        if (code != 1 || strstr(log, wrong[i].place) == NULL ||
            strstr(log, wrong[i].message) == NULL)
            fail_msg("case %u: code %d, \"%s\" has no %s or \"%s\"", i, code, log, wrong[i].place,
                     wrong[i].message);
        free(log);
    }
}

static void embeds_bytes(void **state)
{
    (void)state;
    write_text("a\"\n\xff");
    char *args[] = {"embed", "bytes", path[2], "file_text", path[0], NULL};
    assert_int_equal(embed_main(5, args), 0);
    char *source = read_text(2);
    assert_non_null(strstr(source, "const unsigned char file_text[] = {\n97,34,10,255,0\n};"));
    assert_non_null(strstr(source, "const size_t file_text_size = 4;"));
    free(source);
}

/* The library's own kernels, as they came out of the build. */
static void kernels_keep_the_limits(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (; kernel_list[count] != NULL; count++) {
        const gpu_kernel *k = kernel_list[count];
        assert_true(count == 0 || strcmp(kernel_list[count - 1]->name, k->name) < 0);
        assert_true(k->params_bytes <= 64 && k->params_bytes % 4 == 0);
        assert_true(k->binding_count >= 1 && k->binding_count <= 8);
        assert_non_null(strstr(k->source, "// Reference: "));
        assert_non_null(strstr(k->source, "// Mapping: "));
        assert_non_null(strstr(k->source, "// Needs: "));
        assert_non_null(strstr(k->source, "// Why this version: "));
    }
    assert_true(count >= 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_declarations), cmocka_unit_test(refuses_with_file_and_line),
        cmocka_unit_test(expands_pieces),     cmocka_unit_test(refuses_wrong_pieces),
        cmocka_unit_test(embeds_bytes),       cmocka_unit_test(kernels_keep_the_limits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
