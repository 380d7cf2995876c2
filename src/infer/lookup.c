#include "infer/lookup.h"

enum { SHORTEST = 2, LONGEST = 16 };

/* How many ids before `end` equal those at the end of the text, up to LONGEST. */
static uint32_t common(const uint32_t *ids, uint32_t count, uint32_t end)
{
    uint32_t length = 0;
    while (length < LONGEST && length < end && ids[end - 1 - length] == ids[count - 1 - length])
        length++;
    return length;
}

uint32_t lookup_propose(const uint32_t *ids, uint32_t count, uint32_t most, uint32_t *out)
{
    uint32_t longest = SHORTEST - 1, after = 0;
    for (uint32_t end = count; end-- > SHORTEST && longest < LONGEST;) {
        const uint32_t length = ids[end - 1] == ids[count - 1] ? common(ids, count, end) : 0;
        if (length > longest) {
            longest = length;
            after = end;
        }
    }
    if (after == 0)
        return 0;
    for (uint32_t i = 0; i < most; i++)
        out[i] = after + i < count ? ids[after + i] : out[after + i - count];
    return most;
}
