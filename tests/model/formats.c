/*
 * formats.c - every way in which weights come: the K types against double-precision logits;
 * directories, split files and converted files against the same model in one file, bit for bit; and
 * what temper_quantize makes.
 */
#include "support/gguf_build.h"
#include "support/model_test.h"

#include <math.h>
#include <unistd.h>

static char folder[] = "/tmp/temper-formats-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void k_types_under_masks(void **state)
{
    static const char *const stems[] = {"quant/llama-q2_k", "quant/llama-q3_k", "quant/llama-q4_k",
                                        "quant/llama-q5_k", "quant/llama-q6_k"};
    (void)state;
    for (size_t m = 0; m < test_mask_count; m++) {
        temper_device *device = test_device(&test_masks[m]);
        for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++)
            test_tiny_model(device, stems[i], 0);
        test_nothing_left(device);
        temper_device_release(device);
    }
}

/* Every type that is read as F16 on request, against double-precision logits of the rounded
 * weights; without the request the first of them is refused. */
static void widened_types(void **state)
{
    temper_engine *engine = NULL;
    temper_error err = {0};
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    test_tiny_model(device, "widen/llama", 0);
    const temper_engine_desc desc = {.model = TEST_GOLDEN "/widen/llama.gguf", .device = device};
    assert_fails(temper_engine_open(&desc, &engine, &err), TEMPER_UNSUPPORTED,
                 "token_embd.weight is IQ4_XS, which has no layout on the device: --widen");
    test_nothing_left(device);
    temper_device_release(device);
}

enum { IDS = 23, MOST_VOCABULARY = 512 };

/* Logits after some ids; returns how many there are. */
static uint32_t logits_of(temper_device *device, const char *path, float *logits)
{
    uint32_t ids[IDS];
    temper_error err = {0};
    temper_session *session = NULL;
    temper_engine *engine = test_engine(device, path, 0);
    const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
    assert_true(vocabulary <= MOST_VOCABULARY);
    for (uint32_t i = 0; i < IDS; i++)
        ids[i] = (i * i * 7 + 3 * i + 1) % 256;
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 64}, &session, &err));
    assert_ok(temper_session_logits(session, (temper_tokens){ids, IDS}, logits, &err));
    temper_session_close(session);
    temper_engine_close(engine);
    return vocabulary;
}

/* A directory has as many logits as its tokenizer has tokens; a converter gives names to the rows
 * of the embedding that are left over. */
static void assert_same_logits(temper_device *device, const char *path, const char *other)
{
    float one[MOST_VOCABULARY], two[MOST_VOCABULARY];
    const uint32_t count = logits_of(device, path, one);
    assert_true(logits_of(device, other, two) >= count);
    if (memcmp(one, two, count * sizeof one[0]) != 0)
        fail_msg("%s and %s give different logits", path, other);
}

static void directories_split_and_converted_files(void **state)
{
    static const char *const names[] = {"llama",
                                        "llama-sharded-f16",
                                        "llama-tied-bf16",
                                        "llama-linear",
                                        "mistral",
                                        "qwen2",
                                        "qwen3",
                                        "gemma3",
                                        "phi3",
                                        "phi3-longrope",
                                        "gpt2"};
    char directory[64], twin[64];
    temper_error err = {0};
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(directory, sizeof directory, "hf/%s", names[i]);
        snprintf(twin, sizeof twin, "arch/%s.gguf", names[i]);
        assert_same_logits(device, directory, twin);
    }
    const char *converted = in_folder("converted.gguf");
    assert_ok(temper_convert(TEST_GOLDEN "/hf/llama", converted, NULL, NULL, NULL, &err));
    assert_same_logits(device, converted, "arch/llama.gguf");

    gguf_file *whole = NULL;
    source *src = NULL;
    assert_ok(source_open_file(TEST_GOLDEN "/tiny/llama-q4_0.gguf", &src, &err));
    assert_ok(gguf_open(src, &whole, &err));
    for (uint32_t i = 0; i < 2; i++) {
        strbuf part = {0};
        char name[64];
        snprintf(name, sizeof name, "part-%05u-of-00002.gguf", i + 1);
        gguf_put_part(&part, whole, i, 2);
        FILE *file = fopen(in_folder(name), "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(part.data, 1, part.length, file), part.length);
        fclose(file);
        strbuf_free(&part);
    }
    gguf_close(whole);
    assert_same_logits(device, in_folder("part-00002-of-00002.gguf"), "tiny/llama-q4_0.gguf");
    assert_ok(
        temper_convert(in_folder("part-00001-of-00002.gguf"), converted, NULL, NULL, NULL, &err));
    assert_same_logits(device, converted, "tiny/llama-q4_0.gguf");
    const char *widened = TEST_GOLDEN "/widen/llama.gguf";
    assert_ok(temper_convert(widened, converted, &(temper_widen){0}, NULL, NULL, &err));
    assert_same_logits(device, converted, "widen/llama.gguf");
    test_nothing_left(device);
    temper_device_release(device);
}

