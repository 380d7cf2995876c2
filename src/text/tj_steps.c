/*
 * tj_steps.c - the normalizers and pre-tokenizers of a tokenizer.json, a row of a table each.
 */
#include <string.h>

#include "base/mem.h"
#include "text/tj_read.h"
#include "text/unicode.h"
#include "text/utf8.h"

static temper_status no_memory(error *err)
{
    return error_set(err, TEMPER_NO_MEMORY, "no memory for the steps of a tokenizer");
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* A pattern that matches a text as it is. */
static temper_status open_literal(const char *text, size_t length, pattern **out, error *err)
{
    strbuf spelled = {0};

    for (size_t at = 0; at < length;) {
        uint32_t c;
        at += codepoint_decode(text + at, length - at, &c);
        strbuf_printf(&spelled, "\\x{%X}", c);
    }
    const temper_status status = spelled.failed ? no_memory(err)
                                                : pattern_open(strbuf_text(&spelled), out, err);
    strbuf_free(&spelled);
    return status;
}

/* {"String": ...} into *text, or {"Regex": ...} into *out. */
static temper_status read_pattern(const json_t *object, const char *where, const char **text,
                                  size_t *length, pattern **out, error *err)
{
    const json_t *value = json_object_get(object, "pattern");
    const char *regex = NULL;
    size_t regex_length = 0;

    *text = NULL;
    *length = 0;
    temper_status status = tj_get_text(value, where, "String", text, length, err);
    if (status == TEMPER_OK)
        status = tj_get_text(value, where, "Regex", &regex, &regex_length, err);
    if (status != TEMPER_OK)
        return status;
    if ((regex == NULL) == (*text == NULL) || (*text != NULL && *length == 0))
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: \"pattern\" is neither a String, not empty, nor a Regex", where);
    return regex == NULL ? TEMPER_OK : pattern_open_onig(regex, regex_length, out, err);
}

/* ---- normalizers ----------------------------------------------------------------------------- */

static const char normalizer_where[] = "normalizer";

static temper_status add_kind(normalizer *out, normal_kind kind, error *err)
{
    return normalizer_add(out, kind, err) == NULL ? TEMPER_NO_MEMORY : TEMPER_OK;
}

static temper_status add_form(normalizer *out, normal_form form, error *err)
{
    normal_step *step = normalizer_add(out, NORMAL_FORM, err);

    if (step == NULL)
        return TEMPER_NO_MEMORY;
    step->form = form;
    return TEMPER_OK;
}

static temper_status add_bert(const json_t *object, normalizer *out, error *err)
{
    bool clean = true, cjk = true, lower = true, strip;
    temper_status status = tj_get_bool(object, normalizer_where, "clean_text", &clean, err);

    if (status == TEMPER_OK)
        status = tj_get_bool(object, normalizer_where, "handle_chinese_chars", &cjk, err);
    if (status == TEMPER_OK)
        status = tj_get_bool(object, normalizer_where, "lowercase", &lower, err);
    strip = lower;
    if (status == TEMPER_OK)
        status = tj_get_bool(object, normalizer_where, "strip_accents", &strip, err);
    if (status == TEMPER_OK && clean)
        status = add_kind(out, NORMAL_CLEAN, err);
    if (status == TEMPER_OK && cjk)
        status = add_kind(out, NORMAL_SPACE_CJK, err);
    if (status == TEMPER_OK && strip)
        status = add_form(out, UNICODE_NFD, err);
    if (status == TEMPER_OK && strip)
        status = add_kind(out, NORMAL_DROP_NONSPACING, err);
    if (status == TEMPER_OK && lower)
        status = add_kind(out, NORMAL_LOWER, err);
    return status;
}

static temper_status add_strip(const json_t *object, normalizer *out, error *err)
{
    bool left = true, right = true;
    temper_status status = tj_get_bool(object, normalizer_where, "strip_left", &left, err);

    if (status == TEMPER_OK)
        status = tj_get_bool(object, normalizer_where, "strip_right", &right, err);
    normal_step *step = status == TEMPER_OK ? normalizer_add(out, NORMAL_TRIM, err) : NULL;
    if (step == NULL)
        return status == TEMPER_OK ? TEMPER_NO_MEMORY : status;
    step->left = left;
    step->right = right;
    return TEMPER_OK;
}

