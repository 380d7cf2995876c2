/*
 * files.c - model files right and wrong: `temper inspect` shows what is in one, and what cannot be
 * read or run is refused with its name and the reason.
 */
#include "support/gguf_build.h"
#include "support/program.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- copies of a tiny model with a few bytes changed ---------------------------------------- */

typedef struct copy {
    char *bytes;
    size_t length;
} copy;

static copy copy_of(const char *path)
{
    copy c = {0};
    c.bytes = program_read(path, &c.length);
    return c;
}

/* What follows the name in the file's directory. */
static char *after(const copy *c, const char *name)
{
    const char *found = program_find(c->bytes, c->length, name);
    assert_non_null(found);
    return c->bytes + (found - c->bytes) + strlen(name);
}

static const char *store(copy *c, const char *name)
{
    const char *path = program_file(name, c->bytes, c->length);
    free(c->bytes);
    return path;
}

/* A copy whose key has another value of four bytes, behind its type. */
static const char *with_value(const char *name, const char *key, const void *value)
{
    copy c = copy_of(TINY("q8_0"));
    memcpy(after(&c, key) + 4, value, 4);
    return store(&c, name);
}

static const char *with_float(const char *name, const char *key, float value)
{
    return with_value(name, key, &value);
}

static const char *with_u32(const char *name, const char *key, uint32_t value)
{
    return with_value(name, key, &value);
}

/* The call, inspect and tokenize among them, refuses the file by its name. */
static void assert_not_run(const char *path, const char *why)
{
    const char *const parts[] = {path, why, NULL};
    program_refuses(&(program_call){.args = ARGS("run", path, "--raw", "-p", "T", "-n", "2")}, 1,
                    parts);
    program_refuses(&(program_call){.args = ARGS("run", path, "--raw", "-p", "T", "--json")}, 1,
                    parts);
    program_refuses(&(program_call){.args = ARGS("eval", "next", path, "-p", "T", "--json")}, 1,
                    parts);
}

static void assert_not_read(const char *path, const char *why)
{
    const char *const parts[] = {path, why, NULL};
    assert_not_run(path, why);
    program_refuses(&(program_call){.args = ARGS("inspect", path)}, 1, parts);
    program_refuses(&(program_call){.args = ARGS("inspect", path, "--json")}, 1, parts);
    program_refuses(&(program_call){.args = ARGS("tokenize", path, "-p", "T", "--json")}, 1, parts);
}

/* ---- good files ----------------------------------------------------------------------------- */

static void inspect_shows_a_file(void **state)
{
    static const char *const fields[] = {"format",     "architecture", "bytes",   "alignment",
                                         "parameters", "metadata",     "tensors", "memory"};
    (void)state;
    json_t *result = program_json(ARGS("inspect", TINY("q4_1"), "--json", "--ctx", "512"));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        assert_non_null(json_object_get(result, fields[i]));
    assert_string_equal(json_string_value(json_object_get(result, "format")), "GGUF v3");
    assert_string_equal(json_string_value(json_object_get(result, "architecture")), "llama");
    struct stat status;
    assert_int_equal(stat(TINY("q4_1"), &status), 0);
    assert_int_equal(json_integer_value(json_object_get(result, "bytes")), status.st_size);
    const json_t *values = json_object_get(result, "metadata");
    assert_int_equal(json_integer_value(json_object_get(values, "llama.block_count")), 2);
    const json_t *tensor = json_array_get(json_object_get(result, "tensors"), 0);
    assert_non_null(json_object_get(tensor, "name"));
    assert_non_null(json_object_get(tensor, "type"));
    assert_true(json_is_array(json_object_get(tensor, "shape")));
    assert_true(json_is_true(json_object_get(tensor, "loadable")));
    const json_t *memory = json_object_get(result, "memory");
    assert_int_equal(json_integer_value(json_object_get(memory, "context")), 512);
    assert_int_equal(json_integer_value(json_object_get(memory, "total")),
                     json_integer_value(json_object_get(memory, "weights")) +
                         json_integer_value(json_object_get(memory, "cache")) +
                         json_integer_value(json_object_get(memory, "scratch")));
    /* Two blocks of 256 positions, whose table has 8 bytes; half as much in f16. */
    json_t *half =
        program_json(ARGS("inspect", TINY("q4_1"), "--json", "--ctx", "512", "--kv", "f16"));
    assert_int_equal(
        json_integer_value(json_object_get(memory, "cache")) - 8,
        2 * (json_integer_value(json_object_get(json_object_get(half, "memory"), "cache")) - 8));
    json_decref(half);
    assert_true(json_is_string(json_object_get(memory, "device")));
    json_decref(result);
    assert_refuses(1, "no-such-adapter", "inspect", TINY("q4_1"), "--device", "no-such-adapter");
    program_result r = program_run(ARGS("inspect", TINY("q4_1")));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "llama.block_count"));
    assert_non_null(strstr(r.out, "token_embd.weight"));
    assert_non_null(strstr(r.out, "device memory with a context of 4096"));
    assert_int_equal(r.err_length, 0);
    program_free(&r);
}

