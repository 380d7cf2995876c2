/*
 * run.c - `temper run` for one answer: prompts and where they come from, what --json tells, how
 * tokens are chosen, when an answer ends, and what is refused.
 */
#include "base/strbuf.h"
#include "support/program.h"

/* Greedy, this prompt of this model goes on for as long as it may; in pieces: "w", half a
 * character, "rea", "@", "\", "\", "t", "t", ",", "t", "t", "t". */
#define ENDLESS TINY("f32"), "--raw", "-p", "The"
#define ENDLESS_12 "w\xef\xbf\xbdrea@\\\\tt,ttt"

static const char *text_of(const json_t *result)
{
    return json_string_value(json_object_get(result, "text"));
}

static size_t count_of(const json_t *result)
{
    return json_array_size(json_object_get(result, "tokens"));
}

static const char *finish_of(const json_t *result)
{
    return json_string_value(json_object_get(result, "finish"));
}

/* The text of the answer, for free(). */
static char *answer(const char *const *args)
{
    json_t *result = program_json(args);
    char *text = strdup(text_of(result));
    json_decref(result);
    return text;
}

#define assert_answer(wanted, ...)                                                                 \
    do {                                                                                           \
        char *text_of_answer = answer(ARGS(__VA_ARGS__, "--json"));                                \
        assert_string_equal(text_of_answer, wanted);                                               \
        free(text_of_answer);                                                                      \
    } while (0)

/* ---- what is told --------------------------------------------------------------------------- */

static void json_has_these_fields(void **state)
{
    static const char *const timings[] = {"prompt_seconds", "decode_seconds",
                                          "prompt_tokens_per_second", "tokens_per_second"};
    (void)state;
    json_t *result = program_json(ARGS("run", ENDLESS, "-n", "12", "--json"));
    assert_int_equal(json_object_size(result), 5);
    assert_string_equal(text_of(result), ENDLESS_12);
    assert_int_equal(count_of(result), 12);
    assert_int_equal(json_integer_value(json_object_get(result, "prompt_tokens")), 2);
    assert_string_equal(finish_of(result), "length");
    const json_t *times = json_object_get(result, "timings");
    for (size_t i = 0; i < sizeof timings / sizeof timings[0]; i++)
        assert_true(json_number_value(json_object_get(times, timings[i])) > 0.0);
    assert_int_equal(json_object_size(times), sizeof timings / sizeof timings[0]);
    json_decref(result);
    /* The same without --json, with a newline at its end. */
    program_expect(ARGS("run", ENDLESS, "-n", "12"), ENDLESS_12 "\n");
}

/* The goldens' texts, raw: BOS where the file says so, special tokens parsed, the very tokens. */
static void answers_are_the_goldens(void **state)
{
    static const char *const names[] = {"f32", "f16", "q4_0", "q4_1", "q8_0", "wide"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char golden_path[64], model[4096], n[16];
        snprintf(golden_path, sizeof golden_path, "tiny/llama-%s.json", names[i]);
        snprintf(model, sizeof model, "%s/tiny/llama-%s.gguf", TEST_GOLDEN, names[i]);
        json_t *golden = test_golden(golden_path);
        const json_t *prompt;
        size_t index;
        json_array_foreach(json_object_get(golden, "prompts"), index, prompt)
        {
            const json_t *wanted = json_object_get(json_object_get(prompt, "greedy"), "ids");
            snprintf(n, sizeof n, "%zu", json_array_size(wanted));
            json_t *result = program_json(ARGS("run", model, "--raw", "-n", n, "--json", "-p",
                                               json_string_value(json_object_get(prompt, "text"))));
            assert_true(json_equal(json_object_get(result, "tokens"), wanted));
            assert_int_equal(json_integer_value(json_object_get(result, "prompt_tokens")),
                             json_array_size(json_object_get(prompt, "ids")));
            json_decref(result);
        }
        json_decref(golden);
    }
}

