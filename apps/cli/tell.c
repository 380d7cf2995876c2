#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

int cli_fail(const char *command, const temper_error *err)
{
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
    fprintf(stderr, "temper %s: %s\n`temper %s --help` lists what it takes\n", command,
            strbuf_text(&line), command);
    strbuf_free(&line);
    return EXIT_USAGE;
}

bool cli_write(const char *text, size_t length)
{
    if (!output_failed && (fwrite(text, 1, length, stdout) != length || fflush(stdout) != 0)) {
        output_failed = true;
        output_errno = errno;
    }
    return !output_failed;
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
    fprintf(stderr, "temper %s: the output could not be written: %s\n", command,
            strerror(output_errno));
    return EXIT_FAILED;
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

static volatile sig_atomic_t interrupted;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    _exit(EXIT_INTERRUPTED);
}

/* The flag is looked at between tokens and chunks of a prompt; where that takes too long, the alarm
 * ends the program: it has nothing to save. */
static void on_interrupt(int signal_number)
{
    (void)signal_number;
    if (interrupted)
        _exit(EXIT_INTERRUPTED);
    interrupted = 1;
    alarm(2);
}

void cli_catch_interrupt(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = on_interrupt;
    sigaction(SIGINT, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

void cli_forget_interrupt(void)
{
    alarm(0);
    interrupted = 0;
}
