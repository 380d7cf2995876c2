/*
 * file_gguf_real.c - files that others wrote: the default model and the vocabularies that setup
 * fetched.
 */
#include "file/gguf.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/gguf_build.h"

#define MODEL TEST_PARTS "/../models/SmolLM2-135M-Instruct-Q4_1.gguf"
#define VOCABULARIES TEST_PARTS "/vocab"

static gguf_file *open_file(const char *path)
{
    source *src = NULL;
    gguf_file *file = NULL;
    error err = {0};

    if (source_open_file(path, &src, &err) != TEMPER_OK ||
        gguf_open(src, &file, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return file;
}

static void expect_text(gguf_string got, const char *wanted)
{
    assert_int_equal(got.length, strlen(wanted));
    assert_memory_equal(got.data, wanted, got.length);
}

static void test_default_model(void **state)
{
    const uint64_t live = mem_live_bytes();
    gguf_file *file = open_file(MODEL);
    gguf_string text = {0};
    uint32_t number = 0;
    float base = 0;

    (void)state;
    assert_int_equal(gguf_version(file), 3);
    assert_int_equal(gguf_tensor_count(file), 272);
    assert_int_equal(gguf_get_string(file, "general.architecture", &text, NULL, NULL), 0);
    expect_text(text, "llama");
    assert_int_equal(gguf_get_u32(file, "llama.block_count", &number, NULL, NULL), 0);
    assert_int_equal(number, 30);
    assert_int_equal(gguf_get_u32(file, "llama.embedding_length", &number, NULL, NULL), 0);
    assert_int_equal(number, 576);
    assert_int_equal(gguf_get_f32(file, "llama.rope.freq_base", &base, NULL, NULL), 0);
    assert_true(base == 100000.0f);
    const gguf_value *tokens = gguf_find(file, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->count, 49152);
    expect_text(gguf_array_string(tokens, 1), "<|im_start|>");

    uint64_t q4_1 = 0, bytes = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        q4_1 += gguf_tensor_at(file, i)->type == DTYPE_Q4_1;
        bytes += gguf_tensor_at(file, i)->bytes;
    }
    assert_int_equal(q4_1, 210);
    const gguf_tensor *embedding = gguf_find_tensor(file, "token_embd.weight");
    assert_int_equal(embedding->type, DTYPE_Q8_0);
    assert_int_equal(embedding->dims[0], 576);
    assert_int_equal(embedding->dims[1], 49152);
    assert_int_equal(embedding->bytes, 49152 * 18 * 34);
    assert_true(bytes < 98362432 && bytes > 90000000);
    assert_null(gguf_find_tensor(file, "output.weight"));
    assert_true(gguf_walk(file) != 0);
    gguf_close(file);
    assert_int_equal(mem_live_bytes(), live);
}

/* A row of each kind of the default model has finite weights of a sensible size. */
static void test_default_weights(void **state)
{
    gguf_file *file = open_file(MODEL);
    uint8_t row[576 * 4];
    float values[576];

    (void)state;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        const dtype_info *info = dtype_find(tensor->type);
        const uint64_t bytes = 576 / info->block * info->block_bytes;
        assert_int_equal(gguf_read_tensor(file, tensor, 0, row, bytes, NULL), TEMPER_OK);
        assert_false(dtype_row_has_nonfinite(info->type, 576, row));
        dtype_dequantize_row(info->type, 576, row, values);
        double squares = 0;
        for (int k = 0; k < 576; k++)
            squares += (double)values[k] * (double)values[k];
        assert_true(squares > 0 && squares < 576 * 400);
    }
    gguf_close(file);
}

static void test_vocabularies(void **state)
{
    static const struct {
        const char *name;
        uint64_t tokens;
    } known[] = {
        {"ggml-vocab-gpt-2.gguf", 50257},
        {"ggml-vocab-llama-bpe.gguf", 128256},
        {"ggml-vocab-llama-spm.gguf", 32000},
        {"ggml-vocab-qwen2.gguf", 151936},
    };
    const uint64_t live = mem_live_bytes();
    DIR *folder = opendir(VOCABULARIES);
    size_t opened = 0, recognised = 0;

    (void)state;
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[1024];
        const size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", VOCABULARIES, entry->d_name);
        gguf_file *file = open_file(path);
        const gguf_value *tokens = gguf_find(file, "tokenizer.ggml.tokens");
        assert_true(tokens != NULL && tokens->element == GGUF_STRING);
        assert_int_equal(gguf_tensor_count(file), 0);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (strcmp(entry->d_name, known[i].name) == 0) {
                assert_int_equal(tokens->count, known[i].tokens);
                recognised++;
            }
        gguf_walk(file);
        gguf_close(file);
        opened++;
    }
    closedir(folder);
    assert_int_equal(recognised, sizeof known / sizeof known[0]);
    assert_true(opened >= recognised);
    assert_int_equal(mem_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_model),
        cmocka_unit_test(test_default_weights),
        cmocka_unit_test(test_vocabularies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
