#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"

/* Finds the option that `arg` names; *inline_value is what follows "=" in "--name=value", else
 * NULL. */
static const option *find(const char *arg, const option *const *tables, const char **inline_value)
{
    *inline_value = NULL;
    for (; *tables != NULL; tables++) {
        for (const option *o = *tables; o->name != NULL; o++) {
            const size_t length = strlen(o->name);
            if (strcmp(arg, o->name) == 0)
                return o;
            if (arg[1] == '-' && strncmp(arg, o->name, length) == 0 && arg[length] == '=') {
                *inline_value = arg + length + 1;
                return o;
            }
        }
    }
    return NULL;
}

static int store_count(const char *command, const option *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0')
        return cli_usage_error(command, "%s is \"%.200s\"; it must be a whole number, 0 or above",
                               o->name, text);
    if (errno == ERANGE && o->kind == OPTION_EXACT)
        return cli_usage_error(command, "%s is \"%.200s\"; it must be below 2^64", o->name, text);
    *(uint64_t *)o->value = errno == ERANGE ? UINT64_MAX : value;
    return 0;
}

static int store_counts(const char *command, const option *o, const char *text)
{
    count_list *list = o->value;
    list->count = 0;
    for (const char *at = text;;) {
        char *end = NULL;
        errno = 0;
        const unsigned long long value = isdigit((unsigned char)*at) ? strtoull(at, &end, 10) : 0;
        if (end == NULL || (*end != ',' && *end != '\0'))
            return cli_usage_error(command,
                                   "%s is \"%.200s\"; it must be a whole number, 0 or above, or "
                                   "several with commas between",
                                   o->name, text);
        if (list->count == COUNTS_CAPACITY)
            return cli_usage_error(command, "%s has more than %d numbers", o->name,
                                   (int)COUNTS_CAPACITY);
        list->items[list->count++] = errno == ERANGE ? UINT64_MAX : value;
        if (*end == '\0')
            return 0;
        at = end + 1;
    }
}

static int store_number(const char *command, const option *o, const char *text)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0')
        return cli_usage_error(command, "%s is \"%.200s\"; it must be a number", o->name, text);
    *(double *)o->value = value;
    return 0;
}

/* "one, two or three" of "one|two|three". */
static void put_words(strbuf *out, const char *words)
{
    for (const char *at = words; *at != '\0';) {
        const size_t length = strcspn(at, "|");
        const bool last = at[length] == '\0';
        strbuf_printf(out, "%s%.*s", at == words ? "" : last ? " or " : ", ", (int)length, at);
        at += last ? length : length + 1;
    }
}

static int store_one_of(const char *command, const option *o, const char *text)
{
    uint32_t which = 1;
    for (const char *at = o->argument;; which++) {
        const size_t length = strcspn(at, "|");
        if (strlen(text) == length && strncmp(at, text, length) == 0) {
            *(uint32_t *)o->value = which;
            return 0;
        }
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    strbuf words = {0};
    put_words(&words, o->argument);
    const int code = cli_usage_error(command, "%s is \"%.200s\"; it must be %s", o->name, text,
                                     strbuf_text(&words));
    strbuf_free(&words);
    return code;
}

static int store(const char *command, const option *o, const char *text)
{
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)o->value = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)o->value = text;
        return 0;
    case OPTION_COUNT:
    case OPTION_EXACT:
        return store_count(command, o, text);
    case OPTION_NUMBER:
        return store_number(command, o, text);
    case OPTION_COUNTS:
        return store_counts(command, o, text);
    case OPTION_ONE_OF:
        return store_one_of(command, o, text);
    case OPTION_LIST: {
        text_list *list = o->value;
        if (list->count == LIST_CAPACITY)
            return cli_usage_error(command, "%s can be given at most %d times", o->name,
                                   LIST_CAPACITY);
        list->items[list->count++] = text;
        return 0;
    }
    }
    return EXIT_USAGE;
}

int args_parse(const char *command, int argc, char **argv, const option *const *tables,
               const char **positional, size_t most)
{
    size_t taken = 0;
    bool only_positional = false;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_positional && strcmp(arg, "--") == 0) {
            only_positional = true;
            continue;
        }
        if (only_positional || arg[0] != '-' || arg[1] == '\0') {
            if (taken == most)
                return cli_usage_error(command, "\"%.200s\" is one argument too many", arg);
            positional[taken++] = arg;
            continue;
        }
        const char *value = NULL;
        const option *o = find(arg, tables, &value);
        if (o == NULL)
            return cli_usage_error(command, "there is no option %.200s", arg);
        if (o->kind == OPTION_FLAG && value != NULL)
            return cli_usage_error(command, "%s takes no value", o->name);
        if (o->kind != OPTION_FLAG && value == NULL) {
            if (i + 1 == argc)
                return cli_usage_error(command, "%s needs a value (%s)", o->name, o->argument);
            value = argv[++i];
        }
        const int failed = store(command, o, value);
        if (failed != 0)
            return failed;
    }
    return 0;
}

bool args_want_help(int argc, char **argv, const option *const *tables)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
        if (strcmp(argv[i], "--") == 0)
            return false;
        const char *value = NULL;
        const option *o =
            argv[i][0] == '-' && argv[i][1] != '\0' ? find(argv[i], tables, &value) : NULL;
        if (o != NULL && o->kind != OPTION_FLAG && value == NULL)
            i++;
    }
    return false;
}

/* ---- help ------------------------------------------------------------------------------------ */

enum { HELP_INDENT = 27, HELP_INDENT_NARROW = 10, HELP_COLUMNS = 80, HELP_LEAST = 40 };

/* Columns that help may take: those of the terminal, 80 at most, and 80 anywhere else. */
static size_t help_columns(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
        size.ws_col >= HELP_COLUMNS || size.ws_col == 0)
        return HELP_COLUMNS;
    return size.ws_col < HELP_LEAST ? HELP_LEAST : size.ws_col;
}

/* Prints text from column `at` on, broken at spaces; further lines begin at column `indent`. A
 * newline in the text begins a line too. */
static void print_wrapped(const char *text, size_t at, size_t indent)
{
    const size_t columns = help_columns();
    bool first = true;
    while (*text != '\0') {
        const size_t word = strcspn(text, " \n");
        if (!first && at + 1 + word > columns) {
            cli_print("\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        cli_print("%s%.*s", first ? "" : " ", (int)word, text);
        at += word + (first ? 0 : 1);
        first = false;
        text += word;
        if (*text == '\n') {
            cli_print("\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        text += strspn(text, " \n");
    }
    cli_print("\n");
}

int args_help(const char *usage, const char *about, const option *const *tables)
{
    const size_t indent = help_columns() < 70 ? HELP_INDENT_NARROW : HELP_INDENT;
    cli_print("usage: ");
    print_wrapped(usage, strlen("usage: "), strlen("usage: "));
    cli_print("\n");
    print_wrapped(about, 0, 0);
    for (; *tables != NULL; tables++) {
        cli_print("\n");
        for (const option *o = *tables; o->name != NULL; o++) {
            char left[64];
            snprintf(left, sizeof left, "  %s%s%s", o->name, o->argument == NULL ? "" : " ",
                     o->argument == NULL ? "" : o->argument);
            /* What is too long for its column has a line of its own. */
            const size_t length = strlen(left);
            cli_print(length + 1 > indent ? "%s\n%*s" : "%s%*s", left,
                      (int)(length + 1 > indent ? indent : indent - length), "");
            print_wrapped(o->help, indent, indent);
        }
    }
    return cli_finish("--help");
}
