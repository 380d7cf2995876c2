/*
 * program.c - see program.h.
 */
#include "support/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/strbuf.h"

extern char **environ;

enum { READ_BYTES = 65536, POLL_MS = 50, DEFAULT_LIMIT_S = 180 };

/* One thing that is read: its bytes so far, and up to where the test has looked. */
typedef struct stream {
    int file; /* -1 once it has ended */
    strbuf text;
    size_t seen;
} stream;

struct program {
    pid_t id;
    stream out, err;
    int in; /* what is still written to the program's stdin; -1: nothing */
    int terminal;
    const char *input;
    size_t input_left;
    double begin, limit;
    int status;
    bool ended;
};

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- starting ------------------------------------------------------------------------------ */

/* The environment under the call's changes: an owned list of borrowed strings. */
static char **environment_of(const program_call *call)
{
    size_t count = 0, more = 0;
    /* What was measured on this machine must not decide what a test sees. */
    setenv("TEMPER_TUNE", "", 0);
    while (environ[count] != NULL)
        count++;
    while (call->env != NULL && call->env[more] != NULL)
        more++;
    char **list = calloc(count + more + 1, sizeof *list);
    assert_non_null(list);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        bool replaced = false;
        for (size_t k = 0; k < more; k++) {
            const size_t length = strcspn(call->env[k], "=");
            replaced |= strncmp(environ[i], call->env[k], length) == 0 && environ[i][length] == '=';
        }
        if (!replaced)
            list[used++] = environ[i];
    }
    for (size_t k = 0; k < more; k++)
        if (strchr(call->env[k], '=') != NULL)
            list[used++] = (char *)(uintptr_t)call->env[k];
    return list;
}

/* The arguments with the program's name before them. */
static char **arguments_of(const program_call *call)
{
    size_t count = 0;
    while (call->args[count] != NULL)
        count++;
    char **list = calloc(count + 2, sizeof *list);
    assert_non_null(list);
    list[0] = (char *)(uintptr_t)TEST_PROGRAM;
    for (size_t i = 0; i < count; i++)
        list[i + 1] = (char *)(uintptr_t)call->args[i];
    return list;
}

typedef struct plumbing {
    int in[2], out[2], err[2]; /* the reading end, the writing end; -1: none */
    int terminal, slave;
} plumbing;

static void open_pipe(int ends[2])
{
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
}

static plumbing open_plumbing(const program_call *call)
{
    plumbing p = {{-1, -1}, {-1, -1}, {-1, -1}, -1, -1};
    struct winsize size = {.ws_row = 24, .ws_col = call->columns == 0 ? 80 : call->columns};
    if (call->terminal != 0) {
        assert_int_equal(openpty(&p.terminal, &p.slave, NULL, NULL, &size), 0);
        fcntl(p.terminal, F_SETFD, FD_CLOEXEC);
    }
    if ((call->terminal & ON_INPUT) == 0 && call->input != NULL)
        open_pipe(p.in);
    if ((call->terminal & ON_OUTPUT) == 0 && call->output == NULL && !call->closed_output)
        open_pipe(p.out);
    if ((call->terminal & ON_ERRORS) == 0)
        open_pipe(p.err);
    return p;
}

/* In the child: the three standard files, then the program. */
static void become(const program_call *call, const plumbing *p, char **args, char **env)
{
    if (p->slave >= 0) {
        setsid();
        ioctl(p->slave, TIOCSCTTY, 0);
    }
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int in = (call->terminal & ON_INPUT) != 0 ? p->slave : call->input ? p->in[0] : nothing;
    int out = (call->terminal & ON_OUTPUT) != 0 ? p->slave : p->out[1];
    if (call->output != NULL)
        out = open(call->output, O_WRONLY | O_CLOEXEC);
    dup2(in, STDIN_FILENO);
    if (call->closed_output)
        close(STDOUT_FILENO);
    else
        dup2(out, STDOUT_FILENO);
    dup2((call->terminal & ON_ERRORS) != 0 ? p->slave : p->err[1], STDERR_FILENO);
    if (p->slave > STDERR_FILENO)
        close(p->slave);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    execve(TEST_PROGRAM, args, env);
    _exit(127);
}

static void close_end(int *file)
{
    if (*file >= 0)
        close(*file);
    *file = -1;
}

