/*
 * peak.h - the most that a card does: the denominators of shares. Measured once for a device and
 * kept beside its other notes (gpu/notes.h).
 */
#ifndef TEMPER_CHECK_PEAK_H
#define TEMPER_CHECK_PEAK_H

#include "check/timing.h"

typedef struct check_peak {
    double read_bytes;            /* a second, of a buffer that no cache holds */
    double operations[GPU_UNITS]; /* a second; 0 for a unit that the device lacks */
    bool steady;                  /* the clock stayed up meanwhile */
} check_peak;

/* Measures: some tenths of a second on a GPU, some seconds on a software device. */
temper_status check_peak_measure(gpu_device *device, check_peak *out, error *err);

/* The peak in the device's note in `folder`, or with `fresh`, or where there is none that can be
 * used, measured now and noted there. folder NULL: measured, and noted nowhere. A folder that
 * cannot be written to is told to the log. */
temper_status check_peak_get(gpu_device *device, const char *folder, bool fresh, check_peak *out,
                             error *err);

/* The least seconds in which the card moves so many bytes and does so many operations by unit: the
 * longer of the two. Over the seconds measured it is the share of the peak. */
double check_peak_seconds(const check_peak *peak, double bytes, const double operations[GPU_UNITS]);

/* The body of a note, and back; false for text that is none. */
void check_peak_print(const check_peak *peak, strbuf *out);
bool check_peak_parse(const char *text, check_peak *out);

const char *check_unit_name(gpu_unit unit); /* "f32", "dot4", "matrix" */

#endif
