/*
 * dawn_quiet.h - while a library call runs, what it prints to stderr goes to the log instead.
 */
#ifndef TEMPER_GPU_DAWN_QUIET_H
#define TEMPER_GPU_DAWN_QUIET_H

#include <stdio.h>

typedef struct dawn_quiet {
    FILE *kept; /* what was printed; NULL: nothing is held back */
    int stderr_copy;
} dawn_quiet;

void dawn_quiet_begin(dawn_quiet *quiet);
void dawn_quiet_end(dawn_quiet *quiet);

#endif