/* Names and values from a hostile file reach the terminal escaped, each on its own line. */
static void inspect_escapes_what_it_shows(void **state)
{
    (void)state;
    strbuf file = {0};
    gguf_put_header(&file, "GGUF", 3, 1, 3);
    gguf_put_key(&file, "general.architecture", GGUF_STRING);
    gguf_put_string(&file, "a\033[31mb\nc\xff");
    gguf_put_key(&file, "key\033]0;title\007\nnext", GGUF_STRING);
    gguf_put_string(&file, "value\033[2J\nsecond\xc3");
    gguf_put_key(&file, "not.a.number", GGUF_FLOAT32);
    gguf_put_f32(&file, NAN);
    gguf_put_tensor(&file, "w\033[31m\nx", 1, (const uint64_t[]){8}, 0, 0);
    gguf_put_padding(&file, 32);
    for (int i = 0; i < 8; i++)
        gguf_put_f32(&file, 1.0f);
    const char *path = program_file("escapes.gguf", file.data, file.length);
    strbuf_free(&file);
    program_result r = program_run(ARGS("inspect", path));
    assert_int_equal(r.code, 0);
    for (size_t i = 0; i < r.out_length;) {
        char unit[ESCAPE_UNIT_BYTES];
        size_t length = 0;
        const size_t taken = escape_next(r.out + i, r.out_length - i, unit, &length);
        assert_int_equal(taken, length);
        assert_memory_equal(unit, r.out + i, length);
        i += taken;
    }
    assert_non_null(strstr(r.out, "\\x1b]0;title\\x07\\nnext"));
    assert_non_null(strstr(r.out, "w\\x1b[31m\\nx"));
    program_free(&r);
    json_t *result = program_json(ARGS("inspect", path, "--json"));
    assert_true(
        json_is_string(json_object_get(json_object_get(result, "metadata"), "not.a.number")));
    json_decref(result);
    assert_refuses(1, path, "run", path, "-p", "x");
}

/* ---- files that are none -------------------------------------------------------------------- */

