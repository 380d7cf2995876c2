/*
 * plain_matrix.c - see plain_matrix.h.
 *
 * 32 lanes hold a 16 by 16 matrix of sums: lane i the columns 8 (i % 2) .. of row i / 2. Operands
 * are read where they lie, when they are multiplied; nothing is written there in between.
 */
#include "check/plain_matrix.h"

#include <string.h>

#include "kernels/kernels.gen.h"

enum { SOURCE_BYTES = 1 << 16 };

/* The loop's end is none that a compiler knows: written out eight times, for every matrix of a
 * tile, its body takes a software device's compiler half a minute. */
static const char plain_code[] =
    "var<private> own_lane: u32;\n"
    "struct Left { at: u32 }\n"
    "struct Right { at: u32 }\n"
    "struct Result { low: vec4<f{{RESULT_BITS}}>, high: vec4<f{{RESULT_BITS}}> }\n"
    "fn left_of_tile(at: u32) -> Left { return Left(at); }\n"
    "fn left_of_x(at: u32) -> Left { return Left(at); }\n"
    "fn right_of_tile(at: u32) -> Right { return Right(at); }\n"
    "fn wide(pair: u32) -> vec2<f32> { return vec2<f32>(bitcast<vec2<f16>>(pair)); }\n"
    "fn product(a: vec4<u32>, b: vec4<u32>) -> f32 {\n"
    "    return dot(wide(a.x), wide(b.x)) + dot(wide(a.y), wide(b.y)) +\n"
    "           dot(wide(a.z), wide(b.z)) + dot(wide(a.w), wide(b.w));\n"
    "}\n"
    "fn left_words(at: u32, half: u32) -> vec4<u32> {\n"
    "    if (STAGE_X == 1u) { return tile[at + own_lane / 2u * PITCH + half]; }\n"
    "    return x[at + own_lane / 2u * 4u + half];\n"
    "}\n"
    "fn multiply(left: Left, right: Right, sum: Result) -> Result {\n"
    "    var v = array<f32, 8>();\n"
    "    let first = left_words(left.at, 0u);\n"
    "    let second = left_words(left.at, 1u);\n"
    "    let end = select(8u, 7u, params.k == 0u);\n"
    "    for (var i = 0u; i < end; i++) {\n"
    "        let at = right.at + (own_lane % 2u * 8u + i) * PITCH;\n"
    "        v[i] = product(first, tile[at]) + product(second, tile[at + 1u]);\n"
    "    }\n"
    "    return Result(sum.low + vec4<f{{RESULT_BITS}}>(vec4<f32>(v[0], v[1], v[2], v[3])),\n"
    "                  sum.high + vec4<f{{RESULT_BITS}}>(vec4<f32>(v[4], v[5], v[6], v[7])));\n"
    "}\n"
    "fn store(at: u32, sum: Result) {\n"
    "    let low = vec4<f16>(sum.low);\n"
    "    let high = vec4<f16>(sum.high);\n"
    "    if ({{RESULT_BITS}}u == 16u) {\n"
    "        tile[at + own_lane / 2u * STRIP_PITCH + own_lane % 2u] =\n"
    "            vec4<u32>(bitcast<vec2<u32>>(low), bitcast<vec2<u32>>(high));\n"
    "        return;\n"
    "    }\n"
    "    let to = at + own_lane / 2u * STRIP_PITCH + own_lane % 2u * 2u;\n"
    "    tile[to] = bitcast<vec4<u32>>(vec4<f32>(sum.low));\n"
    "    tile[to + 1u] = bitcast<vec4<u32>>(vec4<f32>(sum.high));\n"
    "}\n";

/* Replaces what begins with `from`, up to and with `to`; false where either is not there. */
static bool replace(char text[SOURCE_BYTES], const char *from, const char *to, const char *by)
{
    char *begin = strstr(text, from);
    char *last = begin != NULL ? strstr(begin, to) : NULL;
    if (last == NULL)
        return false;
    char *end = last + strlen(to);
    const size_t rest = strlen(end) + 1, length = strlen(by);
    if ((size_t)(begin - text) + length + rest > SOURCE_BYTES)
        return false;
    memmove(begin + length, end, rest);
    memcpy(begin, by, length);
    return true;
}

