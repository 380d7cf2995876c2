/*
 * mem.c - malloc with a counter. Every block carries its size in front, so that its end is still
 * the allocator's own end (the address sanitizer sees a read of one byte past it).
 */
#include "base/mem.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef union block_header {
    size_t size;
    max_align_t align;   /* what follows is aligned for any type */
} block_header;

/* No object may be larger, for differences of pointers to fit. */
static const size_t max_size = PTRDIFF_MAX - sizeof(block_header);

enum { FAIL_NEVER, FAIL_ONCE, FAIL_FROM_THEN_ON };

static _Atomic uint64_t live_bytes;
static _Atomic uint64_t peak_bytes;
static _Atomic uint64_t allocation_count;
static _Atomic int64_t fail_countdown;
static atomic_int fail_mode = FAIL_NEVER;

static void count_live(size_t size)
{
    const uint64_t live = atomic_fetch_add(&live_bytes, size) + size;
    uint64_t peak = atomic_load(&peak_bytes);

    while (live > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, live)) {
    }
}

/* Counts an allocation call; true when it is one that shall fail. */
static bool call_must_fail(void)
{
    atomic_fetch_add(&allocation_count, 1);
    const int mode = atomic_load(&fail_mode);
    if (mode == FAIL_NEVER)
        return false;
    const int64_t left = atomic_fetch_sub(&fail_countdown, 1);
    return left == 1 || (left < 1 && mode == FAIL_FROM_THEN_ON);
}

void *mem_alloc(size_t size)
{
    if (call_must_fail() || size > max_size)
        return NULL;
    block_header *header = malloc(sizeof *header + size);
    if (header == NULL)
        return NULL;
    header->size = size;
    count_live(size);
    return header + 1;
}

void *mem_calloc(size_t count, size_t size)
{
    const bool must_fail = call_must_fail();

    if (must_fail || (size != 0 && count > max_size / size))
        return NULL;
    /* calloc gets large blocks as zero pages, untouched until used. */
    block_header *header = calloc(1, sizeof *header + count * size);
    if (header == NULL)
        return NULL;
    header->size = count * size;
    count_live(header->size);
    return header + 1;
}

void *mem_realloc(void *block, size_t size)
{
    if (block == NULL)
        return mem_alloc(size);
    if (call_must_fail() || size > max_size)
        return NULL;

    block_header *header = (block_header *)block - 1;
    const size_t old_size = header->size;
    block_header *moved = realloc(header, sizeof *header + size);
    if (moved == NULL)
        return NULL;
    moved->size = size;
    if (size >= old_size)
        count_live(size - old_size);
    else
        atomic_fetch_sub(&live_bytes, old_size - size);
    return moved + 1;
}

void mem_free(void *block)
{
    if (block == NULL)
        return;
    block_header *header = (block_header *)block - 1;
    assert(atomic_load(&live_bytes) >= header->size);
    atomic_fetch_sub(&live_bytes, header->size);
    free(header);
}

char *mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

char *mem_strndup(const char *text, size_t length)
{
    if (length == SIZE_MAX)
        return NULL;
    char *copy = mem_alloc(length + 1);
    if (copy == NULL)
        return NULL;
    if (length > 0)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

uint64_t mem_live_bytes(void)
{
    return atomic_load(&live_bytes);
}

uint64_t mem_peak_bytes(void)
{
    return atomic_load(&peak_bytes);
}

void mem_reset_peak(void)
{
    atomic_store(&peak_bytes, atomic_load(&live_bytes));
}

uint64_t mem_allocation_count(void)
{
    return atomic_load(&allocation_count);
}

void mem_fail_at(uint64_t nth, int all_after)
{
    assert(nth <= INT64_MAX);
    atomic_store(&fail_mode, FAIL_NEVER);
    atomic_store(&fail_countdown, (int64_t)nth);
    if (nth != 0)
        atomic_store(&fail_mode, all_after ? FAIL_FROM_THEN_ON : FAIL_ONCE);
}