/* The token that ends an answer is no part of it, and the pieces of the others make the text. */
static void the_end_token_is_left_out(void **state)
{
    (void)state;
    json_t *result =
        program_json(ARGS("run", TINY("q4_1"), "--raw", "-p", "The kernel", "-n", "100", "--json"));
    assert_string_equal(finish_of(result), "stop");
    assert_int_equal(count_of(result), 5);
    assert_string_equal(text_of(result), "ll\xcd\xa8M");
    const json_t *id;
    size_t index;
    json_array_foreach(json_object_get(result, "tokens"), index, id)
    {
        assert_true(json_integer_value(id) > 2); /* 0 to 2 are the special tokens */
    }
    json_decref(result);
}

static void streams_whole_characters(void **state)
{
    (void)state;
    program_result r = program_run(ARGS("run", ENDLESS, "-n", "300"));
    assert_int_equal(r.code, 0);
    for (size_t i = 0; i < r.out_length;) {
        const int size = utf8_sequence(r.out + i, r.out_length - i);
        assert_true(size > 0);
        i += (size_t)size;
    }
    assert_int_equal(r.err_length, 0); /* no progress where there is no terminal */
    program_free(&r);
}

/* ---- where a prompt comes from -------------------------------------------------------------- */

static void p_takes_whatever_follows(void **state)
{
    (void)state;
    static const char *const odd[] = {"--json", "-n", "--", "-", "--help", "-h", "--temp=nan"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        const char *path = program_file("odd", odd[i], strlen(odd[i]));
        char *typed = answer(ARGS("run", TINY("q4_1"), "--json", "-n", "3", "--raw", "-p", odd[i]));
        char *from_file =
            answer(ARGS("run", TINY("q4_1"), "--json", "-n", "3", "--raw", "-f", path));
        assert_string_equal(typed, from_file);
        free(typed);
        free(from_file);
    }
}

/* Prompt tokens of a file's bytes, as they are. */
static json_int_t tokens_of_file(const char *bytes, size_t length)
{
    const char *path = program_file("prompt", bytes, length);
    json_t *result =
        program_json(ARGS("run", TINY("q4_1"), "--raw", "-n", "0", "--json", "-f", path));
    const json_int_t count = json_integer_value(json_object_get(result, "prompt_tokens"));
    json_decref(result);
    return count;
}

static void f_reads_a_file_as_it_is(void **state)
{
    (void)state;
    assert_int_equal(tokens_of_file("X", 1), 1);
    assert_int_equal(tokens_of_file("X\n", 2), 2);
    assert_int_equal(tokens_of_file("X\r\n", 3), 3);
    assert_int_equal(tokens_of_file("\xef\xbb\xbfX", 4), 4); /* a byte order mark is text */
    assert_int_equal(tokens_of_file("X\0Y\0", 4), 4);
    assert_int_equal(tokens_of_file("X\xff\xc3", 3), 3);
    assert_refuses(1, "/nowhere/at/all", "run", TINY("q4_1"), "-f", "/nowhere/at/all");
    assert_refuses(1, "irectory", "run", TINY("q4_1"), "-f", "/tmp");
    assert_refuses(2, "-p and -f", "run", TINY("q4_1"), "-p", "x", "-f", "x");
}

static void an_empty_prompt(void **state)
{
    (void)state;
    /* Nothing to continue; with BOS there is one token. */
    assert_refuses(1, "empty", "run", TINY("q4_1"), "--raw", "-p", "");
    assert_refuses(1, "empty", "run", TINY("q4_1"), "--raw", "-f", "/dev/null", "--json");
    json_t *result = program_json(ARGS("run", TINY("f16"), "--raw", "-p", "", "-n", "2", "--json"));
    assert_int_equal(json_integer_value(json_object_get(result, "prompt_tokens")), 1);
    json_decref(result);
    /* No prompt and no terminal, and the pipe is empty. */
    assert_refuses(1, "-p TEXT", "run", TINY("q4_1"));
    assert_refuses(1, "-p TEXT", "run", TINY("q4_1"), "--raw", "--json");
}

