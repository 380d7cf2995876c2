/*
 * chat.c - from messages to the text that a model was trained to continue.
 */
#include "text/chat.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/script.h"

/* An engine is thrown away after a failure; the next call starts another from these copies. */
struct chat_template {
    char *text;
    size_t length;
    char *bos;
    char *eos;
    script *engine;    /* NULL: to be started */
    JSValue program;   /* the parsed template, a value of the engine */
};

static const char cannot_read[] = "the chat template cannot be read";
static const char cannot_render[] = "the chat template cannot be rendered";

/* ---- opening --------------------------------------------------------------------------------- */

/* A body: parses the template. */
static temper_status parse(script *engine, void *user, error *err)
{
    chat_template *chat = user;
    JSValue text = script_string(engine, chat->text, chat->length);

    chat->program = script_call(engine, "parse", 1, &text);
    return JS_IsException(chat->program) ? script_failure(engine, TEMPER_TEMPLATE, cannot_read, err)
                                         : TEMPER_OK;
}

static void stop_engine(chat_template *chat)
{
    script_close(chat->engine);
    chat->engine = NULL;
}

static temper_status start_engine(chat_template *chat, error *err)
{
    assert(chat->engine == NULL);
    temper_status status = script_open(&chat->engine, err);
    if (status == TEMPER_OK)
        status = script_run(chat->engine, cannot_read, parse, chat, err);
    if (status != TEMPER_OK)
        stop_engine(chat);
    return status;
}

