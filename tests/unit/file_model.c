/*
 * file_model.c - what a user calls a model: Hugging Face directories against the GGUF files that a
 * converter made of them (tests/golden/arch), and split files against the whole.
 */
#include "file/model_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "file/hf.h"
#include "support/gguf_build.h"

static gguf_file *open_model(const char *format, const char *name)
{
    char path[512];
    gguf_file *file = NULL;
    error err = {0};
    snprintf(path, sizeof path, format, TEST_GOLDEN, name);
    if (model_file_open(path, true, NULL, &file, &err) != TEMPER_OK)
        fail_msg("%s: %s", path, err.text);
    return file;
}

/* A whole tensor, in pieces of so many bytes (0: at once): rows that are reordered or transposed
 * must not mind where a read begins. */
static uint8_t *read_tensor(const gguf_file *file, const gguf_tensor *tensor, uint64_t piece)
{
    uint8_t *bytes = malloc(tensor->bytes);
    error err = {0};
    assert_non_null(bytes);
    if (piece == 0)
        piece = tensor->bytes;
    for (uint64_t at = 0; at < tensor->bytes; at += piece) {
        const uint64_t size = tensor->bytes - at < piece ? tensor->bytes - at : piece;
        if (gguf_read_tensor(file, tensor, at, bytes + at, size, &err) != TEMPER_OK)
            fail_msg("%s", err.text);
    }
    return bytes;
}

/* ---- directories ----------------------------------------------------------------------------- */

static const char *const directories[] = {
    "llama",
    "llama-bias",
    "llama-headdim",
    "llama-linear",
    "llama-llama3-8",
    "llama-llama3-32",
    "llama-sharded-f16",
    "llama-tied-bf16",
    "llama-yarn",
    "mistral",
    "mistral-window",
    "qwen2",
    "qwen2-tied",
    "qwen3",
    "gemma3",
    "gemma3-linear",
    "phi3",
    "phi3-longrope",
    "phi4",
    "gpt2",
};

static void same_tensors(const char *name, const gguf_file *got, const gguf_file *want)
{
    assert_int_equal(gguf_tensor_count(got), gguf_tensor_count(want));
    for (uint64_t i = 0; i < gguf_tensor_count(want); i++) {
        const gguf_tensor *w = gguf_tensor_at(want, i);
        char tensor[128];
        snprintf(tensor, sizeof tensor, "%.*s", (int)w->name.length, w->name.data);
        const gguf_tensor *g = gguf_find_tensor(got, tensor);
        if (g == NULL || g->type != w->type || g->dim_count != w->dim_count ||
            memcmp(g->dims, w->dims, sizeof g->dims) != 0)
            fail_msg("%s: %s is missing or of another type or shape", name, tensor);
        uint8_t *a = read_tensor(got, g, i % 2 == 0 ? 0 : 999), *b = read_tensor(want, w, 0);
        if (strcmp(tensor, "rope_freqs.weight") == 0) {
            for (uint64_t k = 0; k < w->elements; k++) {
                float x, y;
                memcpy(&x, a + 4 * k, 4);
                memcpy(&y, b + 4 * k, 4);
                assert_true(fabsf(x - y) <= 2e-6f * fabsf(y));
            }
        } else if (memcmp(a, b, w->bytes) != 0) {
            fail_msg("%s: %s differs", name, tensor);
        }
        free(a);
        free(b);
    }
}