static void a_pipe_gives_the_prompt(void **state)
{
    (void)state;
    char *wanted = answer(ARGS("run", ENDLESS, "-n", "6", "--json"));
    program_result r = program_call_all(&(program_call){
        .args = ARGS("run", TINY("f32"), "--raw", "-n", "6", "--json"), .input = "The"});
    json_t *result = program_parse(&r);
    assert_string_equal(text_of(result), wanted);
    json_decref(result);
    program_free(&r);
    r = program_call_all(&(program_call){
        .args = ARGS("run", TINY("f32"), "--raw", "-n", "6", "--json", "-f", "-"), .input = "The"});
    result = program_parse(&r);
    assert_string_equal(text_of(result), wanted);
    json_decref(result);
    program_free(&r);
    free(wanted);
}

/* In a chat message a NUL would end the text: refused, never cut in silence. */
static void a_nul_is_not_cut_at(void **state)
{
    (void)state;
    const char *path = program_file("nul", "ab\0cd", 5);
    assert_refuses(1, "NUL byte at place 2", "run", TINY("q4_1"), "-f", path);
}

static void special_tokens_and_bos(void **state)
{
    static const struct {
        const char *model, *text;
        json_int_t tokens;
    } rows[] = {
        {TINY("q4_1"), "T", 1},
        {TINY("f16"), "T", 2},             /* BOS before it */
        {TINY("q4_1"), "T<|im_end|>T", 3}, /* parsed */
        {TINY("f16"), "<|im_start|>T", 2}, /* the text brings the BOS: just one */
        {TINY("q4_1"), "T<|im_end", 8},    /* no special token */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *result = program_json(
            ARGS("run", rows[i].model, "--raw", "-p", rows[i].text, "-n", "0", "--json"));
        assert_int_equal(json_integer_value(json_object_get(result, "prompt_tokens")),
                         rows[i].tokens);
        json_decref(result);
    }
}

/* "<|im_start|>user\nT<|im_end|>\n<|im_start|>assistant\n", and the same with a system message. */
static void the_template_is_the_files_own(void **state)
{
    (void)state;
    const char *plain = "<|im_start|>user\nT<|im_end|>\n<|im_start|>assistant\n";
    const char *system = "<|im_start|>system\nBe kind.<|im_end|>\n"
                         "<|im_start|>user\nT<|im_end|>\n<|im_start|>assistant\n";
    json_t *chat = program_json(ARGS("run", TINY("q4_1"), "-p", "T", "-n", "8", "--json"));
    json_t *raw =
        program_json(ARGS("run", TINY("q4_1"), "--raw", "-p", plain, "-n", "8", "--json"));
    assert_true(json_equal(json_object_get(chat, "tokens"), json_object_get(raw, "tokens")));
    assert_true(
        json_equal(json_object_get(chat, "prompt_tokens"), json_object_get(raw, "prompt_tokens")));
    json_decref(chat);
    json_decref(raw);
    chat = program_json(
        ARGS("run", TINY("q4_1"), "-p", "T", "--system", "Be kind.", "-n", "8", "--json"));
    raw = program_json(ARGS("run", TINY("q4_1"), "--raw", "-p", system, "-n", "8", "--json"));
    assert_true(json_equal(json_object_get(chat, "tokens"), json_object_get(raw, "tokens")));
    assert_true(
        json_equal(json_object_get(chat, "prompt_tokens"), json_object_get(raw, "prompt_tokens")));
    json_decref(chat);
    json_decref(raw);
    assert_refuses(2, "--system", "run", TINY("q4_1"), "--raw", "--system", "x", "-p", "T");
}

/* ---- when an answer ends -------------------------------------------------------------------- */

