/*
 * main.c - the program's commands.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {
    {"run", command_run, "generate text, or chat in the terminal"},
    {"bench", command_bench, "speed of prompts and answers"},
    {"eval", command_eval, "perplexity of a text; the likeliest next tokens"},
    {"tokenize", command_tokenize, "the ids of a text"},
    {"inspect", command_inspect, "what is in a model file, and the memory it takes"},
    {"kernels", command_kernels, "list and test the kernels"},
    {"doctor", command_doctor, "adapters, limits, features, and a self-test"},
};

static void print_usage(FILE *out)
{
    fputs("usage: temper COMMAND [ARGUMENTS]\n\n", out);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].about);
    fputs("\ntemper COMMAND --help tells more; temper --version prints the version.\n", out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_usage(stdout);
        return cli_finish("--help");
    }
    if (strcmp(argv[1], "--version") == 0) {
        cli_print("temper %s\n", temper_version());
        return cli_finish("--version");
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    fprintf(stderr, "temper: there is no command \"%s\"\n", argv[1]);
    print_usage(stderr);
    return EXIT_USAGE;
}
