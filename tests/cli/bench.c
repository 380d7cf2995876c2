/*
 * bench.c - `temper bench` and `temper run --profile`: every field that is promised, what is
 * refused, and the trace. The peak is a planted one; no figure is compared with a clock.
 */
#include "support/planted.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static int plant(void **state)
{
    (void)state;
    planted_folder();
    planted_note("peak", PLANTED_PEAK);
    return 0;
}

static double number(const json_t *row, const char *name)
{
    const json_t *value = json_object_get(row, name);
    if (!json_is_number(value))
        fail_msg("%s is no number in %s", name, json_dumps(row, JSON_COMPACT));
    return json_number_value(value);
}

static const char *text(const json_t *row, const char *name)
{
    const json_t *value = json_object_get(row, name);
    if (!json_is_string(value))
        fail_msg("%s is no string in %s", name, json_dumps(row, JSON_COMPACT));
    return json_string_value(value);
}

static void check_row(const json_t *row, const char *test, int depth)
{
    assert_string_equal(text(row, "test"), test);
    assert_int_equal(number(row, "depth"), depth);
    const double speed = number(row, "tokens_per_second"), ms = number(row, "ms");
    const double tokens = atof(test + 2);
    assert_true(speed > 0 && ms > 0 && fabs(speed * ms / 1e3 - tokens) < 1e-3 * tokens);
    assert_true(number(row, "stddev") >= 0);
    assert_true(number(row, "dispatches") >= 10);
    /* A prompt of one step is one submit; an answer one a token, one that ends the prompt, and one
     * that was under way. */
    const double submits = number(row, "submits");
    if (test[0] == 'p')
        assert_int_equal(submits, 1);
    else
        /* One a token, or on a GPU one for up to four; and the prompt's. */
        assert_true(submits >= tokens / 4 + 1 && submits <= tokens + 2);
    assert_true(number(row, "bytes") > 0 && number(row, "peak_bytes") >= number(row, "bytes"));
    assert_true(number(row, "gbps") > 0 && number(row, "tflops") > 0);
    /* By the planted peak the two are one number. */
    assert_true(fabs(number(row, "share") - number(row, "gbps")) <= 1e-6 * number(row, "gbps"));
    assert_true(json_is_boolean(json_object_get(row, "steady")));
    assert_true(strlen(text(row, "adapter")) > 0 && strlen(text(row, "driver")) > 0);
    assert_non_null(strstr(text(row, "options"), "kv="));
    assert_string_equal(text(row, "version"), temper_version());
}

static void every_combination_is_a_row(void **state)
{
    (void)state;
    static const struct {
        const char *test;
        int depth;
    } want[] = {{"pp16", 0}, {"pp8", 0}, {"tg4", 0}, {"pp16", 12}, {"pp8", 12}, {"tg4", 12}};
    json_t *list = program_json(ARGS("bench", TINY("q4_1"), "-p", "16,8", "-n", "4", "-d", "0,12",
                                     "-r", "2", "-o", "json"));
    assert_int_equal(json_array_size(list), 6);
    for (size_t i = 0; i < 6; i++)
        check_row(json_array_get(list, i), want[i].test, want[i].depth);
    /* The depth is not timed, and its work is not counted. */
    assert_int_equal(number(json_array_get(list, 0), "dispatches"),
                     number(json_array_get(list, 3), "dispatches"));
    json_decref(list);
    /* What was asked for stands beside the figure. */
    list = program_json(ARGS("bench", TINY("q4_1"), "-p", "8", "-n", "0", "-r", "1", "-o", "json",
                             "--lossy", "int8"));
    assert_non_null(strstr(text(json_array_get(list, 0), "options"), " lossy=int8"));
    assert_non_null(strstr(text(json_array_get(list, 0), "options"), " products=int8"));
    json_decref(list);
    json_t *none = program_json(ARGS("bench", TINY("q4_1"), "-p", "0", "-n", "0", "-o", "json"));
    assert_int_equal(json_array_size(none), 0);
    json_decref(none);
}

static size_t count_of(const char *line, char c)
{
    size_t count = 0;
    for (; *line != '\0' && *line != '\n'; line++)
        count += *line == c;
    return count;
}

