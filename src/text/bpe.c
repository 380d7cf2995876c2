/*
 * bpe.c - merges by rank, with the symbols of a word in a linked list and the candidate pairs in a
 * binary heap. Candidates are never removed: one that no longer holds is seen when it comes up,
 * because the pair that stands at its place then has another rank or none.
 */
#include "text/bpe.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "text/byte_level.h"
#include "text/utf8.h"

#define NO_MERGE UINT32_MAX
#define BPE_END UINT32_MAX

static const char merges_name[] = "merges";

/* How much of a spelling a message shows. */
static int shown(size_t length)
{
    return (int)(length < 100 ? length : 100);
}

/* ---- the table of merges --------------------------------------------------------------------- */

static uint64_t pair_of(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* The slot that holds this pair, or the empty one where it belongs; NULL when the table's clusters
 * are longer than chance makes them. */
static merge_slot *merge_slot_of(const bpe *b, uint64_t pair)
{
    const uint32_t mask = b->slot_count - 1;
    uint32_t at = (uint32_t)hash_mix(pair) & mask;

    for (int probe = 0; probe < HASH_PROBES_MAX; probe++, at = (at + 1) & mask) {
        merge_slot *slot = &b->slots[at];
        if (slot->result == NO_MERGE || slot->pair == pair)
            return slot;
    }
    return NULL;
}

/* The merge of two ids, or NULL. */
static const merge_slot *find_merge(const bpe *b, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return NULL;
    const merge_slot *slot = merge_slot_of(b, pair_of((uint32_t)left, (uint32_t)right));
    return slot == NULL || slot->result == NO_MERGE ? NULL : slot;
}

temper_status bpe_add_merge(bpe *b, const char *left, size_t left_length, const char *right,
                            size_t right_length, uint32_t rank, strbuf *scratch, error *err)
{
    const size_t inner = b->options.inner_prefix == NULL ? 0 : strlen(b->options.inner_prefix);
    /* The right piece stands inside the word: its prefix is no part of the result. */
    const size_t skip = inner < right_length ? inner : right_length;

    strbuf_clear(scratch);
    strbuf_append(scratch, left, left_length);
    strbuf_append(scratch, right + skip, right_length - skip);
    if (scratch->failed)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to read merge %u", rank);

    const int32_t left_id = vocabulary_find(b->vocab, left, left_length);
    const int32_t right_id = vocabulary_find(b->vocab, right, right_length);
    const int32_t result = vocabulary_find(b->vocab, strbuf_text(scratch), scratch->length);
    if (left_id < 0 || right_id < 0 || result < 0)
        return error_set(err, TEMPER_BAD_FILE, "%s: merge %u (\"%.*s %.*s\"): its %s is no token",
                         merges_name, rank, shown(left_length), left, shown(right_length), right,
                         left_id < 0    ? "left piece"
                         : right_id < 0 ? "right piece"
                                        : "result");

    const uint64_t pair = pair_of((uint32_t)left_id, (uint32_t)right_id);
    merge_slot *slot = merge_slot_of(b, pair);
    if (slot == NULL)
        return error_set(err, TEMPER_BAD_FILE, "%s: the merges were made to collide (at merge %u)",
                         merges_name, rank);
    if (slot->result == NO_MERGE || b->options.last_merge_counts)
        *slot = (merge_slot){.pair = pair, .rank = rank, .result = (uint32_t)result};
    return TEMPER_OK;
}

temper_status bpe_add_merge_text(bpe *b, const char *text, size_t length, uint32_t rank,
                                 strbuf *scratch, error *err)
{
    const char *gap = length < 3 ? NULL : memchr(text + 1, ' ', length - 1);

    if (gap == NULL || gap == text + length - 1)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: merge %u is \"%.*s\", not two pieces with a space between them",
                         merges_name, rank, shown(length), length == 0 ? "" : text);
    const size_t left_length = (size_t)(gap - text);
    return bpe_add_merge(b, text, left_length, gap + 1, length - left_length - 1, rank, scratch,
                         err);
}

