/*
 * run.c - `temper run`: one answer, or a chat in the terminal.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "chat.h"
#include "cli.h"
#include "profile.h"

static struct run_options {
    const char *prompt, *file, *system, *draft;
    uint64_t tokens, context, top_k, seed, lookup, draft_n;
    double temperature, top_p, min_p, repeat_penalty, repeat_last_n;
    text_list stops;
    temper_kv kv;
    bool raw, json, has_tokens;
} opt = {.tokens = UINT64_MAX,
         .temperature = 0.0,
         .top_p = 1.0,
         .repeat_penalty = 1.0,
         .repeat_last_n = 64,
         .draft_n = UINT64_MAX};

static const option run_options[] = {
    {"-p", OPTION_TEXT, &opt.prompt, "TEXT", "the prompt"},
    {"-f", OPTION_TEXT, &opt.file, "FILE",
     "read the prompt from a file as it is (-: standard input)"},
    {"-n", OPTION_COUNT, &opt.tokens, "N",
     "most tokens to generate (default: to the context's end)"},
    {"--ctx", OPTION_COUNT, &opt.context, "N",
     "positions of context (default: the model's, 8192 at most)"},
    {"--temp", OPTION_NUMBER, &opt.temperature, "T",
     "temperature; 0: always the likeliest (default)"},
    {"--top-k", OPTION_COUNT, &opt.top_k, "K", "only the K likeliest tokens; 0: all (default)"},
    {"--top-p", OPTION_NUMBER, &opt.top_p, "P",
     "only the likeliest that together reach P (default 1: all)"},
    {"--min-p", OPTION_NUMBER, &opt.min_p, "P",
     "only those at least P times the likeliest (default 0)"},
    {"--repeat-penalty", OPTION_NUMBER, &opt.repeat_penalty, "R",
     "weaken repeated tokens (default 1: off)"},
    {"--repeat-last-n", OPTION_NUMBER, &opt.repeat_last_n, "N",
     "how far back repetition counts (default 64)"},
    {"--seed", OPTION_EXACT, &opt.seed, "N", "the same seed gives the same text (default 0)"},
    {"--stop", OPTION_LIST, &opt.stops, "TEXT", "end the answer before this text (repeatable)"},
    {"--system", OPTION_TEXT, &opt.system, "TEXT", "the system message"},
    {"--raw", OPTION_FLAG, &opt.raw, NULL, "continue the text itself: no chat template"},
    {"--lookup", OPTION_COUNT, &opt.lookup, "N",
     "check up to N tokens at once that the text itself proposes; the text stays the same"},
    {"--draft", OPTION_TEXT, &opt.draft, "MODEL",
     "the same with proposals of a smaller model that has the same vocabulary"},
    {"--draft-n", OPTION_COUNT, &opt.draft_n, "N", "up to N of them at once (default 4)"},
    {"--json", OPTION_FLAG, &opt.json, NULL,
     "one JSON object: text, tokens, prompt_tokens, finish, timings"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {run_options,       profile_options,    cli_cache_options,
                                       cli_widen_options, cli_device_options, NULL};

/* ---- options -------------------------------------------------------------------------------- */

enum { DEFAULT_DRAFT_TOKENS = 4 };

/* 0, or the exit code after a message that names the option and its value. */
static int check_speculation(void)
{
    if (opt.lookup > 0 && opt.draft != NULL)
        return cli_usage_error("run", "--lookup and --draft both propose tokens: use one of them");
    if (opt.lookup > TEMPER_MAX_SPECULATION)
        return cli_usage_error("run", "--lookup is %llu; it must be 0 to %d",
                               (unsigned long long)opt.lookup, TEMPER_MAX_SPECULATION);
    const bool given = opt.draft_n != UINT64_MAX;
    if (given && opt.draft == NULL)
        return cli_usage_error("run", "--draft-n is for a draft model: give one with --draft");
    if (given && (opt.draft_n < 1 || opt.draft_n > TEMPER_MAX_SPECULATION))
        return cli_usage_error("run", "--draft-n is %llu; it must be 1 to %d",
                               (unsigned long long)opt.draft_n, TEMPER_MAX_SPECULATION);
    return 0;
}