static bool make_plain(char text[SOURCE_BYTES], const char *source)
{
    if (strlen(source) >= SOURCE_BYTES)
        return false;
    strcpy(text, source);
    const char *lane = "let subgroup = thread / 32u;\n";
    return replace(text, "diagnostic(off", "\n", "") &&
           replace(text, "enable subgroups", "\n", "") &&
           replace(text, "enable chromium_experimental_subgroup_matrix", "\n", "") &&
           replace(text, "// Matrices: from here", "// Matrices: to here.\n", plain_code) &&
           replace(text, lane, lane,
                   "let subgroup = thread / 32u;\n    own_lane = thread % 32u;\n");
}

static bool make_source(char text[SOURCE_BYTES], bool wrong)
{
    return make_plain(text, kernel_product_matrix.source) &&
           (!wrong || replace(text, "if (STEP == 1u ||", "block < end) {",
                              "if (block < end && (step > 0u || steps == 1u)) {"));
}

const op_kernel_row *check_plain_row(int tile, bool half_sums, bool wrong)
{
    static const char *const names[OP_TILES] = {[OP_TILE_128] = "plain_128",
                                                [OP_TILE_64] = "plain_64",
                                                [OP_TILE_32] = "plain_32",
                                                [OP_TILE_16] = "plain_16",
                                                [OP_TILE_16_DEEP] = "plain_16_deep"};
    static char sources[2][SOURCE_BYTES];
    static gpu_kernel kernels[2];
    static op_kernel_row rows[2][2][OP_TILES];
    static op_tile tiles[OP_TILES];
    gpu_kernel *kernel = &kernels[wrong];
    if (kernel->source == NULL) {
        if (!make_source(sources[wrong], wrong))
            return NULL;
        *kernel = kernel_product_matrix;
        kernel->name = wrong ? "product_plain_wrong" : "product_plain";
        kernel->source = sources[wrong];
        kernel->needs = GPU_FEATURE_F16;
    }
    tiles[tile] = op_tiles[tile];
    if (tile == OP_TILE_16_DEEP)
        tiles[tile].teams /= 2; /* so that 32 KiB of workgroup memory will do */
    op_kernel_row *row = &rows[wrong][half_sums][tile];
    *row = (op_kernel_row){.name = names[tile],
                           .kernel = kernel,
                           .invocations = op_tile_lanes(&tiles[tile]),
                           .workgroup_memory = op_tile_memory(&tiles[tile]),
                           .lossy = half_sums ? OP_OPENED_BY(TEMPER_LOSSY_F16_SUMS) : 0,
                           .tile = &tiles[tile]};
    return row;
}

/* Of product_few: sums are f32, x is never staged. */
static bool make_few_source(char text[SOURCE_BYTES])
{
    bool more = make_plain(text, kernel_product_few.source) &&
                replace(text, "if (STAGE_X == 1u)", "}\n", "") &&
                replace(text, "if ({{RESULT_BITS}}u == 16u)", "}\n", "");
    while (more && strstr(text, "{{RESULT_BITS}}") != NULL)
        more = replace(text, "{{RESULT_BITS}}", "}}", "32");
    return more;
}

const op_kernel_row *check_plain_few(void)
{
    static char source[SOURCE_BYTES];
    static gpu_kernel kernel;
    static op_kernel_row row;
    if (kernel.source == NULL) {
        if (!make_few_source(source))
            return NULL;
        kernel = kernel_product_few;
        kernel.name = "product_few_plain";
        kernel.source = source;
        kernel.needs = GPU_FEATURE_F16;
        row = (op_kernel_row){.name = "plain_few",
                              .kernel = &kernel,
                              .invocations = op_tile_lanes(&op_tile_few),
                              .workgroup_memory = op_tile_memory(&op_tile_few),
                              .tile = &op_tile_few};
    }
    return &row;
}

