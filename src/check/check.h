/*
 * check.h - every op against its double twin, in cases that have names: what the tests and `temper
 * kernels` run.
 *
 *     gpu_device *device;
 *     check_open(&desc, false, &device, &err);
 *     for (uint32_t i = 0; i < check_case_count(); i++) {
 *         const check_case c = check_case_at(i);
 *         if (check_matches(&c, "matmul/q4*") &&
 *             check_run(device, i, NULL, &result, &err) == TEMPER_OK)
 *             printf("%s %s %g\n", c.name, result.ok ? "ok" : "WRONG", result.error);
 *     }
 *
 * A case feeds the op inputs that depend on position, compares with ref/ in double and, where it is
 * about them, asks that NaN and infinity show where they must and nowhere else. On a device opened
 * with guard bands each case ends with a look at them.
 */
#ifndef TEMPER_CHECK_CHECK_H
#define TEMPER_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "check/peak.h"
#include "check/timing.h"
#include "gpu/gpu.h"

/* ---- kernel rows ----------------------------------------------------------------------------- */

typedef struct check_row {
    const char *op, *row, *kernel;
    uint32_t features;         /* gpu_feature bits that it needs */
    uint32_t invocations;      /* lanes a workgroup */
    uint32_t workgroup_memory; /* bytes */
    bool runs;                 /* on the device asked about */
    const char *why;           /* one sentence */
} check_row;

/* Row i of all tables of op/rows.h, in order; false past the last. device may be NULL: `runs` is
 * false then. */
bool check_row_at(gpu_device *device, uint32_t i, check_row *out);

/* ---- cases ----------------------------------------------------------------------------------- */

typedef enum check_cost {
    CHECK_QUICK,  /* milliseconds: runs under every mask */
    CHECK_NORMAL, /* up to some seconds on a software device */
    CHECK_HEAVY,  /* minutes there: only when asked for by name */
} check_cost;

typedef struct check_case {
    const char *op;
    char name[80];
    check_cost cost;
} check_case;

typedef struct check_result {
    bool ok;
    bool skipped;        /* the device lacks what the case is about; detail says what */
    double error, limit; /* normalised: largest difference over the root mean square, or as the case
                            defines it */
    double us, gbps, tflops; /* when timed; 0 where they mean nothing */
    double share;            /* of the card's peak; 0 where that was not given */
    gpu_unit unit;           /* what the tflops were done with */
    bool timed, steady;      /* the clock was up before and after */
    char detail[256];        /* what was wrong, "" when nothing */
} check_result;

uint32_t check_case_count(void);
check_case check_case_at(uint32_t index);

/* pattern: "op", "op/name" or either with `*` for any characters. */
bool check_matches(const check_case *c, const char *pattern);

/* What a case is timed with. */
typedef struct check_timing {
    check_timer *timer;
    const check_peak *peak; /* NULL: no shares */
} check_timing;

/* Runs one case, and times it unless timing is NULL. A failed comparison is TEMPER_OK with
 * result->ok false; an error of the device is a status. */
temper_status check_run(gpu_device *device, uint32_t index, const check_timing *timing,
                        check_result *result, error *err);

/* For tests that prefer a row (op_prefer_row): from now on a case that does not come to it is left
 * out before anything is computed, with result->skipped and no detail. */
void check_only_preferred(bool only);

/* Opens a device as temper_device_open does, with guard bands around every buffer if `guard`. */
temper_status check_open(const temper_device_desc *desc, bool guard, gpu_device **out, error *err);

#endif
