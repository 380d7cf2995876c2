#include "chat_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/outfile.h"

bool conversation_add(conversation *c, const char *role, const char *text, size_t length)
{
    if (c->count == c->capacity) {
        const size_t capacity = c->capacity == 0 ? 16 : c->capacity * 2;
        temper_message *larger = realloc(c->messages, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        c->messages = larger;
        c->capacity = capacity;
    }
    char *copy = malloc(length + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    c->messages[c->count++] = (temper_message){role, copy};
    return true;
}

void conversation_drop(conversation *c, size_t count)
{
    while (c->count > count)
        free((char *)c->messages[--c->count].content);
}

void conversation_free(conversation *c)
{
    conversation_drop(c, 0);
    free(c->messages);
    *c = (conversation){0};
}

/* ---- files ---------------------------------------------------------------------------------- */

temper_status conversation_save(const conversation *c, const char *path, temper_error *err)
{
    conversation there = {0};
    if (access(path, F_OK) == 0 && conversation_load(path, &there, NULL) != TEMPER_OK)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%s is there and holds no chat: name another file", path);
    conversation_free(&there);
    json_t *messages = json_array();
    for (size_t i = 0; i < c->count; i++)
        json_array_append_new(
            messages,
            json_pack("{s:s, s:o}", "role", c->messages[i].role, "content",
                      cli_json_text(c->messages[i].content, strlen(c->messages[i].content))));
    json_t *all = json_pack("{s:o}", "messages", messages);
    char *text = all == NULL ? NULL : json_dumps(all, JSON_INDENT(1));
    json_decref(all);
    if (text == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to write the chat");
    outfile *out = NULL;
    temper_status status = outfile_create(path, &out, err);
    if (status == TEMPER_OK)
        status = outfile_write(out, text, strlen(text), err);
    if (status == TEMPER_OK)
        status = outfile_write(out, "\n", 1, err);
    if (status == TEMPER_OK)
        status = outfile_commit(out, err);
    else
        outfile_discard(out);
    free(text);
    return status;
}

/* The role as a static text, or NULL. */
static const char *known_role(const json_t *role)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    for (size_t i = 0; json_is_string(role) && i < sizeof roles / sizeof roles[0]; i++)
        if (strcmp(json_string_value(role), roles[i]) == 0)
            return roles[i];
    return NULL;
}

static temper_status take_messages(const char *path, const json_t *messages, conversation *out,
                                   temper_error *err)
{
    if (!json_is_array(messages))
        return error_set(err, TEMPER_BAD_FILE, "%s: holds no list of messages", path);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = known_role(json_object_get(message, "role"));
        const json_t *content = json_object_get(message, "content");
        if (role == NULL)
            return error_set(err, TEMPER_BAD_FILE,
                             "%s: message %zu: its role is not system, user or assistant", path, i);
        if (!json_is_string(content))
            return error_set(err, TEMPER_BAD_FILE, "%s: message %zu: its content is no text", path,
                             i);
        if (!conversation_add(out, role, json_string_value(content), json_string_length(content)))
            return error_set(err, TEMPER_NO_MEMORY, "no memory for the messages of %s", path);
    }
    return TEMPER_OK;
}

temper_status conversation_load(const char *path, conversation *out, temper_error *err)
{
    char *text = NULL;
    size_t length = 0;
    json_error_t why;
    temper_status status = cli_read_file(path, &text, &length, err);
    if (status != TEMPER_OK)
        return status;
    json_t *all = json_loadb(text, length, JSON_REJECT_DUPLICATES, &why);
    free(text);
    status = all == NULL ? error_set(err, TEMPER_BAD_FILE, "%s:%d: is not JSON: %s", path, why.line,
                                     why.text)
                         : take_messages(path, json_object_get(all, "messages"), out, err);
    json_decref(all);
    if (status != TEMPER_OK)
        conversation_free(out);
    return status;
}
