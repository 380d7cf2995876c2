/*
 * arch.c - a small random model of every architecture against the logits that transformers computes
 * for it in double precision: 16 greedy tokens each, prompts past a block of the KV cache or past
 * the model's window, under masks, in steps of 1, 7 and 128 rows. Then what must be refused.
 */
#include <math.h>
#include <sys/stat.h>

#include "support/model_test.h"

#include "gpu/gpu.h"
#include "infer/infer.h"

/* f32 arithmetic differs from double by less than this share of the logit range; measured, over all
 * golden positions: 3e-7 (gpt2) to 2.1e-6 (phi3-longrope). */
#define LIMIT 2e-5

static const char *const models[] = {
    "llama",
    "llama-bias",
    "llama-headdim",
    "llama-linear",
    "llama-llama3-8",
    "llama-llama3-32",
    "llama-yarn",
    "llama-tied-bf16",
    "llama-sharded-f16",
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
enum {
    MODELS = sizeof models / sizeof models[0],
    DIRECTORIES = MODELS,
    CONTEXT = 512,
};

/* transformers takes long-rope's long factors as soon as a sequence passes the original context, 32
 * here, whatever is cached; temper by the context of the session. So a prompt that stays within 32
 * gets a session of 32, which ends one token early. */
static uint32_t context_for(const char *name, size_t tokens)
{
    return strcmp(name, "phi3-longrope") == 0 && tokens < 32 ? 32 : CONTEXT;
}

/* The worst difference of a row of logits, over the range. A golden row may be longer:
 * configurations round the vocabulary up, and a directory's tokenizer says how many of the rows are
 * tokens. */
static double worst_of(const float *logits, uint32_t vocabulary, const json_t *values, double range)
{
    double worst = 0.0;
    assert_true(json_array_size(values) >= vocabulary && range > 0.0);
    for (size_t i = 0; i < vocabulary; i++) {
        const double off =
            fabs((double)logits[i] - json_number_value(json_array_get(values, i))) / range;
        if (!(off <= worst))
            worst = off;
    }
    return worst;
}

/* The worst difference over the golden positions of a prompt, each by a fresh prompt that ends
 * there; the session keeps what they share. */
static double logits_of(temper_session *session, const json_t *prompt, uint32_t vocabulary)
{
    temper_error err = {0};
    double worst = 0.0;
    float *logits = calloc(vocabulary, sizeof *logits);
    const temper_tokens ids = test_ids(json_object_get(prompt, "ids"));
    const double range = json_number_value(json_object_get(prompt, "range"));
    const json_t *rows = json_object_get(prompt, "logits");
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const size_t position = (size_t)json_integer_value(json_object_get(row, "position"));
        const temper_tokens part = {ids.ids, position + 1};
        assert_ok(temper_session_logits(session, part, logits, &err));
        const double off = worst_of(logits, vocabulary, json_object_get(row, "values"), range);
        if (!(off <= worst))
            worst = off;
    }
    free(ids.ids);
    free(logits);
    return worst;
}

/* A token that ends a turn ends temper's answer, whether or not the file says so; one answer here
 * holds Gemma's. */
enum { GEMMA_END_OF_TURN = 5 };

static void check_greedy(temper_session *session, const json_t *prompt, const char *what)
{
    temper_error err = {0};
    temper_result result;
    const temper_tokens ids = test_ids(json_object_get(prompt, "ids"));
    const temper_tokens wanted =
        test_ids(json_object_get(json_object_get(prompt, "greedy"), "ids"));
    const size_t room = temper_session_context(session) - ids.count;
    const temper_request request = {.prompt = ids, .max_tokens = wanted.count};
    assert_ok(temper_session_generate(session, &request, &result, &err));
    for (size_t i = 0; i < result.token_count; i++)
        if (result.tokens[i] != wanted.ids[i])
            fail_msg("%s, %zu tokens: token %zu is %u, not %u", what, ids.count, i,
                     result.tokens[i], wanted.ids[i]);
    if (result.finish == TEMPER_FINISH_STOP)
        assert_int_equal(wanted.ids[result.token_count], GEMMA_END_OF_TURN);
    else
        assert_int_equal(result.token_count, wanted.count < room ? wanted.count : room);
    free(ids.ids);
    free(wanted.ids);
}

