/*
 * chat.c - from messages to the text that a model was trained to continue.
 */
#include "text/chat.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/script.h"

struct chat_template {
    char *text;        /* owned copies of what open was given: an engine that ran into a limit is */
    size_t length;     /* thrown away, and the next call starts another */
    char *bos;
    char *eos;
    script *engine;    /* NULL: to be started */
    JSValue program;   /* the parsed template, a value of the engine */
};

static const char cannot_render[] = "the chat template cannot be rendered";

/* Reports the pending exception. Whatever it was, the next call gets a fresh engine: one that ran into a
 * limit may be broken. */
static temper_status give_up(chat_template *chat, temper_status status, const char *what, error *err)
{
    status = script_failure(chat->engine, status, what, err);
    script_close(chat->engine);
    chat->engine = NULL;
    return status;
}

/* Starts the engine and parses the template. */
static temper_status start(chat_template *chat, error *err)
{
    assert(chat->engine == NULL);
    temper_status status = script_open(&chat->engine, err);
    if (status != TEMPER_OK)
        return status;
    script_begin(chat->engine);
    JSValue text = script_string(chat->engine, chat->text, chat->length);
    chat->program = script_call(chat->engine, "parse", 1, &text);
    if (!JS_IsException(chat->program))
        return TEMPER_OK;
    return give_up(chat, TEMPER_TEMPLATE, "the chat template cannot be read", err);
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
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a chat template of %zu bytes", length);
    if (status == TEMPER_OK)
        status = start(chat, err);
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

/* Sets a property that exists in no prototype; false with an exception pending. Takes the value. */
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
        bool good = !JS_IsException(message)
                    && set_text(engine, message, "role", messages[i].role)
                    && set_text(engine, message, "content", messages[i].content);
        if (!good)
            JS_FreeValue(context, message);
        else
            good = JS_DefinePropertyValueUint32(context, array, (uint32_t)i, message,
                                                JS_PROP_C_W_E) >= 0;
        if (!good) {
            JS_FreeValue(context, array);
            array = JS_EXCEPTION;
        }
    }
    return array;
}

/* Variables that every template sees; false with an exception pending. */
static bool set_common(const chat_template *chat, JSValue variables)
{
    static const char *const absent[] = {"tools", "documents"};
    JSContext *context = script_context(chat->engine);

    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        JSValue value = JS_GetPropertyStr(context, variables, absent[i]);
        const bool missing = JS_IsUndefined(value);
        const bool failed = JS_IsException(value);
        JS_FreeValue(context, value);
        if (failed || (missing && !set(context, variables, absent[i], JS_NULL)))
            return false;
    }
    return set_text(chat->engine, variables, "bos_token", chat->bos)
           && set_text(chat->engine, variables, "eos_token", chat->eos);
}

/* Takes what render returned apart: { text } or { refusal }. */
static temper_status take_result(chat_template *chat, JSValue result, strbuf *out, error *err)
{
    JSContext *context = script_context(chat->engine);
    JSValue value = JS_GetPropertyStr(context, result, "refusal");
    const bool refused = !JS_IsUndefined(value);
    size_t length;
    temper_status status = TEMPER_OK;

    if (!refused)
        value = JS_GetPropertyStr(context, result, "text");
    const char *text = JS_IsException(value) ? NULL : JS_ToCStringLen(context, &length, value);
    if (text == NULL)
        return give_up(chat, TEMPER_TEMPLATE, cannot_render, err);
    if (refused) {
        status = error_set(err, TEMPER_TEMPLATE, "%s",
                           length > 0 ? text : "the chat template refused the messages");
    } else {
        const size_t had = out->length;
        strbuf_append(out, text, length);
        if (out->failed) {
            out->length = had;
            status = error_set(err, TEMPER_NO_MEMORY, "no memory for a prompt of %zu bytes", length);
        }
    }
    JS_FreeCString(context, text);
    JS_FreeValue(context, value);
    return status;
}

/* Renders with an object of variables (taken), or reports the exception that it is. */
static temper_status render(chat_template *chat, JSValue variables, strbuf *out, error *err)
{
    JSContext *context = script_context(chat->engine);
    JSValue result = JS_EXCEPTION;

    if (!JS_IsException(variables) && set_common(chat, variables)) {
        JSValue arguments[2] = {JS_DupValue(context, chat->program), JS_DupValue(context, variables)};
        result = script_call(chat->engine, "render", 2, arguments);
    }
    JS_FreeValue(context, variables);
    if (JS_IsException(result))
        return give_up(chat, TEMPER_TEMPLATE, cannot_render, err);
    const temper_status status = take_result(chat, result, out, err);
    if (chat->engine != NULL)
        JS_FreeValue(context, result);
    return status;
}

/* Gets the engine ready for a call. */
static temper_status begin(chat_template *chat, error *err)
{
    const temper_status status = chat->engine == NULL ? start(chat, err) : TEMPER_OK;

    if (status == TEMPER_OK)
        script_begin(chat->engine);
    return status;
}

temper_status chat_template_render(chat_template *chat, const chat_message *messages, size_t count,
                                   bool add_generation_prompt, strbuf *out, error *err)
{
    const temper_status status = begin(chat, err);

    if (status != TEMPER_OK)
        return status;
    JSContext *context = script_context(chat->engine);
    JSValue variables = JS_NewObject(context);
    if (!JS_IsException(variables)
        && (!set(context, variables, "messages", make_messages(chat->engine, messages, count))
            || !set(context, variables, "add_generation_prompt",
                    JS_NewBool(context, add_generation_prompt)))) {
        JS_FreeValue(context, variables);
        variables = JS_EXCEPTION;
    }
    return render(chat, variables, out, err);
}

temper_status chat_template_render_json(chat_template *chat, const char *variables, strbuf *out,
                                        error *err)
{
    temper_status status = begin(chat, err);

    if (status != TEMPER_OK)
        return status;
    JSContext *context = script_context(chat->engine);
    JSValue object = JS_ParseJSON(context, variables, strlen(variables), "variables");
    if (JS_IsException(object))
        return give_up(chat, TEMPER_BAD_ARGUMENT, "the variables of a chat template are not JSON",
                       err);
    if (!JS_IsObject(object) || JS_IsArray(object)) {
        JS_FreeValue(context, object);
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the variables of a chat template are JSON, but no object");
    }
    return render(chat, object, out, err);
}
