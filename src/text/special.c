/*
 * special.c - added tokens in text. They lie sorted, so that those which share a beginning are
 * neighbours, and a match narrows the range by one byte at a time.
 */
#include "text/special.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct sort_entry {
    const char *spelling;
    size_t length;
    uint32_t id;
} sort_entry;

static int by_spelling(const void *left, const void *right)
{
    const sort_entry *a = left, *b = right;
    const size_t common = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->spelling, b->spelling, common);

    if (order != 0)
        return order;
    return a->length < b->length ? -1 : a->length > b->length;
}

static bool is_special(const vocabulary *vocab, uint32_t id)
{
    return vocabulary_is_mark(vocab, id) || vocab->types[id] == TOKEN_TYPE_USER_DEFINED;
}

/* Collects the special tokens that can be found in a text: all but the empty ones. */
static temper_status collect(const vocabulary *vocab, sort_entry *entries, uint32_t *count,
                             error *err)
{
    *count = 0;
    for (uint32_t id = 0; id < vocab->size; id++) {
        if (!is_special(vocab, id))
            continue;
        sort_entry entry = {.id = id};
        entry.spelling = vocabulary_spelling(vocab, id, &entry.length);
        if (entry.length > SPECIAL_LENGTH_MAX)
            return error_set(err, TEMPER_BAD_FILE,
                             "tokenizer.ggml.tokens: the special token %u has %zu bytes; %d is the "
                             "most", id, entry.length, SPECIAL_LENGTH_MAX);
        if (entry.length > 0)
            entries[(*count)++] = entry;
    }
    return TEMPER_OK;
}

temper_status special_read(const vocabulary *vocab, special_tokens *special, error *err)
{
    size_t most = 0;

    assert(special->ids == NULL);
    for (uint32_t id = 0; id < vocab->size; id++)
        most += is_special(vocab, id);
    sort_entry *entries = mem_calloc(most, sizeof *entries);
    special->ids = mem_calloc(most, sizeof *special->ids);
    if (entries == NULL || special->ids == NULL) {
        mem_free(entries);
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu special tokens", most);
    }
    const temper_status status = collect(vocab, entries, &special->count, err);
    if (status == TEMPER_OK) {
        qsort(entries, special->count, sizeof *entries, by_spelling);
        for (uint32_t i = 0; i < special->count; i++) {
            special->ids[i] = entries[i].id;
            special->first[(uint8_t)entries[i].spelling[0] + 1]++;
        }
        for (int byte = 0; byte < 256; byte++)
            special->first[byte + 1] += special->first[byte];
    }
    mem_free(entries);
    return status;
}

void special_free(special_tokens *special)
{
    mem_free(special->ids);
    memset(special, 0, sizeof *special);
}

/* The first of ids[low..high), which agree in their first `depth` bytes, whose next byte is at
 * least `byte` (0 to 256). A spelling that ends there comes before all others. */
static uint32_t lower_bound(const special_tokens *special, const vocabulary *vocab, uint32_t low,
                            uint32_t high, size_t depth, int byte)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        size_t length;
        const char *spelling = vocabulary_spelling(vocab, special->ids[middle], &length);
        const int next = length > depth ? (uint8_t)spelling[depth] : -1;

        if (next < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest special token that text[0..length) begins with. */
static bool match_here(const special_tokens *special, const vocabulary *vocab, const char *text,
                       size_t length, bool parse_special, size_t *match_length, uint32_t *id)
{
    uint32_t low = special->first[(uint8_t)text[0]];
    uint32_t high = special->first[(uint8_t)text[0] + 1];
    bool found = false;

    for (size_t depth = 1; low < high; depth++) {
        size_t spelled;
        vocabulary_spelling(vocab, special->ids[low], &spelled);
        assert(spelled >= depth);
        if (spelled == depth
            && (parse_special || !vocabulary_is_mark(vocab, special->ids[low]))) {
            *id = special->ids[low];
            *match_length = depth;
            found = true;
        }
        if (depth == length)
            break;
        const int byte = (uint8_t)text[depth];
        low = lower_bound(special, vocab, low, high, depth, byte);
        high = lower_bound(special, vocab, low, high, depth, byte + 1);
    }
    return found;
}

bool special_find(const special_tokens *special, const vocabulary *vocab, const char *text,
                  size_t length, bool parse_special, size_t *at, size_t *match_length, uint32_t *id)
{
    if (special->count == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        const uint8_t byte = (uint8_t)text[i];
        if (special->first[byte] == special->first[byte + 1])
            continue;
        if (match_here(special, vocab, text + i, length - i, parse_special, match_length, id)) {
            *at = i;
            return true;
        }
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
