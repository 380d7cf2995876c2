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

#define NO_MERGE UINT32_MAX
#define BPE_END UINT32_MAX

static const char key_merges[] = "tokenizer.ggml.merges";

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

/* Reads "LEFT RIGHT". A space at the very beginning belongs to LEFT. */
static temper_status add_merge(bpe *b, gguf_string text, uint32_t rank, strbuf *joined, error *err)
{
    const size_t length = (size_t)text.length;
    const char *gap = length < 3 ? NULL : memchr(text.data + 1, ' ', length - 1);
    const int shown = (int)(length < 100 ? length : 100);

    if (gap == NULL || gap == text.data + length - 1)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: merge %u is \"%.*s\", not two pieces with a space between them",
                         key_merges, rank, shown, text.data);
    const size_t left_length = (size_t)(gap - text.data);
    const size_t right_length = length - left_length - 1;
    strbuf_clear(joined);
    strbuf_append(joined, text.data, left_length);
    strbuf_append(joined, gap + 1, right_length);
    if (joined->failed)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to read merge %u", rank);

    const int32_t left = vocabulary_find(b->vocab, text.data, left_length);
    const int32_t right = vocabulary_find(b->vocab, gap + 1, right_length);
    const int32_t result = vocabulary_find(b->vocab, joined->data, joined->length);
    if (left < 0 || right < 0 || result < 0)
        return error_set(err, TEMPER_BAD_FILE, "%s: merge %u (\"%.*s\"): its %s is no token",
                         key_merges, rank, shown, text.data,
                         left < 0 ? "left piece" : right < 0 ? "right piece" : "result");

    const uint64_t pair = pair_of((uint32_t)left, (uint32_t)right);
    merge_slot *slot = merge_slot_of(b, pair);
    if (slot == NULL)
        return error_set(err, TEMPER_BAD_FILE, "%s: the merges were made to collide (at merge %u)",
                         key_merges, rank);
    /* Of a pair that is listed twice the first counts. */
    if (slot->result == NO_MERGE)
        *slot = (merge_slot){.pair = pair, .rank = rank, .result = (uint32_t)result};
    return TEMPER_OK;
}

