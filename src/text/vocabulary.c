/*
 * vocabulary.c - reads the tokens of a model file. Hostile input: every count and id is checked,
 * and the time is linear in the size of the file.
 */
#include "text/vocabulary.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"

static const char key_tokens[] = "tokenizer.ggml.tokens";
static const char key_types[] = "tokenizer.ggml.token_type";

uint64_t hash_mix(uint64_t value)
{
    /* The finaliser of MurmurHash3 (Appleby, public domain). */
    value ^= value >> 33;
    value *= UINT64_C(0xff51afd7ed558ccd);
    value ^= value >> 33;
    value *= UINT64_C(0xc4ceb9fe1a85ec53);
    value ^= value >> 33;
    return value;
}

static uint64_t hash_bytes(const char *bytes, size_t length)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ length;

    while (length > 0) {
        const size_t take = length < 8 ? length : 8;
        uint64_t word = 0;
        memcpy(&word, bytes, take);
        hash = hash_mix(hash ^ word) + UINT64_C(0x9e3779b97f4a7c15);
        bytes += take;
        length -= take;
    }
    return hash;
}

static bool is_integer_type(gguf_type type)
{
    switch (type) {
    case GGUF_UINT8: case GGUF_INT8: case GGUF_UINT16: case GGUF_INT16:
    case GGUF_UINT32: case GGUF_INT32: case GGUF_UINT64: case GGUF_INT64:
        return true;
    default:
        return false;
    }
}

temper_status vocabulary_array(const gguf_file *file, const char *key, gguf_type element,
                               uint64_t most, const gguf_value **out, error *err)
{
    const gguf_value *value = gguf_find(file, key);

    assert(element == GGUF_STRING || element == GGUF_INT32 || element == GGUF_FLOAT32);
    if (value == NULL)
        return error_set(err, TEMPER_BAD_FILE, "%s is missing: the file holds no usable vocabulary",
                         key);
    const bool fits = value->type == GGUF_ARRAY
                      && (element == GGUF_INT32 ? is_integer_type(value->element)
                                                : value->element == element);
    if (!fits)
        return error_set(err, TEMPER_BAD_FILE, "%s is %s%s, not an array of %s", key,
                         value->type == GGUF_ARRAY ? "an array of " : "one ",
                         gguf_type_name(value->type == GGUF_ARRAY ? value->element : value->type),
                         element == GGUF_STRING    ? "strings"
                         : element == GGUF_FLOAT32 ? "float32"
                                                   : "integers");
    if (value->count > most)
        return error_set(err, TEMPER_BAD_FILE, "%s has %llu elements; %llu is the most", key,
                         (unsigned long long)value->count, (unsigned long long)most);
    *out = value;
    return TEMPER_OK;
}

const char *vocabulary_spelling(const vocabulary *vocab, uint32_t id, size_t *length)
{
    assert(id < vocab->size);
    *length = vocab->spelling_at[id + 1] - vocab->spelling_at[id];
    return vocab->spellings + vocab->spelling_at[id];
}

const char *vocabulary_piece(const vocabulary *vocab, uint32_t id, size_t *length)
{
    assert(id < vocab->size);
    *length = vocab->piece_at[id + 1] - vocab->piece_at[id];
    return vocab->pieces + vocab->piece_at[id];
}

bool vocabulary_is_mark(const vocabulary *vocab, uint32_t id)
{
    assert(id < vocab->size);
    return vocab->types[id] == TOKEN_TYPE_CONTROL || vocab->types[id] == TOKEN_TYPE_UNKNOWN;
}

/* The slot that holds this spelling, or the empty one where it belongs; NULL when the table's
 * clusters are longer than chance makes them. */
static uint32_t *slot_of(const vocabulary *vocab, const char *spelling, size_t length)
{
    const uint32_t mask = vocab->slot_count - 1;
    uint32_t at = (uint32_t)hash_bytes(spelling, length) & mask;

    for (int probe = 0; probe < HASH_PROBES_MAX; probe++, at = (at + 1) & mask) {
        uint32_t *slot = &vocab->slots[at];
        if (*slot == 0)
            return slot;
        size_t other_length;
        const char *other = vocabulary_spelling(vocab, *slot - 1, &other_length);
        if (other_length == length && memcmp(other, spelling, length) == 0)
            return slot;
    }
    return NULL;
}

int32_t vocabulary_find(const vocabulary *vocab, const char *spelling, size_t length)
{
    if (length == 0 || length > vocab->longest_spelling)
        return -1;
    const uint32_t *slot = slot_of(vocab, spelling, length);
    return slot == NULL || *slot == 0 ? -1 : (int32_t)(*slot - 1);
}

