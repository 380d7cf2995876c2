/*
 * fuzz.h - what the libFuzzer targets share, and the inputs that they start from.
 *
 * A target is a function over any bytes. It is linked twice: with libFuzzer (`./test --fuzz`), and
 * with replay.c as an ordinary test, which runs it over the seeds, their prefixes and the finds.
 */
#ifndef TEMPER_TESTS_FUZZ_H
#define TEMPER_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The target. `data` is exactly `size` bytes of heap. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many inputs were taken for what they pretend to be; each target counts its own. */
extern unsigned long fuzz_accepted;

/* Aborts, which libFuzzer and the test take for a find. */
void fuzz_check(bool holds);

/* For targets that read files by their names: a folder of this process in memory where there is
 * one, gone at its end, and a file in it; of no bytes: no such file. The path is a view until the
 * call after the next. */
const char *fuzz_folder(void);
const char *fuzz_put_file(const char *name, const void *bytes, size_t size);

typedef void (*fuzz_sink)(const char *name, const void *bytes, size_t size, void *user);

/* Hands out the inputs that a target starts from, made of the goldens and of small files made here.
 * An unknown target aborts. */
void fuzz_seeds(const char *target, fuzz_sink sink, void *user);

#endif