static bool same_text(gguf_string a, gguf_string b)
{
    return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

static bool same_value(const gguf_value *a, const gguf_value *b)
{
    if (a->type != b->type || a->count != b->count)
        return false;
    if (a->type == GGUF_STRING)
        return same_text(a->as.string, b->as.string);
    if (a->type == GGUF_FLOAT32)
        return fabs(a->as.f - b->as.f) <= 1e-6 * fabs(b->as.f);
    if (a->type == GGUF_BOOL)
        return a->as.b == b->as.b;
    if (a->type != GGUF_ARRAY)
        return a->as.u == b->as.u;
    for (uint64_t i = 0; a->element == b->element && i < a->count; i++) {
        const bool same = a->element == GGUF_STRING
                              ? same_text(gguf_array_string(a, i), gguf_array_string(b, i))
                          : a->element == GGUF_FLOAT32
                              ? fabs(gguf_array_float(a, i) - gguf_array_float(b, i)) < 1e-6
                              : gguf_array_int(a, i) == gguf_array_int(b, i);
        if (!same) {
            print_message("element %d differs\n", (int)i);
            return false;
        }
    }
    return a->element == b->element;
}

/* Every key that the converter wrote is here with the same value. */
static void same_keys(const char *name, const gguf_file *got, const gguf_file *want)
{
    for (uint64_t i = 0; i < gguf_value_count(want); i++) {
        const gguf_value *w = gguf_value_at(want, i);
        char key[128];
        snprintf(key, sizeof key, "%.*s", (int)w->key.length, w->key.data);
        /* A remark, and a token that decoders do not have. */
        if (strcmp(key, "general.description") == 0 ||
            strcmp(key, "tokenizer.ggml.add_sep_token") == 0)
            continue;
        const gguf_value *g = gguf_find(got, key);
        if (g == NULL || !same_value(g, w))
            fail_msg("%s: %s is %s", name, key, g == NULL ? "missing" : "another value");
    }
}

static void directories_equal_their_twins(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
        gguf_file *directory = open_model("%s/hf/%s", directories[i]);
        gguf_file *twin = open_model("%s/arch/%s.gguf", directories[i]);
        same_tensors(directories[i], directory, twin);
        same_keys(directories[i], directory, twin);
        gguf_close(directory);
        gguf_close(twin);
    }
    assert_int_equal(mem_live_bytes(), 0);
}

/* ---- broken directories ---------------------------------------------------------------------- */

static char folder[] = "/tmp/temper-model-XXXXXX";

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    if (file == NULL || text == NULL)
        fail_msg("%s cannot be read", path);
    const size_t length = fread(text, 1, (1 << 20) - 1, file);
    assert_true(length < (1 << 20) - 1);
    fclose(file);
    return text;
}

static void write_bytes(const char *name, const void *bytes, size_t length)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void remove_all(void)
{
    static const char *const names[] = {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors.index.json",
        "model.safetensors",
        "chat_template.jinja",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "part-00001-of-00003.gguf",
        "part-00002-of-00003.gguf",
        "part-00003-of-00003.gguf",
        "alone.gguf",
        "chat_template.json",
    };
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
}

/* The files of a directory in the folder, as links; `changed` is written anew, with `from` replaced
 * by `to` (`from` NULL: left out). */
static void make_directory(const char *name, const char *changed, const char *from, const char *to)
{
    static const char *const names[] = {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors.index.json",
        "model.safetensors",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    };
    char path[512], link[512];
    remove_all();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/hf/%s/%s", TEST_GOLDEN, name, names[i]);
        if (strcmp(names[i], changed) != 0) {
            snprintf(link, sizeof link, "%s/%s", folder, names[i]);
            if (access(path, F_OK) == 0)
                assert_int_equal(symlink(path, link), 0);
            continue;
        }
        if (from == NULL)
            continue;
        char *text = read_text(path), *at = strstr(text, from);
        if (at == NULL)
            fail_msg("%s has no %s", path, from);
        strbuf other = {0};
        strbuf_append(&other, text, (size_t)(at - text));
        strbuf_puts(&other, to);
        strbuf_puts(&other, at + strlen(from));
        write_bytes(changed, other.data, other.length);
        strbuf_free(&other);
        free(text);
    }
}

