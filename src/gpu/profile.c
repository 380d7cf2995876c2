/*
 * profile.c - GPU time by kernel: a pass a dispatch, a timestamp at each end of it.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/mem.h"
#include "gpu/gpu_internal.h"

/* WebGPU allows 4096 queries a set: 2048 dispatches of two. */
enum { SET_DISPATCHES = 2048, QUERY_BYTES = 8 };

temper_status gpu_profile(gpu_device *device, bool on, error *err)
{
    const temper_status status = gpu_device_status(device, err);
    if (status != TEMPER_OK)
        return status;
    if (on && !(device->features & GPU_FEATURE_TIMESTAMPS))
        return error_set(err, TEMPER_UNSUPPORTED, "the device %s has no timestamps",
                         device->info.name);
    device->profiling = on;
    return TEMPER_OK;
}

void gpu_profile_free(gpu_profile_block *block)
{
    for (uint32_t i = 0; i < block->set_count; i++)
        if (block->sets[i] != NULL)
            wgpuQuerySetRelease(block->sets[i]);
    gpu_buffer_destroy(block->resolved);
    if (block->staging != NULL)
        block->staging->busy = false;
    mem_free(block->sets);
    mem_free(block->pipelines);
    mem_free(block);
}

gpu_profile_block *gpu_profile_begin(gpu_device *device, uint32_t count, error *err)
{
    const uint32_t sets = ceil_div_u32(count, SET_DISPATCHES);
    const uint64_t bytes = (uint64_t)count * 2 * QUERY_BYTES;
    gpu_profile_block *block = mem_calloc(1, sizeof *block);

    if (block == NULL) {
        error_set(err, TEMPER_NO_MEMORY, "no host memory for a profile");
        return NULL;
    }
    block->capacity = count;
    block->sets = mem_calloc(sets, sizeof block->sets[0]);
    block->pipelines = mem_calloc(count, sizeof block->pipelines[0]);
    if (block->sets == NULL || block->pipelines == NULL) {
        error_set(err, TEMPER_NO_MEMORY, "no host memory for a profile");
    } else if (gpu_buffer_create_as(device, bytes, GPU_PURPOSE_STAGING,
                                    WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc,
                                    "timestamps", &block->resolved, err) == TEMPER_OK &&
               gpu_staging_take(device, bytes, &block->staging, err) == TEMPER_OK) {
        for (uint32_t i = 0; i < sets; i++) {
            const WGPUQuerySetDescriptor desc = {
                .label = gpu_text("timestamps"), .type = WGPUQueryType_Timestamp,
                .count = 2 * (i + 1 < sets ? SET_DISPATCHES : count - i * SET_DISPATCHES)};
            block->sets[block->set_count++] = wgpuDeviceCreateQuerySet(device->handle, &desc);
        }
        return block;
    }
    gpu_profile_free(block);
    return NULL;
}

WGPUPassTimestampWrites gpu_profile_writes(gpu_profile_block *block, gpu_pipeline *pipeline)
{
    assert(block->count < block->capacity);
    const uint32_t at = block->count++;
    const uint32_t query = 2 * (at % SET_DISPATCHES);

    block->pipelines[at] = pipeline;
    return (WGPUPassTimestampWrites){.querySet = block->sets[at / SET_DISPATCHES],
                                     .beginningOfPassWriteIndex = query,
                                     .endOfPassWriteIndex = query + 1};
}

void gpu_profile_resolve(gpu_profile_block *block, WGPUCommandEncoder encoder)
{
    for (uint32_t i = 0; i < block->set_count; i++)
        wgpuCommandEncoderResolveQuerySet(encoder, block->sets[i], 0,
                                          wgpuQuerySetGetCount(block->sets[i]),
                                          block->resolved->handle,
                                          (uint64_t)i * 2 * SET_DISPATCHES * QUERY_BYTES);
    wgpuCommandEncoderCopyBufferToBuffer(encoder, block->resolved->handle, 0,
                                         block->staging->buffer->handle, 0,
                                         (uint64_t)block->capacity * 2 * QUERY_BYTES);
}

static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void *user, void *unused)
{
    (void)message;
    (void)unused;
    gpu_profile_block *block = user;
    block->mapped = status == WGPUMapAsyncStatus_Success;
    block->arrived = true;
}

void gpu_profile_map(gpu_device *device, gpu_profile_block *block)
{
    (void)device;
    const WGPUBufferMapCallbackInfo callback = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                .callback = on_mapped, .userdata1 = block};
    block->future = wgpuBufferMapAsync(block->staging->buffer->handle, WGPUMapMode_Read, 0,
                                       (size_t)block->capacity * 2 * QUERY_BYTES, callback);
}

void gpu_profile_collect(gpu_device *device, gpu_profile_block *block)
{
    const uint64_t *times =
        block->mapped ? wgpuBufferGetConstMappedRange(block->staging->buffer->handle, 0,
                                                      (size_t)block->capacity * 2 * QUERY_BYTES)
                      : NULL;

    for (uint32_t i = 0; times != NULL && i < block->count &&
                         gpu_device_status(device, NULL) == TEMPER_OK; i++) {
        block->pipelines[i]->profile_dispatches++;
        /* Drivers may wrap their counters, which shows as an end before the beginning. */
        if (times[2 * i + 1] > times[2 * i])
            block->pipelines[i]->profile_seconds +=
                (double)(times[2 * i + 1] - times[2 * i]) * 1e-9;
    }
    if (block->mapped)
        wgpuBufferUnmap(block->staging->buffer->handle);
    gpu_profile_free(block);
}

static int by_seconds(const void *a, const void *b)
{
    const gpu_profile_row *left = a, *right = b;
    return left->seconds < right->seconds ? 1 : left->seconds > right->seconds ? -1 : 0;
}

uint32_t gpu_profile_take(gpu_device *device, gpu_profile_row *rows, uint32_t capacity)
{
    uint32_t pipelines = 0, count = 0;

    assert(rows != NULL || capacity == 0);
    gpu_submissions_reap(device);
    for (gpu_pipeline *one = device->asked_first; one != NULL; one = one->next_asked)
        pipelines++;
    gpu_profile_row *found = mem_calloc(pipelines, sizeof found[0]);
    if (found == NULL)
        return 0;
    for (gpu_pipeline *one = device->asked_first; one != NULL; one = one->next_asked) {
        uint32_t at = 0;
        if (one->profile_dispatches == 0)
            continue;
        while (at < count && found[at].kernel != one->kernel->name)
            at++;
        if (at == count)
            found[count++].kernel = one->kernel->name;
        found[at].dispatches += one->profile_dispatches;
        found[at].seconds += one->profile_seconds;
        one->profile_dispatches = 0;
        one->profile_seconds = 0;
    }
    qsort(found, count, sizeof found[0], by_seconds);
    for (uint32_t i = 0; i < count && i < capacity; i++)
        rows[i] = found[i];
    mem_free(found);
    return count;
}