/* 0, or the exit code after a message that names the option and its value. */
static int check_sampling(void)
{
    /* Past the largest float it would become infinite. */
    if (!(opt.temperature >= 0.0 && opt.temperature <= (double)FLT_MAX))
        return cli_usage_error("run", "--temp is %g; it must be a finite number, 0 or above",
                               opt.temperature);
    if (!(opt.top_p >= 0.0 && opt.top_p <= 1.0))
        return cli_usage_error("run", "--top-p is %g; it must be between 0 and 1", opt.top_p);
    if (!(opt.min_p >= 0.0 && opt.min_p <= 1.0))
        return cli_usage_error("run", "--min-p is %g; it must be between 0 and 1", opt.min_p);
    if (!(opt.repeat_penalty > 0.0 && opt.repeat_penalty <= (double)FLT_MAX))
        return cli_usage_error("run", "--repeat-penalty is %g; it must be a finite number above 0",
                               opt.repeat_penalty);
    if (!(opt.repeat_last_n >= -1.0 && opt.repeat_last_n <= 1e9 &&
          floor(opt.repeat_last_n) >= opt.repeat_last_n))
        return cli_usage_error("run",
                               "--repeat-last-n is %g; it must be a whole number, 0 or above, "
                               "or -1 for the whole context",
                               opt.repeat_last_n);
    return 0;
}

static int check_options(void)
{
    if (opt.prompt != NULL && opt.file != NULL)
        return cli_usage_error("run", "-p and -f both give a prompt: use one of them");
    if (opt.raw && opt.system != NULL)
        return cli_usage_error("run", "--system is a message of the chat template, which --raw "
                                      "leaves out: use one of them");
    if (cli_kv("run", &opt.kv) != 0)
        return EXIT_USAGE;
    if (opt.context > UINT32_MAX)
        return cli_usage_error("run", "--ctx is %llu, which no model reaches",
                               (unsigned long long)opt.context);
    for (size_t i = 0; i < opt.stops.count; i++)
        if (opt.stops.items[i][0] == '\0')
            return cli_usage_error("run", "--stop is empty: it would end every answer at once");
    const int wrong = check_speculation();
    return wrong != 0 ? wrong : check_sampling();
}

static temper_sampling sampling(void)
{
    /* In the library 0 means that top_p is off; on the command line it means the likeliest token
     * alone. */
    const float top_p = opt.top_p > 0.0 ? (float)opt.top_p : 1e-30f;
    /* There, a window of 0 is the default; here it means that nothing counts as repeated. */
    const bool no_window = !(opt.repeat_last_n < 0.0 || opt.repeat_last_n > 0.0);
    return (temper_sampling){.temperature = (float)opt.temperature,
                             .top_k = opt.top_k > UINT32_MAX ? UINT32_MAX : (uint32_t)opt.top_k,
                             .top_p = top_p,
                             .min_p = (float)opt.min_p,
                             .repeat_penalty = no_window ? 1.0f : (float)opt.repeat_penalty,
                             .penalty_window = (int64_t)opt.repeat_last_n,
                             .seed = opt.seed};
}

/* ---- one answer ----------------------------------------------------------------------------- */

static bool on_text(const char *text, size_t length, void *user)
{
    run_sink *s = user;
    cli_progress_clear();
    if (s->length + length + 1 > s->capacity) {
        s->capacity = (s->length + length + 1) * 2;
        char *larger = realloc(s->text, s->capacity);
        if (larger == NULL) {
            s->failed = true;
            return false;
        }
        s->text = larger;
    }
    memcpy(s->text + s->length, text, length);
    s->length += length;
    s->text[s->length] = '\0';
    if (s->stream && !cli_write_answer(text, length))
        return false;
    return !cli_interrupted();
}

static bool on_prompt(size_t done, size_t total, void *user)
{
    (void)user;
    if (done < total)
        cli_progress("reading the prompt %zu/%zu", done, total);
    else
        cli_progress_clear();
    return !cli_interrupted();
}

temper_request run_request(temper_tokens prompt, run_sink *sink)
{
    return (temper_request){.prompt = prompt,
                            .max_tokens = opt.tokens,
                            .no_tokens = opt.tokens == 0,
                            .sampling = sampling(),
                            .stops = opt.stops.items,
                            .stop_count = opt.stops.count,
                            .on_text = on_text,
                            .on_prompt = on_prompt,
                            .user = sink};
}