static void n_tokens(void **state)
{
    (void)state;
    json_t *result = program_json(ARGS("run", ENDLESS, "-n", "0", "--json"));
    assert_string_equal(text_of(result), "");
    assert_int_equal(count_of(result), 0);
    json_decref(result);
    program_expect(ARGS("run", ENDLESS, "-n", "0"), "");
    result = program_json(ARGS("run", ENDLESS, "-n", "1", "--json"));
    assert_string_equal(text_of(result), "w");
    assert_int_equal(count_of(result), 1);
    json_decref(result);
    /* Half a character at the end is shown once, as U+FFFD. */
    program_expect(ARGS("run", ENDLESS, "-n", "2"), "w\xef\xbf\xbd\n");
}

static void the_context_ends_an_answer(void **state)
{
    static const char *const many[] = {"63", "100000", "18446744073709551615",
                                       "99999999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
        json_t *result = program_json(ARGS("run", ENDLESS, "--ctx", "64", "-n", many[i], "--json"));
        assert_string_equal(finish_of(result), "length");
        assert_int_equal(count_of(result), 62);
        json_decref(result);
    }
    json_t *result = program_json(ARGS("run", ENDLESS, "--ctx", "64", "--json"));
    assert_string_equal(finish_of(result), "length");
    assert_int_equal(count_of(result), 62);
    json_decref(result);
    /* A prompt that fills the context leaves no room; one more does not fit. */
    result = program_json(ARGS("run", ENDLESS, "--ctx", "2", "--json"));
    assert_int_equal(count_of(result), 0);
    assert_string_equal(finish_of(result), "length");
    json_decref(result);
    assert_refuses(1, "2 tokens", "run", ENDLESS, "--ctx", "1");
    assert_refuses(1, "--ctx", "run", ENDLESS, "--ctx", "1", "--json");
    assert_refuses(1, "4097", "run", ENDLESS, "--ctx", "4097");
    assert_refuses(2, "--ctx is 4294967296", "run", ENDLESS, "--ctx", "4294967296");
    assert_refuses(2, "--ctx", "run", ENDLESS, "--ctx", "-1");
}

static void stop_strings(void **state)
{
    (void)state;
    /* Over three tokens; the first of several; a prefix of another that does not come. */
    assert_answer("w\xef\xbf\xbdr", "run", ENDLESS, "-n", "12", "--stop", "ea@\\");
    assert_answer("w\xef\xbf\xbdrea", "run", ENDLESS, "-n", "12", "--stop", ",", "--stop", "@");
    assert_answer("w\xef\xbf\xbdre", "run", ENDLESS, "-n", "12", "--stop", "ea@\\\\Z", "--stop",
                  "a@");
    assert_answer("w\xef\xbf\xbdrea", "run", ENDLESS, "-n", "12", "--stop", "@\\", "--stop", "@");
    assert_answer("", "run", ENDLESS, "-n", "12", "--stop", "w");
    /* What could have become one at the very end is released; what never comes changes nothing. */
    assert_answer("w\xef\xbf\xbdrea@\\", "run", ENDLESS, "-n", "5", "--stop", "@\\\\\\");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--stop", "zzz");
    json_t *result = program_json(ARGS("run", ENDLESS, "-n", "12", "--stop", "tt,t", "--json"));
    assert_string_equal(finish_of(result), "stop");
    assert_string_equal(text_of(result), "w\xef\xbf\xbdrea@\\\\");
    json_decref(result);
    program_expect(ARGS("run", ENDLESS, "--stop", ","), "w\xef\xbf\xbdrea@\\\\tt\n");
    assert_refuses(2, "--stop is empty", "run", ENDLESS, "--stop", "");
    assert_refuses(1, "UTF-8", "run", ENDLESS, "--stop", "\xff");
}

/* ---- how tokens are chosen ------------------------------------------------------------------ */

static void small_temperatures_are_greedy(void **state)
{
    static const char *const values[] = {"0", "-0", "1e-6", "1e-7", "1e-39", "1e-400", "0.0"};
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--temp", values[i], "--seed", "7");
}

