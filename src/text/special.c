/*
 * special.c - added tokens in text.
 */
#include "text/special.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* ---- which they are -------------------------------------------------------------------------- */

static temper_status check_lengths(const prefix_index *index, error *err)
{
    for (uint32_t i = 0; i < index->count; i++) {
        size_t length;
        vocabulary_spelling(index->vocab, index->ids[i], &length);
        if (length > SPECIAL_LENGTH_MAX)
            return error_set(err, TEMPER_BAD_FILE,
                             "the special token %u has %zu bytes; %d is the most", index->ids[i],
                             length, SPECIAL_LENGTH_MAX);
    }
    return TEMPER_OK;
}

temper_status special_choose(const vocabulary *vocab, const bool *wanted, special_tokens *special,
                             error *err)
{
    assert(special->vocab == NULL);
    special->vocab = vocab;
    const temper_status status = prefix_index_build(vocab, vocabulary_spelling, wanted,
                                                    &special->index, err);
    return status == TEMPER_OK ? check_lengths(&special->index, err) : status;
}

temper_status special_read(const vocabulary *vocab, special_tokens *special, error *err)
{
    bool *wanted = mem_calloc(vocab->size, sizeof *wanted);

    if (wanted == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the special tokens");
    for (uint32_t id = 0; id < vocab->size; id++)
        wanted[id] = vocabulary_is_mark(vocab, id) || vocab->types[id] == TOKEN_TYPE_USER_DEFINED;
    const temper_status status = special_choose(vocab, wanted, special, err);
    mem_free(wanted);
    return status;
}

static size_t copy_spelling(const void *rules, const char *spelling, size_t length, char *out)
{
    (void)rules;
    if (length > 0)
        memcpy(out, spelling, length);
    return length;
}

/* Leaves out what is spelled like an earlier one. */
static temper_status build_spellings(const vocabulary_entry *entries, const uint32_t *ids,
                                     size_t count, special_tokens *special, error *err)
{
    if (count > SPECIAL_RESPELLED_MAX)
        return error_set(err, TEMPER_UNSUPPORTED, "%zu added tokens are normalized; %d is the most",
                         count, SPECIAL_RESPELLED_MAX);
    vocabulary_entry *kept = mem_calloc(count, sizeof *kept);
    size_t kept_count = 0;
    special->ids = mem_calloc(count, sizeof *special->ids);
    if (kept == NULL || special->ids == NULL) {
        mem_free(kept);
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu added tokens", count);
    }
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < kept_count && !known; k++)
            known = kept[k].length == entries[i].length
                    && memcmp(kept[k].spelling, entries[i].spelling, entries[i].length) == 0;
        if (known)
            continue;
        kept[kept_count] = entries[i];
        special->ids[kept_count++] = ids[i];
    }
    const temper_status status = vocabulary_build(kept, kept_count, "added_tokens", copy_spelling,
                                                  NULL, &special->spellings, err);
    mem_free(kept);
    return status;
}