/* A model of the list, as a GGUF file or as the directory that the file was made of. */
static void check_model(temper_device *device, size_t index, bool directory, uint32_t max_rows)
{
    char path[64], what[96];
    temper_error err = {0};
    double worst = 0.0;
    snprintf(path, sizeof path, "arch/%s.json", models[index]);
    json_t *golden = test_golden(path);
    snprintf(path, sizeof path, directory ? "hf/%s" : "arch/%s.gguf", models[index]);
    snprintf(what, sizeof what, "%s, %u rows a step", models[index], max_rows);
    temper_engine *engine = test_engine(device, path, max_rows);
    const json_t *prompts = json_object_get(golden, "prompts");
    assert_int_equal(json_array_size(prompts), 3);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *prompt = json_array_get(prompts, i);
        const size_t tokens = json_array_size(json_object_get(prompt, "ids"));
        const temper_session_desc desc = {.context = context_for(models[index], tokens)};
        temper_session *session = NULL;
        assert_ok(temper_session_open(engine, &desc, &session, &err));
        const double off = logits_of(session, prompt, temper_engine_info(engine)->vocabulary);
        if (!(off <= worst))
            worst = off;
        check_greedy(session, prompt, what);
        temper_session_close(session);
    }
    print_message("%s: %.1e of the range\n", what, worst);
    if (!(worst <= LIMIT))
        fail_msg("%s: off by %g of the range", what, worst);
    temper_engine_close(engine);
    json_decref(golden);
}

static void every_architecture(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    for (size_t i = 0; i < MODELS; i++)
        check_model(device, i, false, 0);
    test_nothing_left(device);
    temper_device_release(device);
}

static void every_architecture_under_every_mask(void **state)
{
    (void)state;
    for (size_t m = 1; m < test_mask_count; m++) {
        temper_device *device = test_device(&test_masks[m]);
        for (size_t i = 0; i < MODELS; i++)
            check_model(device, i, false, 0);
        test_nothing_left(device);
        temper_device_release(device);
    }
}

static void every_size_of_chunk(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    const uint32_t sizes[] = {1, 7, 128};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t i = 0; i < MODELS; i++)
            check_model(device, i, false, sizes[s]);
    temper_device_release(device);
}

static void directories(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    for (size_t i = 0; i < DIRECTORIES; i++)
        check_model(device, i, true, 0);
    temper_device_release(device);
}

/* The nth buffer of a load cannot be had, for every n: an error, and nothing left behind. */
static void no_device_memory_at_any_moment(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    const char *const names[] = {"gemma3", "gpt2", "phi3-longrope", "qwen2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[4096];
        temper_engine *engine = NULL;
        snprintf(path, sizeof path, "%s/arch/%s.gguf", TEST_GOLDEN, names[i]);
        const temper_engine_desc desc = {.model = path, .device = device};
        uint64_t n = 0;
        while (engine == NULL) {
            temper_error err = {0};
            gpu_fail_allocation(device->gpu, ++n);
            const temper_status status = temper_engine_open(&desc, &engine, &err);
            gpu_fail_allocation(device->gpu, 0);
            assert_int_equal(status, engine != NULL ? TEMPER_OK : TEMPER_DEVICE_MEMORY);
            if (engine == NULL)
                test_nothing_left(device);
        }
        assert_true(n > 20);
        temper_engine_close(engine);
        test_nothing_left(device);
    }
    temper_device_release(device);
}

/* ---- what must be refused -------------------------------------------------------------------- */

typedef struct bytes {
    char *data;
    size_t size;
} bytes;

static bytes read_model(const char *name)
{
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s/arch/%s", TEST_GOLDEN, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    bytes b = {.data = malloc((size_t)info.st_size), .size = (size_t)info.st_size};
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.size, file), b.size);
    fclose(file);
    return b;
}

/* The first place of some bytes, `after` them. */
static char *place_of(bytes b, const char *text, size_t after)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= b.size; i++)
        if (memcmp(b.data + i, text, length) == 0)
            return b.data + i + after;
    fail_msg("no \"%s\" in the model", text);
    return NULL;
}

/* Opens a copy of a model, which must be refused; frees the copy. */
static void refuse(temper_device *device, bytes b, temper_status status, const char *text)
{
    static const char path[] = "arch_changed.gguf";
    temper_error err = {0};
    temper_engine *engine = NULL;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b.data, 1, b.size, file), b.size);
    assert_int_equal(fclose(file), 0);
    const temper_engine_desc desc = {.model = path, .device = device};
    assert_fails(temper_engine_open(&desc, &engine, &err), status, text);
    test_nothing_left(device);
    remove(path);
    free(b.data);
}