static void a_seed_gives_the_same_text(void **state)
{
    (void)state;
    char *first =
        answer(ARGS("run", ENDLESS, "-n", "24", "--temp", "1.5", "--seed", "7", "--json"));
    char *again =
        answer(ARGS("run", ENDLESS, "-n", "24", "--temp", "1.5", "--seed", "7", "--json"));
    char *other = answer(ARGS("run", ENDLESS, "-n", "24", "--temp", "1.5", "--seed",
                              "18446744073709551615", "--json"));
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
    free(first);
    free(again);
    free(other);
    assert_refuses(2, "--seed", "run", ENDLESS, "--seed", "18446744073709551616");
    assert_refuses(2, "--seed", "run", ENDLESS, "--seed", "-1");
}

/* Whatever leaves only the likeliest token gives the greedy answer at any temperature. */
static void filters_down_to_one_token(void **state)
{
    (void)state;
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--temp", "2", "--top-k", "1");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--temp", "2", "--top-p", "0");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--temp", "2", "--top-p", "1e-9");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--temp", "2", "--min-p", "1");
    /* And what leaves all of them changes nothing. */
    char *free_choice =
        answer(ARGS("run", ENDLESS, "-n", "12", "--temp", "2", "--seed", "3", "--json"));
    assert_answer(free_choice, "run", ENDLESS, "-n", "12", "--temp", "2", "--seed", "3", "--top-k",
                  "0", "--top-p", "1", "--min-p", "0");
    assert_answer(free_choice, "run", ENDLESS, "-n", "12", "--temp", "2", "--seed", "3", "--top-k",
                  "99999999999999999999");
    free(free_choice);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void values_out_of_range(void **state)
{
    static const struct {
        const char *option, *value, *told;
    } rows[] = {
        {"--temp", "-1", "--temp is -1"},
        {"--temp", "-1e-9", "--temp is -1e-09"},
        {"--temp", "nan", "--temp is nan"},
        {"--temp", "inf", "--temp is inf"},
        {"--temp", "-inf", "--temp is -inf"},
        {"--temp", "1e39", "--temp is 1e+39"},
        {"--temp", "warm", "\"warm\""},
        {"--temp", "", "--temp"},
        {"--temp", "1 2", "\"1 2\""},
        {"--top-p", "1.5", "--top-p is 1.5"},
        {"--top-p", "-0.1", "--top-p is -0.1"},
        {"--top-p", "nan", "--top-p is nan"},
        {"--top-p", "inf", "--top-p is inf"},
        {"--min-p", "1.01", "--min-p is 1.01"},
        {"--min-p", "-1", "--min-p is -1"},
        {"--min-p", "nan", "--min-p is nan"},
        {"--top-k", "-1", "--top-k is \"-1\""},
        {"--top-k", "2.5", "--top-k is \"2.5\""},
        {"--repeat-penalty", "0", "--repeat-penalty is 0"},
        {"--repeat-penalty", "-1", "--repeat-penalty is -1"},
        {"--repeat-penalty", "nan", "--repeat-penalty is nan"},
        {"--repeat-penalty", "inf", "--repeat-penalty is inf"},
        {"-n", "-1", "-n is \"-1\""},
        {"-n", "ten", "-n is \"ten\""},
        {"-n", "0x10", "-n is \"0x10\""},
        {"-n", "+1", "-n is \"+1\""},
        {"-n", " 1", "-n is \" 1\""},
        {"-n", "", "-n is \"\""},
        {"--kv", "f64", "--kv is \"f64\"; it must be f32, f16 or q8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_refuses(2, rows[i].told, "run", ENDLESS, rows[i].option, rows[i].value);
        assert_refuses(2, rows[i].told, "run", ENDLESS, "--json", rows[i].option, rows[i].value);
    }
}

static void unknown_features_limits_and_devices(void **state)
{
    static const struct {
        const char *option, *value, *told;
    } rows[] = {
        {"--no-feature", "f17", "\"f17\""},
        {"--no-feature", "f16,warp", "\"warp\""},
        {"--no-feature", "f16,", "comma"},
        {"--no-feature", "F16", "\"F16\""},
        {"--limit", "maxThreads=1", "\"maxThreads\""},
        {"--limit", "maxBufferSize", "\"maxBufferSize\""},
        {"--limit", "=1", "\"=1\""},
        {"--limit", "maxBufferSize=", "\"maxBufferSize=\""},
        {"--limit", "maxBufferSize=1e9", "\"maxBufferSize=1e9\""},
        {"--limit", "maxBufferSize=-1", "\"maxBufferSize=-1\""},
        {"--limit", "maxBufferSize=99999999999999999999", "99999999999999999999"},
        {"--limit", "maxBufferSize=18446744073709551615", "maxBufferSize=18446744073709551615"},
        {"--device", "no such adapter", "\"no such adapter\""},
        {"--device", "4000000000", "there is no adapter 4000000000"},
        {"--device", "-1", "\"-1\""},
        {"--device", "", "\"\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_refuses(1, rows[i].told, "run", ENDLESS, rows[i].option, rows[i].value);
    char limit[4][40];
    const char *many[64] = {"run", ENDLESS};
    for (size_t i = 0; i < 4; i++)
        snprintf(limit[i], sizeof limit[i], "maxBufferSize=%zu", 300000000 + i);
    size_t used = 5;
    for (size_t i = 0; i < 4; i++) {
        many[used++] = "--limit";
        many[used++] = limit[i];
    }
    program_call call = {.args = many};
    program_result r = program_call_all(&call); /* given again and again: the last one counts */
    assert_int_equal(r.code, 0);
    program_free(&r);
}

/* ---- what is taken away --------------------------------------------------------------------- */

static void less_of_a_device_gives_the_same(void **state)
{
    (void)state;
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--no-feature", "f16");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--no-feature", "f16,subgroups");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--no-feature",
                  "f16,subgroups,subgroup-matrix,timestamps,immediates", "--robust");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--robust");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--device", "0");
    /* Below WebGPU's defaults, so that weights are split over bindings. */
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--ctx", "256", "--limit",
                  "maxStorageBufferBindingSize=65536");
    assert_answer(ENDLESS_12, "run", ENDLESS, "-n", "12", "--ctx", "256", "--limit",
                  "maxComputeWorkgroupsPerDimension=64");
}

