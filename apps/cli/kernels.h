/*
 * kernels.h - what the subcommands of `temper kernels` share.
 */
#ifndef TEMPER_CLI_KERNELS_H
#define TEMPER_CLI_KERNELS_H

#include "check/check.h"
#include "cli.h"

/* The names or patterns that a call gives; none: everything. */
enum { MOST_PATTERNS = 32 };

/* "PATTERN ..." of list, test and bench; argc and argv begin after the subcommand. */
int kernels_list(int argc, char **argv);
int kernels_test(int argc, char **argv);
int kernels_bench(int argc, char **argv);
int kernels_tune(int argc, char **argv);

/* Prints the help of a subcommand where it is asked for, else takes its options; *code is the exit
 * code when it returns false. */
bool kernels_options(const char *name, const char *usage, const char *about, int argc, char **argv,
                     const option *const *tables, const char **positional, size_t most, int *code);

size_t kernels_count(const char *const *patterns);

#endif
