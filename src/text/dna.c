#include "text/dna.h"

#include <assert.h>
#include <string.h>

#include "text/byte_level.h"

#define BEGIN "<dna>"
#define END "</dna>"
#define MARK "\xEE\x80\x80"

enum { BASES = 6, MARK_BYTES = sizeof MARK - 1 };

void dna_open(const vocabulary *vocab, dna *d)
{
    const int32_t begin = vocabulary_find(vocab, BEGIN, strlen(BEGIN));
    const int32_t end = vocabulary_find(vocab, END, strlen(END));
    const int32_t unknown = vocabulary_find(vocab, "<oov>", 5);

    if (begin >= 0 && end >= 0 && unknown >= 0)
        *d = (dna){vocab, begin, end, unknown};
}

/* Where `mark` is in text[from..length); length when it is not. */
static size_t find(const char *text, size_t length, size_t from, const char *mark)
{
    const size_t wanted = strlen(mark);

    for (size_t at = from; at + wanted <= length; at++)
        if (memcmp(text + at, mark, wanted) == 0)
            return at;
    return length;
}

dna_part dna_find(const dna *d, const char *text, size_t length, size_t start)
{
    if (d->vocab == NULL)
        return (dna_part){length, length};
    const size_t begin = find(text, length, start, BEGIN);
    if (begin == length)
        return (dna_part){length, length};
    const size_t end = find(text, length, begin + strlen(BEGIN), END);
    return (dna_part){begin, end == length ? length : end + strlen(END)};
}

/* The token of up to six bases. */
static int32_t piece_of(const dna *d, const char *bases, size_t count)
{
    char spelling[BASES + MARK_BYTES];

    for (size_t i = 0; i < BASES; i++) {
        const char base = i < count ? bases[i] : 'A';
        spelling[i] = base >= 'a' && base <= 'z' ? (char)(base - 'a' + 'A') : base;
    }
    memcpy(spelling + BASES, MARK, MARK_BYTES);
    const int32_t id = vocabulary_find(d->vocab, spelling, sizeof spelling);
    return id >= 0 ? id : d->unknown;
}

temper_status dna_encode(const dna *d, const char *text, size_t length, token_list *out, error *err)
{
    const size_t end = find(text, length, strlen(BEGIN), END);
    temper_status status = token_list_push(out, (uint32_t)d->begin, err);

    assert(length >= strlen(BEGIN) && memcmp(text, BEGIN, strlen(BEGIN)) == 0);
    for (size_t at = strlen(BEGIN); at < end && status == TEMPER_OK; at += BASES)
        status = token_list_push(
            out, (uint32_t)piece_of(d, text + at, end - at < BASES ? end - at : BASES), err);
    if (status == TEMPER_OK && end < length)
        status = token_list_push(out, (uint32_t)d->end, err);
    return status;
}

size_t dna_decode(const void *rules, const char *spelling, size_t length, char *out)
{
    if (length != BASES + MARK_BYTES || memcmp(spelling + BASES, MARK, MARK_BYTES) != 0)
        return byte_level_decode(rules, spelling, length, out);
    memcpy(out, spelling, BASES);
    return BASES;
}
