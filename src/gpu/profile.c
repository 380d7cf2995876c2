/*
 * profile.c - GPU time by kernel: timestamps at both ends of each pass, a pass a dispatch where
 * kernels are to be told apart.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/mem.h"
#include "gpu/gpu_internal.h"

/* WebGPU allows 4096 queries a set: 2048 dispatches of two. */
enum { SET_DISPATCHES = 2048, QUERY_BYTES = 8 };

temper_status gpu_profile(gpu_device *device, gpu_profile_mode mode, error *err)
{
    const temper_status status = gpu_device_status(device, err);
    if (status != TEMPER_OK)
        return status;
    if (mode != GPU_PROFILE_OFF && !(device->features & GPU_FEATURE_TIMESTAMPS))
        return error_set(err, TEMPER_UNSUPPORTED, "the device %s has no timestamps",
                         device->info.name);
    device->profiling = mode;
    return TEMPER_OK;
}

/* "dot4I8Packed(" in the source of a kernel: a call, since a comment would not have the bracket. */
gpu_unit gpu_kernel_unit(const gpu_kernel *kernel)
{
    if (kernel->needs & GPU_FEATURE_SUBGROUP_MATRIX)
        return GPU_UNIT_MATRIX;
    return strstr(kernel->source, "dot4I8Packed(") != NULL ? GPU_UNIT_DOT4 : GPU_UNIT_F32;
}

/* ---- the timestamps of a submit ------------------------------------------------------------- */

void gpu_profile_free(gpu_profile_block *block)
{
    for (uint32_t i = 0; i < block->set_count; i++)
        if (block->sets[i] != NULL)
            wgpuQuerySetRelease(block->sets[i]);
    gpu_buffer_destroy(block->resolved);
    if (block->staging != NULL)
        block->staging->busy = false;
    mem_free(block->sets);
    mem_free(block->marks);
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
    block->submitted = clock_seconds();
    block->sets = mem_calloc(sets, sizeof block->sets[0]);
    block->marks = mem_calloc(count, sizeof block->marks[0]);
    if (block->sets == NULL || block->marks == NULL) {
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

WGPUPassTimestampWrites gpu_profile_writes(gpu_profile_block *block, const gpu_command *command)
{
    assert(block->count < block->capacity);
    const uint32_t at = block->count++;
    const uint32_t query = 2 * (at % SET_DISPATCHES);

    block->marks[at] = (gpu_profile_mark){command->pipeline, command->bytes, command->operations};
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

/* Room for `more` events; false where there is no memory, or too many of them. */
static bool reserve_events(gpu_device *device, uint32_t more)
{
    const uint32_t wanted = device->event_count + more;

    if (wanted <= device->event_capacity)
        return true;
    if (wanted > GPU_PROFILE_EVENTS)
        return false;
    const uint32_t capacity = (uint32_t)min_u64(max_u64(wanted, 2 * device->event_capacity),
                                                GPU_PROFILE_EVENTS);
    gpu_profile_event *larger = mem_realloc(device->events, capacity * sizeof larger[0]);
    if (larger == NULL)
        return false;
    device->events = larger;
    device->event_capacity = capacity;
    return true;
}

static void add(gpu_device *device, const gpu_profile_block *block, uint32_t i, uint64_t begin,
                uint64_t end)
{
    const gpu_profile_mark *mark = &block->marks[i];

    mark->pipeline->profile_dispatches++;
    mark->pipeline->profile_bytes += mark->bytes;
    mark->pipeline->profile_operations += mark->operations;
    /* Drivers may wrap their counters, which shows as an end before the beginning. */
    if (end <= begin)
        return;
    mark->pipeline->profile_seconds += (double)(end - begin) * 1e-9;
    if (device->event_origin == 0)
        device->event_origin = begin;
    if (!reserve_events(device, 1))
        return;
    device->events[device->event_count++] = (gpu_profile_event){
        .kernel = mark->pipeline->kernel->name,
        .submit = block->serial,
        .submitted = block->submitted,
        .begin = (int64_t)(begin - device->event_origin),
        .end = (int64_t)(end - device->event_origin),
        .bytes = mark->bytes,
        .operations = mark->operations,
    };
}

void gpu_profile_collect(gpu_device *device, gpu_profile_block *block)
{
    const uint64_t *times =
        block->mapped ? wgpuBufferGetConstMappedRange(block->staging->buffer->handle, 0,
                                                      (size_t)block->capacity * 2 * QUERY_BYTES)
                      : NULL;

    for (uint32_t i = 0; times != NULL && i < block->count &&
                         gpu_device_status(device, NULL) == TEMPER_OK; i++)
        add(device, block, i, times[2 * i], times[2 * i + 1]);
    if (block->mapped)
        wgpuBufferUnmap(block->staging->buffer->handle);
    gpu_profile_free(block);
}

void gpu_profile_close(gpu_device *device)
{
    mem_free(device->events);
}

/* ---- what it comes to ----------------------------------------------------------------------- */

uint32_t gpu_profile_events(gpu_device *device, const gpu_profile_event **out)
{
    gpu_submissions_reap(device);
    *out = device->events;
    return device->event_count;
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
            found[count++] = (gpu_profile_row){.kernel = one->kernel->name, .unit = one->unit};
        found[at].dispatches += one->profile_dispatches;
        found[at].seconds += one->profile_seconds;
        found[at].bytes += one->profile_bytes;
        found[at].operations += one->profile_operations;
        one->profile_dispatches = one->profile_bytes = one->profile_operations = 0;
        one->profile_seconds = 0;
    }
    device->event_count = 0;
    qsort(found, count, sizeof found[0], by_seconds);
    for (uint32_t i = 0; i < count && i < capacity; i++)
        rows[i] = found[i];
    mem_free(found);
    return count;
}