temper_status bpe_open(const vocabulary *vocab, const bpe_options *options, size_t merges, bpe *b,
                       error *err)
{
    assert(b->slots == NULL && merges <= MERGES_MAX);
    b->vocab = vocab;
    b->options = *options;
    for (int byte = 0; byte < 256; byte++) {
        char spelling[BYTE_LEVEL_SPELLING];
        const size_t length = byte_level_spell((uint8_t)byte, spelling);
        b->byte_ids[byte] = options->characters ? vocabulary_find_byte(vocab, (uint8_t)byte)
                                                : vocabulary_find(vocab, spelling, length);
    }
    b->slot_count = 2;
    while (b->slot_count < merges + merges / 2 + 1)
        b->slot_count *= 2;
    b->slots = mem_calloc(b->slot_count, sizeof *b->slots);
    if (b->slots == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu merges", merges);
    for (uint32_t i = 0; i < b->slot_count; i++)
        b->slots[i].result = NO_MERGE;
    return TEMPER_OK;
}

temper_status bpe_read(const gguf_file *file, const vocabulary *vocab, const bpe_options *options,
                       bpe *b, error *err)
{
    const gguf_value *merges;
    temper_status status = vocabulary_array(file, "tokenizer.ggml.merges", GGUF_STRING, MERGES_MAX,
                                            &merges, err);

    if (status == TEMPER_OK)
        status = bpe_open(vocab, options, (size_t)merges->count, b, err);
    strbuf scratch = {0};
    for (uint32_t rank = 0; status == TEMPER_OK && rank < merges->count; rank++) {
        const gguf_string text = gguf_array_string(merges, rank);
        status = bpe_add_merge_text(b, text.data, (size_t)text.length, rank, &scratch, err);
    }
    strbuf_free(&scratch);
    return status;
}

void bpe_free(bpe *b)
{
    mem_free(b->slots);
    memset(b, 0, sizeof *b);
}

/* ---- the beginning of a word ----------------------------------------------------------------- */

/* *id becomes the id of a word that is a token as a whole, or -1. */
static temper_status find_whole(const bpe *b, bpe_work *work, const char *word, size_t length,
                                int32_t *id, error *err)
{
    const size_t longest = b->vocab->longest_spelling;

    *id = -1;
    if (length > longest)
        return TEMPER_OK;
    strbuf_clear(&work->spelling);
    for (size_t i = 0; !b->options.characters && i < length; i++) {
        char spelling[BYTE_LEVEL_SPELLING];
        strbuf_append(&work->spelling, spelling, byte_level_spell((uint8_t)word[i], spelling));
    }
    if (work->spelling.failed)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to spell a word");
    const int32_t found = b->options.characters
                              ? vocabulary_find(b->vocab, word, length)
                              : vocabulary_find(b->vocab, strbuf_text(&work->spelling),
                                                work->spelling.length);
    /* A mark is never text, even if it is spelled like a word. */
    if (found >= 0 && !vocabulary_is_mark(b->vocab, (uint32_t)found))
        *id = found;
    return TEMPER_OK;
}

/* Makes room for `count` symbols. */
static temper_status reserve_symbols(bpe_work *work, size_t count, error *err)
{
    if (count <= work->symbol_capacity)
        return TEMPER_OK;
    const size_t capacity = count < 128 ? 128 : count;
    bpe_symbol *grown = mem_realloc(work->symbols, capacity * sizeof *grown);
    if (grown == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to encode a word of %zu bytes", count);
    work->symbols = grown;
    work->symbol_capacity = capacity;
    return TEMPER_OK;
}

static void add_symbol(bpe_work *work, int32_t id)
{
    const uint32_t at = (uint32_t)work->symbol_count++;

    assert(work->symbol_count <= work->symbol_capacity);
    work->symbols[at] = (bpe_symbol){.id = id, .previous = at - 1, .next = at + 1};
}

/* The token of a character at its place in the word, or -1. */
static int32_t find_character(const bpe *b, bpe_work *work, const char *word, size_t length,
                              size_t at, size_t unit)
{
    const bool first = at == 0, last = at + unit == length;
    const char *prefix = first ? NULL : b->options.inner_prefix;
    const char *suffix = last ? b->options.end_suffix : NULL;

    if (prefix == NULL && suffix == NULL)
        return vocabulary_find(b->vocab, word + at, unit);
    strbuf_clear(&work->spelling);
    strbuf_puts(&work->spelling, prefix == NULL ? "" : prefix);
    strbuf_append(&work->spelling, word + at, unit);
    strbuf_puts(&work->spelling, suffix == NULL ? "" : suffix);
    return vocabulary_find(b->vocab, strbuf_text(&work->spelling), work->spelling.length);
}

/* True when all bytes of a character have tokens: they are added then. */
static bool add_bytes(const bpe *b, bpe_work *work, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (b->byte_ids[(uint8_t)bytes[i]] < 0)
            return false;
    }
    for (size_t i = 0; i < count; i++)
        add_symbol(work, b->byte_ids[(uint8_t)bytes[i]]);
    return true;
}

/* Lays out one symbol a character. An unknown token waits until it is clear whether the next
 * character joins it; the tokens of bytes do not end the wait, as in Hugging Face's library. */
static void start_characters(const bpe *b, bpe_work *work, const char *word, size_t length)
{
    bool waiting = false;

    for (size_t at = 0; at < length;) {
        utf8_state state;
        const size_t unit = utf8_next(word + at, length - at, &state);
        const int32_t id = find_character(b, work, word, length, at, unit);
        if (id >= 0) {
            if (waiting)
                add_symbol(work, b->options.unknown);
            waiting = false;
            add_symbol(work, id);
        } else if ((!b->options.byte_fallback || !add_bytes(b, work, word + at, unit))
                   && b->options.unknown >= 0) {
            if (waiting && !b->options.fuse_unknown)
                add_symbol(work, b->options.unknown);
            waiting = true;
        }
        at += unit;
    }
    if (waiting)
        add_symbol(work, b->options.unknown);
}

static temper_status start_symbols(const bpe *b, bpe_work *work, const char *word, size_t length,
                                   error *err)
{
    const temper_status status = reserve_symbols(work, length, err);

    work->symbol_count = 0;
    if (status != TEMPER_OK)
        return status;
    if (b->options.characters) {
        start_characters(b, work, word, length);
        if (work->spelling.failed)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to spell a character");
    } else {
        for (size_t i = 0; i < length; i++)
            add_symbol(work, b->byte_ids[(uint8_t)word[i]]);
    }
    if (work->symbol_count > 0)
        work->symbols[work->symbol_count - 1].next = BPE_END;
    return TEMPER_OK;
}

/* ---- merging --------------------------------------------------------------------------------- */

static temper_status push_pair(const bpe *b, bpe_work *work, uint32_t left, error *err)
{
    const uint32_t right = work->symbols[left].next;
    const merge_slot *merge = right == BPE_END ? NULL
                              : find_merge(b, work->symbols[left].id, work->symbols[right].id);

    if (merge == NULL)
        return TEMPER_OK;
    return merge_heap_push(&work->heap, (uint64_t)merge->rank << 32 | left, err);
}

/* Takes the best candidate; merges it if it still holds. */
static temper_status merge_best(const bpe *b, bpe_work *work, error *err)
{
    const uint64_t best = merge_heap_pop(&work->heap);
    const uint32_t left = (uint32_t)best;
    bpe_symbol *symbol = &work->symbols[left];
    const uint32_t right = symbol->next;

    if (symbol->id < 0 || right == BPE_END)
        return TEMPER_OK;
    const merge_slot *merge = find_merge(b, symbol->id, work->symbols[right].id);
    if (merge == NULL || merge->rank != best >> 32)
        return TEMPER_OK;

    symbol->id = (int32_t)merge->result;
    symbol->next = work->symbols[right].next;
    work->symbols[right].id = -1;
    if (symbol->next != BPE_END)
        work->symbols[symbol->next].previous = left;
    temper_status status = push_pair(b, work, left, err);
    if (status == TEMPER_OK && symbol->previous != BPE_END)
        status = push_pair(b, work, symbol->previous, err);
    return status;
}

temper_status bpe_encode_word(const bpe *b, bpe_work *work, const char *word, size_t length,
                              token_list *out, error *err)
{
    temper_status status = TEMPER_OK;

    assert(length > 0 && length <= BPE_WORD_MAX);
    if (b->options.whole_words || (b->options.whole_line_ends && word[0] == '\n')) {
        int32_t id;
        status = find_whole(b, work, word, length, &id, err);
        if (status != TEMPER_OK)
            return status;
        if (id >= 0)
            return token_list_push(out, (uint32_t)id, err);
    }
    status = start_symbols(b, work, word, length, err);
    work->heap.count = 0;
    for (uint32_t i = 0; i + 1 < work->symbol_count && status == TEMPER_OK; i++)
        status = push_pair(b, work, i, err);
    while (work->heap.count > 0 && status == TEMPER_OK)
        status = merge_best(b, work, err);
    for (uint32_t i = 0; status == TEMPER_OK && work->symbol_count > 0 && i != BPE_END;
         i = work->symbols[i].next) {
        if (work->symbols[i].id >= 0)
            status = token_list_push(out, (uint32_t)work->symbols[i].id, err);
    }
    return status;
}

void bpe_work_free(bpe_work *work)
{
    mem_free(work->symbols);
    merge_heap_free(&work->heap);
    strbuf_free(&work->spelling);
    memset(work, 0, sizeof *work);
}
