/*
 * chat.c - the chat of `temper run`: a message at a time, with the whole conversation in the
 * model's own template.
 */
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "chat_file.h"
#include "line_editor.h"

typedef struct chat {
    temper_engine *engine;
    temper_session *session;
    conversation said;
    size_t kept;    /* of the first messages, how many /clear leaves: the system message */
    strbuf pending; /* texts of /file that go before the next message */
    bool end;       /* asked for by a command */
} chat;

/* ---- a turn --------------------------------------------------------------------------------- */

static void tell_error(const temper_error *err)
{
    fprintf(stderr, "temper run: %s\n", err->text);
    if (err->status == TEMPER_CONTEXT_FULL)
        fputs("/undo takes back the last turn, /clear begins a new chat\n", stderr);
}

/* Why an answer ended, where it was not by its own, and how full the context is once it matters. */
static void tell_end(const chat *c, const temper_result *result)
{
    const size_t room = temper_session_context(c->session);
    const size_t used = result->prompt_tokens + result->token_count;
    if (result->finish == TEMPER_FINISH_CANCELLED)
        fputs("[stopped]\n", stderr);
    else if (result->finish == TEMPER_FINISH_LENGTH && used >= room)
        fprintf(stderr,
                "[cut off: the context of %zu tokens is full;\n /clear begins a new chat]\n", room);
    else if (result->finish == TEMPER_FINISH_LENGTH)
        fprintf(stderr, "[cut off after %zu tokens: -n]\n", result->token_count);
    else if (used > room - room / 4)
        fprintf(stderr, "[%zu of the context's %zu tokens are used]\n", used, room);
}

/* One turn: the answer is streamed and becomes part of the chat. A failure is told and the turn
 * forgotten. */
static void take_turn(chat *c, const char *text, size_t length)
{
    temper_error err = {0};
    temper_tokens prompt = {0};
    temper_result result = {0};
    run_sink sink = {.stream = true};
    conversation *said = &c->said;
    const size_t before = said->count;
    temper_status status = TEMPER_OK;
    if (!conversation_add(said, "user", text, length))
        status = error_set(&err, TEMPER_NO_MEMORY, "no memory for another turn");
    if (status == TEMPER_OK)
        status = temper_chat(c->engine, said->messages, said->count, &prompt, &err);
    if (status == TEMPER_OK) {
        const temper_request request = run_request(prompt, &sink);
        status = temper_session_generate(c->session, &request, &result, &err);
    }
    cli_progress_clear();
    if (sink.length > 0 && sink.text[sink.length - 1] != '\n')
        cli_write("\n", 1);
    if (status == TEMPER_OK &&
        (sink.failed ||
         !conversation_add(said, "assistant", sink.text == NULL ? "" : sink.text, sink.length)))
        status = error_set(&err, TEMPER_NO_MEMORY, "no memory for the answer");
    if (status != TEMPER_OK) {
        conversation_drop(said, before);
        tell_error(&err);
    } else {
        if (!cli_interrupted())
            run_show_speed(&result);
        tell_end(c, &result);
    }
    cli_forget_interrupt();
    temper_free(prompt.ids);
    free(sink.text);
}

/* ---- commands ------------------------------------------------------------------------------- */

static void clear(chat *c, const char *path)
{
    (void)path;
    conversation_drop(&c->said, c->kept);
    strbuf_clear(&c->pending);
    fputs("forgotten\n", stderr);
}

static void undo(chat *c, const char *path)
{
    (void)path;
    size_t count = c->said.count;
    while (count > c->kept && strcmp(c->said.messages[count - 1].role, "user") != 0)
        count--;
    if (count == c->kept) {
        fputs("nothing was said yet\n", stderr);
        return;
    }
    conversation_drop(&c->said, count - 1);
    fputs("the last turn is taken back\n", stderr);
}

static void end(chat *c, const char *path)
{
    (void)path;
    c->end = true;
}

static void save(chat *c, const char *path)
{
    temper_error err = {0};
    if (conversation_save(&c->said, path, &err) != TEMPER_OK)
        tell_error(&err);
    else
        fprintf(stderr, "saved: %zu message%s\n", c->said.count, c->said.count == 1 ? "" : "s");
}

static void load(chat *c, const char *path)
{
    temper_error err = {0};
    conversation loaded = {0};
    if (conversation_load(path, &loaded, &err) != TEMPER_OK) {
        tell_error(&err);
        return;
    }
    conversation_free(&c->said);
    c->said = loaded;
    c->kept = loaded.count > 0 && strcmp(loaded.messages[0].role, "system") == 0;
    strbuf_clear(&c->pending);
    fprintf(stderr, "loaded: %zu message%s\n", loaded.count, loaded.count == 1 ? "" : "s");
}

static void take_file(chat *c, const char *path)
{
    char *text = NULL, bytes[32];
    size_t length = 0;
    temper_error err = {0};
    if (cli_read_file(path, &text, &length, &err) == TEMPER_OK && strlen(text) != length)
        error_set(&err, TEMPER_BAD_ARGUMENT, "%s: holds a NUL byte, which no message can", path);
    if (err.status != TEMPER_OK) {
        tell_error(&err);
    } else {
        strbuf_append(&c->pending, text, length);
        strbuf_puts(&c->pending, length > 0 && text[length - 1] != '\n' ? "\n\n" : "\n");
        fprintf(stderr, "%s go before your next message\n", cli_bytes(length, bytes));
    }
    free(text);
}