/* A limit that leaves no way is told; the answer is never wrong. */
static void limits_are_enforced(void **state)
{
    static const char *const rows[] = {
        "maxStorageBufferBindingSize=64",
        "maxStorageBufferBindingSize=0",
        "maxBufferSize=0",
        "maxBufferSize=1000",
        "maxComputeInvocationsPerWorkgroup=1",
        "maxComputeWorkgroupSizeX=1",
        "maxComputeWorkgroupStorageSize=0",
        "maxStorageBuffersPerShaderStage=1",
        "maxComputeWorkgroupsPerDimension=0",
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        program_result r =
            program_run(ARGS("run", ENDLESS, "-n", "12", "--ctx", "256", "--limit", rows[i]));
        if (r.code != 1)
            fail_msg("%s: exit code %d, %s", rows[i], r.code, r.out);
        assert_int_equal(r.out_length, 0);
        program_check_message(&r);
        program_free(&r);
    }
}

static void every_cache_type_answers(void **state)
{
    (void)state;
    program_expect(ARGS("run", ENDLESS, "-n", "12", "--kv", "f32"), ENDLESS_12 "\n");
    program_expect(ARGS("run", ENDLESS, "-n", "12", "--kv", "f16"), ENDLESS_12 "\n");
    program_result r = program_run(ARGS("run", ENDLESS, "-n", "12", "--kv", "q8"));
    assert_int_equal(r.code, 0);
    assert_true(r.out_length > 1);
    program_free(&r);
    /* The type is told with the speed, and the logits are other ones. */
    r = program_run(ARGS("bench", TINY("f32"), "-p", "8", "-n", "2", "-r", "1", "--kv", "q8"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, " kv=q8 "));
    program_free(&r);
    char *shown[3];
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"f32", "f16", "q8"};
        r = program_run(ARGS("eval", "next", TINY("f32"), "--ids", "1 2 3 4 5 6 7 8", "--json",
                             "--kv", names[i]));
        assert_int_equal(r.code, 0);
        shown[i] = strdup(r.out);
        program_free(&r);
    }
    assert_string_not_equal(shown[0], shown[1]);
    assert_string_not_equal(shown[1], shown[2]);
    for (int i = 0; i < 3; i++)
        free(shown[i]);
    static const char told[] = "--kv is \"f64\"; it must be f32, f16 or q8";
    assert_refuses(2, told, "bench", TINY("f32"), "--kv", "f64");
    assert_refuses(2, told, "eval", "next", TINY("f32"), "-p", "a", "--kv", "f64");
    assert_refuses(2, told, "eval", "ppl", TINY("f32"), "--text", "a", "--kv", "f64");
    assert_refuses(2, told, "inspect", TINY("f32"), "--kv", "f64");
}

