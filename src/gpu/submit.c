/*
 * submit.c - encoding a recording, submitting it, and handing its results back.
 *
 * Error scopes lie around every submit and are popped at once; their answers, the mapping of
 * the readback buffer and the timestamps arrive through callbacks that only run while this room
 * asks the library for events, so nothing here needs a lock.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "gpu/library.h"

static const WGPUErrorFilter scope_filters[GPU_ERROR_SCOPES] = {
    WGPUErrorFilter_Validation, WGPUErrorFilter_OutOfMemory, WGPUErrorFilter_Internal};

/* ---- readback buffers ----------------------------------------------------------------------- */

temper_status gpu_staging_take(gpu_device *device, uint64_t size, gpu_staging **out, error *err)
{
    gpu_staging *best = NULL;
    uint64_t bytes = 256;

    for (gpu_staging *one = device->staging; one != NULL; one = one->next)
        if (!one->busy && one->buffer->size >= size &&
            (best == NULL || one->buffer->size < best->buffer->size))
            best = one;
    if (best == NULL) {
        while (bytes < size && bytes <= UINT64_MAX / 2)
            bytes *= 2;
        /* Doubling must not be what passes the limit. */
        if (bytes > device->limits.max_buffer_size)
            bytes = size;
        best = mem_calloc(1, sizeof *best);
        if (best == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no host memory for a readback");
        const temper_status status =
            gpu_buffer_create_as(device, bytes, GPU_PURPOSE_STAGING,
                                 WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst, "readback",
                                 &best->buffer, err);
        if (status != TEMPER_OK) {
            mem_free(best);
            return status;
        }
        best->next = device->staging;
        device->staging = best;
    }
    best->busy = true;
    *out = best;
    return TEMPER_OK;
}

void gpu_staging_trim(gpu_device *device)
{
    for (gpu_staging **at = &device->staging; *at != NULL;) {
        gpu_staging *one = *at;
        if (one->busy) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        gpu_buffer_destroy(one->buffer);
        mem_free(one);
    }
}

/* ---- submissions ---------------------------------------------------------------------------- */

static gpu_submission *submission_new(gpu_device *device)
{
    gpu_submission *sub = device->submissions_free;

    if (sub != NULL)
        device->submissions_free = sub->next;
    else
        sub = mem_alloc(sizeof *sub);
    if (sub != NULL)
        *sub = (gpu_submission){.device = device};
    return sub;
}

static void submission_append(gpu_submission *sub)
{
    gpu_submission **at = &sub->device->submissions;

    while (*at != NULL)
        at = &(*at)->next;
    *at = sub;
}

static bool all_arrived(const gpu_submission *sub)
{
    bool arrived = sub->finished && (sub->profile == NULL || sub->profile->arrived);

    for (int i = 0; i < library.scope_count; i++)
        arrived = arrived && sub->scope_arrived[i];
    return arrived;
}

/* Gives back what a submission holds. The entry itself is used again once no callback points to it
 * any more. */
static void recycle(gpu_submission **at)
{
    gpu_submission *sub = *at;
    gpu_device *device = sub->device;

    assert(all_arrived(sub));
    if (sub->mapped)
        wgpuBufferUnmap(sub->staging->buffer->handle);
    if (sub->staging != NULL)
        sub->staging->busy = false;
    if (sub->profile != NULL)
        gpu_profile_collect(device, sub->profile);
    *at = sub->next;
    sub->next = device->submissions_free;
    device->submissions_free = sub;
}

static void recycle_unwanted(gpu_device *device)
{
    for (gpu_submission **at = &device->submissions; *at != NULL;)
        if (!(*at)->wanted && all_arrived(*at))
            recycle(at);
        else
            at = &(*at)->next;
}

void gpu_submissions_reap(gpu_device *device)
{
    if (device->submissions != NULL)
        wgpuInstanceProcessEvents(device->instance);
    recycle_unwanted(device);
}

static void await_all(gpu_submission *sub)
{
    for (int i = 0; i < library.scope_count; i++)
        gpu_await(sub->device, sub->scope_futures[i], &sub->scope_arrived[i]);
    gpu_await(sub->device, sub->future, &sub->finished);
    if (sub->profile != NULL)
        gpu_await(sub->device, sub->profile->future, &sub->profile->arrived);
}

void gpu_submissions_close(gpu_device *device)
{
    for (gpu_submission *sub = device->submissions; sub != NULL; sub = sub->next) {
        await_all(sub);
        sub->wanted = false;
    }
    recycle_unwanted(device);
    while (device->submissions_free != NULL) {
        gpu_submission *sub = device->submissions_free;
        device->submissions_free = sub->next;
        mem_free(sub);
    }
}

static void on_scope(WGPUPopErrorScopeStatus status, WGPUErrorType type, WGPUStringView message,
                     void *user, void *arrived)
{
    gpu_submission *sub = user;
    char where[48];

    if (status == WGPUPopErrorScopeStatus_Success && type != WGPUErrorType_NoError &&
        !sub->device->closing) {
        snprintf(where, sizeof where, "submit %" PRIu64, sub->serial);
        gpu_device_fail_by_library(sub->device, type, where, message);
    }
    *(bool *)arrived = true;
}

/* An aborted mapping is the sign of a lost device, which reports itself. */
static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void *user, void *unused)
{
    (void)unused;
    gpu_submission *sub = user;
    char text[GPU_MESSAGE_BYTES];

    if (status == WGPUMapAsyncStatus_Error && !sub->device->closing) {
        gpu_message(text, sizeof text, message);
        gpu_device_fail(sub->device, TEMPER_DEVICE_ERROR,
                        "submit %" PRIu64 ": its readback could not be mapped: %s", sub->serial,
                        text);
    }
    sub->mapped = status == WGPUMapAsyncStatus_Success;
    sub->finished = true;
}

