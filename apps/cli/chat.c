/*
 * chat.c - the chat of `temper run`: a line at a time, with the whole conversation in the model's
 * own template.
 */
#include "chat.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/error.h"

typedef struct chat {
    temper_engine *engine;
    temper_session *session;
    temper_message *messages; /* contents owned, roles static */
    size_t count, capacity;
    size_t kept; /* of the first messages, how many /clear leaves: the system message */
} chat;

/* ---- the conversation ----------------------------------------------------------------------- */

static bool add(chat *c, const char *role, const char *text, size_t length)
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

static void drop_to(chat *c, size_t count)
{
    while (c->count > count)
        free((char *)c->messages[--c->count].content);
}

/* One turn: the answer is streamed and becomes part of the chat. A failure is told and the turn
 * forgotten. */
static void take_turn(chat *c, const char *text, size_t length)
{
    temper_error err = {0};
    temper_tokens prompt = {0};
    temper_result result = {0};
    run_sink sink = {.stream = true};
    const size_t before = c->count;
    temper_status status = TEMPER_OK;
    if (!add(c, "user", text, length))
        status = error_set(&err, TEMPER_NO_MEMORY, "no memory for another turn");
    if (status == TEMPER_OK)
        status = temper_chat(c->engine, c->messages, c->count, &prompt, &err);
    if (status == TEMPER_OK) {
        const temper_request request = run_request(prompt, &sink);
        status = temper_session_generate(c->session, &request, &result, &err);
    }
    cli_progress_clear();
    if (sink.length > 0 && sink.text[sink.length - 1] != '\n')
        cli_write("\n", 1);
    if (status == TEMPER_OK &&
        (sink.failed || !add(c, "assistant", sink.text == NULL ? "" : sink.text, sink.length)))
        status = error_set(&err, TEMPER_NO_MEMORY, "no memory for the answer");
    if (status != TEMPER_OK)
        drop_to(c, before);
    if (status == TEMPER_CONTEXT_FULL)
        fprintf(stderr, "temper run: %s\n/clear begins a new chat\n", err.text);
    else if (status != TEMPER_OK)
        fprintf(stderr, "temper run: %s\n", err.text);
    else if (!cli_interrupted())
        run_show_speed(&result);
    cli_forget_interrupt();
    temper_free(prompt.ids);
    free(sink.text);
}

/* ---- commands ------------------------------------------------------------------------------- */

/* A line that is one word of letters after a slash is a command; any other is for the model.
 * *end becomes true when the chat is to end. */
static bool take_command(chat *c, const char *line, bool *end)
{
    if (line[0] != '/' || line[1] == '\0' ||
        strspn(line + 1, "abcdefghijklmnopqrstuvwxyz?") != strlen(line + 1))
        return false;
    if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0)
        *end = true;
    else if (strcmp(line, "/clear") == 0)
        drop_to(c, c->kept);
    else
        fprintf(stderr,
                "%s/clear   forget what was said\n"
                "/exit    end the chat (Ctrl-D too)\n"
                "Ctrl-C   stops an answer; a second one ends the chat\n"
                "Pasted lines stay together until Enter.\n",
                strcmp(line, "/help") == 0 ? "" : "no such command; there are\n");
    return true;
}

/* ---- the editor ----------------------------------------------------------------------------- */

/* Terminals put these around what is pasted once they are asked to, so that its newlines do not
 * end the line. */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END "\033[201~"

static char *prompt_text(EditLine *editor)
{
    static char text[] = "> ";
    (void)editor;
    return text;
}

/* True when the text ends with the end mark, which is cut off. */
static bool cut_mark(wchar_t *text, size_t length)
{
    static const wchar_t mark[] = L"" PASTE_END;
    const size_t size = sizeof mark / sizeof mark[0] - 1;
    if (length < size || wmemcmp(text + length - size, mark, size) != 0)
        return false;
    text[length - size] = L'\0';
    return true;
}

/* Takes what the terminal pastes, up to its end mark, into the line. */
static unsigned char paste(EditLine *editor, int key)
{
    size_t length = 0, capacity = 1024;
    wchar_t *text = calloc(capacity, sizeof *text), c = 0;
    (void)key;
    while (text != NULL && el_wgetc(editor, &c) == 1) {
        text[length++] = c == L'\r' ? L'\n' : c;
        text[length] = L'\0';
        if (cut_mark(text, length))
            break;
        if (length + 1 < capacity)
            continue;
        capacity *= 2;
        wchar_t *larger = realloc(text, capacity * sizeof *text);
        if (larger == NULL)
            free(text);
        text = larger;
    }
    const bool inserted = text != NULL && el_winsertstr(editor, text) == 0;
    free(text);
    return inserted ? CC_REFRESH : CC_ERROR;
}

