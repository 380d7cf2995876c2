/*
 * planted.h - notes of what was measured on the device at hand, made up by a test: shares and
 * choices then depend on no clock.
 */
#ifndef TEMPER_TESTS_PLANTED_H
#define TEMPER_TESTS_PLANTED_H

#include "support/program.h"

/* From now on the program of this test keeps its notes in the test's own folder. */
void planted_folder(void);

/* Writes a note (gpu/notes.h) for the device that the program gets without options; returns its
 * path: a view until eight calls of program_path later. */
const char *planted_note(const char *kind, const char *body);

/* A peak with which the share of every test is its GB/s: 1 GB/s read, and arithmetic for nothing.
 */
#define PLANTED_PEAK "read 1e9\nf32 1e30\ndot4 1e30\nmatrix 1e30\nsteady 1\n"

/* A choice for so many rows times a Q4_0 weight [n, k]: the last row of matmul's table, which runs
 * everywhere and is never the first for a single row. Returns that row's name. */
const char *planted_choice(uint32_t rows, uint64_t n, uint64_t k);

#endif