static bool speculates(void)
{
    return opt.lookup > 0 || opt.draft != NULL;
}

/* Tokens that a pass of the model brought. */
static double gain(const temper_result *result)
{
    return result->passes > 0 ? (double)result->token_count / (double)result->passes : 0.0;
}

static json_t *result_json(const temper_result *result, const run_sink *s)
{
    json_t *tokens = json_array();
    for (size_t i = 0; i < result->token_count; i++)
        json_array_append_new(tokens, json_integer(result->tokens[i]));
    const double decoded = result->token_count > 1 ? (double)(result->token_count - 1) : 0.0;
    const double computed = (double)(result->prompt_tokens - result->reused_tokens);
    json_t *timings = json_pack(
        "{s:f, s:f, s:f, s:f}", "prompt_seconds", result->prompt_seconds, "decode_seconds",
        result->decode_seconds, "prompt_tokens_per_second",
        result->prompt_seconds > 0.0 ? computed / result->prompt_seconds : 0.0, "tokens_per_second",
        result->decode_seconds > 0.0 ? decoded / result->decode_seconds : 0.0);
    if (speculates()) {
        json_object_set_new(timings, "proposed", json_integer((json_int_t)result->proposed));
        json_object_set_new(timings, "accepted", json_integer((json_int_t)result->accepted));
        json_object_set_new(timings, "gain", json_real(gain(result)));
    }
    return json_pack("{s:o, s:o, s:I, s:s, s:o}", "text",
                     cli_json_text(s->text == NULL ? "" : s->text, s->length), "tokens", tokens,
                     "prompt_tokens", (json_int_t)result->prompt_tokens, "finish",
                     result->finish == TEMPER_FINISH_STOP ? "stop" : "length", "timings", timings);
}

void run_show_speed(const temper_result *result)
{
    if (!isatty(STDERR_FILENO) || result->token_count < 2 || result->decode_seconds <= 0.0)
        return;
    fprintf(stderr, "[%zu prompt tokens, first answer after %.2f s; %zu tokens at %.1f a second]\n",
            result->prompt_tokens, result->prompt_seconds, result->token_count,
            (double)(result->token_count - 1) / result->decode_seconds);
    if (speculates())
        fprintf(stderr, "[%llu of %llu proposed tokens were right, %.2f tokens a pass]\n",
                (unsigned long long)result->accepted, (unsigned long long)result->proposed,
                gain(result));
}

/* Generates and tells the answer. */
static int answer(temper_engine *engine, temper_session *session, temper_tokens prompt)
{
    temper_error err = {0};
    temper_result result;
    run_sink s = {.stream = !opt.json};
    const temper_request request = run_request(prompt, &s);
    temper_status status =
        profile_wanted()
            ? profile_generate(temper_engine_device(engine), session, &request, &result, &err)
            : temper_session_generate(session, &request, &result, &err);
    if (status == TEMPER_OK && s.failed)
        status = error_set(&err, TEMPER_NO_MEMORY, "no memory for the answer");
    int code = 0;
    if (status != TEMPER_OK) {
        if (s.stream && s.length > 0)
            cli_write("\n", 1);
        code = cli_fail("run", &err);
    } else if (cli_interrupted()) {
        code = EXIT_INTERRUPTED;
    } else if (opt.json) {
        cli_print_json(result_json(&result, &s));
    } else if (s.length > 0 && s.text[s.length - 1] != '\n') {
        cli_write("\n", 1);
    }
    if (code == 0 && !opt.json)
        run_show_speed(&result);
    free(s.text);
    return code != 0 ? code : cli_finish("run");
}

/* The ids of a prompt: the text itself with --raw, else one user message in the model's template.
 */
static temper_status prompt_ids(temper_engine *engine, const char *text, size_t length,
                                temper_tokens *out, temper_error *err)
{
    if (opt.raw)
        return temper_tokenize(engine, text, length, TEMPER_AUTO_BOS | TEMPER_PARSE_SPECIAL, out,
                               err);
    const char *nul = memchr(text, '\0', length);
    if (nul != NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the prompt has a NUL byte at place %zu, which no message of a chat can "
                         "hold: take it out, or give the whole text with --raw",
                         (size_t)(nul - text));
    const temper_message messages[2] = {{"system", opt.system}, {"user", text}};
    return opt.system != NULL ? temper_chat(engine, messages, 2, out, err)
                              : temper_chat(engine, messages + 1, 1, out, err);
}