program *program_start(const program_call *call)
{
    program *p = calloc(1, sizeof *p);
    assert_non_null(p);
    plumbing pipes = open_plumbing(call);
    char **args = arguments_of(call), **env = environment_of(call);
    p->id = fork();
    assert_true(p->id >= 0);
    if (p->id == 0)
        become(call, &pipes, args, env);
    free(args);
    free(env);
    close_end(&pipes.in[0]);
    close_end(&pipes.out[1]);
    close_end(&pipes.err[1]);
    close_end(&pipes.slave);
    p->terminal = pipes.terminal;
    p->in = pipes.in[1];
    if (p->in >= 0)
        fcntl(p->in, F_SETFL, O_NONBLOCK);
    p->input = call->input;
    p->input_left = call->input == NULL      ? 0
                    : call->input_length > 0 ? call->input_length
                                             : strlen(call->input);
    p->out.file = pipes.out[0];
    p->err.file = pipes.err[0];
    /* A terminal is read through a file of its own, which ends when the program's side closes. */
    if ((call->terminal & ON_ERRORS) != 0)
        p->err.file = dup(p->terminal);
    else if ((call->terminal & ON_OUTPUT) != 0)
        p->out.file = dup(p->terminal);
    p->begin = now_seconds();
    p->limit = call->limit_s == 0 ? DEFAULT_LIMIT_S : (double)call->limit_s;
    return p;
}

/* ---- reading ------------------------------------------------------------------------------- */

static void take(stream *s)
{
    char bytes[READ_BYTES];
    const ssize_t got = read(s->file, bytes, sizeof bytes);
    if (got > 0)
        strbuf_append(&s->text, bytes, (size_t)got);
    /* A terminal whose other side has closed reads as EIO. */
    else if (got == 0 || errno != EINTR) {
        close(s->file);
        s->file = -1;
    }
}

static void give(program *p)
{
    const ssize_t put = write(p->in, p->input, p->input_left);
    if (put > 0) {
        p->input += put;
        p->input_left -= (size_t)put;
    }
    if (p->input_left == 0 || (put < 0 && errno != EAGAIN && errno != EINTR))
        close_end(&p->in);
}

static void kill_and_fail(program *p, const char *wanted)
{
    kill(p->id, SIGKILL);
    waitpid(p->id, &p->status, 0);
    fail_msg("after %.0f s: %s\n--- stdout\n%s\n--- stderr\n%s", now_seconds() - p->begin, wanted,
             strbuf_text(&p->out.text), strbuf_text(&p->err.text));
}

/* Moves what there is to move, waiting for it a little; false once nothing is left to read. */
static bool pump(program *p)
{
    struct pollfd files[3] = {{.fd = p->out.file, .events = POLLIN},
                              {.fd = p->err.file, .events = POLLIN},
                              {.fd = p->in, .events = POLLOUT}};
    if (p->out.file < 0 && p->err.file < 0)
        return false;
    poll(files, 3, POLL_MS);
    if (files[0].revents != 0)
        take(&p->out);
    if (files[1].revents != 0)
        take(&p->err);
    if (files[2].revents != 0)
        give(p);
    return true;
}

const char *program_find(const char *bytes, size_t length, const char *text)
{
    const size_t size = strlen(text);
    for (size_t i = 0; i + size <= length; i++)
        if (memcmp(bytes + i, text, size) == 0)
            return bytes + i;
    return NULL;
}

static void wait_for(program *p, stream *s, const char *text)
{
    char why[256];
    snprintf(why, sizeof why, "waiting for \"%s\"", text);
    for (;;) {
        const char *found =
            program_find(strbuf_text(&s->text) + s->seen, s->text.length - s->seen, text);
        if (found != NULL) {
            s->seen = (size_t)(found - s->text.data) + strlen(text);
            return;
        }
        if (s->file < 0 || now_seconds() - p->begin > p->limit)
            kill_and_fail(p, why);
        pump(p);
    }
}

void program_until(program *p, const char *text)
{
    wait_for(p, &p->err, text);
}

void program_until_output(program *p, const char *text)
{
    wait_for(p, &p->out, text);
}

void program_until_any_output(program *p)
{
    const size_t before = p->out.seen;
    while (p->out.text.length <= before) {
        if (p->out.file < 0 || now_seconds() - p->begin > p->limit)
            kill_and_fail(p, "waiting for any output");
        pump(p);
    }
    p->out.seen = p->out.text.length;
}

void program_skip_output(program *p)
{
    for (struct pollfd file; file = (struct pollfd){.fd = p->out.file, .events = POLLIN},
                             p->out.file >= 0 && poll(&file, 1, 0) > 0;)
        take(&p->out);
    p->out.seen = p->out.text.length;
}

void program_type(program *p, const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        const ssize_t put = write(p->terminal, text, left);
        assert_true(put > 0);
        text += put;
        left -= (size_t)put;
    }
}

void program_signal(program *p, int number)
{
    kill(p->id, number);
}

void program_resize(program *p, unsigned short columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    assert_int_equal(ioctl(p->terminal, TIOCSWINSZ, &size), 0);
    program_signal(p, SIGWINCH);
}

void program_cook(program *p)
{
    struct termios settings;
    assert_int_equal(tcgetattr(p->terminal, &settings), 0);
    settings.c_lflag |= ECHO | ICANON;
    assert_int_equal(tcsetattr(p->terminal, TCSANOW, &settings), 0);
}

void program_close_output(program *p)
{
    close_end(&p->out.file);
}

double program_seconds(const program *p)
{
    return now_seconds() - p->begin;
}