static temper_status add_prepend(const json_t *object, normalizer *out, error *err)
{
    const char *text = "";
    size_t length = 0;
    const temper_status status = tj_get_text(object, normalizer_where, "prepend", &text, &length,
                                             err);

    if (status != TEMPER_OK)
        return status;
    return normalizer_add_text(out, NORMAL_PREPEND, NULL, 0, text, length, err);
}

static temper_status add_replace(const json_t *object, normalizer *out, error *err)
{
    const char *find = NULL, *text = "";
    size_t find_length = 0, length = 0;
    pattern *compiled = NULL;
    temper_status status = tj_get_text(object, normalizer_where, "content", &text, &length, err);

    if (status == TEMPER_OK)
        status = read_pattern(object, normalizer_where, &find, &find_length, &compiled, err);
    if (status == TEMPER_OK)
        status = normalizer_add_text(out, NORMAL_REPLACE, find, find_length, text, length, err);
    if (status != TEMPER_OK) {
        pattern_close(compiled);
        return status;
    }
    out->steps[out->count - 1].pattern = compiled;
    return TEMPER_OK;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64; false where it is none. */
static bool decode_base64(const char *text, size_t length, uint8_t *out, size_t *count)
{
    uint32_t bits = 0;
    int have = 0;

    *count = 0;
    while (length > 0 && text[length - 1] == '=')
        length--;
    for (size_t i = 0; i < length; i++) {
        const int value = base64_value(text[i]);
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[(*count)++] = (uint8_t)(bits >> have);
        }
    }
    return true;
}

static temper_status add_precompiled(const json_t *object, normalizer *out, error *err)
{
    const char *text = NULL;
    size_t length = 0, count;
    temper_status status = tj_get_text(object, normalizer_where, "precompiled_charsmap", &text,
                                       &length, err);

    if (status != TEMPER_OK || length == 0)
        return status;
    uint8_t *bytes = mem_alloc(length);
    if (bytes == NULL)
        return no_memory(err);
    if (!decode_base64(text, length, bytes, &count))
        status = error_set(err, TEMPER_BAD_FILE, "%s: precompiled_charsmap is no base64",
                           normalizer_where);
    normal_step *step = NULL;
    if (status == TEMPER_OK) {
        step = normalizer_add(out, NORMAL_CHARSMAP, err);
        status = step == NULL ? TEMPER_NO_MEMORY : charsmap_open(bytes, count, &step->map, err);
    }
    mem_free(bytes);
    return status;
}