static void tables_have_the_same_columns_everywhere(void **state)
{
    (void)state;
    program_result r = program_run(
        ARGS("bench", TINY("q8_0"), "-p", "8", "-n", "2", "-r", "1", "-o", "csv", "--load"));
    assert_int_equal(r.code, 0);
    const char *line = r.out;
    assert_int_equal(strncmp(line,
                             "test,depth,tokens_per_second,stddev,ms,dispatches,submits,"
                             "bytes,peak_bytes,adapter,options",
                             87),
                     0);
    const size_t columns = count_of(line, ',');
    size_t lines = 0;
    for (; *line != '\0'; line = strchr(line, '\n') + 1, lines++) {
        /* The adapter's name has commas of its own, between quotes. */
        size_t commas = 0;
        bool quoted = false;
        for (const char *at = line; *at != '\n'; at++) {
            quoted ^= *at == '"';
            commas += *at == ',' && !quoted;
        }
        assert_int_equal(commas, columns);
    }
    assert_int_equal(lines, 4);
    program_free(&r);

    r = program_run(ARGS("bench", TINY("q8_0"), "-p", "8", "-n", "2", "-r", "1"));
    assert_int_equal(r.code, 0);
    const char *head = strstr(r.out, "| test | depth |");
    const char *row = strstr(r.out, "| pp8 | 0 |");
    assert_true(head != NULL && row != NULL && strstr(r.out, "| tg2 | 0 |") != NULL);
    assert_int_equal(count_of(head, '|'), count_of(row, '|'));
    assert_non_null(strstr(r.out, "share: of 1 GB/s read"));
    program_free(&r);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    assert_refuses(2, "-p is \"x\"", "bench", TINY("f16"), "-p", "x");
    assert_refuses(2, "-p is \"8,\"", "bench", TINY("f16"), "-p", "8,");
    assert_refuses(2, "-n is \",8\"", "bench", TINY("f16"), "-n", ",8");
    assert_refuses(2, "-d is \"-1\"", "bench", TINY("f16"), "-d", "-1");
    assert_refuses(2, "-d is \"1 2\"", "bench", TINY("f16"), "-d", "1 2");
    assert_refuses(2, "more than 16", "bench", TINY("f16"), "-p",
                   "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1");
    assert_refuses(2, "must be below", "bench", TINY("f16"), "-p", "99999999999999999999999");
    assert_refuses(2, "-o is \"xml\"", "bench", TINY("f16"), "-o", "xml");
    assert_refuses(2, "-r is 0", "bench", TINY("f16"), "-r", "0");
    assert_refuses(2, "--rows is 4097", "bench", TINY("f16"), "--rows", "4097");
    assert_refuses(2, "use one of them", "bench", TINY("f16"), "--shape", "llama-1b");
    assert_refuses(2, "needs a --shape", "bench", TINY("f16"), "--write", "x");
    assert_refuses(1, "positions", "bench", TINY("f16"), "-p", "8", "-d", "0,100000");
    assert_refuses(1, "llama-1b", "bench", "--shape", "llama-2b");
    assert_refuses(1, "Q4_9", "bench", "--shape", "llama-1b", "--type", "Q4_9");
}

/* A model whose norms are so large that nothing is a number any more: its speed is not told. */
static void no_speed_is_told_when_the_output_is_wrong(void **state)
{
    (void)state;
    size_t length = 0;
    char *bytes = program_read(TINY("f32"), &length);
    /* The scores of tensors begin after the directory: every float near 1 becomes 1e38. */
    const float large = 1e38f;
    for (size_t i = length / 2 / 4 * 4; i + 4 <= length; i += 4) {
        float value;
        memcpy(&value, bytes + i, sizeof value);
        if (fabsf(value) > 0.05f && fabsf(value) < 2.0f)
            memcpy(bytes + i, &large, sizeof large);
    }
    const char *path = program_file("broken.gguf", bytes, length);
    free(bytes);
    static const char *const formats[] = {"md", "csv", "json"};
    for (size_t i = 0; i < 3; i++)
        assert_refuses(1, "no speed is told", "bench", path, "-p", "8", "-n", "2", "-r", "1", "-o",
                       formats[i]);
}

/* ---- the trace ------------------------------------------------------------------------------- */

typedef struct span {
    double begin, end;
} span;

/* Events of the GPU's track in the order of the file: each lies in the one that is open, or begins
 * after it has ended. Returns the greatest depth. */
