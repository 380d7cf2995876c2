/*
 * model_test.h - what the tests of whole models share: devices under masks, goldens, engines.
 */
#ifndef TEST_SUPPORT_MODEL_TEST_H
#define TEST_SUPPORT_MODEL_TEST_H

/* cmocka.h needs these four before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/masks.h"
#include "temper/temper.h"

/* The call succeeds; else its text is printed. `err` is a zeroed temper_error of the caller. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        const temper_status status_of_call = (call);                                               \
        if (status_of_call != TEMPER_OK)                                                           \
            fail_msg("%s: status %d: %s", #call, (int)status_of_call, err.text);                   \
    } while (0)

/* The call fails with this status and a text that holds `part`; `err` is clean again after it. */
#define assert_fails(call, wanted, part)                                                           \
    do {                                                                                           \
        const temper_status status_of_call = (call);                                               \
        if (status_of_call != (wanted) || strstr(err.text, part) == NULL)                          \
            fail_msg("%s: status %d (wanted %d), text \"%s\" (wanted \"%s\")", #call,              \
                     (int)status_of_call, (int)(wanted), err.text, part);                          \
        memset(&err, 0, sizeof err);                                                               \
    } while (0)

/* Opens a device under a mask and prints the adapter's name; fails the test when there is none. */
temper_device *test_device(const device_mask *mask);

/* Opens a model on a device, with exact products: what goldens are compared with; types without a
 * layout are widened. path is below tests/golden, or absolute. */
temper_engine *test_engine(temper_device *device, const char *path, uint32_t max_rows);

/* Asserts that no weight, cache or scratch of any model is left on the device. */
void test_nothing_left(const temper_device *device);

/* Path of the default model that set-up fetched; fails the test when it is not there. */
const char *test_default_model(void);

/* Path of Gemma 3 270M, which set-up fetches on request only; skips the test when it is not there.
 */
const char *test_gemma_model(void);

/* A golden file below tests/golden; the caller's reference. */
json_t *test_golden(const char *path);

/* A JSON list of numbers as ids: free with free(). */
temper_tokens test_ids(const json_t *list);

/* Logits of a session against a golden's: worst difference over the range. */
double test_worst(const float *logits, const json_t *ids, const json_t *values, double range);

/* f32 arithmetic on tiny models differs from the double reference by less than this share of the
 * logit range; measured 4e-7 at worst, so a wrong formula cannot hide. */
#define TINY_LIMIT 1e-5

/* A golden of the schema of tests/golden/tiny: every golden position of a prompt, each by a fresh
 * prompt that ends there (the session keeps what they share), and its greedy answer. */
void test_tiny_logits(temper_session *session, const json_t *prompt, uint32_t vocabulary,
                      const char *what);
void test_tiny_greedy(temper_session *session, const json_t *prompt, const char *what);

/* All of STEM.json below tests/golden, by the model STEM.gguf. */
void test_tiny_model(temper_device *device, const char *stem, uint32_t max_rows);

/* The f32 path stays within this share of the logit range of the exact reference (measured: 2e-6).
 */
#define SMOLLM2_LIMIT 1e-3

/* A prompt of a file below tests/golden/model: its ids, its logits to a share `limit` of their
 * range, and up to `most` of its greedy tokens. */
void test_model_prompt(temper_engine *engine, temper_session *session, const char *path,
                       double limit, size_t most);

/* The same of model/smollm2-135m/NAME.json. */
void test_smollm2_prompt(temper_engine *engine, temper_session *session, const char *name,
                         size_t most);

#endif
