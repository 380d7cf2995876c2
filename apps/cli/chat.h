/*
 * chat.h - what `temper run` and its chat share.
 */
#ifndef TEMPER_CLI_CHAT_H
#define TEMPER_CLI_CHAT_H

#include "cli.h"

/* Where the text of an answer goes. */
typedef struct run_sink {
    char *text; /* the whole answer so far; freed by whoever made the sink */
    size_t length, capacity;
    bool stream; /* to stdout as it comes */
    bool failed; /* no memory for more */
} run_sink;

/* The request that the options of run describe; its callbacks fill the sink, show progress and stop
 * at Ctrl-C. */
temper_request run_request(temper_tokens prompt, run_sink *sink);

/* One line on how fast an answer was, on a terminal. */
void run_show_speed(const temper_result *result);

/* A chat in the terminal until Ctrl-D. system: the first message, or NULL. Returns the exit code.
 */
int chat_run(temper_engine *engine, temper_session *session, const char *system);

#endif
