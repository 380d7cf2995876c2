/*
 * masks.h - what tests take away from an adapter, so that one machine shows what others lack: each
 * feature and the limits above WebGPU's defaults alone, and all of them together, each time with
 * the WebGPU library's bounds checks off and on.
 */
#ifndef TEST_SUPPORT_MASKS_H
#define TEST_SUPPORT_MASKS_H

#include <stdbool.h>
#include <stddef.h>

#include "temper/temper.h"

typedef struct device_mask {
    const char *name;
    const char *without;
    bool default_limits; /* every limit lowered to WebGPU's default */
    bool robust;
} device_mask;

/* The first takes nothing, the last everything. */
extern const device_mask test_masks[];
extern const size_t test_mask_count;

/* What opens a device under the mask. */
temper_device_desc test_mask_desc(const device_mask *mask);

#endif
