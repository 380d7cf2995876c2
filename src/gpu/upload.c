/*
 * upload.c - two buffers that the host writes and the GPU copies from, in turns.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/gpu_internal.h"

enum { BLOCKS = 2 };

typedef struct block {
    gpu_device *device;
    gpu_buffer *buffer; /* NULL until it is needed */
    WGPUFuture future;
    bool asked; /* for the mapping, and not sent since */
    bool arrived;
    bool mapped;
} block;

struct gpu_upload {
    gpu_device *device;
    uint64_t bytes;
    block blocks[BLOCKS];
    uint32_t at;                /* the block that is being filled, or is next */
    WGPUCommandEncoder encoder; /* NULL: no block has begun */
};

temper_status gpu_upload_open(gpu_device *device, uint64_t bytes, gpu_upload **out, error *err)
{
    assert(device != NULL && bytes > 0 && bytes % 4 == 0 && out != NULL);
    gpu_upload *upload = mem_calloc(1, sizeof *upload);
    if (upload == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no host memory for an upload");
    upload->device = device;
    upload->bytes = bytes;
    for (int i = 0; i < BLOCKS; i++)
        upload->blocks[i].device = device;
    *out = upload;
    return TEMPER_OK;
}

void gpu_upload_close(gpu_upload *upload)
{
    if (upload == NULL)
        return;
    if (upload->encoder != NULL)
        wgpuCommandEncoderRelease(upload->encoder);
    for (int i = 0; i < BLOCKS; i++) {
        block *one = &upload->blocks[i];
        /* Destroying ends a wait for the mapping; its callback writes to the block. */
        gpu_buffer_destroy(one->buffer);
        while (one->asked && !gpu_await(upload->device, one->future, &one->arrived) &&
               !one->arrived)
            wgpuInstanceProcessEvents(upload->device->instance);
    }
    mem_free(upload);
}

/* An aborted mapping is the sign of a lost device or of a closed upload. */
static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void *user, void *unused)
{
    block *one = user;
    char text[GPU_MESSAGE_BYTES];

    (void)unused;
    if (status == WGPUMapAsyncStatus_Error && !one->device->closing) {
        gpu_message(text, sizeof text, message);
        gpu_device_fail(one->device, TEMPER_DEVICE_ERROR, "an upload could not be mapped: %s",
                        text);
    }
    one->mapped = status == WGPUMapAsyncStatus_Success;
    one->arrived = true;
}

static void ask(block *one, uint64_t bytes)
{
    const WGPUBufferMapCallbackInfo callback = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_mapped, .userdata1 = one};

    one->asked = true;
    one->arrived = false;
    one->mapped = false;
    one->future =
        wgpuBufferMapAsync(one->buffer->handle, WGPUMapMode_Write, 0, (size_t)bytes, callback);
}

temper_status gpu_upload_begin(gpu_upload *upload, void **out, error *err)
{
    block *one = &upload->blocks[upload->at];
    assert(upload->encoder == NULL && out != NULL);
    temper_status status = gpu_device_status(upload->device, err);
    if (status == TEMPER_OK && one->buffer == NULL)
        status = gpu_buffer_create_as(upload->device, upload->bytes, GPU_PURPOSE_STAGING,
                                      WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc, "upload",
                                      &one->buffer, err);
    if (status != TEMPER_OK)
        return status;
    if (!one->asked)
        ask(one, upload->bytes);
    gpu_await(upload->device, one->future, &one->arrived);
    status = gpu_device_status(upload->device, err);
    if (status != TEMPER_OK)
        return status;
    void *bytes = one->mapped
                      ? wgpuBufferGetMappedRange(one->buffer->handle, 0, (size_t)upload->bytes)
                      : NULL;
    if (bytes == NULL)
        return error_set(err, TEMPER_DEVICE_ERROR, "an upload of %" PRIu64 " bytes was not mapped",
                         upload->bytes);
    upload->encoder = wgpuDeviceCreateCommandEncoder(upload->device->handle, NULL);
    *out = bytes;
    return TEMPER_OK;
}

void gpu_upload_copy(gpu_upload *upload, uint64_t from, gpu_buffer *buffer, uint64_t to,
                     uint64_t bytes)
{
    assert(upload->encoder != NULL && buffer->device == upload->device);
    assert(from % 4 == 0 && to % 4 == 0 && bytes % 4 == 0);
    assert(from <= upload->bytes && bytes <= upload->bytes - from);
    assert(to <= buffer->size && bytes <= buffer->size - to);
    wgpuCommandEncoderCopyBufferToBuffer(upload->encoder, upload->blocks[upload->at].buffer->handle,
                                         from, buffer->handle, buffer->base + to, bytes);
}

temper_status gpu_upload_send(gpu_upload *upload, error *err)
{
    block *one = &upload->blocks[upload->at];
    assert(upload->encoder != NULL && one->mapped);
    WGPUCommandBuffer commands = wgpuCommandEncoderFinish(upload->encoder, NULL);

    wgpuCommandEncoderRelease(upload->encoder);
    upload->encoder = NULL;
    wgpuBufferUnmap(one->buffer->handle);
    one->asked = false;
    one->mapped = false;
    const temper_status status = gpu_device_status(upload->device, err);
    if (status == TEMPER_OK) {
        wgpuQueueSubmit(upload->device->queue, 1, &commands);
        ask(one, upload->bytes);
        upload->at = (upload->at + 1) % BLOCKS;
    }
    wgpuCommandBufferRelease(commands);
    return status == TEMPER_OK ? gpu_device_status(upload->device, err) : status;
}