static void on_done(WGPUQueueWorkDoneStatus status, WGPUStringView message, void *user,
                    void *unused)
{
    (void)status;
    (void)message;
    (void)unused;
    ((gpu_submission *)user)->finished = true;
}

/* ---- parameters in a buffer ----------------------------------------------------------------- */

static uint32_t params_stride(const gpu_device *device)
{
    return (uint32_t)max_u64(GPU_PARAMS_BYTES, device->limits.uniform_alignment);
}

/* Makes the parameter buffer hold `slots`. Writes are ordered between submits, so every submit
 * starts at its first slot and the buffer only grows. */
static temper_status params_reserve(gpu_device *device, uint32_t slots, error *err)
{
    const uint32_t stride = params_stride(device);
    gpu_buffer *buffer;
    uint32_t capacity = 64;

    if (slots <= device->params_slots)
        return TEMPER_OK;
    while (capacity < slots)
        capacity *= 2;
    uint8_t *host = mem_calloc(capacity, stride);
    if (host == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no host memory for kernel parameters");
    const temper_status status =
        gpu_buffer_create_as(device, (uint64_t)capacity * stride, GPU_PURPOSE_STAGING,
                             WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst, "params", &buffer,
                             err);
    if (status != TEMPER_OK) {
        mem_free(host);
        return status;
    }
    if (device->params_group != NULL)
        wgpuBindGroupRelease(device->params_group);
    gpu_buffer_destroy(device->params_buffer);
    mem_free(device->params_host);
    const WGPUBindGroupEntry entry = {.buffer = buffer->handle, .size = GPU_PARAMS_BYTES};
    const WGPUBindGroupDescriptor desc = {.layout = device->params_layout, .entryCount = 1,
                                          .entries = &entry};
    device->params_group = wgpuDeviceCreateBindGroup(device->handle, &desc);
    device->counters.bind_groups_created++;
    device->params_buffer = buffer;
    device->params_host = host;
    device->params_slots = capacity;
    return TEMPER_OK;
}

/* ---- encoding ------------------------------------------------------------------------------- */

typedef struct encoding {
    gpu_device *device;
    const gpu_recorder *rec;
    WGPUCommandEncoder encoder;
    WGPUComputePassEncoder pass;
    WGPUComputePipeline pipeline;   /* set in the pass */
    WGPUBindGroup group;            /* likewise */
    gpu_profile_block *profile;
    uint32_t slots;                 /* parameter slots used */
    bool no_memory;
} encoding;

static void end_pass(encoding *e)
{
    if (e->pass == NULL)
        return;
    wgpuComputePassEncoderEnd(e->pass);
    wgpuComputePassEncoderRelease(e->pass);
    e->pass = NULL;
}

static void begin_pass(encoding *e, const gpu_command *command)
{
    WGPUPassTimestampWrites writes;
    WGPUComputePassDescriptor desc = {0};

    if (e->profile != NULL) {
        writes = gpu_profile_writes(e->profile, command);
        desc.timestampWrites = &writes;
    }
    e->pass = wgpuCommandEncoderBeginComputePass(e->encoder, &desc);
    e->pipeline = NULL;
    e->group = NULL;
}

static void encode_params(encoding *e, const gpu_command *command)
{
    const uint32_t bytes = command->pipeline->kernel->params_bytes;
    const uint32_t *params = e->rec->params + command->first_param;

    if (bytes == 0)
        return;
    if (e->device->features & GPU_FEATURE_IMMEDIATES) {
        wgpuComputePassEncoderSetImmediates(e->pass, 0, params, bytes);
        return;
    }
    const uint32_t offset = e->slots++ * params_stride(e->device);
    memcpy(e->device->params_host + offset, params, bytes);
    wgpuComputePassEncoderSetBindGroup(e->pass, 1, e->device->params_group, 1, &offset);
}

static void encode_dispatch(encoding *e, const gpu_command *command)
{
    gpu_pipeline *pipeline = command->pipeline;
    const gpu_view *views = e->rec->views + command->first_view;
    WGPUBindGroup group = gpu_bind_group_get(e->device, pipeline->layout, views,
                                             pipeline->kernel->binding_count);

    if (group == NULL) {
        e->no_memory = true;
        return;
    }
    if (e->device->profiling == GPU_PROFILE_DISPATCHES)
        end_pass(e);
    if (e->pass == NULL)
        begin_pass(e, command);
    if (pipeline->handle != e->pipeline)
        wgpuComputePassEncoderSetPipeline(e->pass, pipeline->handle);
    if (group != e->group)
        wgpuComputePassEncoderSetBindGroup(e->pass, 0, group, 0, NULL);
    e->pipeline = pipeline->handle;
    e->group = group;
    encode_params(e, command);
    wgpuComputePassEncoderDispatchWorkgroups(e->pass, command->x, command->y, command->z);
}

static void encode_command(encoding *e, const gpu_command *command)
{
    const gpu_view *views = e->rec->views + command->first_view;

    switch (command->kind) {
    case GPU_COMMAND_DISPATCH:
        encode_dispatch(e, command);
        break;
    case GPU_COMMAND_COPY:
        end_pass(e);
        wgpuCommandEncoderCopyBufferToBuffer(
            e->encoder, views[0].buffer->handle, views[0].buffer->base + views[0].offset,
            views[1].buffer->handle, views[1].buffer->base + views[1].offset, views[0].size);
        break;
    case GPU_COMMAND_CLEAR:
        end_pass(e);
        wgpuCommandEncoderClearBuffer(e->encoder, views[0].buffer->handle,
                                      views[0].buffer->base + views[0].offset, views[0].size);
        break;
    }
}

static void encode_readbacks(encoding *e, const gpu_submission *sub)
{
    uint64_t at = 0;

    end_pass(e);
    for (uint32_t i = 0; i < e->rec->readback_count; i++) {
        const gpu_view view = e->rec->readbacks[i];
        if (view.size > 0)
            wgpuCommandEncoderCopyBufferToBuffer(e->encoder, view.buffer->handle,
                                                 view.buffer->base + view.offset,
                                                 sub->staging->buffer->handle, at, view.size);
        at += view.size;
    }
}

/* ---- error scopes --------------------------------------------------------------------------- */

static void push_scopes(const gpu_device *device)
{
    for (int i = 0; i < library.scope_count; i++)
        wgpuDevicePushErrorScope(device->handle, scope_filters[i]);
}

static void pop_scopes(const gpu_device *device, gpu_submission *sub)
{
    for (int i = library.scope_count; i-- > 0;) {
        const WGPUPopErrorScopeCallbackInfo popped = {
            .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_scope, .userdata1 = sub,
            .userdata2 = &sub->scope_arrived[i]};
        sub->scope_futures[i] = wgpuDevicePopErrorScope(device->handle, popped);
    }
}

/* Where a submit with an error in it would end the process, the scopes are asked before it, and
 * others are pushed for what is left. The error has then failed the device, as it would have
 * afterwards. */
static bool may_submit(gpu_device *device, gpu_submission *sub)
{
    if (!library.submit_aborts)
        return true;
    pop_scopes(device, sub);
    push_scopes(device);
    return gpu_device_status(device, NULL) == TEMPER_OK;
}

/* Encodes and submits; false when the host had no memory for it, and nothing was submitted. */
static bool encode(gpu_device *device, const gpu_recorder *rec, gpu_submission *sub)
{
    encoding e = {.device = device, .rec = rec, .profile = sub->profile,
                  .encoder = wgpuDeviceCreateCommandEncoder(device->handle, NULL)};

    for (uint32_t i = 0; i < rec->command_count && !e.no_memory; i++)
        encode_command(&e, &rec->commands[i]);
    encode_readbacks(&e, sub);
    if (sub->profile != NULL)
        gpu_profile_resolve(sub->profile, e.encoder);
    WGPUCommandBuffer commands = wgpuCommandEncoderFinish(e.encoder, NULL);
    if (!e.no_memory && may_submit(device, sub)) {
        if (e.slots > 0)
            wgpuQueueWriteBuffer(device->queue, device->params_buffer->handle, 0,
                                 device->params_host, (size_t)e.slots * params_stride(device));
        wgpuQueueSubmit(device->queue, 1, &commands);
    }
    wgpuCommandBufferRelease(commands);
    wgpuCommandEncoderRelease(e.encoder);
    return !e.no_memory;
}

/* ---- gpu_submit ----------------------------------------------------------------------------- */

/* Everything that can fail before the submit: pipelines, parameters, readback, timestamps. */
static temper_status reserve(gpu_device *device, const gpu_recorder *rec, gpu_submission *sub,
                             error *err)
{
    temper_status status = TEMPER_OK;

    for (uint32_t i = 0; i < rec->command_count && status == TEMPER_OK; i++) {
        gpu_pipeline *pipeline = rec->commands[i].pipeline;
        if (pipeline != NULL && pipeline->state != GPU_PIPELINE_READY)
            status = gpu_pipeline_finish(pipeline, err);
    }
    if (status == TEMPER_OK && !(device->features & GPU_FEATURE_IMMEDIATES))
        status = params_reserve(device, rec->param_slots, err);
    if (status == TEMPER_OK && rec->readback_bytes > 0)
        status = gpu_staging_take(device, rec->readback_bytes, &sub->staging, err);
    if (status == TEMPER_OK && device->profiling != GPU_PROFILE_OFF && rec->dispatch_count > 0) {
        sub->profile = gpu_profile_begin(device, rec->dispatch_count, err);
        if (sub->profile == NULL)
            status = err->status;
    }
    return status;
}

/* Drops a submission that never reached the GPU. */
static void abandon(gpu_device *device, gpu_submission *sub)
{
    if (sub->staging != NULL)
        sub->staging->busy = false;
    if (sub->profile != NULL)
        gpu_profile_free(sub->profile);
    sub->next = device->submissions_free;
    device->submissions_free = sub;
}

static void request_results(gpu_device *device, gpu_submission *sub)
{
    pop_scopes(device, sub);
    if (sub->staging != NULL) {
        const WGPUBufferMapCallbackInfo mapped = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                  .callback = on_mapped, .userdata1 = sub};
        sub->future = wgpuBufferMapAsync(sub->staging->buffer->handle, WGPUMapMode_Read, 0,
                                         (size_t)sub->readback_bytes, mapped);
    } else {
        const WGPUQueueWorkDoneCallbackInfo done = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                    .callback = on_done, .userdata1 = sub};
        sub->future = wgpuQueueOnSubmittedWorkDone(device->queue, done);
    }
    if (sub->profile != NULL)
        gpu_profile_map(device, sub->profile);
}