static void help(chat *c, const char *path);

static const struct {
    const char *name, *argument, *about;
    void (*run)(chat *c, const char *path);
} commands[] = {
    {"/clear", NULL, "forget what was said", clear},
    {"/undo", NULL, "take back the last turn", undo},
    {"/file", "FILE", "put a text before your next message", take_file},
    {"/save", "FILE", "write the chat to a file", save},
    {"/load", "FILE", "go on with a saved chat", load},
    {"/help", NULL, "this text", help},
    {"/exit", NULL, "end the chat (Ctrl-D too)", end},
    {"/quit", NULL, NULL, end},
    {"/?", NULL, NULL, help},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void help(chat *c, const char *path)
{
    (void)c;
    (void)path;
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].about != NULL)
            fprintf(stderr, "%s %-*s %s\n", commands[i].name, (int)(11 - strlen(commands[i].name)),
                    commands[i].argument == NULL ? "" : commands[i].argument, commands[i].about);
    fputs("Ctrl-C       stops an answer\n"
          "\\            at a line's end: the message goes on\n"
          "Pasted lines stay together until Enter.\n",
          stderr);
}

/* The path of a command, with the user's own folder for "~/"; "-" is a file, not standard input.
 * False: no memory. */
static bool put_path(strbuf *path, const char *text)
{
    const char *home = getenv("HOME");
    if (text[0] == '-')
        strbuf_puts(path, "./");
    if (text[0] == '~' && text[1] == '/' && home != NULL) {
        strbuf_puts(path, home);
        text++;
    }
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        length--;
    strbuf_append(path, text, length);
    return !path->failed;
}

/* A line that is one word of letters after a slash is a command, and so is a known one with its
 * argument; any other line is for the model. */
static bool take_command(chat *c, const char *line)
{
    const size_t word = strcspn(line, " ");
    const char *argument = line + word + strspn(line + word, " ");
    if (line[0] != '/' || strchr(line, '\n') != NULL)
        return false;
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strlen(commands[i].name) != word || strncmp(line, commands[i].name, word) != 0)
            continue;
        if (commands[i].argument == NULL && argument[0] != '\0')
            return false;
        strbuf path = {0};
        if (commands[i].argument != NULL && argument[0] == '\0')
            fprintf(stderr, "%s needs a %s\n", commands[i].name, commands[i].argument);
        else if (put_path(&path, argument))
            commands[i].run(c, strbuf_text(&path));
        strbuf_free(&path);
        return true;
    }
    if (word < 2 || argument[0] != '\0' ||
        strspn(line + 1, "abcdefghijklmnopqrstuvwxyz?") != word - 1)
        return false;
    fprintf(stderr, "there is no command %.*s: /help lists them\n", (int)(word < 40 ? word : 40),
            line);
    return true;
}

/* ---- the chat ------------------------------------------------------------------------------- */

/* Takes messages until the end; the exit code that the user's way out asks for. */
static int converse(chat *c, line_editor *editor)
{
    const char *line = NULL;
    size_t length = 0;
    while (!c->end && !cli_output_failed()) {
        const line_outcome outcome = line_editor_read(editor, &line, &length);
        if (outcome != LINE_READ)
            return outcome == LINE_INTERRUPTED ? EXIT_INTERRUPTED : 0;
        if (line[strspn(line, " \t\n")] == '\0' || take_command(c, line))
            continue;
        strbuf_append(&c->pending, line, length);
        if (c->pending.failed)
            fputs("temper run: no memory for the message\n", stderr);
        else
            take_turn(c, strbuf_text(&c->pending), c->pending.length);
        strbuf_free(&c->pending);
    }
    return 0;
}

static void greet(const chat *c)
{
    const char *name = temper_engine_info(c->engine)->name;
    strbuf shown = {0};
    cli_one_line(&shown, name, strlen(name));
    fprintf(stderr, "%s on %s\nCtrl-C stops an answer, Ctrl-D ends the chat: /help\n",
            name[0] == '\0' ? "a model without a name" : strbuf_text(&shown),
            temper_device_name(temper_engine_device(c->engine)));
    strbuf_free(&shown);
}

int chat_run(temper_engine *engine, temper_session *session, const char *system)
{
    temper_error err = {0};
    chat c = {.engine = engine, .session = session};
    if (!temper_engine_info(engine)->has_chat_template) {
        error_set(&err, TEMPER_UNSUPPORTED,
                  "the model file has no chat template: give a text with --raw -p TEXT");
        return cli_fail("run", &err);
    }
    if (system != NULL && !conversation_add(&c.said, "system", system, strlen(system))) {
        error_set(&err, TEMPER_NO_MEMORY, "no memory for the system message");
        return cli_fail("run", &err);
    }
    c.kept = c.said.count;
    cli_be_patient();
    line_editor *editor = line_editor_open();
    int code = EXIT_FAILED;
    if (editor != NULL) {
        greet(&c);
        code = converse(&c, editor);
        fputc('\n', stderr);
        if (code == 0)
            code = cli_finish("run");
    }
    line_editor_close(editor);
    strbuf_free(&c.pending);
    conversation_free(&c.said);
    return code;
}
