/*
 * normalizer.c - the steps, each from one buffer into the other.
 */
#include "text/normalizer.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/byte_level.h"

#define SPACE_MARK "\xE2\x96\x81"

/* The longest growth of real rules is 18 characters for one (U+FDFA in NFKD). */
enum { GROWTH_MAX = 64, GROWTH_START = 64 << 10 };

/* ---- the list -------------------------------------------------------------------------------- */

normal_step *normalizer_add(normalizer *n, normal_kind kind, error *err)
{
    normal_step *grown = mem_realloc(n->steps, (n->count + 1) * sizeof *grown);

    if (grown == NULL) {
        error_set(err, TEMPER_NO_MEMORY, "no memory for a normalizer");
        return NULL;
    }
    n->steps = grown;
    n->steps[n->count] = (normal_step){.kind = kind};
    return &n->steps[n->count++];
}

temper_status normalizer_add_text(normalizer *n, normal_kind kind, const char *find,
                                  size_t find_length, const char *text, size_t text_length,
                                  error *err)
{
    normal_step *step = normalizer_add(n, kind, err);

    if (step == NULL)
        return TEMPER_NO_MEMORY;
    step->text = mem_strndup(text, text_length);
    step->text_length = text_length;
    if (find != NULL)
        step->find = mem_strndup(find, find_length);
    step->find_length = find_length;
    if (step->text == NULL || (find != NULL && step->find == NULL))
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a normalizer");
    return TEMPER_OK;
}

void normalizer_free(normalizer *n)
{
    for (size_t i = 0; i < n->count; i++) {
        mem_free(n->steps[i].find);
        mem_free(n->steps[i].text);
        pattern_close(n->steps[i].pattern);
        charsmap_close(n->steps[i].map);
    }
    mem_free(n->steps);
    memset(n, 0, sizeof *n);
}

void normal_work_free(normal_work *work)
{
    strbuf_free(&work->buffers[0]);
    strbuf_free(&work->buffers[1]);
    pattern_work_free(&work->patterns);
}

/* ---- character by character ------------------------------------------------------------------ */