/* ---- entries alone --------------------------------------------------------------------------- */

static const char entries_head[] =
    "enable f16;\n"
    "struct Params { k: u32, stride: u32 }\n"
    "@group(0) @binding(3) var<storage, read_write> out: array<vec4<u32>>;\n"
    "@group(1) @binding(0) var<uniform> params: Params;\n";

static const char entries_main[] =
    "@compute @workgroup_size(64)\n"
    "fn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
    "    let to = 4u * (id.y * params.stride + id.x);\n"
    "    for (var i = 0u; LAYOUT < LAYOUT_Q8 && i < 4u; i++) {\n"
    "        out[to + i] = quarter_pairs(weight_quarter(id.x, id.y, i));\n"
    "    }\n"
    "    if (LAYOUT < LAYOUT_Q8) {\n"
    "        return;\n"
    "    }\n"
    "    let entry = weight_entry(id.x, id.y);\n"
    "    for (var i = 0u; i < 4u; i++) {\n"
    "        out[to + i] = entry_pairs(entry, id.x, i);\n"
    "    }\n"
    "}\n";

static const gpu_kernel_binding entries_bindings[] = {{"data", GPU_READ, 16},
                                                      {"high_bits", GPU_READ, 4},
                                                      {"scales", GPU_READ, 4},
                                                      {"out", GPU_READ_WRITE, 16}};
static const gpu_kernel_option entries_options[] = {
    {"LAYOUT", true, 4}, {"SCALE", true, 1}, {"GROUP", true, 32}};

