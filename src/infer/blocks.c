/*
 * blocks.c - who has which blocks of the cache: growing, and giving way when there are none left.
 */
#include <assert.h>

#include "infer/decoder.h"

void decoder_forget(decoder *d, uint32_t slot)
{
    kv_cache_drop(d->runner.cache, slot);
    if (d->draft_engine != NULL)
        kv_cache_drop(d->draft.cache, slot);
    d->slots[slot].cached = d->slots[slot].drafted = 0;
}

/* Both caches have one shape and grow together: what holds for one holds for the other. */
static uint32_t held(const decoder *d, uint32_t slot)
{
    return kv_cache_held(d->runner.cache, slot);
}

/* The idle slot that was used the longest ago, or with `push` and without one the active slot that
 * began last, if that was after `slot`; d->desc.slots when there is none. */
static uint32_t find_victim(const decoder *d, uint32_t slot, bool push)
{
    uint32_t victim = d->desc.slots;
    for (uint32_t i = 0; i < d->desc.slots; i++)
        if (d->slots[i].answer == NULL && i != slot && held(d, i) > 0 &&
            (victim == d->desc.slots || d->slots[i].used < d->slots[victim].used))
            victim = i;
    for (uint32_t i = d->active; victim == d->desc.slots && push && i-- > 0;) {
        if (d->order[i] == slot)
            break;
        if (held(d, d->order[i]) > 0)
            victim = d->order[i];
    }
    return victim;
}

temper_status decoder_reserve(decoder *d, uint32_t slot, uint32_t positions, bool push,
                              bool *granted, error *err)
{
    const uint32_t wanted = kv_cache_blocks_for(positions);
    *granted = false;
    while (wanted > held(d, slot) && kv_cache_free(d->runner.cache) < wanted - held(d, slot)) {
        const uint32_t victim = find_victim(d, slot, push);
        if (victim == d->desc.slots)
            return TEMPER_OK;
        d->evictions += d->slots[victim].answer != NULL;
        decoder_forget(d, victim);
    }
    temper_status status = kv_cache_grow(d->runner.cache, slot, positions, err);
    if (status == TEMPER_OK && d->draft_engine != NULL)
        status = kv_cache_grow(d->draft.cache, slot, positions, err);
    *granted = status == TEMPER_OK;
    return status;
}