/* Waits for a character of the terminal: 1; 0 at the end; -1 after Ctrl-C or a failure. */
static int read_character(EditLine *editor, wchar_t *c)
{
    mbstate_t state;
    memset(&state, 0, sizeof state);
    (void)editor;
    for (;;) {
        struct pollfd files[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = cli_interrupt_file(), .events = POLLIN}};
        char byte = 0;
        const int ready = poll(files, 2, -1);
        if (cli_interrupted() || (ready < 0 && errno != EINTR))
            return -1;
        if (files[1].revents != 0)
            cli_forget_interrupt(); /* of an answer that has ended */
        if (ready < 0 || files[0].revents == 0)
            continue;
        const ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got <= 0)
            return (int)got;
        const size_t size = mbrtowc(c, &byte, 1, &state);
        if (size == (size_t)-2)
            continue;
        if (size == (size_t)-1)
            *c = 0xfffd;
        return 1;
    }
}

/* Makes an editor with a history; false after a message. */
static bool open_editor(EditLine **editor, History **past)
{
    HistEvent event;
    *editor = el_init("temper", stdin, stderr, stderr);
    *past = history_init();
    if (*editor == NULL || *past == NULL) {
        fputs("temper run: the line editor cannot be started here: give a text with -p\n", stderr);
        return false;
    }
    history(*past, &event, H_SETSIZE, 1000);
    el_set(*editor, EL_PROMPT, prompt_text);
    el_set(*editor, EL_EDITOR, "emacs");
    el_set(*editor, EL_SIGNAL, 0);
    el_set(*editor, EL_GETCFN, read_character);
    /* Between lines too the terminal neither echoes nor gathers lines: what is typed during an
     * answer does not appear in it, and a Ctrl-D waits for the next line like any other key. */
    el_set(*editor, EL_SETTY, "-x", "-icanon", "-echo", NULL);
    el_set(*editor, EL_HIST, history, *past);
    el_set(*editor, EL_ADDFN, "temper-paste", "take pasted text", paste);
    el_set(*editor, EL_BIND, PASTE_BEGIN, "temper-paste", NULL);
    return true;
}

/* The next line, without its newline; NULL at the end. A view until the next call. */
static const char *read_line(EditLine *editor, size_t *length)
{
    const bool marks = isatty(STDERR_FILENO);
    for (;;) {
        int count = 0;
        if (marks)
            fputs(PASTE_ON, stderr);
        const char *line = el_gets(editor, &count);
        if (marks)
            fputs(PASTE_OFF, stderr);
        if (cli_interrupted()) { /* Ctrl-C at the prompt throws the line away. */
            cli_forget_interrupt();
            fputc('\n', stderr);
            continue;
        }
        if (line == NULL || count <= 0)
            return NULL;
        *length = strlen(line);
        if (*length > 0 && line[*length - 1] == '\n')
            (*length)--;
        return line;
    }
}

static void converse(chat *c, EditLine *editor, History *past)
{
    HistEvent event;
    size_t length = 0;
    bool end = false;
    for (const char *line; !end && (line = read_line(editor, &length)) != NULL;) {
        char *text = strndup(line, length);
        if (text == NULL || text[strspn(text, " \t\n")] == '\0') {
            free(text);
            continue;
        }
        history(past, &event, H_ENTER, text);
        if (!take_command(c, text, &end))
            take_turn(c, text, length);
        free(text);
        end = end || cli_output_failed();
    }
}

int chat_run(temper_engine *engine, temper_session *session, const char *system)
{
    temper_error err = {0};
    EditLine *editor = NULL;
    History *past = NULL;
    chat c = {.engine = engine, .session = session};
    if (!temper_engine_info(engine)->has_chat_template) {
        error_set(&err, TEMPER_UNSUPPORTED,
                  "the model file has no chat template: give a text with --raw -p TEXT");
        return cli_fail("run", &err);
    }
    if (system != NULL && !add(&c, "system", system, strlen(system))) {
        error_set(&err, TEMPER_NO_MEMORY, "no memory for the system message");
        return cli_fail("run", &err);
    }
    c.kept = c.count;
    cli_be_patient();
    int code = EXIT_FAILED;
    if (open_editor(&editor, &past)) {
        const char *name = temper_engine_info(engine)->name;
        strbuf shown = {0};
        cli_one_line(&shown, name, strlen(name));
        fprintf(stderr, "%s on %s\nCtrl-C stops an answer, Ctrl-D ends the chat: /help\n",
                name[0] == '\0' ? "a model without a name" : strbuf_text(&shown),
                temper_device_name(temper_engine_device(engine)));
        strbuf_free(&shown);
        converse(&c, editor, past);
        fputc('\n', stderr);
        code = cli_finish("run");
    }
    drop_to(&c, 0);
    free(c.messages);
    if (past != NULL)
        history_end(past);
    if (editor != NULL)
        el_end(editor);
    return code;
}