static bool nmt_drops(uint32_t c)
{
    return (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F
           || c == 0x9F;
}

static bool nmt_is_space(uint32_t c)
{
    return c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680
           || (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581
           || c == 0xFEFF || c == 0xFFFD;
}

static void clean(strbuf *out, uint32_t c)
{
    if (codepoint_is_space(c))
        strbuf_putc(out, ' ');
    else if (c != 0 && c != 0xFFFD && !codepoint_is_control(c))
        codepoint_append(out, c);
}

static void map_character(const normal_step *step, uint32_t c, strbuf *out)
{
    switch (step->kind) {
    case NORMAL_LOWER:
        codepoint_append_lower(out, c);
        break;
    case NORMAL_DROP_MARKS:
        if (!codepoint_is_mark(c))
            codepoint_append(out, c);
        break;
    case NORMAL_DROP_NONSPACING:
        if (!codepoint_is_nonspacing(c))
            codepoint_append(out, c);
        break;
    case NORMAL_CLEAN:
        clean(out, c);
        break;
    case NORMAL_SPACE_CJK:
        if (codepoint_is_cjk(c))
            strbuf_putc(out, ' ');
        codepoint_append(out, c);
        if (codepoint_is_cjk(c))
            strbuf_putc(out, ' ');
        break;
    default:
        assert(step->kind == NORMAL_NMT);
        if (nmt_is_space(c))
            strbuf_putc(out, ' ');
        else if (!nmt_drops(c))
            codepoint_append(out, c);
        break;
    }
}

static void map_characters(const normal_step *step, const char *text, size_t length, strbuf *out)
{
    for (size_t at = 0; at < length;) {
        uint32_t c;
        at += codepoint_decode(text + at, length - at, &c);
        map_character(step, c, out);
    }
}

/* ---- whole texts ----------------------------------------------------------------------------- */

static void trim(const normal_step *step, const char *text, size_t length, strbuf *out)
{
    size_t start = 0, end = 0;
    bool seen = !step->left;

    for (size_t at = 0; at < length;) {
        uint32_t c;
        const size_t unit = codepoint_decode(text + at, length - at, &c);
        const bool space = codepoint_is_space(c);
        if (!seen && space)
            start = at + unit;
        seen = seen || !space;
        at += unit;
        if (!space || !step->right)
            end = at;
    }
    if (end > start)
        strbuf_append(out, text + start, end - start);
}

static void replace_text(const normal_step *step, const char *text, size_t length, size_t most,
                         strbuf *out)
{
    size_t at = 0, kept = 0;

    assert(step->find_length > 0);
    while (at + step->find_length <= length && out->length <= most) {
        const char *next = memchr(text + at, step->find[0], length - step->find_length - at + 1);
        if (next == NULL)
            break;
        at = (size_t)(next - text);
        if (memcmp(next, step->find, step->find_length) != 0) {
            at++;
            continue;
        }
        strbuf_append(out, text + kept, at - kept);
        strbuf_append(out, step->text, step->text_length);
        at += step->find_length;
        kept = at;
    }
    strbuf_append(out, text + kept, length - kept);
}

static temper_status replace_pattern(const normal_step *step, pattern_work *work, const char *text,
                                     size_t length, size_t most, strbuf *out, error *err)
{
    size_t kept = 0;

    for (size_t at = 0; at <= length && out->length <= most;) {
        bool found;
        size_t start, end;
        const temper_status status = pattern_find(step->pattern, work, text, length, at, &found,
                                                  &start, &end, err);
        if (status != TEMPER_OK)
            return status;
        if (!found)
            break;
        /* An empty match right behind another one does not count. */
        if (end > start || start > kept || start == 0) {
            strbuf_append(out, text + kept, start - kept);
            strbuf_append(out, step->text, step->text_length);
            kept = end;
        }
        at = end;
        if (end == start) {
            uint32_t c;
            at += at < length ? codepoint_decode(text + at, length - at, &c) : 1;
        }
    }
    strbuf_append(out, text + kept, length - kept);
    return TEMPER_OK;
}

/* Replaces one part if the table has it or its beginning. */
static bool replace_part(const charsmap *map, const char *text, size_t length, strbuf *out)
{
    const char *replacement;
    size_t replacement_length;

    if (charsmap_find(map, text, length, false, &replacement, &replacement_length) == 0)
        return false;
    strbuf_append(out, replacement, replacement_length);
    return true;
}

/* Grapheme clusters of less than six bytes first, then their characters. */
static void map_clusters(const charsmap *map, const char *text, size_t length, strbuf *out)
{
    for (size_t at = 0; at < length;) {
        const size_t cluster = text_grapheme(text + at, length - at);
        const size_t end = at + cluster;
        if (cluster < 6 && replace_part(map, text + at, cluster, out)) {
            at = end;
            continue;
        }
        while (at < end) {
            uint32_t c;
            const size_t unit = codepoint_decode(text + at, length - at, &c);
            if (!replace_part(map, text + at, unit, out))
                strbuf_append(out, text + at, unit);
            at += unit;
        }
    }
}

static void map_longest(const charsmap *map, const char *text, size_t length, strbuf *out)
{
    for (size_t at = 0; at < length;) {
        const char *replacement;
        size_t replacement_length;
        size_t matched = charsmap_find(map, text + at, length - at, true, &replacement,
                                       &replacement_length);
        /* A part that ends inside a character would leave broken text behind it. */
        if (matched > 0 && at + matched < length && ((uint8_t)text[at + matched] & 0xC0) == 0x80)
            matched = 0;
        if (matched > 0) {
            strbuf_append(out, replacement, replacement_length);
        } else {
            uint32_t c;
            matched = codepoint_decode(text + at, length - at, &c);
            strbuf_append(out, text + at, matched);
        }
        at += matched;
    }
}

static void map_unigram_spaces(const normal_step *step, const char *text, size_t length,
                               strbuf *out)
{
    bool prepended = !step->left, in_word = false;

    for (size_t at = 0; at < length; at++) {
        if (text[at] == ' ') {
            in_word = false;
            if (!step->right)
                strbuf_puts(out, SPACE_MARK);
            continue;
        }
        if (!in_word && (!prepended || step->right))
            strbuf_puts(out, SPACE_MARK);
        prepended = prepended || !in_word;
        in_word = true;
        strbuf_putc(out, text[at]);
    }
}

static void map_bytes(const char *text, size_t length, strbuf *out)
{
    for (size_t at = 0; at < length; at++) {
        char spelling[BYTE_LEVEL_SPELLING];
        strbuf_append(out, spelling, byte_level_spell((uint8_t)text[at], spelling));
    }
}

static temper_status run_step(const normal_step *step, pattern_work *patterns, const char *text,
                              size_t length, size_t most, strbuf *out, error *err)
{
    switch (step->kind) {
    case NORMAL_FORM:
        return text_normalize(step->form, text, length, out, err);
    case NORMAL_TRIM:
        trim(step, text, length, out);
        return TEMPER_OK;
    case NORMAL_PREPEND:
        if (length > 0)
            strbuf_append(out, step->text, step->text_length);
        strbuf_append(out, text, length);
        return TEMPER_OK;
    case NORMAL_REPLACE:
        if (step->pattern != NULL)
            return replace_pattern(step, patterns, text, length, most, out, err);
        replace_text(step, text, length, most, out);
        return TEMPER_OK;
    case NORMAL_CHARSMAP:
        map_clusters(step->map, text, length, out);
        return TEMPER_OK;
    case NORMAL_CHARSMAP_LONGEST:
        map_longest(step->map, text, length, out);
        return TEMPER_OK;
    case NORMAL_BYTE_LEVEL:
        map_bytes(text, length, out);
        return TEMPER_OK;
    case NORMAL_UNIGRAM_SPACES:
        map_unigram_spaces(step, text, length, out);
        return TEMPER_OK;
    default:
        map_characters(step, text, length, out);
        return TEMPER_OK;
    }
}

temper_status normalizer_run(const normalizer *n, normal_work *work, const char **text,
                             size_t *length, error *err)
{
    const size_t most = GROWTH_START + GROWTH_MAX * *length;

    for (size_t i = 0; i < n->count && *length > 0; i++) {
        strbuf *out = &work->buffers[i % 2];
        strbuf_clear(out);
        const temper_status status = run_step(&n->steps[i], &work->patterns, *text, *length, most,
                                              out, err);
        if (status != TEMPER_OK)
            return status;
        if (out->failed)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to normalise %zu bytes", *length);
        if (out->length > most)
            return error_set(err, TEMPER_BAD_FILE,
                             "the normalizer makes more than %zu bytes of a text", most);
        *text = strbuf_text(out);
        *length = out->length;
    }
    return TEMPER_OK;
}
