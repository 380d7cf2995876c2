/*
 * guard.c - poisoned edges around buffers, and whether they are still what they were.
 *
 * A poison word is a NaN as f32, as bf16 and as both its halves, so that a kernel that reads past
 * its buffer shows it in its result, and depends on its place, so that copied poison is noticed.
 */
#include <assert.h>
#include <inttypes.h>

#include "base/checked.h"
#include "base/mem.h"
#include "gpu/gpu_internal.h"

static uint32_t poison_word(uint64_t byte)
{
    return 0x7FC1FFC1u + (uint32_t)(byte / 4 % 31);
}

/* The poison of a buffer lies in two pieces: before the caller's bytes and behind them. */
static uint64_t piece_start(const gpu_buffer *buffer, int piece)
{
    return piece == 0 ? 0 : buffer->base + buffer->size;
}

void gpu_guard_poison(gpu_buffer *buffer)
{
    uint32_t words[GPU_GUARD_BYTES / 4];

    for (int piece = 0; piece < 2; piece++)
        for (uint64_t done = 0; done < buffer->base; done += sizeof words) {
            const uint64_t at = piece_start(buffer, piece) + done;
            const uint64_t bytes = min_u64(buffer->base - done, sizeof words);
            for (uint32_t i = 0; i < bytes / 4; i++)
                words[i] = poison_word(at + 4 * i);
            wgpuQueueWriteBuffer(buffer->device->queue, buffer->handle, at, words, (size_t)bytes);
        }
}

static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void *user, void *arrived)
{
    (void)message;
    *(bool *)user = status == WGPUMapAsyncStatus_Success;
    *(bool *)arrived = true;
}

/* Copies both edges of the buffers from `first` to before `end` into the staging buffer. */
static void copy_edges(gpu_device *device, const gpu_buffer *first, const gpu_buffer *end,
                       gpu_staging *staging)
{
    WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(device->handle, NULL);
    uint64_t at = 0;

    for (const gpu_buffer *buffer = first; buffer != end; buffer = buffer->next)
        for (int piece = 0; piece < 2 && buffer->base > 0; piece++) {
            wgpuCommandEncoderCopyBufferToBuffer(encoder, buffer->handle,
                                                 piece_start(buffer, piece),
                                                 staging->buffer->handle, at, buffer->base);
            at += buffer->base;
        }
    WGPUCommandBuffer commands = wgpuCommandEncoderFinish(encoder, NULL);
    wgpuQueueSubmit(device->queue, 1, &commands);
    wgpuCommandBufferRelease(commands);
    wgpuCommandEncoderRelease(encoder);
}

static temper_status compare_edges(const gpu_buffer *first, const gpu_buffer *end,
                                   const uint32_t *found, error *err)
{
    for (const gpu_buffer *buffer = first; buffer != end; buffer = buffer->next)
        for (int piece = 0; piece < 2 && buffer->base > 0; piece++)
            for (uint64_t i = 0; i < buffer->base / 4; i++, found++) {
                const uint64_t at = piece_start(buffer, piece) + 4 * i;
                if (*found == poison_word(at))
                    continue;
                const uint64_t distance =
                    piece == 0 ? buffer->base - at : at - buffer->base - buffer->size;
                return error_set(err, TEMPER_INTERNAL,
                                 "buffer \"%s\" of %" PRIu64 " bytes was written outside: %" PRIu64
                                 " bytes %s, 0x%08" PRIx32,
                                 buffer->label, buffer->size, distance,
                                 piece == 0 ? "before its start" : "past its end", *found);
            }
    return TEMPER_OK;
}

/* Checks the buffers from `first` to before `end`, whose edges are `bytes` long together. */
static temper_status check_range(gpu_device *device, const gpu_buffer *first,
                                 const gpu_buffer *end, uint64_t bytes, error *err)
{
    gpu_staging *staging;
    bool mapped = false, arrived = false;
    temper_status status = gpu_staging_take(device, bytes, &staging, err);
    if (status != TEMPER_OK)
        return status;

    copy_edges(device, first, end, staging);
    const WGPUBufferMapCallbackInfo callback = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                .callback = on_mapped, .userdata1 = &mapped,
                                                .userdata2 = &arrived};
    const WGPUFuture future = wgpuBufferMapAsync(staging->buffer->handle, WGPUMapMode_Read, 0,
                                                 (size_t)bytes, callback);
    while (!gpu_await(device, future, &arrived) && !arrived)
        wgpuInstanceProcessEvents(device->instance);
    status = gpu_device_status(device, err);
    if (status == TEMPER_OK && mapped) {
        const uint32_t *found =
            wgpuBufferGetConstMappedRange(staging->buffer->handle, 0, (size_t)bytes);
        status = found != NULL ? compare_edges(first, end, found, err)
                               : error_set(err, TEMPER_DEVICE_ERROR, "the poisoned edges could not "
                                           "be read");
    } else if (status == TEMPER_OK) {
        status = error_set(err, TEMPER_DEVICE_ERROR, "the poisoned edges could not be mapped");
    }
    if (mapped)
        wgpuBufferUnmap(staging->buffer->handle);
    staging->busy = false;
    return status;
}

temper_status gpu_check_guards(gpu_device *device, error *err)
{
    enum { RANGE_BYTES = 4 << 20 };
    temper_status status = gpu_device_status(device, err);

    if (status == TEMPER_OK && !device->guard)
        return error_set(err, TEMPER_BAD_ARGUMENT, "the device was opened without guards");
    assert(!device->recorder.open);

    /* The staging buffers are new at the list's head, before `first`, and have no edges. */
    const gpu_buffer *first = device->buffers;
    while (status == TEMPER_OK && first != NULL) {
        const gpu_buffer *end = first;
        uint64_t bytes = 0;
        while (end != NULL && bytes + 2 * end->base <= RANGE_BYTES) {
            bytes += 2 * end->base;
            end = end->next;
        }
        if (bytes > 0)
            status = check_range(device, first, end, bytes, err);
        first = end;
    }
    return status;
}
