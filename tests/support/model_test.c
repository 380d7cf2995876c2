#include "support/model_test.h"

#include <math.h>
#include <unistd.h>

#include "gpu/gpu.h"

temper_device *test_device(const device_mask *mask)
{
    temper_error err = {0};
    temper_device *device = NULL;
    const temper_device_desc desc = test_mask_desc(mask);
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
    const temper_engine_desc desc = {.model = full,
                                     .device = device,
                                     .max_rows = max_rows,
                                     .exact = true,
                                     .widen = &(temper_widen){0}};
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

const char *test_gemma_model(void)
{
    static const char path[] = TEST_PARTS "/../models/gemma-3-270m-q4_k_m.gguf";
    if (access(path, R_OK) != 0)
        skip();
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

static temper_tokens golden_prompt(temper_engine *engine, const json_t *golden)
{
    temper_error err = {0};
    temper_tokens tokens = {0};
    const json_t *messages = json_object_get(golden, "messages");
    if (json_is_array(messages)) {
        temper_message list[8];
        assert_true(json_array_size(messages) <= 8);
        for (size_t i = 0; i < json_array_size(messages); i++) {
            const json_t *message = json_array_get(messages, i);
            list[i] = (temper_message){json_string_value(json_object_get(message, "role")),
                                       json_string_value(json_object_get(message, "content"))};
        }
        assert_ok(temper_chat(engine, list, json_array_size(messages), &tokens, &err));
    } else {
        const char *text = json_string_value(json_object_get(golden, "text"));
        assert_ok(temper_tokenize(engine, text, SIZE_MAX, TEMPER_AUTO_BOS | TEMPER_PARSE_SPECIAL,
                                  &tokens, &err));
    }
    temper_tokens wanted = test_ids(json_object_get(golden, "ids"));
    assert_int_equal(tokens.count, wanted.count);
    assert_memory_equal(tokens.ids, wanted.ids, wanted.count * sizeof *wanted.ids);
    free(wanted.ids);
    return tokens;
}

void test_model_prompt(temper_engine *engine, temper_session *session, const char *path,
                       double limit, size_t most)
{
    temper_error err = {0};
    temper_result result;
    json_t *golden = test_golden(path);
    const json_t *logits_wanted = json_object_get(golden, "logits");
    const json_t *greedy = json_object_get(golden, "greedy");
    const double range = json_number_value(json_object_get(logits_wanted, "range"));
    const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
    float *logits = calloc(vocabulary, sizeof *logits);
    temper_tokens prompt = golden_prompt(engine, golden);
    assert_ok(temper_session_logits(session, prompt, logits, &err));

    double worst = test_worst(logits, json_object_get(logits_wanted, "top_ids"),
                              json_object_get(logits_wanted, "top_logits"), range);
    const json_t *samples = json_object_get(logits_wanted, "sample_logits");
    const size_t every = (size_t)json_integer_value(json_object_get(logits_wanted, "sample_every"));
    for (size_t i = 0; i < json_array_size(samples); i++)
        worst = fmax(
            worst, fabs((double)logits[i * every] - json_number_value(json_array_get(samples, i))) /
                       range);
    print_message("%s: %zu tokens, off by %.2g of the range\n", path, prompt.count, worst);
    assert_true(worst <= limit);

    temper_tokens wanted = test_ids(json_object_get(greedy, "ids"));
    if (wanted.count > most)
        wanted.count = most;
    const temper_request request = {.prompt = prompt, .max_tokens = wanted.count};
    assert_ok(temper_session_generate(session, &request, &result, &err));
    assert_int_equal(result.reused_tokens, prompt.count - 1);
    assert_int_equal(result.token_count, wanted.count);
    assert_memory_equal(result.tokens, wanted.ids, wanted.count * sizeof *wanted.ids);
    free(wanted.ids);
    temper_free(prompt.ids);
    free(logits);
    json_decref(golden);
}

void test_smollm2_prompt(temper_engine *engine, temper_session *session, const char *name,
                         size_t most)
{
    char path[128];
    snprintf(path, sizeof path, "model/smollm2-135m/%s.json", name);
    test_model_prompt(engine, session, path, SMOLLM2_LIMIT, most);
}

void test_tiny_logits(temper_session *session, const json_t *prompt, uint32_t vocabulary,
                      const char *what)
{
    temper_error err = {0};
    float *logits = calloc(vocabulary, sizeof *logits);
    temper_tokens ids = test_ids(json_object_get(prompt, "ids"));
    const double range = json_number_value(json_object_get(prompt, "range"));
    const json_t *rows = json_object_get(prompt, "logits");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const size_t position = (size_t)json_integer_value(json_object_get(row, "position"));
        const temper_tokens part = {ids.ids, position + 1};
        assert_ok(temper_session_logits(session, part, logits, &err));
        const double worst = test_worst(logits, NULL, json_object_get(row, "values"), range);
        if (!(worst <= TINY_LIMIT))
            fail_msg("%s, %zu tokens, position %zu: off by %g of the range", what, ids.count,
                     position, worst);
    }
    free(ids.ids);
    free(logits);
}

void test_tiny_greedy(temper_session *session, const json_t *prompt, const char *what)
{
    temper_error err = {0};
    temper_result result;
    temper_tokens ids = test_ids(json_object_get(prompt, "ids"));
    temper_tokens wanted = test_ids(json_object_get(json_object_get(prompt, "greedy"), "ids"));
    const temper_request request = {.prompt = ids, .max_tokens = wanted.count};
    assert_ok(temper_session_generate(session, &request, &result, &err));
    for (size_t i = 0; i < result.token_count; i++)
        if (result.tokens[i] != wanted.ids[i])
            fail_msg("%s, %zu tokens: token %zu is %u, not %u", what, ids.count, i,
                     result.tokens[i], wanted.ids[i]);
    assert_int_equal(result.token_count, wanted.count);
    free(ids.ids);
    free(wanted.ids);
}

void test_tiny_model(temper_device *device, const char *stem, uint32_t max_rows)
{
    char path[128], what[160];
    temper_error err = {0};
    temper_session *session = NULL;
    snprintf(path, sizeof path, "%s.json", stem);
    json_t *golden = test_golden(path);
    snprintf(path, sizeof path, "%s.gguf", stem);
    snprintf(what, sizeof what, "%s, %u rows a step", stem, max_rows);
    temper_engine *engine = test_engine(device, path, max_rows);
    const json_t *prompts = json_object_get(golden, "prompts");
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 512}, &session, &err));
    assert_int_equal(json_array_size(prompts), 3);
    for (size_t i = 0; i < json_array_size(prompts); i++) {
        const json_t *prompt = json_array_get(prompts, i);
        test_tiny_logits(session, prompt, temper_engine_info(engine)->vocabulary, what);
        test_tiny_greedy(session, prompt, what);
    }
    temper_session_close(session);
    temper_engine_close(engine);
    json_decref(golden);
}