static void wrong_files_are_refused_by_name(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    const struct {
        const char *model, *from; /* this place of the file, */
        size_t after;             /* so many bytes after it, */
        const char *to;           /* reads this */
        temper_status status;
        const char *text;
    } rows[] = {
        {"llama.gguf", "llama", 0, "mamba", TEMPER_UNSUPPORTED,
         "\"mamba\"; temper runs: llama, qwen2, qwen3, gemma3, phi3, gpt2"},
        {"qwen2.gguf", "blk.1.attn_k.bias", 0, "blk.1.attn_x.bias", TEMPER_BAD_FILE,
         "the tensor blk.1.attn_k.bias is missing"},
        {"qwen3.gguf", "blk.0.attn_k_norm.weight", 0, "blk.0.attn_x_norm.weight", TEMPER_BAD_FILE,
         "the tensor blk.0.attn_k_norm.weight is missing"},
        {"llama-bias.gguf", "blk.0.attn_q.bias", 0, "blk.0.attn_x.bias", TEMPER_UNSUPPORTED,
         "has no place in this architecture"},
        {"gemma3.gguf", "blk.2.post_ffw_norm.weight", 0, "blk.2.past_ffw_norm.weight",
         TEMPER_BAD_FILE, "the tensor blk.2.post_ffw_norm.weight is missing"},
        {"gpt2.gguf", "position_embd.weight", 0, "position_emxx.weight", TEMPER_BAD_FILE,
         "the tensor position_embd.weight is missing"},
        {"gpt2.gguf", "output_norm.bias", 0, "output_norm.bios", TEMPER_BAD_FILE,
         "the tensor output_norm.bias is missing"},
        {"phi3-longrope.gguf", "rope_factors_short.weight", 0, "rope_factors_shart.weight",
         TEMPER_BAD_FILE, "the tensor rope_factors_short.weight is missing"},
        {"phi3-longrope.gguf", "rope_factors_long.weight", 0, "rope_factors_lang.weight",
         TEMPER_UNSUPPORTED, "rope_factors_"},
        {"llama-yarn.gguf", "rope.scaling.type", 17 + 4 + 8, "yawn", TEMPER_UNSUPPORTED,
         "rope.scaling.type is \"yawn\"; temper knows none, linear, yarn and longrope"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bytes b = read_model(rows[i].model);
        memcpy(place_of(b, rows[i].from, rows[i].after), rows[i].to, strlen(rows[i].to));
        refuse(device, b, rows[i].status, rows[i].text);
    }
    temper_device_release(device);
}

static void wrong_shapes_are_refused_with_both(void **state)
{
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    /* A tensor's name is followed by the number of its dimensions, 32 bits, and each, 64 bits; a
     * key's by the type of its value, 32 bits. */
    enum { COLUMNS = 4, ROWS = 4 + 8, VALUE = 4 };
    const struct {
        const char *model, *name; /* of a tensor or of a key; */
        size_t after;             /* the number so many bytes after it */
        uint8_t less;             /* gets less by this */
        const char *text;
    } rows[] = {
        {"phi3.gguf", "blk.0.attn_qkv.weight", ROWS, 8,
         "[64, 120], the configuration wants [64, 128]"},
        {"phi3.gguf", "blk.1.ffn_up.weight", ROWS, 1,
         "[64, 143], the configuration wants [64, 144]"},
        {"gpt2.gguf", "blk.0.attn_qkv.bias", COLUMNS, 1, "[191], the configuration wants [192]"},
        {"gpt2.gguf", "position_embd.weight", COLUMNS, 4,
         "[60, 1024], the configuration wants [64, 1024]"},
        {"qwen2.gguf", "blk.0.attn_k.bias", COLUMNS, 2, "[30], the configuration wants [32]"},
        {"qwen3.gguf", "blk.1.attn_q_norm.weight", COLUMNS, 1,
         "[31], the configuration wants [32]"},
        {"gemma3.gguf", "blk.3.post_attention_norm.weight", COLUMNS, 1,
         "[79], the configuration wants [80]"},
        {"phi3-longrope.gguf", "rope_factors_long.weight", COLUMNS, 1,
         "[7], the configuration wants [8]"},
        /* More rows than wanted: those of a vocabulary may be padded, and are in some of the
         * models above; no other tensor's. */
        {"phi3.gguf", "phi3.feed_forward_length", VALUE, 8,
         "ffn_up.weight has the shape [64, 144], the configuration wants [64, 128]"},
        {"phi3.gguf", "phi3.attention.head_count_kv", VALUE, 1,
         "attn_qkv.weight has the shape [64, 128], the configuration wants [64, 96]"},
        {"gpt2.gguf", "gpt2.context_length", VALUE + 1, 1,
         "position_embd.weight has the shape [64, 1024], the configuration wants [64, 768]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bytes b = read_model(rows[i].model);
        char *number = place_of(b, rows[i].name, strlen(rows[i].name) + rows[i].after);
        *number = (char)((uint8_t)*number - rows[i].less);
        refuse(device, b, TEMPER_BAD_FILE, rows[i].text);
    }
    temper_device_release(device);
}

/* With an argument: only the tests of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),
        cmocka_unit_test(every_architecture_under_every_mask),
        cmocka_unit_test(every_size_of_chunk),
        cmocka_unit_test(directories),
        cmocka_unit_test(no_device_memory_at_any_moment),
        cmocka_unit_test(wrong_files_are_refused_by_name),
        cmocka_unit_test(wrong_shapes_are_refused_with_both),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests_name("model_arch", tests, NULL, NULL);
}
