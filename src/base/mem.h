/*
 * mem.h - host memory, counted and able to fail on request.
 *
 * Every allocation of the library goes through here, so that tests can ask how much is alive, how
 * much was alive at most, and what happens when the n-th allocation fails. Sizes of zero give a
 * unique non-NULL pointer. Thread safe.
 */
#ifndef TEMPER_BASE_MEM_H
#define TEMPER_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Returns `size` bytes, NULL when there are none left (or an injected failure is due). */
void *mem_alloc(size_t size);

/* Returns count * size zeroed bytes; NULL when the product overflows or memory is exhausted. */
void *mem_calloc(size_t count, size_t size);

/* As realloc; on failure returns NULL and the old block stays valid. */
void *mem_realloc(void *block, size_t size);

/* Frees; NULL is fine. */
void mem_free(void *block);

/* Returns an owned copy of a NUL-terminated string, or of its first `length` bytes (NUL added). */
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t length);

/* Bytes alive now, and the most that were alive since mem_reset_peak. */
uint64_t mem_live_bytes(void);
uint64_t mem_peak_bytes(void);
void mem_reset_peak(void);

/* Number of successful and failed allocation calls so far. */
uint64_t mem_allocation_count(void);

/* Tests only: the nth allocation from now (1 is the next) and, if `all_after`, every later one
 * fails. 0 switches the injection off. */
void mem_fail_at(uint64_t nth, int all_after);

#endif