static void what_is_no_model_file(void **state)
{
    (void)state;
    const char *folder = program_path("folder");
    mkdir(folder, 0700);
    const char *pipe = program_path("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_not_read("/nowhere/model.gguf", "No such file");
    assert_not_read(folder, "irectory");
    assert_not_read(pipe, "pipe"); /* and does not wait for somebody to write */
    assert_not_read("/dev/null", "not a regular file");
    assert_not_read(program_file("empty.gguf", "", 0), "");
    assert_not_read(program_file("text.gguf", "# Not a model\nbut a text.\n", 26), "GGUF");
    assert_not_read(program_file("magic.gguf", "GGUF", 4), "");
    assert_not_read(program_file("short.gguf", "GGU", 3), "");
    assert_not_read("", "");
    const char *secret = program_file("secret.gguf", "GGUF", 4);
    chmod(secret, 0);
    if (geteuid() != 0) /* root may read everything */
        assert_not_read(secret, "Permission denied");
}

/* Cut anywhere: in the header, in the keys, in the directory, in the weights, one byte short. */
static void truncated_files(void **state)
{
    (void)state;
    copy whole = copy_of(TINY("f32"));
    const size_t lengths[] = {8, 23, 24, 100, 1000, whole.length / 2, whole.length - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        assert_not_read(program_file("cut.gguf", whole.bytes, lengths[i]), "");
    free(whole.bytes);
}

/* ---- files that contradict themselves ------------------------------------------------------- */

static void headers(void **state)
{
    (void)state;
    copy c = copy_of(TINY("f32"));
    c.bytes[4] = 9;
    assert_not_read(store(&c, "version.gguf"), "9");
    c = copy_of(TINY("f32"));
    memcpy(c.bytes + 4, "\0\0\0\3", 4);
    assert_not_read(store(&c, "big-endian.gguf"), "endian");
    c = copy_of(TINY("f32"));
    memset(c.bytes + 8, 0xff, 8); /* tensors */
    assert_not_read(store(&c, "tensors.gguf"), "");
    c = copy_of(TINY("f32"));
    memset(c.bytes + 16, 0xff, 8); /* keys */
    assert_not_read(store(&c, "keys.gguf"), "");
}

static void keys_and_names(void **state)
{
    (void)state;
    strbuf file = {0};
    gguf_put_header(&file, "GGUF", 3, 0, 2);
    gguf_put_key_u32(&file, "a.key", 1);
    gguf_put_key_u32(&file, "a.key", 1);
    const char *path = program_file("twice.gguf", file.data, file.length);
    strbuf_free(&file);
    assert_not_read(path, "a.key");
    copy c = copy_of(TINY("f32"));
    memcpy(after(&c, "blk.1.attn_norm.weigh") - 21 + 4, "0", 1);
    assert_not_read(store(&c, "two-tensors.gguf"), "blk.0.attn_norm.weight");
    /* The last 8 bytes of a tensor's row in the directory are its offset. */
    c = copy_of(TINY("f32"));
    char *offset = after(&c, "blk.1.attn_norm.weight") + 4 + 8 + 4;
    offset[0] = (char)(offset[0] + 4);
    assert_not_read(store(&c, "misaligned.gguf"), "blk.1.attn_norm.weight");
    c = copy_of(TINY("f32"));
    offset = after(&c, "blk.1.attn_norm.weight") + 4 + 8 + 4;
    memset(offset + 1, 0x7f, 6);
    assert_not_read(store(&c, "past-the-end.gguf"), "blk.1.attn_norm.weight");
}

static void numbers_that_cannot_be(void **state)
{
    (void)state;
    assert_not_run(with_float("eps-nan.gguf", "layer_norm_rms_epsilon", NAN), "epsilon");
    assert_not_run(with_float("eps-inf.gguf", "layer_norm_rms_epsilon", INFINITY), "epsilon");
    assert_not_run(with_float("eps-negative.gguf", "layer_norm_rms_epsilon", -1e-5f), "epsilon");
    assert_not_run(with_float("rope-0.gguf", "llama.rope.freq_base", 0.0f), "freq_base");
    assert_not_run(with_float("rope-nan.gguf", "llama.rope.freq_base", NAN), "freq_base");
    assert_not_run(with_u32("layers-0.gguf", "llama.block_count", 0), "block_count");
    assert_not_run(with_u32("layers.gguf", "llama.block_count", 3), "blk.2");
    assert_not_run(with_u32("many-layers.gguf", "llama.block_count", 0xffffffff), "block_count");
    assert_not_run(with_u32("width.gguf", "llama.embedding_length", 128), "128");
    assert_not_run(with_u32("ffn.gguf", "llama.feed_forward_length", 71), "71");
    assert_not_run(with_u32("heads.gguf", "llama.attention.head_count", 0), "head_count");
    assert_not_run(with_u32("context.gguf", "llama.context_length", 0), "context_length");
    assert_not_run(with_u32("bos.gguf", "tokenizer.ggml.bos_token_id", 291), "291");
    assert_not_run(with_u32("eos.gguf", "tokenizer.ggml.eos_token_id", 0x7fffffff), "2147483647");
}

/* Where a tensor's data begins in the file. */
static size_t data_of(const char *path, const char *name)
{
    json_t *result = program_json(ARGS("inspect", path, "--json"));
    const json_t *tensor;
    size_t index, offset = 0;
    json_array_foreach(json_object_get(result, "tensors"), index, tensor)
    {
        if (strcmp(json_string_value(json_object_get(tensor, "name")), name) == 0)
            offset = (size_t)json_integer_value(json_object_get(tensor, "offset"));
    }
    json_decref(result);
    assert_true(offset > 0);
    return offset;
}

static void assert_weight_refused(const char *model, const char *name, size_t at, const void *value,
                                  size_t size)
{
    copy c = copy_of(model);
    memcpy(c.bytes + data_of(model, name) + at, value, size);
    assert_not_run(store(&c, "weights.gguf"), name);
}

static void weights_that_are_no_numbers(void **state)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const char half_nan[] = "\x00\x7e", half_infinity[] = "\x00\xfc";
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_weight_refused(TINY("f32"), "blk.1.ffn_down.weight", 4 * 72 * 63, &values[i], 4);
        assert_weight_refused(TINY("f32"), "output_norm.weight", 4 * 63, &values[i], 4);
    }
    assert_weight_refused(TINY("f32"), "token_embd.weight", 0, &values[0], 4);
    assert_weight_refused(TINY("f16"), "output.weight", 2 * 64 * 290, half_nan, 2);
    assert_weight_refused(TINY("f16"), "blk.0.attn_q.weight", 0, half_infinity, 2);
    /* Scales and minima of blocks. */
    assert_weight_refused(TINY("q8_0"), "blk.1.ffn_up.weight", 34, half_nan, 2);
    assert_weight_refused(TINY("q4_0"), "blk.1.ffn_up.weight", 18, half_infinity, 2);
    assert_weight_refused(TINY("q4_1"), "blk.1.ffn_up.weight", 20, half_nan, 2);
    assert_weight_refused(TINY("q4_1"), "blk.1.ffn_up.weight", 22, half_infinity, 2);
}