static void count_work(gpu_counters *counters, const gpu_recorder *rec)
{
    for (uint32_t i = 0; i < rec->command_count; i++) {
        const gpu_command *command = &rec->commands[i];
        if (command->kind != GPU_COMMAND_DISPATCH)
            continue;
        counters->work_bytes += command->bytes;
        counters->work_operations[command->pipeline->unit] += command->operations;
    }
}

static temper_status submit(gpu_device *device, const gpu_recorder *rec, bool wanted,
                            uint64_t *serial, error *err)
{
    gpu_submission *sub = submission_new(device);
    if (sub == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no host memory for a submit");
    const temper_status status = reserve(device, rec, sub, err);
    if (status != TEMPER_OK) {
        abandon(device, sub);
        return status;
    }

    sub->serial = ++device->serial;
    sub->wanted = wanted;
    sub->readback_bytes = rec->readback_bytes;
    if (sub->profile != NULL)
        sub->profile->serial = sub->serial;
    push_scopes(device);
    const bool encoded = encode(device, rec, sub);
    if (!encoded) {
        /* The scopes must be popped all the same; what they say is about nothing. */
        sub->wanted = false;
        sub->readback_bytes = 4;
    }
    request_results(device, sub);
    submission_append(sub);
    if (!encoded)
        return error_set(err, TEMPER_NO_MEMORY, "no host memory for a bind group");

    device->unsubmitted = 0;
    device->counters.submits++;
    device->counters.dispatches += rec->dispatch_count;
    device->counters.readbacks += rec->readback_count;
    device->counters.readback_bytes += rec->readback_bytes;
    count_work(&device->counters, rec);
    *serial = sub->serial;
    return TEMPER_OK;
}

temper_status gpu_submit(gpu_recorder *rec, gpu_ticket *ticket, error *err)
{
    gpu_device *device = rec->device;
    error local = {0};
    uint64_t serial = 0;

    assert(rec->open);
    gpu_submissions_reap(device);
    temper_status status = gpu_device_status(device, &local);
    if (status == TEMPER_OK && rec->failure.status != TEMPER_OK)
        status = error_set(&local, rec->failure.status, "%s", rec->failure.text);
    if (status == TEMPER_OK && !rec->prepare)
        status = submit(device, rec, ticket != NULL, &serial, &local);
    rec->open = false;
    if (ticket != NULL)
        ticket->serial = serial;
    return status == TEMPER_OK ? TEMPER_OK : error_set(err, status, "%s", local.text);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static gpu_submission **find(gpu_device *device, gpu_ticket ticket)
{
    for (gpu_submission **at = &device->submissions; *at != NULL; at = &(*at)->next)
        if ((*at)->serial == ticket.serial && (*at)->wanted)
            return at;
    return NULL;
}

static temper_status take_results(gpu_device *device, const gpu_submission *sub, void *out,
                                  error *err)
{
    const temper_status status = gpu_device_status(device, err);
    if (status != TEMPER_OK || sub->readback_bytes == 0)
        return status;

    const void *mapped = sub->mapped ? wgpuBufferGetConstMappedRange(
                                           sub->staging->buffer->handle, 0,
                                           (size_t)sub->readback_bytes)
                                     : NULL;
    if (mapped == NULL) {
        gpu_device_fail(device, TEMPER_DEVICE_ERROR, "submit %" PRIu64 ": its readback is missing",
                        sub->serial);
        return gpu_device_status(device, err);
    }
    memcpy(out, mapped, (size_t)sub->readback_bytes);
    return TEMPER_OK;
}

temper_status gpu_wait(gpu_device *device, gpu_ticket ticket, void *out, uint64_t size, error *err)
{
    if (ticket.serial == 0) {
        if (size != 0)
            return error_set(err, TEMPER_BAD_ARGUMENT, "ticket 0 has nothing to read back");
        return gpu_device_status(device, err);
    }
    gpu_submission **at = find(device, ticket);
    if (at == NULL) {
        const temper_status failed = gpu_device_status(device, err);
        return failed != TEMPER_OK
                   ? failed
                   : error_set(err, TEMPER_BAD_ARGUMENT,
                               "ticket %" PRIu64 " was already waited for or dropped",
                               ticket.serial);
    }
    gpu_submission *sub = *at;
    if (sub->readback_bytes != size)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "submit %" PRIu64 " reads %" PRIu64 " bytes back, %" PRIu64
                         " were asked for", sub->serial, sub->readback_bytes, size);
    assert(out != NULL || size == 0);

    /* A failure of an earlier submit makes this one's data worthless: hear of it first. */
    for (gpu_submission *earlier = device->submissions; earlier != sub; earlier = earlier->next)
        for (int i = 0; i < library.scope_count; i++)
            gpu_await(device, earlier->scope_futures[i], &earlier->scope_arrived[i]);
    await_all(sub);
    const temper_status status = take_results(device, sub, out, err);
    sub->wanted = false;
    recycle_unwanted(device);
    return status;
}

void gpu_discard(gpu_device *device, gpu_ticket ticket)
{
    gpu_submission **at = ticket.serial != 0 ? find(device, ticket) : NULL;

    if (at != NULL)
        (*at)->wanted = false;
    gpu_submissions_reap(device);
}

temper_status gpu_finish(gpu_device *device, error *err)
{
    const temper_status status = gpu_device_status(device, err);
    if (status != TEMPER_OK)
        return status;

    wgpuQueueSubmit(device->queue, 0, NULL);
    gpu_await_queue(device);
    device->unsubmitted = 0;
    for (gpu_submission *sub = device->submissions; sub != NULL; sub = sub->next)
        await_all(sub);
    recycle_unwanted(device);
    return gpu_device_status(device, err);
}
