/*
 * quiet.h - while a library call runs, what it prints to stderr goes to the log instead.
 */
#ifndef TEMPER_GPU_QUIET_H
#define TEMPER_GPU_QUIET_H

#include <stdio.h>

typedef struct gpu_quiet {
    FILE *kept;    /* what was printed; NULL: nothing is held back */
    int stderr_copy;
} gpu_quiet;

void gpu_quiet_begin(gpu_quiet *quiet);
void gpu_quiet_end(gpu_quiet *quiet);

#endif
