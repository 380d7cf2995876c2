/*
 * main.c - the program's commands.
 */
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"run", command_run, "generate text, or chat in the terminal"},
    {"bench", command_bench, "speed of prompts and answers"},
    {"eval", command_eval, "perplexity, divergence, multiple choice"},
    {"tokenize", command_tokenize, "the ids of a text"},
    {"inspect", command_inspect, "what a model file holds and the memory it takes"},
    {"convert", command_convert, "a Hugging Face directory as a GGUF file"},
    {"quantize", command_quantize, "a model in another type"},
    {"kernels", command_kernels, "list and test the kernels"},
    {"doctor", command_doctor, "adapters, limits, features, a self-test"},
};

static int help(void)
{
    cli_print("usage: temper COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        cli_print("  %-10s %s\n", commands[i].name, commands[i].about);
    cli_print("\ntemper COMMAND --help tells more,\ntemper --version prints the version.\n");
    return cli_finish("--help");
}

/* A command that is missing or unknown: what there is, on one line. */
static int wrong_command(const char *given)
{
    char known[256] = "";
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i == 0 ? "" : ", ", commands[i].name);
    }
    if (given == NULL)
        return cli_usage_error("", "name a command: %s", known);
    return cli_usage_error("", "there is no command \"%.200s\": there are %s", given, known);
}

/* Whoever starts the program with stdin, stdout or stderr closed must not find a model file there:
 * the first file that is opened would get the free number. Writing to these fails. */
static void hold_standard_files(void)
{
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++)
        if (fcntl(i, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != i)
            _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    hold_standard_files();
    /* Only characters follow the locale, for the chat's editor; numbers are always written alike.
     */
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    const char *command = argc < 2 ? NULL : argv[1];
    if (command == NULL)
        return wrong_command(NULL);
    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0 ||
        strcmp(command, "help") == 0)
        return help();
    if (strcmp(command, "--version") == 0) {
        cli_print("temper %s\n", temper_version());
        return cli_finish("--version");
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(command, commands[i].name) != 0)
            continue;
        cli_catch_interrupt();
        cli_tell_warnings();
        const int code = commands[i].run(argc - 2, argv + 2);
        return cli_interrupted() ? EXIT_INTERRUPTED : code;
    }
    return wrong_command(command);
}
