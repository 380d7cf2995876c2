/*
 * run.c - `temper run`: one answer, or a chat in the terminal.
 */
#include <histedit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli.h"

static struct run_options {
    const char *prompt, *file, *system, *kv;
    uint64_t tokens, context, top_k, seed, repeat_last_n, rows;
    double temperature, top_p, min_p, repeat_penalty;
    text_list stops;
    bool raw, json, has_tokens;
} opt = {.tokens = UINT64_MAX,
         .temperature = 0.0,
         .top_p = 1.0,
         .repeat_penalty = 1.0,
         .repeat_last_n = 64,
         .kv = "f32"};

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
    {"--repeat-last-n", OPTION_COUNT, &opt.repeat_last_n, "N",
     "how far back repetition counts (default 64)"},
    {"--seed", OPTION_COUNT, &opt.seed, "N", "the same seed gives the same text (default 0)"},
    {"--stop", OPTION_LIST, &opt.stops, "TEXT", "end the answer before this text (repeatable)"},
    {"--system", OPTION_TEXT, &opt.system, "TEXT", "the system message"},
    {"--raw", OPTION_FLAG, &opt.raw, NULL, "continue the text itself: no chat template"},
    {"--kv", OPTION_TEXT, &opt.kv, "TYPE", "type of the KV cache: f32"},
    {"--json", OPTION_FLAG, &opt.json, NULL,
     "one JSON object: text, tokens, prompt_tokens, finish, timings"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {run_options, cli_device_options, NULL};

/* ---- options -------------------------------------------------------------------------------- */

static temper_status check_options(temper_error *err)
{
    if (opt.prompt != NULL && opt.file != NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT, "-p and -f both give a prompt: use one of them");
    if (!isfinite(opt.temperature) || opt.temperature < 0.0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "--temp is %g; it must be a finite number, 0 or above", opt.temperature);
    if (!(opt.top_p >= 0.0 && opt.top_p <= 1.0))
        return error_set(err, TEMPER_BAD_ARGUMENT, "--top-p is %g; it must be between 0 and 1",
                         opt.top_p);
    if (!(opt.min_p >= 0.0 && opt.min_p <= 1.0))
        return error_set(err, TEMPER_BAD_ARGUMENT, "--min-p is %g; it must be between 0 and 1",
                         opt.min_p);
    if (!isfinite(opt.repeat_penalty) || opt.repeat_penalty <= 0.0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "--repeat-penalty is %g; it must be a finite number above 0",
                         opt.repeat_penalty);
    if (opt.repeat_penalty < 1.0 || opt.repeat_penalty > 1.0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "--repeat-penalty %g: this version has only 1, which is off",
                         opt.repeat_penalty);
    if (strcmp(opt.kv, "f16") == 0 || strcmp(opt.kv, "q8") == 0)
        return error_set(err, TEMPER_UNSUPPORTED, "--kv %s: this version has only f32", opt.kv);
    if (strcmp(opt.kv, "f32") != 0)
        return error_set(err, TEMPER_BAD_ARGUMENT, "--kv is \"%s\"; it must be f32", opt.kv);
    if (opt.context > UINT32_MAX)
        return error_set(err, TEMPER_BAD_ARGUMENT, "--ctx is %llu, which no model reaches",
                         (unsigned long long)opt.context);
    return TEMPER_OK;
}

static temper_sampling sampling(void)
{
    /* In the library 0 means that top_p is off; on the command line it means the likeliest token
     * alone. */
    const float top_p = opt.top_p > 0.0 ? (float)opt.top_p : 1e-30f;
    return (temper_sampling){.temperature = (float)opt.temperature,
                             .top_k = opt.top_k > UINT32_MAX ? UINT32_MAX : (uint32_t)opt.top_k,
                             .top_p = top_p,
                             .min_p = (float)opt.min_p,
                             .seed = opt.seed};
}

static temper_request request_of(temper_tokens prompt)
{
    return (temper_request){.prompt = prompt,
                            .max_tokens = opt.tokens,
                            .no_tokens = opt.tokens == 0,
                            .sampling = sampling(),
                            .stops = opt.stops.items,
                            .stop_count = opt.stops.count};
}

/* ---- one answer ----------------------------------------------------------------------------- */

typedef struct sink {
    char *text; /* the whole answer so far; owned */
    size_t length, capacity;
    bool stream; /* to stdout as it comes */
    bool failed;
} sink;

static bool on_text(const char *text, size_t length, void *user)
{
    sink *s = user;
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
    if (s->stream && !cli_write(text, length))
        s->failed = true;
    return !s->failed && !cli_interrupted();
}

static bool on_prompt(size_t done, size_t total, void *user)
{
    (void)user;
    if (isatty(STDERR_FILENO) && done < total)
        fprintf(stderr, "\rreading the prompt %zu/%zu", done, total);
    if (isatty(STDERR_FILENO) && done == total)
        fputs("\r\033[K", stderr);
    return !cli_interrupted();
}

static json_t *result_json(const temper_result *result, const sink *s)
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
    return json_pack("{s:o, s:o, s:I, s:s, s:o}", "text",
                     cli_json_text(s->text == NULL ? "" : s->text, s->length), "tokens", tokens,
                     "prompt_tokens", (json_int_t)result->prompt_tokens, "finish",
                     result->finish == TEMPER_FINISH_STOP ? "stop" : "length", "timings", timings);
}

