/*
 * eval.c - `temper eval`: finds the command that was asked for.
 */
#include "eval.h"

#include <stdio.h>
#include <string.h>

static const eval_command *const commands[] = {&eval_next, &eval_ppl, &eval_kl, &eval_choices};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

const char *eval_lossy_note(void)
{
    static char note[32];
    if (cli_lossy() != TEMPER_LOSSY_NONE)
        snprintf(note, sizeof note, " (lossy %s)", temper_lossy_name(cli_lossy()));
    return note;
}

json_t *eval_with_lossy(json_t *result)
{
    if (cli_lossy() != TEMPER_LOSSY_NONE)
        json_object_set_new(result, "lossy", json_string(temper_lossy_name(cli_lossy())));
    return result;
}

static int help(void)
{
    static const option *const no_tables[] = {NULL};
    char usage[512] = "";
    for (int i = 0; i < COMMANDS; i++) {
        const size_t at = strlen(usage);
        snprintf(usage + at, sizeof usage - at, "%s%s", i == 0 ? "" : "\n", commands[i]->usage);
    }
    return args_help(usage,
                     "next lists the likeliest next tokens, ppl measures perplexity, kl how far a "
                     "model is from another, choices how well it answers; each has a --help.",
                     no_tables);
}

int command_eval(int argc, char **argv)
{
    if (argc == 0)
        return cli_usage_error("eval", "say what: next, ppl, kl or choices");
    for (int i = 0; i < COMMANDS; i++) {
        const eval_command *c = commands[i];
        if (strcmp(argv[0], c->name) != 0)
            continue;
        return args_want_help(argc - 1, argv + 1, c->tables)
                   ? args_help(c->usage, c->about, c->tables)
                   : c->run(argc - 1, argv + 1);
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)
        return help();
    return cli_usage_error("eval", "there is no \"%.200s\": next, ppl, kl or choices", argv[0]);
}