static size_t check_nesting(const json_t *events, size_t *count)
{
    enum { DEPTH = 8 };
    span open[DEPTH];
    size_t depth = 0, deepest = 0, index;
    const json_t *event;
    *count = 0;
    json_array_foreach(json_object_get(events, "traceEvents"), index, event)
    {
        if (strcmp(text(event, "ph"), "X") != 0)
            continue;
        const span s = {number(event, "ts"), number(event, "ts") + number(event, "dur")};
        assert_true(s.end >= s.begin);
        /* Half a nanosecond, in microseconds: less than the file's digits. */
        const double nothing = 5e-4;
        while (depth > 0 && s.begin >= open[depth - 1].end - nothing &&
               s.end > open[depth - 1].end + nothing)
            depth--;
        if (depth > 0)
            assert_true(s.begin >= open[depth - 1].begin - nothing &&
                        s.end <= open[depth - 1].end + nothing);
        assert_true(depth < DEPTH);
        open[depth++] = s;
        deepest = depth > deepest ? depth : deepest;
        /* A dispatch holds nothing. */
        if (json_object_get(json_object_get(event, "args"), "operations") != NULL)
            depth--;
        (*count)++;
    }
    return deepest;
}

static bool has_event(const json_t *trace, const char *name, const char *phase)
{
    size_t index;
    const json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), index, event)
    {
        if (strcmp(text(event, "ph"), phase) == 0 &&
            strncmp(text(event, "name"), name, strlen(name)) == 0)
            return true;
    }
    return false;
}

static json_t *read_trace(const char *path)
{
    size_t length = 0;
    char *bytes = program_read(path, &length);
    json_error_t why;
    json_t *trace = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &why);
    if (trace == NULL)
        fail_msg("line %d of the trace: %s", why.line, why.text);
    free(bytes);
    return trace;
}

static void a_trace_nests(void **state)
{
    (void)state;
    const char *path = program_path("trace.json");
    size_t count = 0;
    program_result r = program_run(ARGS("bench", TINY("q4_1"), "-p", "16", "-n", "3", "-d", "0,8",
                                        "-r", "1", "--trace", path));
    if (r.code != 0 && strstr(r.err, "timestamps") != NULL) {
        print_message("no timestamps here: traces are not looked at\n");
        program_free(&r);
        return;
    }
    assert_int_equal(r.code, 0);
    assert_null(strstr(r.err, "dispatches")); /* the table is --profile's */
    program_free(&r);
    json_t *trace = read_trace(path);
    assert_int_equal(check_nesting(trace, &count), 3); /* test, submit, dispatch */
    assert_true(count > 50);
    static const char *const spans[] = {"pp16 at depth 0", "tg3 at depth 0", "pp16 at depth 8",
                                        "tg3 at depth 8",  "submit ",        "lookup",
                                        "attention"};
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++)
        if (!has_event(trace, spans[i], "X"))
            fail_msg("no span %s", spans[i]);
    assert_true(has_event(trace, "submit ", "i"));
    assert_true(has_event(trace, "process_name", "M"));
    json_decref(trace);
    assert_refuses(1, "/nowhere/trace.json", "bench", TINY("q4_1"), "-p", "8", "-n", "0", "-r", "1",
                   "--trace", "/nowhere/trace.json");
}

static void run_shows_a_profile_beside_the_answer(void **state)
{
    (void)state;
    const char *path = program_path("run.json");
    program_result plain =
        program_run(ARGS("run", TINY("q4_1"), "--raw", "-p", "Why is it so?", "-n", "5"));
    program_result r = program_run(ARGS("run", TINY("q4_1"), "--raw", "-p", "Why is it so?", "-n",
                                        "5", "--profile", "--trace", path));
    if (r.code != 0 && strstr(r.err, "timestamps") != NULL) {
        print_message("no timestamps here: profiles are not looked at\n");
    } else {
        assert_int_equal(r.code, 0);
        assert_string_equal(r.out, plain.out);
        assert_non_null(strstr(r.err, "the prompt: "));
        assert_non_null(strstr(r.err, "the answer: "));
        assert_non_null(strstr(r.err, " a token"));
        assert_non_null(strstr(r.err, "lookup"));
        json_t *trace = read_trace(path);
        assert_true(has_event(trace, "the prompt", "X") && has_event(trace, "the answer", "X"));
        json_decref(trace);
    }
    program_free(&r);
    program_free(&plain);
    assert_refuses(1, "timestamps", "run", TINY("q4_1"), "--raw", "-p", "x", "-n", "1", "--profile",
                   "--no-feature", "timestamps");
    assert_refuses(1, "timestamps", "bench", TINY("q4_1"), "-p", "4", "-n", "0", "-r", "1",
                   "--profile", "--no-feature", "timestamps");
}

/* ---- loading --------------------------------------------------------------------------------- */

