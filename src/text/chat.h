/*
 * chat.h - renders a model's own chat template: @huggingface/jinja inside QuickJS-ng, with a bound
 * on memory, stack and processor time, because the template comes from a file.
 *
 *     chat_template *chat = NULL;
 *     strbuf prompt = {0};
 *     const chat_message messages[] = {{"user", "Why is the sky blue?"}};
 *     temper_status status = chat_template_open(text, length, "<s>", "</s>", &chat, err);
 *     if (status == TEMPER_OK)
 *         status = chat_template_render(chat, messages, 1, true, &prompt, err);
 *     if (status == TEMPER_OK)
 *         status = tokenizer_encode_prompt(tok, prompt.data, prompt.length, true,
 *                                          tokenizer_adds_bos(tok), &ids, err);
 *
 * A template sees messages, add_generation_prompt, bos_token, eos_token, tools and documents (both
 * none), raise_exception, range, namespace and strftime_now (the local time). Bytes that are not
 * valid UTF-8 reach it as U+FFFD.
 */
#ifndef TEMPER_TEXT_CHAT_H
#define TEMPER_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

typedef struct chat_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8 */
} chat_message;

typedef struct chat_template chat_template;

/* Parses the template (UTF-8, `length` bytes). A template that does not parse is TEMPER_TEMPLATE
 * with the parser's message. bos and eos are the texts that the template sees as bos_token and
 * eos_token (NULL: ""). */
temper_status chat_template_open(const char *text, size_t length, const char *bos, const char *eos,
                                 chat_template **out, error *err);
void chat_template_close(chat_template *chat);

/* Appends the rendered text. Messages that the template refuses (raise_exception) give
 * TEMPER_TEMPLATE with the template's own words; running out of time (two seconds of processor
 * time), memory (64 MiB) or stack gives TEMPER_TEMPLATE too. On failure *out keeps what it had. One
 * thread at a time. */
temper_status chat_template_render(chat_template *chat, const chat_message *messages, size_t count,
                                   bool add_generation_prompt, strbuf *out, error *err);

/* The same with all that a template may see, as the text of a JSON object: messages (with tool
 * calls or contents in parts), tools, add_generation_prompt and any other name. bos_token,
 * eos_token and, where the object lacks them, tools and documents as above. JSON that is no object
 * is TEMPER_BAD_ARGUMENT. */
temper_status chat_template_render_json(chat_template *chat, const char *variables, strbuf *out,
                                        error *err);

#endif