static temper_status copy_spellings(const vocabulary_entry *entries, const char *where,
                                    vocabulary *vocab, error *err)
{
    uint64_t total = 0;

    for (uint32_t id = 0; id < vocab->size; id++) {
        if (!checked_add(total, entries[id].length, &total) || total > SIZE_MAX / 2)
            return error_set(err, TEMPER_BAD_FILE, "%s: the spellings are longer than memory",
                             where);
    }
    const size_t ends = (size_t)vocab->size + 1;
    vocab->spellings = mem_alloc((size_t)total);
    vocab->spelling_at = mem_calloc(ends, sizeof *vocab->spelling_at);
    vocab->types = mem_alloc(vocab->size);
    if (vocab->spellings == NULL || vocab->spelling_at == NULL || vocab->types == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u tokens", vocab->size);

    size_t at = 0;
    for (uint32_t id = 0; id < vocab->size; id++) {
        const size_t length = entries[id].length;

        vocab->types[id] = (uint8_t)entries[id].type;
        vocab->spelling_at[id] = at;
        if (length > 0)
            memcpy(vocab->spellings + at, entries[id].spelling, length);
        at += length;
        if (length > vocab->longest_spelling)
            vocab->longest_spelling = length;
    }
    vocab->spelling_at[vocab->size] = at;
    assert(at == total);
    return TEMPER_OK;
}

static temper_status index_spellings(vocabulary *vocab, const char *where, error *err)
{
    uint32_t slot_count = 2;

    while (slot_count < 2 * vocab->size)
        slot_count *= 2;
    vocab->slots = mem_calloc(slot_count, sizeof *vocab->slots);
    if (vocab->slots == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to index %u tokens", vocab->size);
    vocab->slot_count = slot_count;

    for (uint32_t id = 0; id < vocab->size; id++) {
        size_t length;
        const char *spelling = vocabulary_spelling(vocab, id, &length);
        if (length == 0)
            continue;
        uint32_t *slot = slot_of(vocab, spelling, length);
        if (slot == NULL)
            return error_set(err, TEMPER_BAD_FILE,
                             "%s: the tokens were made to collide (at token %u)", where, id);
        if (*slot != 0) {
            const int shown = (int)(length < 100 ? length : 100);
            return error_set(err, TEMPER_BAD_FILE, "%s: \"%.*s\" is token %u and token %u",
                             where, shown, spelling, *slot - 1, id);
        }
        *slot = id + 1;
    }
    return TEMPER_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

int vocabulary_byte_of_digits(const char digits[2])
{
    const int high = hex_digit(digits[0]), low = hex_digit(digits[1]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int vocabulary_byte_spelled(const char *spelling, size_t length)
{
    if (length != 6 || memcmp(spelling, "<0x", 3) != 0 || spelling[5] != '>')
        return -1;
    return vocabulary_byte_of_digits(spelling + 3);
}

int32_t vocabulary_find_byte(const vocabulary *vocab, uint8_t byte)
{
    char spelling[8];
    const int length = snprintf(spelling, sizeof spelling, "<0x%02X>", byte);

    return vocabulary_find(vocab, spelling, (size_t)length);
}

static temper_status decode_pieces(const vocabulary_entry *entries, spelling_decoder decode,
                                   const void *rules, vocabulary *vocab, error *err)
{
    uint64_t total = 0;

    /* A piece may be longer than its spelling by the space that stands before a word. */
    for (uint32_t id = 0; id < vocab->size; id++)
        total += max_u64(entries[id].length, entries[id].written_length) + 1;
    vocab->pieces = total > SIZE_MAX / 2 ? NULL : mem_alloc((size_t)total);
    vocab->piece_at = mem_calloc((size_t)vocab->size + 1, sizeof *vocab->piece_at);
    if (vocab->pieces == NULL || vocab->piece_at == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the text of %u tokens", vocab->size);

    size_t at = 0;
    for (uint32_t id = 0; id < vocab->size; id++) {
        const vocabulary_entry *entry = &entries[id];
        const bool other = entry->written != NULL;
        const char *spelling = other ? entry->written : entry->spelling;
        const size_t length = other ? entry->written_length : entry->length;
        const int byte = entry->type == TOKEN_TYPE_BYTE ? vocabulary_byte_spelled(spelling, length)
                                                        : -1;
        vocab->piece_at[id] = at;
        if (byte >= 0) {
            vocab->pieces[at++] = (char)byte;
        } else if (!entry->plain) {
            at += decode(rules, spelling, length, vocab->pieces + at);
        } else if (length > 0) {
            memcpy(vocab->pieces + at, spelling, length);
            at += length;
        }
        assert(at <= total);
    }
    vocab->piece_at[vocab->size] = at;
    return TEMPER_OK;
}

temper_status vocabulary_build(const vocabulary_entry *entries, size_t count, const char *where,
                               spelling_decoder decode, const void *rules, vocabulary *vocab,
                               error *err)
{
    assert(vocab->types == NULL && vocab->slots == NULL);
    if (count == 0)
        return error_set(err, TEMPER_BAD_FILE, "%s is empty", where);
    assert(count <= VOCABULARY_MAX);
    vocab->size = (uint32_t)count;

    temper_status status = copy_spellings(entries, where, vocab, err);
    if (status == TEMPER_OK)
        status = index_spellings(vocab, where, err);
    if (status == TEMPER_OK)
        status = decode_pieces(entries, decode, rules, vocab, err);
    return status;
}

static temper_status read_types(const gguf_file *file, vocabulary_entry *entries, size_t count,
                                error *err)
{
    const gguf_value *types;

    if (gguf_find(file, key_types) == NULL)
        return TEMPER_OK;
    temper_status status = vocabulary_array(file, key_types, GGUF_INT32, UINT64_MAX, &types, err);
    if (status != TEMPER_OK)
        return status;
    if (types->count != count)
        return error_set(err, TEMPER_BAD_FILE, "%s has %llu elements for %zu tokens", key_types,
                         (unsigned long long)types->count, count);
    for (size_t id = 0; id < count; id++) {
        const int64_t type = gguf_array_int(types, id);
        if (type < 0 || type >= TOKEN_TYPE_COUNT)
            return error_set(err, TEMPER_BAD_FILE, "%s: token %zu has type %lld; 0 to %d are known",
                             key_types, id, (long long)type, TOKEN_TYPE_COUNT - 1);
        entries[id].type = (token_type)type;
        /* Added tokens are written as plain text, whatever the kind of the vocabulary. */
        entries[id].plain = type == TOKEN_TYPE_CONTROL || type == TOKEN_TYPE_UNKNOWN
                            || type == TOKEN_TYPE_USER_DEFINED;
    }
    return TEMPER_OK;
}

temper_status vocabulary_read(const gguf_file *file, spelling_decoder decode, const void *rules,
                              vocabulary *vocab, error *err)
{
    const gguf_value *tokens;
    temper_status status = vocabulary_array(file, key_tokens, GGUF_STRING, VOCABULARY_MAX, &tokens,
                                            err);
    if (status != TEMPER_OK)
        return status;

    const size_t count = (size_t)tokens->count;
    vocabulary_entry *entries = mem_calloc(count, sizeof *entries);
    if (entries == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu tokens", count);
    for (size_t id = 0; id < count; id++) {
        const gguf_string spelling = gguf_array_string(tokens, id);
        entries[id] = (vocabulary_entry){.spelling = spelling.data,
                                         .length = (size_t)spelling.length,
                                         .type = TOKEN_TYPE_NORMAL};
    }
    status = read_types(file, entries, count, err);
    if (status == TEMPER_OK)
        status = vocabulary_build(entries, count, key_tokens, decode, rules, vocab, err);
    mem_free(entries);
    return status;
}

temper_status vocabulary_scores(const gguf_file *file, const vocabulary *vocab, float **out,
                                error *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    const gguf_value *values;
    temper_status status = vocabulary_array(file, key, GGUF_FLOAT32, UINT64_MAX, &values, err);

    *out = NULL;
    if (status != TEMPER_OK)
        return status;
    if (values->count != vocab->size)
        return error_set(err, TEMPER_BAD_FILE, "%s has %llu elements for %u tokens", key,
                         (unsigned long long)values->count, vocab->size);
    float *scores = mem_calloc(vocab->size, sizeof *scores);
    if (scores == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u scores", vocab->size);
    for (uint32_t id = 0; id < vocab->size; id++) {
        scores[id] = (float)gguf_array_float(values, id);
        if (!isfinite(scores[id])) {
            status = error_set(err, TEMPER_BAD_FILE, "%s: the score of token %u is not finite", key,
                               id);
            mem_free(scores);
            return status;
        }
    }
    *out = scores;
    return TEMPER_OK;
}

void vocabulary_free(vocabulary *vocab)
{
    mem_free(vocab->types);
    mem_free(vocab->spellings);
    mem_free(vocab->spelling_at);
    mem_free(vocab->pieces);
    mem_free(vocab->piece_at);
    mem_free(vocab->slots);
    memset(vocab, 0, sizeof *vocab);
}