/* Root mean square difference of the logits over their deviation. */
static double distance(const float *a, const float *b, uint32_t count)
{
    double off = 0, sum = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        off += pow((double)a[i] - (double)b[i], 2);
        sum += (double)b[i];
        squares += (double)b[i] * (double)b[i];
    }
    return sqrt(off / (squares - sum * sum / count));
}

/* Rows of 64 and 72 fall back from the K types, rows of 256 do not. The bounds are about one and a
 * half times what was measured: random weights, in which nothing is redundant, suffer most. */
static void quantized_files(void **state)
{
    static const struct {
        const char *from, *type;
        uint32_t fallbacks, requantized;
        double most;
    } rows[] = {
        {"tiny/llama-f32.gguf", "F16", 0, 0, 2e-3},
        {"tiny/llama-f32.gguf", "Q8_0", 2, 0, 0.05},
        {"tiny/llama-f32.gguf", "Q4_0", 3, 0, 0.7},
        {"tiny/llama-f32.gguf", "Q4_1", 3, 0, 0.5},
        {"tiny/llama-f32.gguf", "Q4_K", 15, 0, 0.35},
        {"tiny/llama-f32.gguf", "Q6_K", 15, 0, 0.05},
        {"quant/llama-q6_k.gguf", "Q6_K", 0, 0, 0},
        {"quant/llama-q6_k.gguf", "Q4_K", 0, 7, 0.35},
        {"quant/llama-q6_k.gguf", "Q8_0", 0, 8, 0.05},
    };
    float wanted[MOST_VOCABULARY], got[MOST_VOCABULARY];
    temper_error err = {0};
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char from[256];
        temper_quantize_result result;
        const char *to = in_folder("quantized.gguf");
        snprintf(from, sizeof from, "%s/%s", TEST_GOLDEN, rows[i].from);
        assert_ok(temper_quantize(from, to, rows[i].type, NULL, NULL, NULL, &result, &err));
        const uint32_t count = logits_of(device, rows[i].from, wanted);
        assert_int_equal(logits_of(device, to, got), count);
        const double off = distance(got, wanted, count);
        print_message("%s as %s: logits off by %.2g, %u of %u tensors fell back, %u requantized\n",
                      rows[i].from, rows[i].type, off, result.fallbacks, result.tensors,
                      result.requantized);
        assert_true(off <= rows[i].most);
        assert_int_equal(result.fallbacks, rows[i].fallbacks);
        assert_int_equal(result.requantized, rows[i].requantized);
        source *src = NULL;
        assert_ok(source_open_file(to, &src, &err));
        assert_int_equal(src->size, result.bytes);
        source_close(src);
    }
    temper_device_release(device);
}

static bool stop(uint64_t done, uint64_t total, void *user)
{
    (void)user;
    return done < total / 2;
}

static void what_cannot_be_made(void **state)
{
    temper_error err = {0};
    temper_quantize_result result;
    const char *to = in_folder("never.gguf");
    const char *from = TEST_GOLDEN "/tiny/llama-f32.gguf";
    (void)state;
    assert_fails(temper_quantize(from, to, "Q9_9", NULL, NULL, NULL, &result, &err),
                 TEMPER_BAD_ARGUMENT, "\"Q9_9\"");
    assert_fails(temper_quantize(from, folder, "Q8_0", NULL, NULL, NULL, &result, &err), TEMPER_IO,
                 "a directory");
    assert_fails(temper_quantize(from, to, "Q8_0", NULL, stop, NULL, &result, &err), TEMPER_STOPPED,
                 "stopped");
    assert_fails(temper_convert(TEST_GOLDEN "/hf/llama", to, NULL, stop, NULL, &err),
                 TEMPER_STOPPED, "stopped");
    assert_fails(temper_convert(folder, to, NULL, NULL, NULL, &err), TEMPER_IO, "no config.json");
    assert_int_not_equal(access(to, F_OK), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

/* Nothing but the files that were asked for is left in the folder. */
static int remove_folder(void **state)
{
    (void)state;
    unlink(in_folder("converted.gguf"));
    unlink(in_folder("quantized.gguf"));
    unlink(in_folder("part-00001-of-00002.gguf"));
    unlink(in_folder("part-00002-of-00002.gguf"));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k_types_under_masks),
        cmocka_unit_test(widened_types),
        cmocka_unit_test(directories_split_and_converted_files),
        cmocka_unit_test(quantized_files),
        cmocka_unit_test(what_cannot_be_made),
    };
    return cmocka_run_group_tests_name("model_formats", tests, make_folder, remove_folder);
}