static void show_speed(const temper_result *result)
{
    if (!isatty(STDERR_FILENO) || result->token_count < 2 || result->decode_seconds <= 0.0)
        return;
    fprintf(stderr, "[%zu prompt tokens, first answer after %.2f s; %zu tokens at %.1f a second]\n",
            result->prompt_tokens, result->prompt_seconds, result->token_count,
            (double)(result->token_count - 1) / result->decode_seconds);
}

/* Generates and tells the answer. */
static int answer(temper_session *session, temper_tokens prompt)
{
    temper_error err = {0};
    temper_result result;
    sink s = {.stream = !opt.json};
    temper_request request = request_of(prompt);
    request.on_text = on_text;
    request.on_prompt = on_prompt;
    request.user = &s;
    const temper_status status = temper_session_generate(session, &request, &result, &err);
    int code = 0;
    if (status != TEMPER_OK) {
        if (s.stream && s.length > 0)
            cli_write("\n", 1);
        code = cli_fail("run", &err);
    } else if (cli_interrupted()) {
        code = EXIT_INTERRUPTED;
    } else if (opt.json) {
        cli_print_json(result_json(&result, &s));
    } else if (s.length == 0 || s.text[s.length - 1] != '\n') {
        cli_write("\n", 1);
    }
    if (code == 0 && !opt.json)
        show_speed(&result);
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
    const temper_message messages[2] = {{"system", opt.system}, {"user", text}};
    return opt.system != NULL ? temper_chat(engine, messages, 2, out, err)
                              : temper_chat(engine, messages + 1, 1, out, err);
}

/* ---- the chat ------------------------------------------------------------------------------- */

typedef struct chat {
    temper_message *messages; /* contents owned, roles static */
    size_t count, capacity;
} chat;