static void a_repeat_penalty_changes_the_answer(void **state)
{
    (void)state;
    program_result r = program_run(ARGS("run", ENDLESS, "-n", "12", "--repeat-penalty", "2"));
    assert_int_equal(r.code, 0);
    assert_string_not_equal(r.out, ENDLESS_12 "\n");
    program_free(&r);
}

/* A window of nothing is no penalty; -1 and more than the context are the whole text. */
static void windows_of_the_penalty(void **state)
{
    (void)state;
    program_result none = program_run(
        ARGS("run", ENDLESS, "-n", "12", "--repeat-penalty", "2", "--repeat-last-n", "0"));
    assert_int_equal(none.code, 0);
    assert_string_equal(none.out, ENDLESS_12 "\n");
    program_result all = program_run(
        ARGS("run", ENDLESS, "-n", "12", "--repeat-penalty", "2", "--repeat-last-n", "-1"));
    program_result more = program_run(
        ARGS("run", ENDLESS, "-n", "12", "--repeat-penalty", "2", "--repeat-last-n", "100000"));
    assert_int_equal(all.code, 0);
    assert_string_not_equal(all.out, none.out);
    assert_string_equal(all.out, more.out);
    program_result wrong = program_run(ARGS("run", ENDLESS, "--repeat-last-n", "-2"));
    assert_int_equal(wrong.code, 2);
    assert_non_null(strstr(wrong.err, "--repeat-last-n is -2"));
    program_free(&none);
    program_free(&all);
    program_free(&more);
    program_free(&wrong);
}

/* With an argument: only the tests of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_these_fields),
        cmocka_unit_test(answers_are_the_goldens),
        cmocka_unit_test(the_end_token_is_left_out),
        cmocka_unit_test(streams_whole_characters),
        cmocka_unit_test(p_takes_whatever_follows),
        cmocka_unit_test(f_reads_a_file_as_it_is),
        cmocka_unit_test(an_empty_prompt),
        cmocka_unit_test(a_pipe_gives_the_prompt),
        cmocka_unit_test(a_nul_is_not_cut_at),
        cmocka_unit_test(special_tokens_and_bos),
        cmocka_unit_test(the_template_is_the_files_own),
        cmocka_unit_test(n_tokens),
        cmocka_unit_test(the_context_ends_an_answer),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(small_temperatures_are_greedy),
        cmocka_unit_test(a_seed_gives_the_same_text),
        cmocka_unit_test(filters_down_to_one_token),
        cmocka_unit_test(values_out_of_range),
        cmocka_unit_test(unknown_features_limits_and_devices),
        cmocka_unit_test(less_of_a_device_gives_the_same),
        cmocka_unit_test(limits_are_enforced),
        cmocka_unit_test(every_cache_type_answers),
        cmocka_unit_test(a_repeat_penalty_changes_the_answer),
        cmocka_unit_test(windows_of_the_penalty),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
