/*
 * upload.c - two blocks that the host writes and the device copies from, in turns.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/gpu_internal.h"

enum { BLOCKS = 2 };

typedef struct block {
    gpu_device *device;
    uint8_t *host;      /* where blocks are not mapped; NULL until it is needed */
    gpu_buffer *buffer; /* where they are; likewise */
    WGPUFuture future;
    bool asked; /* for the mapping, and not sent since */
    bool arrived;
    bool mapped;
} block;

struct gpu_upload {
    gpu_device *device;
    uint64_t bytes;
    bool mapped;
    block blocks[BLOCKS];
    uint64_t begun, sent;       /* blocks, counted through */
    WGPUCommandEncoder encoder; /* of the first copy of a block on */
    error failure;              /* the first of its writes */
};

temper_status gpu_upload_open(gpu_device *device, uint64_t bytes, bool mapped, gpu_upload **out,
                              error *err)
{
    assert(device != NULL && bytes > 0 && bytes % 4 == 0 && out != NULL);
    gpu_upload *upload = mem_calloc(1, sizeof *upload);
    if (upload == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no host memory for an upload");
    upload->device = device;
    upload->bytes = bytes;
    upload->mapped = mapped;
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
        mem_free(one->host);
    }
    mem_free(upload);
}

/* ---- a block --------------------------------------------------------------------------------- */

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

static temper_status begin_mapped(gpu_upload *upload, block *one, void **out, error *err)
{
    gpu_device *device = upload->device;
    temper_status status = TEMPER_OK;

    if (one->buffer == NULL)
        status = gpu_buffer_create_as(device, upload->bytes, GPU_PURPOSE_STAGING,
                                      WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc, "upload",
                                      &one->buffer, err);
    if (status != TEMPER_OK)
        return status;
    if (!one->asked)
        ask(one, upload->bytes);
    gpu_await(device, one->future, &one->arrived);
    status = gpu_device_status(device, err);
    if (status != TEMPER_OK)
        return status;
    *out = one->mapped ? wgpuBufferGetMappedRange(one->buffer->handle, 0, (size_t)upload->bytes)
                       : NULL;
    if (*out == NULL)
        return error_set(err, TEMPER_DEVICE_ERROR, "an upload of %" PRIu64 " bytes was not mapped",
                         upload->bytes);
    return TEMPER_OK;
}

temper_status gpu_upload_begin(gpu_upload *upload, void **out, error *err)
{
    block *one = &upload->blocks[upload->begun % BLOCKS];

    assert(upload->begun - upload->sent < BLOCKS && out != NULL);
    temper_status status = gpu_device_status(upload->device, err);
    if (status == TEMPER_OK && upload->mapped) {
        status = begin_mapped(upload, one, out, err);
    } else if (status == TEMPER_OK) {
        if (one->host == NULL)
            one->host = mem_alloc((size_t)upload->bytes);
        if (one->host == NULL)
            status = error_set(err, TEMPER_NO_MEMORY,
                               "no host memory for an upload of %" PRIu64 " bytes", upload->bytes);
        *out = one->host;
    }
    if (status == TEMPER_OK)
        upload->begun++;
    return status;
}

void gpu_upload_copy(gpu_upload *upload, uint64_t from, gpu_buffer *buffer, uint64_t to,
                     uint64_t bytes)
{
    const block *one = &upload->blocks[upload->sent % BLOCKS];

    assert(upload->sent < upload->begun && buffer->device == upload->device);
    assert(from % 4 == 0 && to % 4 == 0 && bytes % 4 == 0);
    assert(from <= upload->bytes && bytes <= upload->bytes - from);
    assert(to <= buffer->size && bytes <= buffer->size - to);
    if (!upload->mapped) {
        if (upload->failure.status == TEMPER_OK)
            gpu_write(upload->device, buffer, to, one->host + from, bytes, &upload->failure);
        return;
    }
    if (upload->encoder == NULL)
        upload->encoder = wgpuDeviceCreateCommandEncoder(upload->device->handle, NULL);
    wgpuCommandEncoderCopyBufferToBuffer(upload->encoder, one->buffer->handle, from, buffer->handle,
                                         buffer->base + to, bytes);
}

/* Submits the copies of a mapped block, and asks for it anew. */
static void submit(gpu_upload *upload, block *one)
{
    WGPUCommandBuffer commands = NULL;

    if (upload->encoder != NULL) {
        commands = wgpuCommandEncoderFinish(upload->encoder, NULL);
        wgpuCommandEncoderRelease(upload->encoder);
        upload->encoder = NULL;
    }
    wgpuBufferUnmap(one->buffer->handle);
    one->asked = false;
    one->mapped = false;
    if (gpu_device_status(upload->device, NULL) == TEMPER_OK) {
        if (commands != NULL)
            wgpuQueueSubmit(upload->device->queue, 1, &commands);
        ask(one, upload->bytes);
    }
    if (commands != NULL)
        wgpuCommandBufferRelease(commands);
}

temper_status gpu_upload_send(gpu_upload *upload, error *err)
{
    assert(upload->sent < upload->begun);
    if (upload->mapped)
        submit(upload, &upload->blocks[upload->sent % BLOCKS]);
    upload->sent++;
    if (upload->failure.status != TEMPER_OK)
        return error_set(err, upload->failure.status, "%s", upload->failure.text);
    return gpu_device_status(upload->device, err);
}