temper_status chat_template_open(const char *text, size_t length, const char *bos, const char *eos,
                                 chat_template **out, error *err)
{
    assert(text != NULL || length == 0);
    *out = NULL;
    chat_template *chat = mem_calloc(1, sizeof *chat);
    if (chat == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a chat template");
    chat->text = mem_strndup(text, length);
    chat->length = length;
    chat->bos = mem_strdup(bos == NULL ? "" : bos);
    chat->eos = mem_strdup(eos == NULL ? "" : eos);
    temper_status status = TEMPER_OK;
    if (chat->text == NULL || chat->bos == NULL || chat->eos == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a chat template of %zu bytes",
                           length);
    if (status == TEMPER_OK)
        status = start_engine(chat, err);
    if (status != TEMPER_OK) {
        chat_template_close(chat);
        return status;
    }
    *out = chat;
    return TEMPER_OK;
}

void chat_template_close(chat_template *chat)
{
    if (chat == NULL)
        return;
    script_close(chat->engine);
    mem_free(chat->text);
    mem_free(chat->bos);
    mem_free(chat->eos);
    mem_free(chat);
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* One call of render or render_json. */
typedef struct render_call {
    const chat_template *chat;
    const char *json;                /* the variables, or NULL: */
    const chat_message *messages;
    size_t message_count;
    bool add_generation_prompt;
    strbuf *out;
    bool usable;                     /* the engine is sound though the call failed */
} render_call;

/* Sets an own property; false with an exception pending. Takes the value. */
static bool set(JSContext *context, JSValue object, const char *name, JSValue value)
{
    if (JS_IsException(value))
        return false;
    return JS_DefinePropertyValueStr(context, object, name, value, JS_PROP_C_W_E) >= 0;
}

static bool set_text(script *engine, JSValue object, const char *name, const char *text)
{
    return set(script_context(engine), object, name, script_string(engine, text, strlen(text)));
}

/* The array of messages, or an exception. */
static JSValue make_messages(script *engine, const chat_message *messages, size_t count)
{
    JSContext *context = script_context(engine);
    JSValue array = JS_NewArray(context);

    for (size_t i = 0; i < count && !JS_IsException(array); i++) {
        assert(messages[i].role != NULL && messages[i].content != NULL);
        JSValue message = JS_NewObject(context);
        if (JS_IsException(message) || !set_text(engine, message, "role", messages[i].role)
            || !set_text(engine, message, "content", messages[i].content)
            || JS_DefinePropertyValueUint32(context, array, (uint32_t)i, message,
                                            JS_PROP_C_W_E) < 0)
            return JS_EXCEPTION;   /* what was made goes with the engine */
    }
    return array;
}

/* *variables becomes the object of what the caller passes in. */
static temper_status make_variables(script *engine, render_call *call, JSValue *variables,
                                    error *err)
{
    JSContext *context = script_context(engine);

    if (call->json == NULL) {
        *variables = JS_NewObject(context);
        if (JS_IsException(*variables)
            || !set(context, *variables, "messages",
                    make_messages(engine, call->messages, call->message_count))
            || !set(context, *variables, "add_generation_prompt",
                    JS_NewBool(context, call->add_generation_prompt)))
            return script_failure(engine, TEMPER_TEMPLATE, cannot_render, err);
        return TEMPER_OK;
    }
    *variables = JS_ParseJSON(context, call->json, strlen(call->json), "variables");
    if (JS_IsException(*variables))
        return script_failure(engine, TEMPER_BAD_ARGUMENT,
                              "the variables of a chat template are not JSON", err);
    if (!JS_IsObject(*variables) || JS_IsArray(*variables))
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the variables of a chat template are JSON, but no object");
    return TEMPER_OK;
}

/* Adds the variables that every template sees. */
static temper_status add_common(script *engine, const chat_template *chat, JSValue variables,
                                error *err)
{
    static const char *const absent[] = {"tools", "documents"};
    JSContext *context = script_context(engine);
    bool good = true;

    for (size_t i = 0; i < sizeof absent / sizeof *absent && good; i++) {
        JSValue value = JS_GetPropertyStr(context, variables, absent[i]);
        good = !JS_IsException(value)
               && (!JS_IsUndefined(value) || set(context, variables, absent[i], JS_NULL));
        JS_FreeValue(context, value);
    }
    good = good && set_text(engine, variables, "bos_token", chat->bos)
           && set_text(engine, variables, "eos_token", chat->eos);
    return good ? TEMPER_OK : script_failure(engine, TEMPER_TEMPLATE, cannot_render, err);
}

/* Takes what the engine's render returned apart: { text } or { refusal }. */
static temper_status take_result(script *engine, render_call *call, JSValue result, error *err)
{
    JSContext *context = script_context(engine);
    JSValue value = JS_GetPropertyStr(context, result, "refusal");
    const bool refused = !JS_IsUndefined(value);
    temper_status status = TEMPER_OK;
    size_t length;

    if (!refused)
        value = JS_GetPropertyStr(context, result, "text");
    const char *text = JS_IsException(value) ? NULL : JS_ToCStringLen(context, &length, value);
    if (text == NULL)
        return script_failure(engine, TEMPER_TEMPLATE, cannot_render, err);
    if (refused) {
        status = error_set(err, TEMPER_TEMPLATE, "%s",
                           length > 0 ? text : "the chat template refused the messages");
        call->usable = true;
    } else {
        strbuf_append(call->out, text, length);
        if (call->out->failed)
            status = error_set(err, TEMPER_NO_MEMORY, "no memory for a prompt of %zu bytes",
                               length);
    }
    JS_FreeCString(context, text);
    JS_FreeValue(context, value);
    return status;
}

/* A body: the whole call. */
static temper_status render(script *engine, void *user, error *err)
{
    render_call *call = user;
    JSContext *context = script_context(engine);
    JSValue variables;

    temper_status status = make_variables(engine, call, &variables, err);
    if (status == TEMPER_OK)
        status = add_common(engine, call->chat, variables, err);
    if (status != TEMPER_OK)
        return status;
    JSValue arguments[2] = {JS_DupValue(context, call->chat->program), variables};
    JSValue result = script_call(engine, "render", 2, arguments);
    if (JS_IsException(result))
        return script_failure(engine, TEMPER_TEMPLATE, cannot_render, err);
    status = take_result(engine, call, result, err);
    JS_FreeValue(context, result);
    return status;
}

static temper_status run_call(chat_template *chat, render_call *call, error *err)
{
    temper_status status = chat->engine == NULL ? start_engine(chat, err) : TEMPER_OK;

    if (status != TEMPER_OK)
        return status;
    status = script_run(chat->engine, cannot_render, render, call, err);
    if (status != TEMPER_OK && !call->usable)
        stop_engine(chat);
    return status;
}

temper_status chat_template_render(chat_template *chat, const chat_message *messages, size_t count,
                                   bool add_generation_prompt, strbuf *out, error *err)
{
    render_call call = {.chat = chat, .messages = messages, .message_count = count,
                        .add_generation_prompt = add_generation_prompt, .out = out};

    return run_call(chat, &call, err);
}

temper_status chat_template_render_json(chat_template *chat, const char *variables, strbuf *out,
                                        error *err)
{
    render_call call = {.chat = chat, .json = variables, .out = out};

    return run_call(chat, &call, err);
}
