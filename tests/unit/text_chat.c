/*
 * text_chat.c - chat templates: the same text as Jinja2 gives, the template's own words when it
 * refuses, and hostile templates.
 */
#include "text_files.h"

#include <time.h>

#include <jansson.h>

#include "base/mem.h"
#include "text/chat.h"

static chat_template *open_template(const char *text)
{
    chat_template *chat = NULL;
    error err = {0};

    if (chat_template_open(text, strlen(text), "<s>", "</s>", &chat, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return chat;
}

/* Renders one user message; the caller frees out. */
static temper_status render_one(chat_template *chat, const char *content, strbuf *out, error *err)
{
    const chat_message message = {"user", content};

    return chat_template_render(chat, &message, 1, true, out, err);
}

static void assert_renders(const char *text, const char *content, const char *expected)
{
    chat_template *chat = open_template(text);
    strbuf out = {0};
    error err = {0};

    if (render_one(chat, content, &out, &err) != TEMPER_OK)
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(strbuf_text(&out), expected);
    assert_int_equal(strlen(strbuf_text(&out)), out.length);
    strbuf_free(&out);
    chat_template_close(chat);
}

static void variables_reach_the_template(void **state)
{
    (void)state;
    assert_renders("{{ bos_token }}|{{ eos_token }}", "x", "<s>|</s>");
    assert_renders("{{ messages | length }}{{ messages[0].role }}{{ messages[0]['content'] }}", "x",
                   "1userx");
    assert_renders("{{ 'yes' if add_generation_prompt else 'no' }}", "x", "yes");
    assert_renders("{{ 'yes' if tools is none and documents is none }}", "x", "yes");
    assert_renders("{{ 'yes' if tools is defined and not (nobody is defined) }}", "x", "yes");
    assert_renders("{% for i in range(2, 8, 3) %}{{ i }},{% endfor %}", "x", "2,5,");
    assert_renders("{% for i in range(3) %}{{ i }}{% endfor %}", "x", "012");
    assert_renders("{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}", "x", "321");
    assert_renders("{% for i in range(0, 5, -1) %}{{ i }}{% endfor %}", "x", "");
    assert_renders("", "x", "");
    /* trim_blocks and lstrip_blocks, as Hugging Face's library sets them. */
    assert_renders("a\n  {% if true %}\nb\n  {% endif %}\nc", "x", "a\nb\nc");
}

static void contents_go_in_as_they_are(void **state)
{
    static const struct {
        const char *content, *text;
    } rows[] = {
        {"", ""},
        {"'\"`\\${}; raise_exception('no')", "'\"`\\${}; raise_exception('no')"},
        {"{{ bos_token }}{% if %}", "{{ bos_token }}{% if %}"},
        {"\xF0\x9F\x98\x8A \xE4\xBD\xA0 \x01\x7F", "\xF0\x9F\x98\x8A \xE4\xBD\xA0 \x01\x7F"},
        {"\xEF\xBB\xBF\xE2\x80\xA8", "\xEF\xBB\xBF\xE2\x80\xA8"},
        /* Broken UTF-8, surrogates included, is U+FFFD. */
        {"a\xFF" "b\xE2\x82", "a\xEF\xBF\xBD" "b\xEF\xBF\xBD"},
        {"\xED\xA0\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_renders("{{ messages[0].content }}", rows[i].content, rows[i].text);
    /* A template may cut a character of JavaScript's in half; the text stays valid. */
    assert_renders("{{ messages[0].content[0] }}", "\xF0\x9F\x98\x8A", "\xEF\xBF\xBD");
}

static void strftime_now_gives_the_local_date(void **state)
{
    char expected[64];
    const time_t now = time(NULL);
    struct tm parts;
    (void)state;

    assert_non_null(localtime_r(&now, &parts));
    assert_true(strftime(expected, sizeof expected, "%d %B %Y%%", &parts) > 0);
    assert_renders("{{ strftime_now('%d %B %Y%%') if strftime_now is defined }}", "x", expected);
    assert_renders("{{ strftime_now('') }}", "x", "");
}

static void refusal_in_the_templates_own_words(void **state)
{
    static const char text[] =
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate: user, assistant, \xC3\xA9t\xC3\xA9') }}"
        "{% endif %}{{ m.content }}{% endfor %}";
    const chat_message two_users[] = {{"user", "a"}, {"user", "b"}};
    const chat_message good[] = {{"user", "a"}, {"assistant", "b"}};
    chat_template *chat = open_template(text);
    (void)state;

    for (int round = 0; round < 3; round++) {
        strbuf out = {0};
        error err = {0};
        strbuf_puts(&out, "kept");
        assert_int_equal(chat_template_render(chat, two_users, 2, true, &out, &err),
                         TEMPER_TEMPLATE);
        assert_string_equal(err.text, "Roles must alternate: user, assistant, \xC3\xA9t\xC3\xA9");
        assert_string_equal(strbuf_text(&out), "kept");
        error_clear(&err);
        assert_int_equal(chat_template_render(chat, good, 2, true, &out, &err), TEMPER_OK);
        assert_string_equal(strbuf_text(&out), "keptab");
        strbuf_free(&out);
    }
    chat_template_close(chat);

    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{{ raise_exception('') }}", "the chat template refused the messages"},
        {"{{ raise_exception('%s%n %d') }}", "%s%n %d"},
        {"{{ raise_exception(7) }}", "7"},
        {"{% for x in [1] %}{{ raise_exception('deep') }}{% endfor %}", "deep"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        error err = {0};
        strbuf out = {0};
        chat = open_template(rows[i].text);
        assert_int_equal(render_one(chat, "x", &out, &err), TEMPER_TEMPLATE);
        assert_string_equal(err.text, rows[i].says);
        assert_int_equal(chat_template_render(chat, NULL, 0, true, &out, NULL), TEMPER_TEMPLATE);
        strbuf_free(&out);
        chat_template_close(chat);
    }
}

static void templates_that_do_not_parse(void **state)
{
    static const char *const rows[] = {
        "{{", "{% if %}", "{% for x %}", "{{ 'open }}", "{% endif %}", "{% if true %}", "{{ 1 + }}",
        "{# open", "{{ a.b. }}", "{% set %}", "{{ ( }}",
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        chat_template *chat = NULL;
        error err = {0};
        strbuf out = {0};
        temper_status status =
            chat_template_open(rows[i], strlen(rows[i]), NULL, NULL, &chat, &err);
        /* What the parser lets pass must fail in the end, or render; it may not crash. */
        if (status == TEMPER_OK)
            status = render_one(chat, "x", &out, &err);
        else
            assert_non_null(strstr(err.text, "the chat template cannot be read: "));
        assert_true(status == TEMPER_OK || status == TEMPER_TEMPLATE);
        strbuf_free(&out);
        chat_template_close(chat);
    }
    chat_template *chat = NULL;
    assert_int_equal(chat_template_open("{% if %}", 8, NULL, NULL, &chat, NULL), TEMPER_TEMPLATE);
    chat_template_close(NULL);
}

/* ---- hostile templates ----------------------------------------------------------------------- */

static void limits_hold(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{% for i in range(10**9) %}x{% endfor %}", "range() of 1000000000"},
        {"{% for i in range(10**6) %}{% for k in range(10**6) %}{% endfor %}{% endfor %}", ""},
        {"{% for i in range(3000) %}{% for k in range(3000) %}{{ i * k }}{% endfor %}{% endfor %}",
         ""},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ""},
        {"{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(40) %}"
         "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}", ""},
        {"{{ 'a\nb' | indent(10**9) }}", ""},
        {"{{ messages[0].content | nosuchfilter }}", "nosuchfilter"},
        {"{{ 1 / 0 + 'a' }}", ""},
        {"{{ strftime_now('%A' * 9) if false else strftime_now(''.join) }}", ""},
        {"{% for i in range(1, 2, 0) %}{% endfor %}", "step"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        chat_template *chat = NULL;
        error err = {0};
        strbuf out = {0};
        const clock_t begin = clock();
        temper_status status =
            chat_template_open(rows[i].text, strlen(rows[i].text), "", "", &chat, &err);

        for (int round = 0; round < 2 && status == TEMPER_OK; round++)
            status = render_one(chat, "x", &out, &err);
        printf("%.60s: %.0f ms, %s\n", rows[i].text,
               1e3 * (double)(clock() - begin) / CLOCKS_PER_SEC, err.text);
        if (rows[i].says[0] != '\0') {
            assert_int_equal(status, TEMPER_TEMPLATE);
            assert_non_null(strstr(err.text, rows[i].says));
        }
        assert_true(status == TEMPER_OK || status == TEMPER_TEMPLATE);
        strbuf_free(&out);
        chat_template_close(chat);
    }
}

static void time_runs_out_and_the_next_call_works(void **state)
{
    static const char text[] =
        "{% if messages[0].content == 'loop' %}"
        "{% for i in range(10**6) %}{% for k in range(10**6) %}{% endfor %}{% endfor %}"
        "{% elif messages[0].content == 'spin' %}"
        "{% set l = range(2000) %}{% for i in l %}{% for k in l %}{% set x = i + k %}{% endfor %}"
        "{% endfor %}"
        "{% elif messages[0].content == 'fill' %}"
        "{% set ns = namespace(s='0123456789abcdef') %}{% for i in range(40) %}"
        "{% set ns.s = (ns.s + ns.s) | upper %}{% endfor %}"
        "{% endif %}done";
    chat_template *chat = open_template(text);
    strbuf out = {0};
    (void)state;

    for (int round = 0; round < 2; round++) {
        error err = {0};
        const clock_t begin = clock();
        assert_int_equal(render_one(chat, "spin", &out, &err), TEMPER_TEMPLATE);
        assert_non_null(strstr(err.text, "more than 2 seconds"));
        assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10);
        error_clear(&err);
        assert_int_equal(render_one(chat, "fill", &out, &err), TEMPER_TEMPLATE);
        printf("%s\n", err.text);
        error_clear(&err);
        assert_int_equal(out.length, 0);
        assert_int_equal(render_one(chat, "x", &out, &err), TEMPER_OK);
        assert_string_equal(strbuf_text(&out), "done");
        strbuf_clear(&out);
    }
    strbuf_free(&out);
    chat_template_close(chat);
}

/* Opens and renders `text`, whatever comes of it. */
static temper_status try_template(const char *text, size_t length)
{
    chat_template *chat = NULL;
    error err = {0};
    strbuf out = {0};
    temper_status status = chat_template_open(text, length, "", "", &chat, &err);

    if (status == TEMPER_OK)
        status = render_one(chat, "x", &out, &err);
    printf("%.40s...: %zu bytes, %.100s\n", text, length, err.text);
    strbuf_free(&out);
    chat_template_close(chat);
    return status;
}

static void deep_and_long_templates(void **state)
{
    static const struct {
        const char *unit;
        int count;
        bool fails;
    } rows[] = {
        {"{{ ", 1, false}, {"(", 10000, true}, {"{% if true %}", 5000, true}, {"[", 10000, true},
        {"not ", 10000, true}, {"{{ x }}", 3000, false}, {"text ", 400000, false},
        {"{# c #}", 5000, false}, {"-", 10000, true}, {"{{ a", 10000, true},
        {"{{ 'a' + ", 3000, true},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        strbuf text = {0};
        if (rows[i].unit[0] != '{' && rows[i].unit[0] != 't')
            strbuf_puts(&text, "{{ ");
        for (int k = 0; k < rows[i].count; k++)
            strbuf_puts(&text, rows[i].unit);
        assert_false(text.failed);
        const temper_status status = try_template(text.data, text.length);
        assert_true(status == TEMPER_TEMPLATE || (status == TEMPER_OK && !rows[i].fails)
                    || rows[i].unit[2] == ' ');
        strbuf_free(&text);
    }
    const char nul[] = "a\0b{{ messages[0].content }}";
    chat_template *chat = NULL;
    strbuf out = {0};
    assert_int_equal(chat_template_open(nul, sizeof nul - 1, "", "", &chat, NULL), TEMPER_OK);
    assert_int_equal(render_one(chat, "x", &out, NULL), TEMPER_OK);
    assert_int_equal(out.length, 4);
    assert_memory_equal(out.data, "a\0bx", 4);
    strbuf_free(&out);
    chat_template_close(chat);
}

static void a_long_conversation(void **state)
{
    enum { COUNT = 2000 };
    chat_message messages[COUNT];
    static const char text[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    chat_template *chat = open_template(text);
    strbuf out = {0};
    char *content = malloc(5001);
    (void)state;

    assert_non_null(content);
    memset(content, 'c', 5000);
    content[5000] = '\0';
    for (int i = 0; i < COUNT; i++)
        messages[i] = (chat_message){i % 2 == 0 ? "user" : "assistant", content};
    assert_int_equal(chat_template_render(chat, messages, COUNT, true, &out, NULL), TEMPER_OK);
    assert_int_equal(out.length, COUNT / 2 * (5006 + 5011));
    strbuf_free(&out);
    free(content);
    chat_template_close(chat);
}

/* ---- JSON and goldens ------------------------------------------------------------------------ */

static void variables_as_json(void **state)
{
    static const char text[] = "{{ bos_token }}{{ 'None' if tools is none }}{{ n }}"
                               "{% for m in messages %}{{ m.content[0].text }}{% endfor %}";
    static const char variables[] = "{\"n\": 5, \"messages\": [{\"role\": \"user\", \"content\": "
                                    "[{\"type\": \"text\", \"text\": \"\\u00e9\\u0000\"}]}]}";
    chat_template *chat = open_template(text);
    static const char *const wrong[] = {"", "{", "[]", "7", "null", "{\"a\":}", "{} {}", "\xFF"};
    strbuf out = {0};
    (void)state;

    assert_int_equal(chat_template_render_json(chat, variables, &out, NULL), TEMPER_OK);
    assert_int_equal(out.length, 11);
    assert_memory_equal(out.data, "<s>None5\xC3\xA9\0", 11);
    strbuf_clear(&out);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        error err = {0};
        assert_int_equal(chat_template_render_json(chat, wrong[i], &out, &err),
                         TEMPER_BAD_ARGUMENT);
        assert_non_null(strstr(err.text, "JSON"));
        assert_int_equal(out.length, 0);
    }
    strbuf deep = {0};
    for (int i = 0; i < 200000; i++)
        strbuf_puts(&deep, "{\"a\":[");
    assert_int_not_equal(chat_template_render_json(chat, deep.data, &out, NULL), TEMPER_OK);
    strbuf_free(&deep);
    strbuf_free(&out);
    chat_template_close(chat);
}

/* Puts the date where the golden text says @@pattern@@. */
static void put_date(const char *expected, const char *pattern, strbuf *out)
{
    const char *mark = strstr(expected, "@@");
    char date[64];
    const time_t now = time(NULL);
    struct tm parts;

    assert_non_null(mark);
    assert_non_null(localtime_r(&now, &parts));
    assert_true(strftime(date, sizeof date, pattern, &parts) > 0);
    strbuf_append(out, expected, (size_t)(mark - expected));
    strbuf_puts(out, date);
    strbuf_puts(out, mark + strlen(pattern) + 4);
}

static void run_golden_case(chat_template *chat, const char *name, json_t *item)
{
    json_t *variables = json_deep_copy(json_object_get(item, "names"));
    static const char *const keys[] = {"messages", "tools", "add_generation_prompt"};
    strbuf out = {0};
    error err = {0};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        json_object_set(variables, keys[i], json_object_get(item, keys[i]));
    char *text = json_dumps(variables, 0);
    assert_non_null(text);
    const temper_status status = chat_template_render_json(chat, text, &out, &err);
    const json_t *refusal = json_object_get(item, "error");
    if (json_is_string(refusal)) {
        assert_int_equal(status, TEMPER_TEMPLATE);
        assert_string_equal(err.text, json_string_value(refusal));
    } else {
        const char *expected = json_string_value(json_object_get(item, "text"));
        const char *clock_pattern = json_string_value(json_object_get(item, "clock"));
        strbuf dated = {0};
        if (clock_pattern != NULL)
            put_date(expected, clock_pattern, &dated);
        else
            strbuf_puts(&dated, expected);
        if (status != TEMPER_OK)
            fail_msg("%s, %s: %s", name, json_string_value(json_object_get(item, "name")),
                     err.text);
        assert_string_equal(strbuf_text(&out), strbuf_text(&dated));
        strbuf_free(&dated);
    }
    free(text);
    strbuf_free(&out);
    json_decref(variables);
}

static void golden_templates(void **state)
{
    json_t *root = json_load_file(TEST_GOLDEN "/text/templates.json", JSON_ALLOW_NUL, NULL);
    json_t *item, *test_case;
    size_t i, k, count = 0;
    (void)state;

    assert_non_null(root);
    json_array_foreach(json_object_get(root, "templates"), i, item)
    {
        const json_t *text = json_object_get(item, "source");
        const char *name = json_string_value(json_object_get(item, "name"));
        chat_template *chat = NULL;
        error err = {0};

        if (chat_template_open(json_string_value(text), json_string_length(text),
                               json_string_value(json_object_get(item, "bos_token")),
                               json_string_value(json_object_get(item, "eos_token")), &chat, &err)
            != TEMPER_OK)
            fail_msg("%s: %s", name, err.text);
        json_array_foreach(json_object_get(item, "cases"), k, test_case)
        {
            run_golden_case(chat, name, test_case);
            count++;
        }
        chat_template_close(chat);
    }
    assert_true(count >= 40);
    json_decref(root);
}

/* QuickJS itself is not sound when an allocation fails; temper never lets it see one. */
static void nth_allocation_fails(void **state)
{
    static const char text[] = "{% for m in messages %}{{ m.content | upper }}{% endfor %}";
    (void)state;

    for (uint64_t nth = 1;; nth += nth < 100 ? 1 : nth / 4) {
        const uint64_t live = mem_live_bytes(), calls = mem_allocation_count();
        chat_template *chat = NULL;
        strbuf out = {0};
        error err = {0};

        mem_fail_at(nth, 0);
        temper_status status = chat_template_open(text, strlen(text), "", "", &chat, &err);
        if (status == TEMPER_OK)
            status = render_one(chat, "a\xFF", &out, &err);
        mem_fail_at(0, 0);
        const bool reached = mem_allocation_count() - calls >= nth;
        assert_int_equal(status, reached ? TEMPER_NO_MEMORY : TEMPER_OK);
        if (chat != NULL) {
            /* The next call starts afresh. */
            strbuf_free(&out);
            assert_int_equal(render_one(chat, "a\xFF", &out, NULL), TEMPER_OK);
            assert_string_equal(strbuf_text(&out), "A\xEF\xBF\xBD");
        }
        strbuf_free(&out);
        chat_template_close(chat);
        assert_int_equal(mem_live_bytes(), live);
        if (!reached)
            break;
    }
}

static void memory_is_given_back(void **state)
{
    const uint64_t live = mem_live_bytes();
    (void)state;

    chat_template *chat = open_template("{% for m in messages %}{{ m.content }}{% endfor %}");
    uint64_t after_one = 0;
    for (int i = 0; i < 200; i++) {
        strbuf out = {0};
        assert_int_equal(render_one(chat, "hello", &out, NULL), TEMPER_OK);
        strbuf_free(&out);
        if (i == 50)
            after_one = mem_live_bytes();
    }
    assert_true(mem_live_bytes() < after_one + (1u << 20));
    chat_template_close(chat);
    assert_int_equal(mem_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_reach_the_template),
        cmocka_unit_test(contents_go_in_as_they_are),
        cmocka_unit_test(strftime_now_gives_the_local_date),
        cmocka_unit_test(refusal_in_the_templates_own_words),
        cmocka_unit_test(templates_that_do_not_parse),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(time_runs_out_and_the_next_call_works),
        cmocka_unit_test(deep_and_long_templates),
        cmocka_unit_test(a_long_conversation),
        cmocka_unit_test(variables_as_json),
        cmocka_unit_test(golden_templates),
        cmocka_unit_test(nth_allocation_fails),
        cmocka_unit_test(memory_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