static bool chat_add(chat *c, const char *role, const char *text, size_t length)
{
    if (c->count == c->capacity) {
        const size_t capacity = c->capacity == 0 ? 16 : c->capacity * 2;
        temper_message *larger = realloc(c->messages, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        c->messages = larger;
        c->capacity = capacity;
    }
    char *copy = malloc(length + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    c->messages[c->count++] = (temper_message){role, copy};
    return true;
}

static void chat_drop(chat *c)
{
    free((char *)c->messages[--c->count].content);
}

static void chat_free(chat *c)
{
    while (c->count > 0)
        chat_drop(c);
    free(c->messages);
}

/* One turn: the answer is streamed and becomes part of the chat. A failure is told and the turn
 * forgotten. */
static void chat_turn(temper_engine *engine, temper_session *session, chat *c, const char *line,
                      size_t length)
{
    temper_error err = {0};
    temper_tokens prompt = {0};
    temper_result result;
    sink s = {.stream = true};
    if (!chat_add(c, "user", line, length)) {
        fputs("temper run: no memory for another turn\n", stderr);
        return;
    }
    temper_status status = temper_chat(engine, c->messages, c->count, &prompt, &err);
    if (status == TEMPER_OK) {
        temper_request request = request_of(prompt);
        request.on_text = on_text;
        request.on_prompt = on_prompt;
        request.user = &s;
        status = temper_session_generate(session, &request, &result, &err);
    }
    if (s.length > 0)
        cli_write("\n", 1);
    if (status != TEMPER_OK)
        fprintf(stderr, "temper run: %s\n", err.text);
    if (status != TEMPER_OK || !chat_add(c, "assistant", s.text == NULL ? "" : s.text, s.length))
        chat_drop(c);
    else if (!cli_interrupted())
        show_speed(&result);
    cli_forget_interrupt();
    temper_free(prompt.ids);
    free(s.text);
}

static char *chat_prompt(EditLine *editor)
{
    static char text[] = "> ";
    (void)editor;
    return text;
}

static int run_chat(temper_engine *engine, temper_session *session)
{
    temper_error err = {0};
    if (!temper_engine_info(engine)->has_chat_template) {
        error_set(&err, TEMPER_UNSUPPORTED,
                  "the model file has no chat template: give a text with --raw -p TEXT");
        return cli_fail("run", &err);
    }
    EditLine *editor = el_init("temper", stdin, stderr, stderr);
    History *past = history_init();
    HistEvent event;
    chat c = {0};
    history(past, &event, H_SETSIZE, 1000);
    el_set(editor, EL_PROMPT, chat_prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 0);
    el_set(editor, EL_HIST, history, past);
    fprintf(stderr, "%s on %s. Ctrl-C stops an answer, Ctrl-D ends the chat.\n",
            temper_engine_info(engine)->name, temper_device_name(temper_engine_device(engine)));
    if (opt.system != NULL)
        chat_add(&c, "system", opt.system, strlen(opt.system));
    for (;;) {
        int count = 0;
        const char *line = el_gets(editor, &count);
        if (cli_interrupted()) {
            cli_forget_interrupt();
            el_reset(editor);
            fputc('\n', stderr);
            continue;
        }
        if (line == NULL || count <= 0)
            break;
        const size_t length = strcspn(line, "\n");
        if (length == 0)
            continue;
        history(past, &event, H_ENTER, line);
        chat_turn(engine, session, &c, line, length);
    }
    fputc('\n', stderr);
    chat_free(&c);
    history_end(past);
    el_end(editor);
    return cli_finish("run");
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
    if (!isatty(STDIN_FILENO))
        return cli_read_file("-", text, length, err);
    return TEMPER_OK;
}

static int run_session(temper_engine *engine, const char *text, size_t length)
{
    temper_error err = {0};
    temper_tokens prompt = {0};
    temper_session *session = NULL;
    if (text != NULL && prompt_ids(engine, text, length, &prompt, &err) != TEMPER_OK)
        return cli_fail("run", &err);
    const temper_session_desc desc = {.context = (uint32_t)opt.context};
    int code;
    if (temper_session_open(engine, &desc, &session, &err) != TEMPER_OK)
        code = cli_fail("run", &err);
    else
        code = text != NULL ? answer(session, prompt) : run_chat(engine, session);
    temper_session_close(session);
    temper_free(prompt.ids);
    return code;
}

int command_run(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help(
            "temper run [MODEL] [-p TEXT | -f FILE] [OPTIONS]",
            "Generates text. Without -p or -f: a chat in the terminal, or the prompt from a pipe.\n"
            "MODEL is a GGUF file; without one, the default model that tools/setup fetched.",
            tables);
    const char *model = NULL;
    const int usage = args_parse("run", argc, argv, tables, &model, 1);
    if (usage != 0)
        return usage;
    cli_catch_interrupt();
    temper_error err = {0};
    temper_engine *engine = NULL;
    char *text = NULL;
    size_t length = 0;
    if (check_options(&err) != TEMPER_OK || read_prompt(&text, &length, &err) != TEMPER_OK)
        return cli_fail("run", &err);
    const char *path = cli_model_path(model);
    int code = EXIT_FAILED;
    if (path != NULL)
        code = cli_open_engine(path, 0, &engine, &err) == TEMPER_OK
                   ? run_session(engine, text, length)
                   : cli_fail("run", &err);
    temper_engine_close(engine);
    free(text);
    return code;
}