temper_status special_respell(const vocabulary *vocab, const vocabulary_entry *entries,
                              const uint32_t *ids, size_t count, special_tokens *special,
                              error *err)
{
    assert(special->vocab == NULL);
    special->vocab = vocab;
    if (count == 0)
        return TEMPER_OK;
    temper_status status = build_spellings(entries, ids, count, special, err);
    if (status != TEMPER_OK)
        return status;
    bool *wanted = mem_alloc(special->spellings.size * sizeof *wanted);
    if (wanted == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the added tokens");
    for (uint32_t i = 0; i < special->spellings.size; i++)
        wanted[i] = true;
    status = prefix_index_build(&special->spellings, vocabulary_spelling, wanted, &special->index,
                                err);
    mem_free(wanted);
    return status == TEMPER_OK ? check_lengths(&special->index, err) : status;
}

temper_status special_make_flags(const vocabulary *vocab, special_tokens *special, error *err)
{
    assert(special->flags == NULL);
    special->flags = mem_calloc(vocab->size, sizeof *special->flags);
    if (special->flags == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the special tokens");
    return TEMPER_OK;
}

void special_free(special_tokens *special)
{
    prefix_index_free(&special->index);
    vocabulary_free(&special->spellings);
    mem_free(special->ids);
    mem_free(special->flags);
    memset(special, 0, sizeof *special);
}

/* ---- where they are -------------------------------------------------------------------------- */

static uint32_t real_id(const special_tokens *special, int32_t id)
{
    return special->ids == NULL ? (uint32_t)id : special->ids[id];
}

/* The longest special token that text[0..length) begins with: its bytes, 0 for none. */
static size_t match_here(const special_tokens *special, const char *text, size_t length,
                         bool parse_special, uint32_t *id)
{
    prefix_walk walk = prefix_walk_start(&special->index);
    size_t longest = 0;

    for (size_t at = 0; at < length && prefix_walk_step(&walk, (uint8_t)text[at]); at++) {
        if (walk.id < 0)
            continue;
        const uint32_t real = real_id(special, walk.id);
        if (parse_special || !vocabulary_is_mark(special->vocab, real)) {
            *id = real;
            longest = walk.depth;
        }
    }
    return longest;
}

/* The character that ends before `at`, 0 at the beginning of the text. */
static uint32_t character_before(const char *text, size_t at)
{
    size_t start = at;
    uint32_t c = 0;

    while (start > 0 && at - start < 4) {
        start--;
        if (((uint8_t)text[start] & 0xC0) != 0x80)
            break;
    }
    if (start < at && utf8_valid_length(text + start, at - start) == at - start)
        codepoint_decode(text + start, at - start, &c);
    return c;
}

static uint32_t character_at(const char *text, size_t length, size_t at)
{
    uint32_t c = 0;
    utf8_state state;

    if (at == length)
        return 0;
    utf8_next(text + at, length - at, &state);
    if (state == UTF8_WHOLE)
        codepoint_decode(text + at, length - at, &c);
    return c;
}

/* Widens the match by the whitespace that its token takes, but not to the left of `from`. */
static void strip(const char *text, size_t length, size_t from, uint8_t flags, special_match *match)
{
    while ((flags & SPECIAL_LSTRIP) != 0 && match->start > from
           && codepoint_is_space(character_before(text, match->start))) {
        do
            match->start--;
        while (((uint8_t)text[match->start] & 0xC0) == 0x80);
    }
    while ((flags & SPECIAL_RSTRIP) != 0 && match->end < length
           && codepoint_is_space(character_at(text, length, match->end))) {
        do
            match->end++;
        while (match->end < length && ((uint8_t)text[match->end] & 0xC0) == 0x80);
    }
}

bool special_find(const special_tokens *special, const char *text, size_t length, size_t from,
                  bool parse_special, special_match *match)
{
    if (special->index.count == 0)
        return false;
    for (size_t at = from; at < length; at++) {
        const uint8_t byte = (uint8_t)text[at];
        if (special->index.first[byte] == special->index.first[byte + 1])
            continue;
        uint32_t id;
        const size_t found = match_here(special, text + at, length - at, parse_special, &id);
        if (found == 0)
            continue;
        const uint8_t flags = special->flags == NULL ? 0 : special->flags[id];
        if ((flags & SPECIAL_SINGLE_WORD) != 0
            && (codepoint_is_word(character_before(text, at))
                || codepoint_is_word(character_at(text, length, at + found)))) {
            at += found - 1;
            continue;
        }
        *match = (special_match){.start = at, .end = at + found, .id = id};
        strip(text, length, from, flags, match);
        return true;
    }
    return false;
}

/* Names that published models use for the end of a turn, of a text, or of a file of code. */
static const char *const end_names[] = {
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>",
    "<|flush|>", "<end_of_turn>", "<turn|>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
    "[EOS]", "<EOT>", "_<EOT>", "[EOT]", "<end_of_utterance>", "<\xEF\xBD\x9C""end\xE2\x96\x81of"
    "\xE2\x96\x81sentence\xEF\xBD\x9C>", "<|tool_response>", "[e~[",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
    "<reponame>", "<|file_sep|>",
};

static int32_t find_control(const vocabulary *vocab, const char *name)
{
    const int32_t id = vocabulary_find(vocab, name, strlen(name));

    return id >= 0 && vocab->types[id] == TOKEN_TYPE_CONTROL ? id : -1;
}

void special_mark_ends(const vocabulary *vocab, bool *ends)
{
    for (size_t i = 0; i < sizeof end_names / sizeof *end_names; i++) {
        const int32_t id = find_control(vocab, end_names[i]);
        if (id >= 0)
            ends[id] = true;
    }
    /* Two families use a common name for something else: the end of one message among several of an
     * answer (gpt-oss and solar), and a plain "</s>" tag (gemma 4). */
    const bool has_call = find_control(vocab, "<|call|>") >= 0
                          || find_control(vocab, "<|calls|>") >= 0;
    const bool has_return = find_control(vocab, "<|return|>") >= 0
                            || find_control(vocab, "<|flush|>") >= 0;
    const int32_t end = find_control(vocab, "<|end|>");
    if (has_call && has_return && end >= 0)
        ends[end] = false;
    const int32_t slash_s = find_control(vocab, "</s>");
    if (slash_s >= 0 && find_control(vocab, "<|tool_response>") >= 0)
        ends[slash_s] = false;
}
