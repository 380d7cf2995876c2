/*
 * chat_file.h - a conversation as a list of messages, and as a file:
 *
 *     {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
 */
#ifndef TEMPER_CLI_CHAT_FILE_H
#define TEMPER_CLI_CHAT_FILE_H

#include "cli.h"

typedef struct conversation {
    temper_message *messages; /* contents owned, roles static */
    size_t count, capacity;
} conversation;

/* Adds a message of `length` bytes, none of them NUL; role is static. False: no memory. */
bool conversation_add(conversation *c, const char *role, const char *text, size_t length);

/* Forgets all messages but the first `count`. */
void conversation_drop(conversation *c, size_t count);
void conversation_free(conversation *c);

/* Writes a file; one that is there is replaced only if it is a conversation too. */
temper_status conversation_save(const conversation *c, const char *path, temper_error *err);

/* Reads one into a zeroed *out. Errors name the file and the message. */
temper_status conversation_load(const char *path, conversation *out, temper_error *err);

#endif
