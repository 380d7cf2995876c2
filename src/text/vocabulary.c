/*
 * vocabulary.c - reads the tokens of a model file. Hostile input: every count and id is checked,
 * and the time is linear in the size of the file.
 */
#include "text/vocabulary.h"

#include <assert.h>
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

    assert(element == GGUF_STRING || element == GGUF_INT32);
    if (value == NULL)
        return error_set(err, TEMPER_BAD_FILE, "%s is missing: the file holds no usable vocabulary",
                         key);
    const bool fits = value->type == GGUF_ARRAY
                      && (element == GGUF_STRING ? value->element == GGUF_STRING
                                                 : is_integer_type(value->element));
    if (!fits)
        return error_set(err, TEMPER_BAD_FILE, "%s is %s%s, not an array of %s", key,
                         value->type == GGUF_ARRAY ? "an array of " : "one ",
                         gguf_type_name(value->type == GGUF_ARRAY ? value->element : value->type),
                         element == GGUF_STRING ? "strings" : "integers");
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

static temper_status copy_spellings(const gguf_value *tokens, vocabulary *vocab, error *err)
{
    uint64_t total = 0;

    for (uint64_t id = 0; id < tokens->count; id++) {
        if (!checked_add(total, gguf_array_string(tokens, id).length, &total) || total > SIZE_MAX)
            return error_set(err, TEMPER_BAD_FILE, "%s: the spellings are longer than memory",
                             key_tokens);
    }
    const size_t ends = (size_t)vocab->size + 1;
    vocab->spellings = mem_alloc((size_t)total);
    vocab->spelling_at = mem_calloc(ends, sizeof *vocab->spelling_at);
    if (vocab->spellings == NULL || vocab->spelling_at == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u tokens", vocab->size);

    size_t at = 0;
    for (uint32_t id = 0; id < vocab->size; id++) {
        const gguf_string spelling = gguf_array_string(tokens, id);
        const size_t length = (size_t)spelling.length;

        vocab->spelling_at[id] = at;
        if (length > 0)
            memcpy(vocab->spellings + at, spelling.data, length);
        at += length;
        if (length > vocab->longest_spelling)
            vocab->longest_spelling = length;
    }
    vocab->spelling_at[vocab->size] = at;
    assert(at == total);
    return TEMPER_OK;
}

static temper_status read_types(const gguf_file *file, vocabulary *vocab, error *err)
{
    const gguf_value *types;

    vocab->types = mem_alloc(vocab->size);
    if (vocab->types == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u token types", vocab->size);
    memset(vocab->types, TOKEN_TYPE_NORMAL, vocab->size);
    if (gguf_find(file, key_types) == NULL)
        return TEMPER_OK;

    temper_status status = vocabulary_array(file, key_types, GGUF_INT32, UINT64_MAX, &types, err);
    if (status != TEMPER_OK)
        return status;
    if (types->count != vocab->size)
        return error_set(err, TEMPER_BAD_FILE, "%s has %llu elements for %u tokens", key_types,
                         (unsigned long long)types->count, vocab->size);
    for (uint32_t id = 0; id < vocab->size; id++) {
        const int64_t type = gguf_array_int(types, id);
        if (type < 0 || type >= TOKEN_TYPE_COUNT)
            return error_set(err, TEMPER_BAD_FILE, "%s: token %u has type %lld; 0 to %d are known",
                             key_types, id, (long long)type, TOKEN_TYPE_COUNT - 1);
        vocab->types[id] = (uint8_t)type;
    }
    return TEMPER_OK;
}

static temper_status index_spellings(vocabulary *vocab, error *err)
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
                             "%s: the tokens were made to collide (at token %u)", key_tokens, id);
        if (*slot != 0) {
            const int shown = (int)(length < 100 ? length : 100);
            return error_set(err, TEMPER_BAD_FILE, "%s: \"%.*s\" is token %u and token %u",
                             key_tokens, shown, spelling, *slot - 1, id);
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

/* The byte that "<0x0A>" names, or -1. */
static int byte_spelled(const char *spelling, size_t length)
{
    if (length != 6 || memcmp(spelling, "<0x", 3) != 0 || spelling[5] != '>')
        return -1;
    const int high = hex_digit(spelling[3]), low = hex_digit(spelling[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static temper_status decode_pieces(spelling_decoder decode, vocabulary *vocab, error *err)
{
    const size_t total = vocab->spelling_at[vocab->size];
    const size_t ends = (size_t)vocab->size + 1;

    vocab->pieces = mem_alloc(total);
    vocab->piece_at = mem_calloc(ends, sizeof *vocab->piece_at);
    if (vocab->pieces == NULL || vocab->piece_at == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the text of %u tokens", vocab->size);

    size_t at = 0;
    for (uint32_t id = 0; id < vocab->size; id++) {
        size_t length;
        const char *spelling = vocabulary_spelling(vocab, id, &length);
        const int byte = vocab->types[id] == TOKEN_TYPE_BYTE ? byte_spelled(spelling, length) : -1;

        vocab->piece_at[id] = at;
        if (byte >= 0) {
            vocab->pieces[at++] = (char)byte;
        } else if (vocabulary_is_mark(vocab, id) || vocab->types[id] == TOKEN_TYPE_USER_DEFINED) {
            /* Added tokens are written as plain text, whatever the kind of the vocabulary. */
            memcpy(vocab->pieces + at, spelling, length);
            at += length;
        } else {
            at += decode(spelling, length, vocab->pieces + at);
        }
        assert(at <= vocab->spelling_at[id + 1]);
    }
    vocab->piece_at[vocab->size] = at;
    return TEMPER_OK;
}

temper_status vocabulary_read(const gguf_file *file, spelling_decoder decode, vocabulary *vocab,
                              error *err)
{
    const gguf_value *tokens;
    temper_status status = vocabulary_array(file, key_tokens, GGUF_STRING, VOCABULARY_MAX, &tokens,
                                            err);

    assert(vocab->types == NULL && vocab->slots == NULL);
    if (status != TEMPER_OK)
        return status;
    if (tokens->count == 0)
        return error_set(err, TEMPER_BAD_FILE, "%s is empty", key_tokens);
    vocab->size = (uint32_t)tokens->count;

    status = copy_spellings(tokens, vocab, err);
    if (status == TEMPER_OK)
        status = read_types(file, vocab, err);
    if (status == TEMPER_OK)
        status = index_spellings(vocab, err);
    if (status == TEMPER_OK)
        status = decode_pieces(decode, vocab, err);
    return status;
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
