/*
 * eval.h - what the commands of `temper eval` share: their descriptions, and texts cut into
 * windows.
 */
#ifndef TEMPER_CLI_EVAL_H
#define TEMPER_CLI_EVAL_H

#include "cli.h"

/* A command of eval: what its --help says, and what runs it after the word that names it. */
typedef struct eval_command {
    const char *name;
    const char *usage, *about;
    const option *const *tables;
    int (*run)(int argc, char **argv);
} eval_command;

extern const eval_command eval_next, eval_ppl, eval_kl, eval_choices;

/* A text as consecutive windows of `context` ids, as llama.cpp scores it: of each window the last
 * context / 2 - 1 ids are predicted. Where the file asks for BOS, it stands in the place of each
 * window's first id. */
typedef struct eval_windows {
    uint32_t *ids; /* [count][context]; freed with free() */
    uint32_t context;
    uint32_t count;
} eval_windows;

/* What --lossy asked for, beside every result: "" or " (lossy int8)", and a member "lossy". */
const char *eval_lossy_note(void);
json_t *eval_with_lossy(json_t *result);

/* 0, or the exit code after a message: --ctx is out of its range. */
int eval_check_context(const char *command, uint64_t context);

typedef struct eval_text {
    const char *path;
    char *bytes; /* freed with free() */
    size_t length;
} eval_text;

/* Inputs are read before the model: who mistyped a path learns it at once. */
temper_status eval_text_read(const char *path, eval_text *out, temper_error *err);

/* Cuts a text. chunks: at most so many windows; 0: all. Fails for a text that does not fill one. */
temper_status eval_windows_cut(const temper_engine *engine, const eval_text *text, uint64_t context,
                               uint64_t chunks, eval_windows *out, temper_error *err);

/* The first place of a window that is predicted. */
uint32_t eval_first_scored(uint32_t context);

#endif