/* ---- the command ---------------------------------------------------------------------------- */

/* The prompt of a one-shot call: -p, -f, or what comes through a pipe. *text stays NULL for a chat.
 */
static temper_status read_prompt(char **text, size_t *length, temper_error *err)
{
    if (opt.prompt != NULL) {
        *length = strlen(opt.prompt);
        *text = malloc(*length + 1);
        if (*text == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory for the prompt");
        memcpy(*text, opt.prompt, *length + 1);
        return TEMPER_OK;
    }
    if (opt.file != NULL)
        return cli_read_file(opt.file, text, length, err);
    if (isatty(STDIN_FILENO)) {
        if (opt.raw || opt.json)
            return error_set(err, TEMPER_BAD_ARGUMENT, "%s needs a text: -p TEXT or -f FILE",
                             opt.raw ? "--raw" : "--json");
        return TEMPER_OK;
    }
    const temper_status status = cli_read_file("-", text, length, err);
    if (status == TEMPER_OK && *length == 0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "standard input is empty: give a prompt with -p TEXT or -f FILE");
    return status;
}

/* Opens the draft model, where one is asked for, and the session. */
static temper_status open_session(temper_engine *engine, temper_engine **draft,
                                  temper_session **session, temper_error *err)
{
    temper_session_desc desc = {
        .context = (uint32_t)opt.context, .kv = opt.kv, .speculation.tokens = (uint32_t)opt.lookup};
    if (opt.draft != NULL) {
        const temper_status status =
            cli_open_engine_beside(engine, opt.draft, cli_lossy(), draft, err);
        if (status != TEMPER_OK)
            return status;
        const uint64_t n = opt.draft_n != UINT64_MAX ? opt.draft_n : DEFAULT_DRAFT_TOKENS;
        desc.speculation = (temper_speculation){(uint32_t)n, *draft};
    }
    return temper_session_open(engine, &desc, session, err);
}

static int run_session(temper_engine *engine, const char *text, size_t length)
{
    temper_error err = {0};
    temper_tokens prompt = {0};
    temper_session *session = NULL;
    if (text != NULL && prompt_ids(engine, text, length, &prompt, &err) != TEMPER_OK)
        return cli_fail("run", &err);
    temper_engine *draft = NULL;
    int code;
    if (open_session(engine, &draft, &session, &err) != TEMPER_OK)
        code = cli_fail("run", &err);
    else
        code =
            text != NULL ? answer(engine, session, prompt) : chat_run(engine, session, opt.system);
    temper_session_close(session);
    temper_engine_close(draft);
    temper_free(prompt.ids);
    return code;
}

/* Tells why the model cannot be opened, and where a text goes, which may have been meant. */
static int open_failed(const char *model, const temper_error *err)
{
    const int code = cli_fail("run", err);
    if (err->status == TEMPER_IO && model != NULL && strchr(model, ' ') != NULL &&
        opt.prompt == NULL && opt.file == NULL)
        fputs("a text is given with -p TEXT\n", stderr);
    return code;
}

int command_run(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help(
            "temper run [MODEL] [-p TEXT | -f FILE] [OPTIONS]",
            "Generates text. Without -p or -f: a chat in the terminal, or the prompt from a pipe.\n"
            "MODEL is a GGUF file or a Hugging Face folder; without one, the default model that\n"
            "tools/setup fetched.",
            tables);
    const char *model = NULL;
    int usage = args_parse("run", argc, argv, tables, &model, 1);
    if (usage == 0)
        usage = check_options();
    if (usage != 0)
        return usage;
    temper_error err = {0};
    temper_engine *engine = NULL;
    char *text = NULL;
    size_t length = 0;
    if (read_prompt(&text, &length, &err) != TEMPER_OK) {
        free(text);
        return cli_fail("run", &err);
    }
    const char *path = cli_model_path(model);
    int code = EXIT_FAILED;
    if (path != NULL)
        code = cli_open_engine(path, 0, &engine, &err) == TEMPER_OK
                   ? run_session(engine, text, length)
                   : open_failed(model, &err);
    temper_engine_close(engine);
    free(text);
    return code;
}
