/*
 * profile.h - --profile and --trace of bench and run: what the GPU did, by kernel, and dispatch by
 * dispatch for a trace viewer.
 *
 *     if (profile_wanted())
 *         status = profile_begin(device, &err);
 *     ... (what is to be looked at)
 *     profile_end(device, "prompt of 512", 1, &peak);     // a table to stderr, events kept
 *     ... (more of them)
 *     status = profile_finish(&err);                      // the trace file
 */
#ifndef TEMPER_CLI_PROFILE_H
#define TEMPER_CLI_PROFILE_H

#include "check/peak.h"
#include "cli.h"

/* --profile and --trace FILE. */
extern const option profile_options[];

bool profile_wanted(void);

/* TEMPER_UNSUPPORTED on a device without timestamps. */
temper_status profile_begin(temper_device *device, temper_error *err);

/* Ends what profile_begin began and prints its table, every figure divided by `steps` (a token
 * each; 1: as it is). peak NULL: no shares. */
temper_status profile_end(temper_device *device, const char *title, uint64_t steps,
                          const check_peak *peak, temper_error *err);

/* temper_session_generate with two sections, the prompt and the tokens after it, and the trace
 * written: the result's prompt_seconds mean nothing. */
temper_status profile_generate(temper_device *device, temper_session *session,
                               const temper_request *request, temper_result *result,
                               temper_error *err);

/* Writes the trace where --trace asks for it: the format of chrome://tracing and Perfetto. Forgets
 * the events either way. */
temper_status profile_finish(const char *adapter, temper_error *err);

/* The peak of the device that the options choose: kept in the user's folder, measured where it is
 * not there, or with `fresh`. */
temper_status profile_peak(bool fresh, check_peak *out, temper_error *err);

#endif
