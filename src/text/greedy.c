#include "text/greedy.h"

#include <string.h>

temper_status greedy_open(const vocabulary *vocab, const bool *wanted, greedy *g, error *err)
{
    return prefix_index_build(vocab, vocabulary_piece, wanted, &g->index, err);
}

void greedy_free(greedy *g)
{
    prefix_index_free(&g->index);
    memset(g, 0, sizeof *g);
}

temper_status greedy_encode(const greedy *g, const char *text, size_t length, token_list *out,
                             error *err)
{
    temper_status status = TEMPER_OK;

    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        prefix_walk walk = prefix_walk_start(&g->index);
        int32_t best = g->unknown;
        size_t taken = 1;

        for (size_t i = at; i < length && prefix_walk_step(&walk, (uint8_t)text[i]); i++) {
            if (walk.id < 0)
                continue;
            best = walk.id;
            taken = i + 1 - at;
        }
        if (best >= 0)
            status = token_list_push(out, (uint32_t)best, err);
        at += taken;
    }
    return status;
}

size_t greedy_decode(const void *rules, const char *spelling, size_t length, char *out)
{
    static const char names[] = "tnr", meanings[] = "\t\n\r";
    size_t count = 0;

    (void)rules;
    for (size_t at = 0; at < length; count++) {
        const size_t left = length - at;
        const char *name = left < 2 ? NULL : memchr(names, spelling[at + 1], sizeof names - 1);
        int byte = -1;

        if (spelling[at] == '\\' && left >= 4 && spelling[at + 1] == 'x')
            byte = vocabulary_byte_of_digits(spelling + at + 2);
        if (byte >= 0) {
            out[count] = (char)byte;
            at += 4;
        } else if (spelling[at] == '\\' && left >= 2) {
            out[count] = name == NULL ? spelling[at + 1] : meanings[name - names];
            at += 2;
        } else {
            out[count] = spelling[at];
            at++;
        }
    }
    return count;
}
