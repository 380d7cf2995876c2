/*
 * op_common.h - running the case list of check/ under a mask of features and limits.
 */
#ifndef TEMPER_TESTS_OP_COMMON_H
#define TEMPER_TESTS_OP_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "check/check.h"
#include "support/skip.h"

static inline bool run_one(gpu_device *device, uint32_t index)
{
    const check_case c = check_case_at(index);
    check_result result;
    error err = {0};
    const temper_status status = check_run(device, index, NULL, &result, &err);
    if (status != TEMPER_OK)
        print_error("%s/%s: %s\n", c.op, c.name, err.text);
    else if (!result.ok)
        print_error("%s/%s: error %g, limit %g: %s\n", c.op, c.name, result.error, result.limit,
                    result.detail);
    else if (result.skipped && result.detail[0] != '\0')
        test_skipped_case(c.op, c.name, result.detail);
    return status == TEMPER_OK && result.ok;
}

/* Runs every case of at most this cost on a new device; prints the adapter, what failed and what
 * was left out. */
static inline void run_cases(const temper_device_desc *desc, bool guard, check_cost most)
{
    gpu_device *device;
    error err = {0};
    if (check_open(desc, guard, &device, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    const gpu_adapter_info *adapter = gpu_device_adapter(device);
    print_message("%s, %s; without %s; %u limits lowered; bounds checks %s; guards %s\n",
                  adapter->name, adapter->driver, desc->without != NULL ? desc->without : "nothing",
                  desc->limit_count, gpu_device_robust(device) ? "on" : "off",
                  guard ? "on" : "off");
    uint32_t wrong = 0, ran = 0, left = 0;
    const double start = clock_seconds();
    for (uint32_t i = 0; i < check_case_count(); i++) {
        if (check_case_at(i).cost > most) {
            left++;
            continue;
        }
        wrong += !run_one(device, i);
        ran++;
        assert_int_equal(gpu_device_status(device, NULL), TEMPER_OK);
    }
    print_message("%u cases in %.1f s, %u wrong; %u cost more and were left out\n", ran,
                  clock_seconds() - start, wrong, left);
    assert_int_equal(gpu_device_counters(device).live_bytes[GPU_PURPOSE_WEIGHTS], 0);
    assert_int_equal(gpu_device_counters(device).live_bytes[GPU_PURPOSE_SCRATCH], 0);
    gpu_device_release(device);
    assert_int_equal(wrong, 0);
}

#endif
