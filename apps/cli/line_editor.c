#include "line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "cli.h"

/* Terminals put these around what is pasted once they are asked to, so that its newlines do not
 * end the line. */
#define PASTE_ON "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END "\033[201~"

enum { HISTORY_LINES = 1000 };

struct line_editor {
    EditLine *edit;
    History *past;
    strbuf text; /* the message so far */
    bool marks;  /* the terminal marks what is pasted */
    bool hinted; /* Ctrl-C on an empty line was the last thing that came */
};

/* What happened to the terminal while the editor waits; there is one editor at a time. */
static volatile sig_atomic_t resized, continued;

static void on_resize(int number)
{
    (void)number;
    resized = 1;
}

static void on_continue(int number)
{
    (void)number;
    continued = 1;
}

/* The editor's line goes on in a terminal of another width, or one that a shell had meanwhile. */
static void adapt(EditLine *edit)
{
    if (resized)
        el_resize(edit);
    if (continued) {
        el_set(edit, EL_PREP_TERM, 0); /* the editor believes that all is as it was */
        el_set(edit, EL_PREP_TERM, 1);
        el_set(edit, EL_REFRESH);
    }
    resized = continued = 0;
}

static char *prompt_text(EditLine *edit)
{
    static char first[] = "> ", further[] = ". ";
    line_editor *editor = NULL;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor->text.length == 0 ? first : further;
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
static unsigned char paste(EditLine *edit, int key)
{
    size_t length = 0, capacity = 1024;
    wchar_t *text = calloc(capacity, sizeof *text), c = 0;
    (void)key;
    while (text != NULL && el_wgetc(edit, &c) == 1) {
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
    const bool inserted = text != NULL && el_winsertstr(edit, text) == 0;
    free(text);
    return inserted ? CC_REFRESH : CC_ERROR;
}

/* Waits for a character of the terminal: 1; 0 at the end; -1 after Ctrl-C or a failure. */
static int read_character(EditLine *edit, wchar_t *c)
{
    mbstate_t state;
    memset(&state, 0, sizeof state);
    for (;;) {
        struct pollfd files[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = cli_interrupt_file(), .events = POLLIN}};
        char byte = 0;
        adapt(edit);
        /* Looked at after the file was made or emptied: what comes now is seen there. */
        if (cli_interrupted())
            return -1;
        const int ready = poll(files, 2, -1);
        if (ready < 0 && errno != EINTR)
            return -1;
        if (ready < 0)
            continue;
        if (files[1].revents != 0) { /* now, or from an answer that has ended */
            cli_drain_interrupts();
            continue;
        }
        if (files[0].revents == 0)
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

static void catch_signal(int number, void (*handler)(int))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = handler;
    sigaction(number, &action, NULL);
}

line_editor *line_editor_open(void)
{
    HistEvent event;
    line_editor *editor = calloc(1, sizeof *editor);
    EditLine *edit = editor == NULL ? NULL : el_init("temper", stdin, stderr, stderr);
    History *past = edit == NULL ? NULL : history_init();
    if (past == NULL) {
        fputs("temper run: the line editor cannot be started here: give a text with -p\n", stderr);
        if (edit != NULL)
            el_end(edit);
        free(editor);
        return NULL;
    }
    *editor = (line_editor){.edit = edit, .past = past, .marks = cli_draws()};
    history(past, &event, H_SETSIZE, HISTORY_LINES);
    history(past, &event, H_SETUNIQUE, 1);
    el_set(edit, EL_CLIENTDATA, editor);
    el_set(edit, EL_PROMPT, prompt_text);
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_SIGNAL, 0);
    el_set(edit, EL_GETCFN, read_character);
    /* Between lines too the terminal neither echoes nor gathers lines: what is typed during an
     * answer does not appear in it, and a Ctrl-D waits for the next line like any other key. */
    el_set(edit, EL_SETTY, "-x", "-icanon", "-echo", NULL);
    el_set(edit, EL_HIST, history, past);
    el_set(edit, EL_ADDFN, "temper-paste", "take pasted text", paste);
    el_set(edit, EL_BIND, PASTE_BEGIN, "temper-paste", NULL);
    catch_signal(SIGWINCH, on_resize);
    catch_signal(SIGCONT, on_continue);
    return editor;
}

void line_editor_close(line_editor *editor)
{
    if (editor == NULL)
        return;
    catch_signal(SIGWINCH, SIG_DFL);
    catch_signal(SIGCONT, SIG_DFL);
    history_end(editor->past);
    el_end(editor->edit);
    strbuf_free(&editor->text);
    free(editor);
}

/* Ctrl-C throws the message away. True when it was the second one in a row on an empty line. */
static bool interrupted(line_editor *editor)
{
    const LineInfo *line = el_line(editor->edit);
    const bool empty = editor->text.length == 0 && line->lastchar == line->buffer;
    const bool again = empty && editor->hinted;
    cli_forget_interrupt();
    strbuf_clear(&editor->text);
    fputc('\n', stderr);
    if (empty && !again)
        fputs("Ctrl-C again, Ctrl-D or /exit ends the chat\n", stderr);
    editor->hinted = empty;
    return again;
}

line_outcome line_editor_read(line_editor *editor, const char **text, size_t *length)
{
    HistEvent event;
    strbuf_clear(&editor->text);
    for (;;) {
        int count = 0;
        if (editor->marks)
            fputs(PASTE_ON, stderr);
        const char *line = el_gets(editor->edit, &count);
        if (editor->marks)
            fputs(PASTE_OFF, stderr);
        if (cli_interrupted()) {
            if (interrupted(editor))
                return LINE_INTERRUPTED;
            continue;
        }
        editor->hinted = false;
        if (line == NULL || count <= 0)
            return LINE_END;
        size_t size = strlen(line);
        if (size > 0 && line[size - 1] == '\n')
            size--;
        const bool more = size > 0 && line[size - 1] == '\\';
        strbuf_append(&editor->text, line, more ? size - 1 : size);
        if (more) {
            strbuf_putc(&editor->text, '\n');
            continue;
        }
        *text = strbuf_text(&editor->text);
        *length = editor->text.length;
        if (strspn(*text, " \t\n") < *length)
            history(editor->past, &event, H_ENTER, *text);
        return LINE_READ;
    }
}