/* The embedding has 291 rows of 64; a row fewer than there are tokens. */
static void fewer_rows_than_tokens(void **state)
{
    (void)state;
    copy c = copy_of(TINY("f32"));
    char *dims = after(&c, "token_embd.weight") + 4;
    uint64_t rows = 0;
    memcpy(&rows, dims + 8, 8);
    assert_int_equal(rows, 291);
    rows = 290;
    memcpy(dims + 8, &rows, 8);
    assert_not_run(store(&c, "rows.gguf"), "token_embd.weight");
}

static void other_architectures(void **state)
{
    (void)state;
    copy c = copy_of(TINY("f32"));
    /* The value's length, then "llama". */
    char *value = after(&c, "general.architecture") + 4 + 8;
    assert_memory_equal(value, "llama", 5);
    memcpy(value, "mamba", 5);
    const char *path = store(&c, "mamba.gguf");
    assert_not_run(path, "mamba");
    json_t *result = program_json(ARGS("inspect", path, "--json"));
    assert_string_equal(json_string_value(json_object_get(result, "architecture")), "mamba");
    json_decref(result);
    c = copy_of(TINY("f32"));
    memcpy(after(&c, "blk.1.ffn_gate.weigh") - 20, "blk.1.ffn_gaat.weigh", 20);
    assert_not_run(store(&c, "lacks.gguf"), "blk.1.ffn_gate.weight");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_shows_a_file),
        cmocka_unit_test(inspect_escapes_what_it_shows),
        cmocka_unit_test(what_is_no_model_file),
        cmocka_unit_test(truncated_files),
        cmocka_unit_test(headers),
        cmocka_unit_test(keys_and_names),
        cmocka_unit_test(numbers_that_cannot_be),
        cmocka_unit_test(weights_that_are_no_numbers),
        cmocka_unit_test(fewer_rows_than_tokens),
        cmocka_unit_test(other_architectures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