static void check_load(const json_t *row, bool many)
{
    assert_string_equal(text(row, "test"), "load");
    assert_true(number(row, "ms") > 0 && number(row, "gbps") > 0);
    const double file = number(row, "file_bytes"), largest = number(row, "largest_bytes");
    assert_true(largest > 0 && largest < file);
    /* What a loader may have: its staging and little beside; never the file. */
    assert_true(number(row, "host_bytes") > 0);
    assert_true(!many || number(row, "host_bytes") < 1.2 * largest + (16 << 20));
    assert_true(number(row, "resident_bytes") > number(row, "host_bytes"));
    const json_t *cold = json_object_get(row, "cold_ms");
    assert_true(json_is_null(cold) || json_number_value(cold) > 0);
}

static void loading_is_measured(void **state)
{
    (void)state;
    json_t *list = program_json(
        ARGS("bench", TINY("q4_1"), "-p", "0", "-n", "0", "-r", "3", "--load", "-o", "json"));
    assert_int_equal(json_array_size(list), 1);
    check_load(json_array_get(list, 0), false);
    json_decref(list);
}

static size_t model_files(const char *folder)
{
    size_t count = 0;
    DIR *list = opendir(folder);
    assert_non_null(list);
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
        count += strstr(entry->d_name, ".gguf") != NULL;
    closedir(list);
    return count;
}

/* A shape has no file: one is written for it, and goes. */
static void a_shape_is_loaded_from_a_file_of_its_own(void **state)
{
    (void)state;
    char folder[4096], setting[4200];
    snprintf(folder, sizeof folder, "%s", program_path("made"));
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(setting, sizeof setting, "TMPDIR=%s", folder);
    program_result r =
        program_call_all(&(program_call){.args = ARGS("bench", "--shape", "smollm2-135m", "-p", "0",
                                                      "-n", "0", "-r", "1", "--load", "-o", "json"),
                                         .env = ARGS(setting),
                                         .limit_s = 300});
    json_t *list = program_parse(&r);
    check_load(json_array_get(list, 0), true);
    assert_true(number(json_array_get(list, 0), "file_bytes") > 70e6);
    assert_int_equal(model_files(folder), 0);
    json_decref(list);
    program_free(&r);
    assert_int_equal(rmdir(folder), 0);
    program_refuses(&(program_call){.args = ARGS("bench", "--shape", "smollm2-135m", "-p", "0",
                                                 "-n", "0", "--load"),
                                    .env = ARGS(setting)},
                    1, ARGS(folder));
}

static void a_shape_is_written_for_other_engines(void **state)
{
    (void)state;
    const char *path = program_path("shape.gguf");
    program_expect(ARGS("bench", "--shape", "smollm2-135m", "--type", "Q8_0", "--write", path), "");
    json_t *file = program_json(ARGS("inspect", path, "--json"));
    assert_string_equal(text(file, "architecture"), "llama");
    assert_int_equal(json_array_size(json_object_get(file, "tensors")), 30 * 9 + 2);
    json_decref(file);
    /* Its vocabulary spells any text, and its weights make numbers. */
    json_t *ids = program_json(ARGS("tokenize", path, "-p", "a\xc3\xa9 \n", "--json"));
    assert_int_equal(json_array_size(json_object_get(ids, "ids")), 5);
    json_decref(ids);
    program_result r = program_call_all(&(program_call){
        .args = ARGS("run", path, "--raw", "-p", "ab", "-n", "2", "--ctx", "64"), .limit_s = 300});
    assert_int_equal(r.code, 0);
    program_free(&r);
    assert_refuses(1, "gemma3", "bench", "--shape", "gemma3-270m", "--write", path);
    assert_refuses(1, "mistral", "bench", "--shape", "mistral-8b", "--write", path);
    assert_refuses(1, "/nowhere/x.gguf", "bench", "--shape", "smollm2-135m", "--write",
                   "/nowhere/x.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_is_a_row),
        cmocka_unit_test(tables_have_the_same_columns_everywhere),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(no_speed_is_told_when_the_output_is_wrong),
        cmocka_unit_test(a_trace_nests),
        cmocka_unit_test(run_shows_a_profile_beside_the_answer),
        cmocka_unit_test(loading_is_measured),
        cmocka_unit_test(a_shape_is_loaded_from_a_file_of_its_own),
        cmocka_unit_test(a_shape_is_written_for_other_engines),
    };
    return cmocka_run_group_tests(tests, plant, NULL);
}