static temper_status read_normalizer(const json_t *object, int depth, normalizer *out, error *err)
{
    static const struct {
        const char *type;
        normal_kind kind;
        normal_form form;
    } simple[] = {
        {"NFC", NORMAL_FORM, UNICODE_NFC},
        {"NFD", NORMAL_FORM, UNICODE_NFD},
        {"NFKC", NORMAL_FORM, UNICODE_NFKC},
        {"NFKD", NORMAL_FORM, UNICODE_NFKD},
        {"Lowercase", NORMAL_LOWER, 0},
        {"StripAccents", NORMAL_DROP_MARKS, 0},
        {"Nmt", NORMAL_NMT, 0},
        {"ByteLevel", NORMAL_BYTE_LEVEL, 0},
    };
    static const struct {
        const char *type;
        temper_status (*add)(const json_t *object, normalizer *out, error *err);
    } rows[] = {
        {"BertNormalizer", add_bert}, {"Strip", add_strip},
        {"Prepend", add_prepend},     {"Replace", add_replace},
        {"Precompiled", add_precompiled},
    };
    const char *type;
    const json_t *list;
    json_t *element;
    size_t index;
    temper_status status = tj_get_type(object, normalizer_where, &type, err);

    if (status != TEMPER_OK)
        return status;
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++) {
        if (strcmp(type, simple[i].type) == 0)
            return simple[i].kind == NORMAL_FORM ? add_form(out, simple[i].form, err)
                                                 : add_kind(out, simple[i].kind, err);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(type, rows[i].type) == 0)
            return rows[i].add(object, out, err);
    }
    if (strcmp(type, "Sequence") != 0 || depth == TJ_DEPTH_MAX)
        return tj_refuse(normalizer_where, type, err);
    status = tj_get_list(object, normalizer_where, "normalizers", &list, err);
    if (status != TEMPER_OK)
        return status;
    json_array_foreach((json_t *)(uintptr_t)list, index, element)
    {
        status = read_normalizer(element, depth + 1, out, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

temper_status tj_read_normalizer(const json_t *object, normalizer *out, error *err)
{
    if (object == NULL || json_is_null(object))
        return TEMPER_OK;
    return read_normalizer(object, 0, out, err);
}

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

static const char splitter_where[] = "pre_tokenizer";

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"
#define SPACE "\\p{White_Space}"

static temper_status read_behaviour(const json_t *object, split_behaviour usual,
                                    split_behaviour *out, error *err)
{
    static const char *const names[] = {
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name = names[usual];
    size_t length;
    const temper_status status = tj_get_text(object, splitter_where, "behavior", &name, &length,
                                             err);

    for (size_t i = 0; i < sizeof names / sizeof *names && status == TEMPER_OK; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (split_behaviour)i;
            return TEMPER_OK;
        }
    }
    return status == TEMPER_OK ? error_set(err, TEMPER_UNSUPPORTED,
                                           "%s: the behavior \"%.100s\" is not known",
                                           splitter_where, name)
                               : status;
}

static temper_status add_kind_of_character(splitter *out, bool (*is)(uint32_t),
                                           split_behaviour behaviour, error *err)
{
    split_step *step = splitter_add(out, err);

    if (step == NULL)
        return TEMPER_UNSUPPORTED;
    step->is = is;
    step->behaviour = behaviour;
    return TEMPER_OK;
}

static temper_status add_byte_level(const json_t *object, splitter *out, error *err)
{
    static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE
                                "\\p{L}\\p{N}]+|" SPACE "+(?!\\P{White_Space})|" SPACE "+";
    bool prefix = true, regex = true;
    temper_status status = tj_get_bool(object, splitter_where, "add_prefix_space", &prefix, err);

    if (status == TEMPER_OK)
        status = tj_get_bool(object, splitter_where, "use_regex", &regex, err);
    split_step *step = status == TEMPER_OK ? splitter_add(out, err) : NULL;
    if (step == NULL)
        return status == TEMPER_OK ? TEMPER_UNSUPPORTED : status;
    step->spell_bytes = true;
    step->prefixed = prefix ? SPLIT_PREFIX_ALWAYS : SPLIT_PREFIX_NONE;
    step->prefix = prefix ? mem_strdup(" ") : NULL;
    if (prefix && step->prefix == NULL)
        return no_memory(err);
    return regex ? pattern_open(words, &step->pattern, err) : TEMPER_OK;
}

static temper_status read_scheme(const json_t *object, split_prefix *out, error *err)
{
    bool prefix = true;
    const char *scheme = NULL;
    size_t length;
    temper_status status = tj_get_bool(object, splitter_where, "add_prefix_space", &prefix, err);

    if (status == TEMPER_OK)
        status = tj_get_text(object, splitter_where, "prepend_scheme", &scheme, &length, err);
    if (status != TEMPER_OK)
        return status;
    if (scheme == NULL)
        scheme = prefix ? "always" : "never";
    if (strcmp(scheme, "always") == 0)
        *out = SPLIT_PREFIX_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        *out = SPLIT_PREFIX_FIRST;
    else if (strcmp(scheme, "never") == 0)
        *out = SPLIT_PREFIX_NONE;
    else
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: the prepend_scheme \"%.100s\" is not known", splitter_where, scheme);
    return TEMPER_OK;
}

static temper_status add_metaspace(const json_t *object, splitter *out, error *err)
{
    const char *mark = "\xE2\x96\x81";
    size_t length = 3;
    bool split = true;
    split_prefix scheme = SPLIT_PREFIX_ALWAYS;
    temper_status status = tj_get_text(object, splitter_where, "replacement", &mark, &length, err);

    if (status == TEMPER_OK && (length == 0 || strlen(mark) != length))
        return error_set(err, TEMPER_BAD_FILE, "%s: \"replacement\" is no character",
                         splitter_where);
    if (status == TEMPER_OK)
        status = tj_get_bool(object, splitter_where, "split", &split, err);
    if (status == TEMPER_OK)
        status = read_scheme(object, &scheme, err);
    split_step *step = status == TEMPER_OK ? splitter_add(out, err) : NULL;
    if (step == NULL)
        return status == TEMPER_OK ? TEMPER_UNSUPPORTED : status;
    step->prefixed = scheme;
    step->space_mark = mem_strdup(mark);
    step->prefix = mem_strdup(mark);
    step->behaviour = SPLIT_MERGED_WITH_NEXT;
    if (step->space_mark == NULL || step->prefix == NULL)
        return no_memory(err);
    return split ? open_literal(mark, length, &step->pattern, err) : TEMPER_OK;
}

static temper_status add_split(const json_t *object, splitter *out, error *err)
{
    const char *text;
    size_t length;
    split_step *step = splitter_add(out, err);

    if (step == NULL)
        return TEMPER_UNSUPPORTED;
    temper_status status = read_behaviour(object, SPLIT_ISOLATED, &step->behaviour, err);
    if (status == TEMPER_OK)
        status = tj_get_bool(object, splitter_where, "invert", &step->invert, err);
    if (status == TEMPER_OK)
        status = read_pattern(object, splitter_where, &text, &length, &step->pattern, err);
    if (status == TEMPER_OK && text != NULL)
        status = open_literal(text, length, &step->pattern, err);
    return status;
}

static temper_status add_delimiter(const json_t *object, splitter *out, error *err)
{
    const char *text = NULL;
    size_t length = 0;
    split_step *step = splitter_add(out, err);

    if (step == NULL)
        return TEMPER_UNSUPPORTED;
    step->behaviour = SPLIT_REMOVED;
    const temper_status status = tj_get_text(object, splitter_where, "delimiter", &text, &length,
                                             err);
    if (status == TEMPER_OK && length == 0)
        return error_set(err, TEMPER_BAD_FILE, "%s: there is no \"delimiter\"", splitter_where);
    return status == TEMPER_OK ? open_literal(text, length, &step->pattern, err) : status;
}

static temper_status add_whitespace(const json_t *object, splitter *out, error *err)
{
    split_step *step = splitter_add(out, err);

    (void)object;
    if (step == NULL)
        return TEMPER_UNSUPPORTED;
    step->behaviour = SPLIT_REMOVED;
    step->invert = true;
    return pattern_open("[" WORD "]+|[^" WORD SPACE "]+", &step->pattern, err);
}

static temper_status add_whitespace_split(const json_t *object, splitter *out, error *err)
{
    (void)object;
    return add_kind_of_character(out, codepoint_is_space, SPLIT_REMOVED, err);
}

static temper_status add_bert_words(const json_t *object, splitter *out, error *err)
{
    const temper_status status = add_whitespace_split(object, out, err);

    if (status != TEMPER_OK)
        return status;
    return add_kind_of_character(out, codepoint_is_punctuation, SPLIT_ISOLATED, err);
}

static temper_status add_punctuation(const json_t *object, splitter *out, error *err)
{
    split_behaviour behaviour = SPLIT_ISOLATED;
    const temper_status status = read_behaviour(object, SPLIT_ISOLATED, &behaviour, err);

    if (status != TEMPER_OK)
        return status;
    return add_kind_of_character(out, codepoint_is_punctuation, behaviour, err);
}

static temper_status add_digits(const json_t *object, splitter *out, error *err)
{
    bool individual = false;
    const temper_status status = tj_get_bool(object, splitter_where, "individual_digits",
                                             &individual, err);

    if (status != TEMPER_OK)
        return status;
    return add_kind_of_character(out, codepoint_is_number,
                                 individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, err);
}

static temper_status read_splitter(const json_t *object, int depth, splitter *out, error *err)
{
    static const struct {
        const char *type;
        temper_status (*add)(const json_t *object, splitter *out, error *err);
    } rows[] = {
        {"ByteLevel", add_byte_level},
        {"Metaspace", add_metaspace},
        {"Split", add_split},
        {"Whitespace", add_whitespace},
        {"WhitespaceSplit", add_whitespace_split},
        {"BertPreTokenizer", add_bert_words},
        {"Punctuation", add_punctuation},
        {"Digits", add_digits},
        {"CharDelimiterSplit", add_delimiter},
    };
    const char *type;
    const json_t *list;
    json_t *element;
    size_t index;
    temper_status status = tj_get_type(object, splitter_where, &type, err);

    if (status != TEMPER_OK)
        return status;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(type, rows[i].type) == 0)
            return rows[i].add(object, out, err);
    }
    if (strcmp(type, "Sequence") != 0 || depth == TJ_DEPTH_MAX)
        return tj_refuse(splitter_where, type, err);
    status = tj_get_list(object, splitter_where, "pretokenizers", &list, err);
    if (status != TEMPER_OK)
        return status;
    json_array_foreach((json_t *)(uintptr_t)list, index, element)
    {
        status = read_splitter(element, depth + 1, out, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

temper_status tj_read_splitter(const json_t *object, splitter *out, error *err)
{
    if (object == NULL || json_is_null(object))
        return TEMPER_OK;
    return read_splitter(object, 0, out, err);
}