const gpu_kernel *check_entries_kernel(void)
{
    static char text[SOURCE_BYTES];
    static const gpu_kernel kernel = {.name = "weight_entries",
                                      .source = text,
                                      .bindings = entries_bindings,
                                      .binding_count = 4,
                                      .params_bytes = 8,
                                      .options = entries_options,
                                      .option_count = 3,
                                      .needs = GPU_FEATURE_F16};
    const char *begin = strstr(kernel_product_matrix.source, "// use weight\n");
    const char *end = begin != NULL ? strstr(begin, "@group(0) @binding(3)") : NULL;
    if (end == NULL ||
        sizeof entries_head + (size_t)(end - begin) + sizeof entries_main > sizeof text)
        return NULL;
    strcpy(text, entries_head);
    strncat(text, begin, (size_t)(end - begin));
    strcat(text, entries_main);
    return &kernel;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Queries stay while their place in memory is used again, so a lane keeps its row of them; K and V
 * are read where they lie. */
static const char plain_attention[] =
    "var<private> own_lane: u32;\n"
    "struct Left { low: vec4<u32>, high: vec4<u32> }\n"
    "struct Right { at: u32, by_row: bool }\n"
    "struct Result { low: vec4<f32>, high: vec4<f32> }\n"
    "fn left_of_strip(at: u32) -> Left {\n"
    "    let row = at + own_lane / 2u * STRIP_PITCH;\n"
    "    return Left(tile[row], tile[row + 1u]);\n"
    "}\n"
    "fn keys(at: u32) -> Right { return Right(at, false); }\n"
    "fn values(at: u32) -> Right { return Right(at, true); }\n"
    "fn product(a: vec4<u32>, b: vec4<u32>) -> f32 {\n"
    "    return dot(unpack2x16float(a.x), unpack2x16float(b.x)) +\n"
    "           dot(unpack2x16float(a.y), unpack2x16float(b.y)) +\n"
    "           dot(unpack2x16float(a.z), unpack2x16float(b.z)) +\n"
    "           dot(unpack2x16float(a.w), unpack2x16float(b.w));\n"
    "}\n"
    "fn multiply(left: Left, right: Right, sum: Result) -> Result {\n"
    "    var l = left;\n"
    "    var s = sum;\n"
    "    let end = select(16u, 15u, params.rows == 0u);\n"
    "    if (!right.by_row) {\n"
    "        for (var i = 0u; i < end; i++) {\n"
    "            let at = right.at + (own_lane % 2u * 8u + i / 2u) * PITCH + i % 2u;\n"
    "            s.low.x += product(l.low, tile[at]);\n"
    "            l = Left(l.high, l.low);\n"
    "            if (i % 2u == 1u) {\n"
    "                s = Result(vec4<f32>(s.low.yzw, s.high.x), vec4<f32>(s.high.yzw, s.low.x));\n"
    "            }\n"
    "        }\n"
    "        return s;\n"
    "    }\n"
    "    for (var i = 0u; i < end; i++) {\n"
    "        let word = tile[right.at + i * PITCH + own_lane % 2u];\n"
    "        let pair = unpack2x16float(l.low.x);\n"
    "        let weight = select(pair.x, pair.y, i % 2u == 1u);\n"
    "        s.low += weight * of_halves(word.xy);\n"
    "        s.high += weight * of_halves(word.zw);\n"
    "        if (i % 2u == 1u) {\n"
    "            l = Left(vec4<u32>(l.low.yzw, l.high.x), vec4<u32>(l.high.yzw, l.low.x));\n"
    "        }\n"
    "    }\n"
    "    return s;\n"
    "}\n"
    "fn store(at: u32, sum: Result) {\n"
    "    let to = at + own_lane / 2u * STRIP_PITCH + own_lane % 2u * 2u;\n"
    "    tile[to] = bitcast<vec4<u32>>(sum.low);\n"
    "    tile[to + 1u] = bitcast<vec4<u32>>(sum.high);\n"
    "}\n"
    "fn load(at: u32) -> Result {\n"
    "    let row = at + own_lane / 2u * STRIP_PITCH + own_lane % 2u * 2u;\n"
    "    return Result(bitcast<vec4<f32>>(tile[row]), bitcast<vec4<f32>>(tile[row + 1u]));\n"
    "}\n";

static bool make_attention(char text[SOURCE_BYTES], check_plain_kind kind)
{
    const char *source = kernel_attention_matrix.source;
    if (strlen(source) >= SOURCE_BYTES)
        return false;
    strcpy(text, source);
    const char *lane = "let subgroup = thread / 32u;\n", *half = "tile[part + 1u] = p1;\n";
    return replace(text, "diagnostic(off", "\n", "") && replace(text, "enable f16", "\n", "") &&
           replace(text, "enable subgroups", "\n", "enable subgroups;\n") &&
           replace(text, "enable chromium_experimental_subgroup_matrix", "\n", "") &&
           replace(text, "// Matrices: from here", "// Matrices: to here.\n", plain_attention) &&
           replace(text, lane, lane,
                   "let subgroup = thread / 32u;\n    own_lane = thread % 32u;\n") &&
           (kind != CHECK_PLAIN_WRONG ||
            replace(text, half, half, "tile[part + 1u] = vec4<u32>(0u);\n")) &&
           (kind != CHECK_PLAIN_BROKEN ||
            replace(text, half, half, "tile[part + 1u] = missing;\n"));
}

const op_kernel_row *check_plain_attention(check_plain_kind kind)
{
    static const char *const names[CHECK_PLAIN_KINDS] = {
        [CHECK_PLAIN_RIGHT] = "attention_plain",
        [CHECK_PLAIN_WRONG] = "attention_plain_wrong",
        [CHECK_PLAIN_BROKEN] = "attention_plain_broken",
    };
    static char sources[CHECK_PLAIN_KINDS][SOURCE_BYTES];
    static gpu_kernel kernels[CHECK_PLAIN_KINDS];
    static op_kernel_row rows[CHECK_PLAIN_KINDS];
    gpu_kernel *kernel = &kernels[kind];
    if (kernel->source == NULL) {
        if (!make_attention(sources[kind], kind))
            return NULL;
        *kernel = kernel_attention_matrix;
        kernel->name = names[kind];
        kernel->source = sources[kind];
        kernel->needs = GPU_FEATURE_SUBGROUPS;
    }
    rows[kind] = (op_kernel_row){.name = "plain_attention",
                                 .kernel = kernel,
                                 .invocations = 256,
                                 .workgroup_memory = 20 << 10};
    return &rows[kind];
}