/* A copy with a NUL behind, for free(). */
static char *text_of(const strbuf *text)
{
    char *copy = calloc(text->length + 1, 1);
    assert_non_null(copy);
    assert_false(text->failed);
    memcpy(copy, strbuf_text(text), text->length);
    return copy;
}

program_result program_end(program *p)
{
    while (waitpid(p->id, &p->status, WNOHANG) == 0) {
        if (now_seconds() - p->begin > p->limit)
            kill_and_fail(p, "it has not ended");
        if (!pump(p))
            usleep(POLL_MS * 100);
    }
    const double seconds = now_seconds() - p->begin;
    /* What is still in the pipes. A process that it left behind could hold them open. */
    for (int i = 0; i < 100 && pump(p); i++)
        ;
    close_end(&p->in);
    close_end(&p->out.file);
    close_end(&p->err.file);
    close_end(&p->terminal);
    const program_result r = {
        .out = text_of(&p->out.text),
        .err = text_of(&p->err.text),
        .out_length = p->out.text.length,
        .err_length = p->err.text.length,
        .code = WIFEXITED(p->status) ? WEXITSTATUS(p->status) : -WTERMSIG(p->status),
        .seconds = seconds,
    };
    strbuf_free(&p->out.text);
    strbuf_free(&p->err.text);
    free(p);
    return r;
}

program_result program_call_all(const program_call *call)
{
    return program_end(program_start(call));
}

program_result program_run(const char *const *args)
{
    return program_call_all(&(program_call){.args = args});
}

void program_free(program_result *r)
{
    free(r->out);
    free(r->err);
    memset(r, 0, sizeof *r);
}

/* ---- what is expected ------------------------------------------------------------------------ */

json_t *program_parse(const program_result *r)
{
    json_error_t why;
    if (r->code != 0)
        fail_msg("exit code %d\n--- stderr\n%s", r->code, r->err);
    /* One object on one line, and nothing else. */
    assert_true(r->out_length > 1 && r->out[r->out_length - 1] == '\n');
    assert_ptr_equal(strchr(r->out, '\n'), r->out + r->out_length - 1);
    json_t *value = json_loadb(r->out, r->out_length, JSON_ALLOW_NUL, &why);
    if (value == NULL)
        fail_msg("%s in %s", why.text, r->out);
    return value;
}

json_t *program_json(const char *const *args)
{
    program_result r = program_run(args);
    json_t *value = program_parse(&r);
    program_free(&r);
    return value;
}

void program_expect(const char *const *args, const char *output)
{
    program_result r = program_run(args);
    if (r.code != 0)
        fail_msg("exit code %d\n--- stderr\n%s", r.code, r.err);
    assert_string_equal(r.out, output);
    assert_int_equal(r.out_length, strlen(output));
    program_free(&r);
}

void program_check_message(const program_result *r)
{
    int lines = 0;
    for (size_t i = 0; i < r->err_length;) {
        char unit[ESCAPE_UNIT_BYTES];
        size_t length = 0;
        const size_t taken = escape_next(r->err + i, r->err_length - i, unit, &length);
        /* Nothing is left to escape. */
        if (taken != length || memcmp(unit, r->err + i, length) != 0)
            fail_msg("byte %zu of the message needs escaping: %s", i, r->err);
        lines += r->err[i] == '\n';
        i += taken;
    }
    if (lines < 1 || lines > 6 || r->err[r->err_length - 1] != '\n')
        fail_msg("a message of %d lines: %s", lines, r->err);
}

void program_refuses(const program_call *call, int code, const char *const *parts)
{
    program_result r = program_call_all(call);
    if (r.code != code)
        fail_msg("exit code %d, not %d\n--- stdout\n%s\n--- stderr\n%s", r.code, code, r.out,
                 r.err);
    assert_int_equal(r.out_length, 0);
    program_check_message(&r);
    for (; *parts != NULL; parts++)
        if (strstr(r.err, *parts) == NULL)
            fail_msg("\"%s\" is not in: %s", *parts, r.err);
    program_free(&r);
}

/* ---- files --------------------------------------------------------------------------------- */

static char folder[] = "/tmp/temper-test-XXXXXX";
static pid_t folder_owner;

static void remove_folder(void)
{
    DIR *list = getpid() == folder_owner ? opendir(folder) : NULL;
    if (list == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove(program_path(entry->d_name));
    closedir(list);
    rmdir(folder);
}

const char *program_path(const char *name)
{
    static char paths[8][4096];
    static size_t next;
    if (folder_owner == 0) {
        assert_non_null(mkdtemp(folder));
        folder_owner = getpid();
        atexit(remove_folder);
    }
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

const char *program_file(const char *name, const void *bytes, size_t length)
{
    const char *path = program_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    return path;
}

char *program_read(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    char *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    *length = fread(bytes, 1, (size_t)size, file);
    assert_int_equal(*length, size);
    bytes[*length] = '\0';
    fclose(file);
    return bytes;
}