static temper_status read_merges(const gguf_file *file, bpe *b, error *err)
{
    const gguf_value *merges;
    temper_status status = vocabulary_array(file, key_merges, GGUF_STRING, MERGES_MAX, &merges,
                                            err);
    if (status != TEMPER_OK)
        return status;

    const uint32_t count = (uint32_t)merges->count;
    b->slot_count = 2;
    while (b->slot_count < count + count / 2 + 1)
        b->slot_count *= 2;
    b->slots = mem_calloc(b->slot_count, sizeof *b->slots);
    if (b->slots == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u merges", count);
    for (uint32_t i = 0; i < b->slot_count; i++)
        b->slots[i].result = NO_MERGE;

    strbuf joined = {0};
    for (uint32_t rank = 0; rank < count && status == TEMPER_OK; rank++)
        status = add_merge(b, gguf_array_string(merges, rank), rank, &joined, err);
    strbuf_free(&joined);
    return status;
}

temper_status bpe_read(const gguf_file *file, const vocabulary *vocab, bool whole_words, bpe *b,
                       error *err)
{
    assert(b->slots == NULL);
    b->vocab = vocab;
    b->whole_words = whole_words;
    for (int byte = 0; byte < 256; byte++) {
        char spelling[BYTE_LEVEL_SPELLING];
        const size_t length = byte_level_spell((uint8_t)byte, spelling);
        b->byte_ids[byte] = vocabulary_find(vocab, spelling, length);
    }
    return read_merges(file, b, err);
}

void bpe_free(bpe *b)
{
    mem_free(b->slots);
    memset(b, 0, sizeof *b);
}

/* ---- the heap of candidates ------------------------------------------------------------------ */

static temper_status heap_push(bpe_work *work, uint64_t entry, error *err)
{
    if (work->heap_count == work->heap_capacity) {
        const size_t capacity = work->heap_capacity == 0 ? 256 : 2 * work->heap_capacity;
        uint64_t *grown = mem_realloc(work->heap, capacity * sizeof *grown);
        if (grown == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to encode a long word");
        work->heap = grown;
        work->heap_capacity = capacity;
    }
    size_t at = work->heap_count++;
    while (at > 0) {
        const size_t parent = (at - 1) / 2;
        if (work->heap[parent] <= entry)
            break;
        work->heap[at] = work->heap[parent];
        at = parent;
    }
    work->heap[at] = entry;
    return TEMPER_OK;
}

static uint64_t heap_pop(bpe_work *work)
{
    assert(work->heap_count > 0);
    const uint64_t top = work->heap[0];
    const size_t count = --work->heap_count;
    const uint64_t last = work->heap[count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && work->heap[child + 1] < work->heap[child])
            child++;
        if (work->heap[child] >= last)
            break;
        work->heap[at] = work->heap[child];
        at = child;
    }
    work->heap[at] = last;
    return top;
}

/* ---- one word -------------------------------------------------------------------------------- */

/* *id becomes the id of a word that is a token as a whole, or -1. */
static temper_status find_whole(const bpe *b, bpe_work *work, const char *word, size_t length,
                                int32_t *id, error *err)
{
    const size_t longest = b->vocab->longest_spelling;

    *id = -1;
    if (length > longest)
        return TEMPER_OK;
    if (work->spelling == NULL) {
        work->spelling = mem_alloc(longest + BYTE_LEVEL_SPELLING);
        if (work->spelling == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to spell a word");
    }
    size_t spelled = 0;
    for (size_t i = 0; i < length && spelled <= longest; i++)
        spelled += byte_level_spell((uint8_t)word[i], work->spelling + spelled);
    const int32_t found = vocabulary_find(b->vocab, work->spelling, spelled);
    /* A mark is never text, even if it is spelled like a word. */
    if (found >= 0 && !vocabulary_is_mark(b->vocab, (uint32_t)found))
        *id = found;
    return TEMPER_OK;
}

static temper_status push_pair(const bpe *b, bpe_work *work, uint32_t left, error *err)
{
    const uint32_t right = work->symbols[left].next;
    const merge_slot *merge = right == BPE_END ? NULL
                              : find_merge(b, work->symbols[left].id, work->symbols[right].id);

    return merge == NULL ? TEMPER_OK : heap_push(work, (uint64_t)merge->rank << 32 | left, err);
}

/* Lays out one symbol a byte. */
static temper_status start_symbols(const bpe *b, bpe_work *work, const char *word, size_t length,
                                   error *err)
{
    if (length > work->symbol_capacity) {
        const size_t capacity = length < 128 ? 128 : length;
        bpe_symbol *grown = mem_realloc(work->symbols, capacity * sizeof *grown);
        if (grown == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to encode a word of %zu bytes",
                             length);
        work->symbols = grown;
        work->symbol_capacity = capacity;
    }
    for (uint32_t i = 0; i < length; i++) {
        work->symbols[i].id = b->byte_ids[(uint8_t)word[i]];
        work->symbols[i].previous = i - 1;   /* BPE_END before the first */
        work->symbols[i].next = i + 1;
    }
    work->symbols[length - 1].next = BPE_END;
    return TEMPER_OK;
}

/* Takes the best candidate; merges it if it still holds. */
static temper_status merge_best(const bpe *b, bpe_work *work, error *err)
{
    const uint64_t best = heap_pop(work);
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
    if (b->whole_words) {
        int32_t id;
        status = find_whole(b, work, word, length, &id, err);
        if (status != TEMPER_OK)
            return status;
        if (id >= 0)
            return token_list_push(out, (uint32_t)id, err);
    }
    status = start_symbols(b, work, word, length, err);
    work->heap_count = 0;
    for (uint32_t i = 0; i + 1 < length && status == TEMPER_OK; i++)
        status = push_pair(b, work, i, err);
    while (work->heap_count > 0 && status == TEMPER_OK)
        status = merge_best(b, work, err);
    for (uint32_t i = 0; i != BPE_END && status == TEMPER_OK; i = work->symbols[i].next) {
        if (work->symbols[i].id >= 0)
            status = token_list_push(out, (uint32_t)work->symbols[i].id, err);
    }
    return status;
}

void bpe_work_free(bpe_work *work)
{
    mem_free(work->symbols);
    mem_free(work->heap);
    mem_free(work->spelling);
    memset(work, 0, sizeof *work);
}