static void broken_directories(void **state)
{
    static const struct {
        const char *directory, *file, *from, *to;
        temper_status status;
        const char *text;
    } rows[] = {
        {"llama", "config.json", NULL, NULL, TEMPER_IO, "no config.json"},
        {"llama", "tokenizer.json", NULL, NULL, TEMPER_IO, "no tokenizer.json"},
        {"llama", "model.safetensors", NULL, NULL, TEMPER_IO,
         "model.safetensors: cannot be opened"},
        {"llama", "config.json", "{", "[", TEMPER_BAD_FILE, "config.json: is no JSON object"},
        {"llama", "config.json", "LlamaForCausalLM", "FooForCausalLM", TEMPER_UNSUPPORTED,
         "\"FooForCausalLM\"; temper reads LlamaForCausalLM"},
        {"llama", "config.json", "\"silu\"", "\"gelu\"", TEMPER_UNSUPPORTED, "\"gelu\""},
        {"llama", "config.json", "\"hidden_size\": 64", "\"hidden_size\": 0", TEMPER_BAD_FILE,
         "\"hidden_size\" is no whole number"},
        {"llama", "config.json", "\"hidden_size\"", "\"hidden\"", TEMPER_BAD_FILE,
         "\"hidden_size\" is missing"},
        {"llama", "config.json", "1e-05", "-1", TEMPER_BAD_FILE, "\"rms_norm_eps\" is no number"},
        {"llama", "config.json", "\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"dynamic\"}", TEMPER_UNSUPPORTED, "\"dynamic\""},
        {"llama", "config.json", "\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"linear\"}", TEMPER_BAD_FILE, "\"factor\" is missing"},
        {"llama", "config.json", "\"rope_scaling\": null", "\"quantization_config\": {\"bits\": 4}",
         TEMPER_UNSUPPORTED, "quantization_config"},
        {"llama", "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
         TEMPER_UNSUPPORTED, "model.layers.1."},
        {"llama", "config.json", "\"num_attention_heads\": 4", "\"num_attention_heads\": 5",
         TEMPER_BAD_FILE, "which do not divide into 5 heads"},
        {"llama", "config.json", "\"vocab_size\": 293", "\"vocab_size\": 292", TEMPER_BAD_FILE,
         "no number below vocab_size (292)"},
        {"llama", "tokenizer.json", "\"BPE\"", "\"Unigram\"", TEMPER_UNSUPPORTED, "kind Unigram"},
        {"llama", "tokenizer.json", "\\\\p{N}{1,3}", "\\\\p{N}{1,4}", TEMPER_UNSUPPORTED,
         "its pre-tokenizer has no name"},
        {"llama-sharded-f16", "model.safetensors.index.json", "model-00002-of-00002", "../model",
         TEMPER_BAD_FILE, "no plain name"},
        {"llama-sharded-f16", "model.safetensors.index.json", "model-00002-of-00002",
         "model-00003-of-00002", TEMPER_IO, "model-00003-of-00002.safetensors: cannot be opened"},
        {"llama-sharded-f16", "model.safetensors.index.json", "model.norm.weight",
         "model.norms.weight", TEMPER_BAD_FILE, "the tensor model.norms.weight is missing"},
        {"llama-sharded-f16", "model.safetensors.index.json", "weight_map", "weights",
         TEMPER_BAD_FILE, "no \"weight_map\""},
        {"llama-sharded-f16", "model-00002-of-00002.safetensors", NULL, NULL, TEMPER_IO,
         "model-00002-of-00002.safetensors: cannot be opened"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gguf_file *file = NULL;
        error err = {0};
        make_directory(rows[i].directory, rows[i].file, rows[i].from, rows[i].to);
        const temper_status status = model_file_open(folder, true, NULL, &file, &err);
        if (status != rows[i].status || strstr(err.text, rows[i].text) == NULL ||
            strstr(err.text, folder) == NULL)
            fail_msg("row %zu: %d, %s", i, (int)status, err.text);
        assert_int_equal(mem_live_bytes(), 0);
    }
    remove_all();
}

/* Keys that have two spellings, and files that may be there instead of others. */
static void other_spellings(void **state)
{
    gguf_file *file = NULL;
    error err = {0};
    gguf_string text = {0};
    float factor = 0;
    (void)state;
    make_directory("llama", "config.json", "\"rope_scaling\": null",
                   "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, "
                   "\"rope_theta\": 5e5}");
    write_bytes("chat_template.jinja", "from a file", 11);
    if (model_file_open(folder, true, NULL, &file, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    assert_int_equal(gguf_get_string(file, "tokenizer.chat_template", &text, NULL, &err),
                     TEMPER_OK);
    assert_int_equal(text.length, 11);
    assert_memory_equal(text.data, "from a file", 11);
    assert_int_equal(gguf_get_f32(file, "llama.rope.scaling.factor", &factor, NULL, &err),
                     TEMPER_OK);
    assert_true(factor == 4.0f);
    assert_int_equal(gguf_get_f32(file, "llama.rope.freq_base", &factor, NULL, &err), TEMPER_OK);
    assert_true(factor == 5e5f);
    gguf_close(file);
    remove_all();
}

/* Of the 32 pairs of a head of 64, with the base and the original context of Llama 3.2: 0 to 14
 * keep their frequency, 15 to 17 lie between, 18 to 31 are divided by the whole factor; under
 * either key of the type. */
static void llama3_rope_factors(void **state)
{
    static const struct {
        const char *directory, *key;
        float factor;
    } rows[] = {{"llama-llama3-8", "rope_type", 8},
                {"llama-llama3-8", "type", 8},
                {"llama-llama3-32", "rope_type", 32}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        gguf_file *file = NULL;
        float factors[32];
        char changed[32];
        error err = {0};
        snprintf(changed, sizeof changed, "\"%s\"", rows[i].key);
        make_directory(rows[i].directory, "config.json", "\"rope_type\"", changed);
        if (model_file_open(folder, true, NULL, &file, &err) != TEMPER_OK)
            fail_msg("%s", err.text);
        const gguf_tensor *tensor = gguf_find_tensor(file, "rope_freqs.weight");
        assert_non_null(tensor);
        assert_int_equal(tensor->bytes, sizeof factors);
        assert_int_equal(gguf_read_tensor(file, tensor, 0, factors, sizeof factors, &err),
                         TEMPER_OK);
        for (int pair = 0; pair < 32; pair++) {
            if (pair <= 14)
                assert_true(factors[pair] == 1.0f);
            else if (pair >= 18)
                assert_true(factors[pair] == rows[i].factor);
            else
                assert_true(factors[pair] > factors[pair - 1] && factors[pair] < rows[i].factor);
        }
        gguf_close(file);
        remove_all();
    }
}

static void directory_allocations_fail(void **state)
{
    temper_status status = TEMPER_NO_MEMORY;
    (void)state;
    for (uint64_t n = 1; status != TEMPER_OK; n += n < 300 ? 1 : 7) {
        source *src = NULL;
        error err = {0};
        mem_fail_at(n, 1);
        status = hf_open(TEST_GOLDEN "/hf/llama-sharded-f16", true, &src, &err);
        mem_fail_at(0, 0);
        assert_true(status == TEMPER_OK || status == TEMPER_NO_MEMORY);
        source_close(src);
        assert_int_equal(mem_live_bytes(), 0);
        assert_true(n < 100000);
    }
}

/* ---- split files ----------------------------------------------------------------------------- */

enum { PARTS = 3 };

/* What is changed in what a part says. */
typedef enum mistake { RIGHT, WRONG_NUMBER, WRONG_COUNT, WRONG_TENSORS } mistake;

/* Overwrites the number of a key. */
static void change(strbuf *part, const char *key, uint8_t value)
{
    const size_t length = strlen(key);
    size_t at = 0;
    while (at + length < part->length && memcmp(part->data + at, key, length) != 0)
        at++;
    assert_true(at + length + 4 < part->length);
    part->data[at + length + 4] = (char)value; /* behind the type */
}

static void make_parts(mistake wrong, strbuf parts[PARTS])
{
    gguf_file *whole = open_model("%s/tiny/%s.gguf", "llama-f16");
    for (uint32_t i = 0; i < PARTS; i++) {
        char name[64];
        parts[i] = (strbuf){0};
        gguf_put_part(&parts[i], whole, i, PARTS);
        assert_false(parts[i].failed);
        if (wrong == WRONG_NUMBER && i == 1)
            change(&parts[i], "split.no", 2);
        if (wrong == WRONG_COUNT && i == 1)
            change(&parts[i], "split.count", 4);
        if (wrong == WRONG_TENSORS && i == 0)
            change(&parts[i], "split.tensors.count", 99);
        snprintf(name, sizeof name, "part-%05u-of-%05u.gguf", i + 1, (uint32_t)PARTS);
        write_bytes(name, parts[i].data, parts[i].length);
    }
    gguf_close(whole);
}

static temper_status join(const strbuf *parts, const uint32_t *order, uint32_t count,
                          gguf_file **out, error *err)
{
    source *sources[PARTS];
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(source_open_memory("part", parts[order[i]].data, parts[order[i]].length,
                                            &sources[i], NULL),
                         TEMPER_OK);
    return gguf_join(sources, count, out, err);
}

static void parts_in_any_order(void **state)
{
    static const uint32_t orders[][PARTS] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}};
    strbuf parts[PARTS];
    gguf_file *whole = open_model("%s/tiny/%s.gguf", "llama-f16");
    (void)state;
    make_parts(RIGHT, parts);
    for (size_t i = 0; i < sizeof orders / sizeof orders[0] + PARTS; i++) {
        gguf_file *joined = NULL;
        error err = {0};
        char path[512];
        if (i < PARTS) { /* by the path of each part */
            snprintf(path, sizeof path, "%s/part-%05zu-of-00003.gguf", folder, i + 1);
            if (model_file_open(path, true, NULL, &joined, &err) != TEMPER_OK)
                fail_msg("%s", err.text);
        } else if (join(parts, orders[i - PARTS], PARTS, &joined, &err) != TEMPER_OK) {
            fail_msg("%s", err.text);
        }
        same_tensors("joined", joined, whole);
        same_tensors("whole", whole, joined);
        same_keys("joined", joined, whole);
        assert_int_equal(gguf_value_count(joined), gguf_value_count(whole));
        assert_int_equal(gguf_walk(joined) != 0, 1);
        gguf_close(joined);
    }
    gguf_close(whole);
    for (int i = 0; i < PARTS; i++)
        strbuf_free(&parts[i]);
    remove_all();
    assert_int_equal(mem_live_bytes(), 0);
}

static void parts_that_do_not_fit(void **state)
{
    static const struct {
        mistake wrong;
        uint32_t order[PARTS], count;
        const char *text;
    } rows[] = {
        {RIGHT, {0, 1, 0}, 2, "part 1 of a model in 3 parts, of which 2 are here"},
        {RIGHT, {0, 1, 1}, 3, "part 2 of 3 is part already"},
        {WRONG_NUMBER, {0, 1, 2}, 3, "part 3 of 3 is part already"},
        {WRONG_COUNT, {0, 1, 2}, 3, "in 4 parts, of which 3 are here"},
        {WRONG_TENSORS, {0, 1, 2}, 3, "tensors, its parts together hold"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strbuf parts[PARTS];
        gguf_file *joined = NULL;
        error err = {0};
        make_parts(rows[i].wrong, parts);
        if (join(parts, rows[i].order, rows[i].count, &joined, &err) != TEMPER_BAD_FILE ||
            strstr(err.text, rows[i].text) == NULL)
            fail_msg("row %zu: %s", i, err.text);
        for (int k = 0; k < PARTS; k++)
            strbuf_free(&parts[k]);
        assert_int_equal(mem_live_bytes(), 0);
    }
}

static void a_part_that_is_missing(void **state)
{
    strbuf parts[PARTS];
    gguf_file *file = NULL;
    error err = {0};
    char path[512];
    (void)state;
    make_parts(RIGHT, parts);
    snprintf(path, sizeof path, "%s/part-00002-of-00003.gguf", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/part-00003-of-00003.gguf", folder);
    assert_int_equal(model_file_open(path, true, NULL, &file, &err), TEMPER_IO);
    assert_non_null(strstr(err.text, "part 2 of 3 is missing"));
    assert_non_null(strstr(err.text, "part-00002-of-00003.gguf"));
    write_bytes("alone.gguf", parts[1].data, parts[1].length);
    snprintf(path, sizeof path, "%s/alone.gguf", folder);
    error_clear(&err);
    assert_int_equal(model_file_open(path, true, NULL, &file, &err), TEMPER_BAD_FILE);
    assert_non_null(strstr(err.text, "NAME-00002-of-00003.gguf"));
    for (int i = 0; i < PARTS; i++)
        strbuf_free(&parts[i]);
    remove_all();
    assert_int_equal(mem_live_bytes(), 0);
}

static void joining_allocations_fail(void **state)
{
    static const uint32_t order[PARTS] = {1, 2, 0};
    strbuf parts[PARTS];
    temper_status status = TEMPER_NO_MEMORY;
    (void)state;
    make_parts(RIGHT, parts);
    const uint64_t before = mem_live_bytes();
    for (uint64_t n = 1; status != TEMPER_OK; n++) {
        gguf_file *joined = NULL;
        error err = {0};
        source *sources[PARTS];
        for (uint32_t i = 0; i < PARTS; i++)
            source_open_memory("part", parts[order[i]].data, parts[order[i]].length, &sources[i],
                               NULL);
        mem_fail_at(n, 1);
        status = gguf_join(sources, PARTS, &joined, &err);
        mem_fail_at(0, 0);
        assert_true(status == TEMPER_OK || status == TEMPER_NO_MEMORY);
        gguf_close(joined);
        assert_int_equal(mem_live_bytes(), before);
        assert_true(n < 2000);
    }
    for (int i = 0; i < PARTS; i++)
        strbuf_free(&parts[i]);
    remove_all();
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove_all();
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(directories_equal_their_twins),
        cmocka_unit_test(broken_directories),
        cmocka_unit_test(other_spellings),
        cmocka_unit_test(llama3_rope_factors),
        cmocka_unit_test(directory_allocations_fail),
        cmocka_unit_test(parts_in_any_order),
        cmocka_unit_test(parts_that_do_not_fit),
        cmocka_unit_test(a_part_that_is_missing),
        cmocka_unit_test(joining_allocations_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
