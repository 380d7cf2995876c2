/*
 * fuzz_chat.c - chat templates. The first byte of an input, modulo 2, chooses what the rest is:
 *
 *     0  a template: read, and rendered over two messages
 *     1  the variables of a template as JSON: rendered by one that walks through all of them
 *
 * Time and memory are chat.h's: two seconds of processor time and 64 MiB a call.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "text/chat.h"
#include "text/utf8.h"

static void check_outcome(temper_status status, const strbuf *out, const error *err)
{
    fuzz_check(utf8_valid_length(out->length == 0 ? "" : out->data, out->length) == out->length);
    if (status == TEMPER_OK)
        fuzz_accepted++;
    else
        fuzz_check(err->text[0] != '\0' &&
                   (status == TEMPER_TEMPLATE || status == TEMPER_BAD_ARGUMENT));
}

static void fuzz_template(const char *text, size_t length)
{
    const chat_message messages[] = {{"system", "Be brief."}, {"user", "Why?"}};
    chat_template *chat = NULL;
    strbuf out = {0};
    error err = {0};
    temper_status status = chat_template_open(text, length, "<s>", "</s>", &chat, &err);

    if (status == TEMPER_OK)
        status = chat_template_render(chat, messages, 2, true, &out, &err);
    check_outcome(status, &out, &err);
    strbuf_free(&out);
    chat_template_close(chat);
}

static const char walker[] =
    "{{ bos_token }}{% for m in messages %}{{ m.role | trim }}: {% if m.content is string %}"
    "{{ m.content }}{% elif m.content %}{% for part in m.content %}{{ part.type }}{{ part.text }}"
    "{% endfor %}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ documents }}"
    "{% if add_generation_prompt %}>{% endif %}{{ eos_token }}";

/* The engine goes on from input to input, as a chat's does; after a failure it starts anew. */
static void fuzz_variables(const char *json, size_t length)
{
    static chat_template *chat;
    strbuf text = {0}, out = {0};
    error err = {0};

    if (chat == NULL)
        fuzz_check(chat_template_open(walker, sizeof walker - 1, "<s>", "</s>", &chat, NULL) ==
                   TEMPER_OK);
    strbuf_append(&text, json, length);
    const temper_status status = chat_template_render_json(chat, strbuf_text(&text), &out, &err);
    check_outcome(status, &out, &err);
    strbuf_free(&text);
    strbuf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *rest = (const char *)data + 1;
    const uint64_t live = mem_live_bytes();
    if (data[0] % 2 == 0) {
        fuzz_template(rest, size - 1);
        fuzz_check(mem_live_bytes() == live);
    } else {
        fuzz_variables(rest, size - 1);
    }
    return 0;
}
