#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "cli.h"

static bool output_failed;
static int output_errno;

void cli_one_line(strbuf *out, const char *text, size_t length)
{
    strbuf escaped = {0};
    strbuf_escape(&escaped, text, length);
    for (size_t i = 0; i < escaped.length; i++)
        if (escaped.data[i] == '\n')
            strbuf_puts(out, "\\n");
        else
            strbuf_putc(out, escaped.data[i]);
    strbuf_free(&escaped);
}

static void tell_warning(log_level level, const char *text, void *user)
{
    (void)user;
    if (level != LOG_WARNING)
        return;
    strbuf line = {0};
    cli_one_line(&line, text, strlen(text));
    cli_progress_clear();
    fprintf(stderr, "temper: %s\n", strbuf_text(&line));
    strbuf_free(&line);
}

void cli_tell_warnings(void)
{
    log_set_sink(tell_warning, NULL);
}

int cli_fail(const char *command, const temper_error *err)
{
    cli_progress_clear();
    if (cli_interrupted())
        return EXIT_INTERRUPTED;
    fprintf(stderr, "temper %s: %s\n", command,
            err->text[0] != '\0' ? err->text : temper_status_text(err->status));
    return EXIT_FAILED;
}

int cli_usage_error(const char *command, const char *format, ...)
{
    /* What the user typed may hold anything: it is escaped before it is shown. */
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    strbuf line = {0};
    cli_one_line(&line, text, strlen(text));
    fprintf(stderr, "temper%s%s: %s\n`temper%s%s --help` lists what it takes\n",
            command[0] == '\0' ? "" : " ", command, strbuf_text(&line),
            command[0] == '\0' ? "" : " ", command);
    strbuf_free(&line);
    return EXIT_USAGE;
}

/* ---- progress ------------------------------------------------------------------------------- */

static bool progress_shown;

bool cli_draws(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

void cli_progress(const char *format, ...)
{
    static double last;
    const double now = clock_seconds();
    /* Five times a second is as fast as it can be read. */
    if (!cli_draws() || (progress_shown && now - last < 0.2))
        return;
    va_list arguments;
    va_start(arguments, format);
    fputc('\r', stderr);
    vfprintf(stderr, format, arguments);
    fputs("\033[K", stderr);
    va_end(arguments);
    fflush(stderr);
    progress_shown = true;
    last = now;
}

void cli_progress_clear(void)
{
    if (progress_shown)
        fputs("\r\033[K", stderr);
    progress_shown = false;
}

/* ---- results -------------------------------------------------------------------------------- */

bool cli_write(const char *text, size_t length)
{
    if (!output_failed && (fwrite(text, 1, length, stdout) != length || fflush(stdout) != 0)) {
        output_failed = true;
        output_errno = errno;
    }
    return !output_failed;
}

bool cli_write_answer(const char *text, size_t length)
{
    if (!isatty(STDOUT_FILENO))
        return cli_write(text, length);
    strbuf shown = {0};
    for (size_t i = 0; i < length;) {
        char unit[ESCAPE_UNIT_BYTES];
        size_t size = 0;
        const bool tab = text[i] == '\t';
        i += tab ? 1 : escape_next(text + i, length - i, unit, &size);
        strbuf_append(&shown, tab ? "\t" : unit, tab ? 1 : size);
    }
    const bool written = !shown.failed && cli_write(strbuf_text(&shown), shown.length);
    strbuf_free(&shown);
    return written;
}

bool cli_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int written = output_failed ? -1 : vprintf(format, arguments);
    va_end(arguments);
    if (written < 0 && !output_failed) {
        output_failed = true;
        output_errno = errno;
    }
    return !output_failed;
}

bool cli_print_json(json_t *value)
{
    char *text = value == NULL ? NULL : json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(value);
    if (text == NULL) {
        output_failed = true;
        output_errno = ENOMEM;
        return false;
    }
    const bool ok = cli_print("%s\n", text);
    free(text);
    return ok;
}

json_t *cli_json_text(const char *text, size_t length)
{
    strbuf clean = {0};
    for (size_t i = 0; i < length;) {
        const int size = utf8_sequence(text + i, length - i);
        if (size > 0) {
            strbuf_append(&clean, text + i, (size_t)size);
            i += (size_t)size;
        } else {
            strbuf_puts(&clean, "\xef\xbf\xbd");
            i += size < 0 ? (size_t)-size : 1;
        }
    }
    json_t *value = clean.failed ? NULL : json_stringn(strbuf_text(&clean), clean.length);
    strbuf_free(&clean);
    return value;
}

int cli_finish(const char *command)
{
    if (!output_failed && fflush(stdout) != 0) {
        output_failed = true;
        output_errno = errno;
    }
    if (!output_failed)
        return 0;
    /* Whoever closed the pipe knows: that is no news. */
    if (output_errno != EPIPE)
        fprintf(stderr, "temper %s: the output could not be written: %s\n", command,
                strerror(output_errno));
    return EXIT_FAILED;
}

bool cli_output_failed(void)
{
    return output_failed;
}

const char *cli_bytes(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024.0;
        unit++;
    }
    snprintf(text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

/* ---- Ctrl-C --------------------------------------------------------------------------------- */

enum { INTERRUPT_SECONDS = 2 };

static volatile sig_atomic_t interrupted, patient;
/* A pipe that Ctrl-C writes to. The signal may come between a look at the flag and a read, or to
 * another thread: a byte in a pipe ends the wait all the same. */
static int wake[2] = {-1, -1};

/* The terminal as it was before a chat's editor changed it. */
static struct termios terminal;
static volatile sig_atomic_t terminal_kept;

static void end_now(int signal_number)
{
    (void)signal_number;
    if (terminal_kept)
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
    _exit(EXIT_INTERRUPTED);
}

/* The flag is looked at between tokens and chunks of a prompt; where that takes too long, the alarm
 * ends the program: it has nothing to save. */
static void on_interrupt(int signal_number)
{
    if (interrupted)
        end_now(signal_number);
    interrupted = 1;
    if (!patient)
        alarm(INTERRUPT_SECONDS);
    const int reason = errno;
    if (wake[1] >= 0 && write(wake[1], "", 1) < 0)
        errno = 0; /* the pipe is full: whoever waits is awake already */
    errno = reason;
}

void cli_catch_interrupt(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = end_now;
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, NULL);
}

void cli_be_patient(void)
{
    patient = 1;
    terminal_kept = tcgetattr(STDIN_FILENO, &terminal) == 0;
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

int cli_interrupt_file(void)
{
    if (wake[0] < 0 && pipe(wake) == 0)
        for (int i = 0; i < 2; i++) {
            fcntl(wake[i], F_SETFL, O_NONBLOCK);
            fcntl(wake[i], F_SETFD, FD_CLOEXEC);
        }
    return wake[0];
}

void cli_drain_interrupts(void)
{
    char bytes[64];
    while (wake[0] >= 0 && read(wake[0], bytes, sizeof bytes) > 0)
        continue;
}

void cli_forget_interrupt(void)
{
    alarm(0);
    interrupted = 0;
    cli_drain_interrupts();
}
