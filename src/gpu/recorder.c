/*
 * recorder.c - what is asked of the GPU, checked and kept as plain commands until gpu_submit
 * encodes them. Nothing here talks to the WebGPU library; in a steady loop nothing is allocated.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "gpu/gpu_internal.h"

void gpu_record_fail(gpu_recorder *rec, temper_status status, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list arguments;

    assert(rec->open && status != TEMPER_OK);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error_set(&rec->failure, status, "%s", text);
}

static gpu_recorder *begin(gpu_device *device, bool prepare)
{
    gpu_recorder *rec = &device->recorder;

    assert(!rec->open && "one recording at a time");
    rec->open = true;
    rec->prepare = prepare;
    rec->number++;
    rec->command_count = rec->view_count = rec->param_count = 0;
    rec->dispatch_count = rec->param_slots = rec->readback_count = 0;
    rec->readback_bytes = 0;
    rec->next_bytes = rec->next_operations = 0;
    error_clear(&rec->failure);
    return rec;
}

gpu_recorder *gpu_record_begin(gpu_device *device)
{
    return begin(device, false);
}

gpu_recorder *gpu_record_prepare(gpu_device *device)
{
    return begin(device, true);
}

gpu_device *gpu_recorder_device(gpu_recorder *rec)
{
    return rec->device;
}

bool gpu_recorder_prepares(const gpu_recorder *rec)
{
    return rec->prepare;
}

void gpu_record_cancel(gpu_recorder *rec)
{
    assert(rec->open);
    rec->open = false;
}

void gpu_recorder_free(gpu_recorder *rec)
{
    mem_free(rec->commands);
    mem_free(rec->views);
    mem_free(rec->params);
}

/* Makes room for `more` entries behind `count`; on failure the recording fails. */
static bool grow(gpu_recorder *rec, void **array, uint32_t *capacity, uint32_t count, uint32_t more,
                 size_t entry_bytes)
{
    if (count + more <= *capacity)
        return true;
    const uint32_t wanted = *capacity * 2 > count + more ? *capacity * 2 : count + more + 256;
    void *larger = mem_realloc(*array, wanted * entry_bytes);

    if (larger == NULL) {
        gpu_record_fail(rec, TEMPER_NO_MEMORY, "no host memory for a recording");
        return false;
    }
    *array = larger;
    *capacity = wanted;
    return true;
}

/* A command with room for its views and parameters, or NULL. */
static gpu_command *add_command(gpu_recorder *rec, gpu_command_kind kind, uint32_t views,
                                uint32_t param_words)
{
    if (!grow(rec, (void **)&rec->commands, &rec->command_capacity, rec->command_count, 1,
              sizeof rec->commands[0]) ||
        !grow(rec, (void **)&rec->views, &rec->view_capacity, rec->view_count, views,
              sizeof rec->views[0]) ||
        !grow(rec, (void **)&rec->params, &rec->param_capacity, rec->param_count, param_words,
              sizeof rec->params[0]))
        return NULL;
    gpu_command *command = &rec->commands[rec->command_count++];
    *command = (gpu_command){.kind = kind, .first_view = rec->view_count,
                             .first_param = rec->param_count};
    return command;
}

static void add_view(gpu_recorder *rec, gpu_view view)
{
    view.buffer->recorded = rec->number;
    rec->views[rec->view_count++] = view;
}

/* ---- dispatches ----------------------------------------------------------------------------- */

static bool inside(gpu_view view)
{
    return view.offset <= view.buffer->size && view.size <= view.buffer->size - view.offset;
}

static bool check_view(gpu_recorder *rec, const gpu_kernel *kernel, uint32_t i, gpu_view view)
{
    const gpu_limits *limits = &rec->device->limits;
    const gpu_kernel_binding *binding = &kernel->bindings[i];
    const uint32_t element = binding->element_bytes > 0 ? binding->element_bytes : 4;

    if (view.buffer == NULL) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT, "kernel %s, binding %s: no buffer", kernel->name,
                        binding->name);
        return false;
    }
    assert(view.buffer->device == rec->device);
    const char *wrong = NULL;
    if (!inside(view))
        wrong = "lies outside the buffer";
    else if (view.size == 0)
        wrong = "is empty";
    else if (view.size % 4 != 0 || view.size % element != 0)
        wrong = "is no multiple of the element or of 4 bytes";
    else if (view.offset % limits->storage_alignment != 0)
        wrong = "has an offset that is no multiple of minStorageBufferOffsetAlignment";
    else if (view.size > limits->max_storage_binding)
        wrong = "is larger than maxStorageBufferBindingSize";
    if (wrong != NULL)
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "kernel %s, binding %s: the view of %" PRIu64 " bytes at %" PRIu64
                        " of buffer \"%s\" (%" PRIu64 " bytes) %s",
                        kernel->name, binding->name, view.size, view.offset, view.buffer->label,
                        view.buffer->size, wrong);
    return wrong == NULL;
}

/* WebGPU looks at whole buffers: read beside read_write is refused even where the ranges are apart.
 * Two written ranges may share a buffer when they do not overlap. */
static bool check_pair(gpu_recorder *rec, const gpu_kernel *kernel, const gpu_view *views,
                       uint32_t i, uint32_t k)
{
    const gpu_kernel_binding *a = &kernel->bindings[i], *b = &kernel->bindings[k];

    if (views[i].buffer != views[k].buffer ||
        (a->access == GPU_READ && b->access == GPU_READ))
        return true;
    const bool mixed = a->access != b->access;
    if (!mixed && (views[i].offset + views[i].size <= views[k].offset ||
                   views[k].offset + views[k].size <= views[i].offset))
        return true;
    gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                    "kernel %s: buffer \"%s\" is bound to %s (%s) and to %s (%s) in one dispatch%s",
                    kernel->name, views[i].buffer->label, a->name,
                    a->access == GPU_READ ? "read" : "read_write", b->name,
                    b->access == GPU_READ ? "read" : "read_write",
                    mixed ? "" : ", overlapping");
    return false;
}

static bool check_dispatch(gpu_recorder *rec, const gpu_kernel *kernel, const gpu_view *views,
                           uint32_t x, uint32_t y, uint32_t z)
{
    const uint64_t limit = rec->device->limits.max_workgroups;

    if (x > limit || y > limit || z > limit) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "kernel %s: a dispatch of %" PRIu32 " x %" PRIu32 " x %" PRIu32
                        " workgroups, maxComputeWorkgroupsPerDimension is %" PRIu64,
                        kernel->name, x, y, z, limit);
        return false;
    }
    for (uint32_t i = 0; i < kernel->binding_count; i++) {
        if (!check_view(rec, kernel, i, views[i]))
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (!check_pair(rec, kernel, views, k, i))
                return false;
    }
    return true;
}

void gpu_record_work(gpu_recorder *rec, uint64_t bytes, uint64_t operations)
{
    assert(rec->open);
    rec->next_bytes = bytes;
    rec->next_operations = operations;
}

void gpu_record_dispatch(gpu_recorder *rec, gpu_pipeline *pipeline, const gpu_view *views,
                         const void *params, uint32_t x, uint32_t y, uint32_t z)
{
    assert(rec->open && pipeline != NULL && pipeline->device == rec->device);
    const uint64_t bytes = rec->next_bytes, operations = rec->next_operations;
    rec->next_bytes = rec->next_operations = 0;
    if (rec->failure.status != TEMPER_OK)
        return;
    if (pipeline->state == GPU_PIPELINE_FAILED) {
        gpu_pipeline_finish(pipeline, &rec->failure);
        return;
    }
    if (rec->prepare || x == 0 || y == 0 || z == 0)
        return;

    const gpu_kernel *kernel = pipeline->kernel;
    const uint32_t param_words = kernel->params_bytes / 4;
    assert(views != NULL || kernel->binding_count == 0);
    assert((params != NULL) == (param_words > 0));
    if (!check_dispatch(rec, kernel, views, x, y, z))
        return;
    gpu_command *command =
        add_command(rec, GPU_COMMAND_DISPATCH, kernel->binding_count, param_words);
    if (command == NULL)
        return;
    command->pipeline = pipeline;
    command->bytes = bytes;
    command->operations = operations;
    command->x = x;
    command->y = y;
    command->z = z;
    for (uint32_t i = 0; i < kernel->binding_count; i++)
        add_view(rec, views[i]);
    if (param_words > 0) {
        memcpy(rec->params + rec->param_count, params, kernel->params_bytes);
        rec->param_count += param_words;
        rec->param_slots++;
    }
    rec->dispatch_count++;
}

bool gpu_record_last(const gpu_recorder *rec, gpu_recorded *out)
{
    assert(rec->open);
    if (rec->failure.status != TEMPER_OK || rec->command_count == 0)
        return false;
    const gpu_command *last = &rec->commands[rec->command_count - 1];
    if (last->kind != GPU_COMMAND_DISPATCH)
        return false;
    *out = (gpu_recorded){last->pipeline->kernel, rec->views + last->first_view,
                          rec->params + last->first_param};
    return true;
}

void gpu_record_drop(gpu_recorder *rec)
{
    gpu_recorded last = {0};
    if (!gpu_record_last(rec, &last)) {
        assert(!"a dispatch to take back");
        return;
    }
    const uint32_t words = last.kernel->params_bytes / 4;
    rec->command_count--;
    rec->dispatch_count--;
    rec->view_count -= last.kernel->binding_count;
    rec->param_count -= words;
    rec->param_slots -= words > 0;
}

/* ---- copies --------------------------------------------------------------------------------- */

/* True when there is something to do with the view; wrong ones fail the recording. */
static bool check_range(gpu_recorder *rec, const char *what, gpu_view view)
{
    if (rec->failure.status != TEMPER_OK || rec->prepare)
        return false;
    assert(view.buffer != NULL && view.buffer->device == rec->device);
    if (view.offset % 4 != 0 || view.size % 4 != 0 || !inside(view)) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "%s: %" PRIu64 " bytes at %" PRIu64 " of buffer \"%s\" (%" PRIu64
                        " bytes): not inside, or no multiple of 4",
                        what, view.size, view.offset, view.buffer->label, view.buffer->size);
        return false;
    }
    return true;
}

void gpu_record_copy(gpu_recorder *rec, gpu_view from, gpu_view to)
{
    assert(rec->open);
    if (!check_range(rec, "copy from", from) || !check_range(rec, "copy to", to))
        return;
    if (from.size != to.size || from.buffer == to.buffer) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "copy of %" PRIu64 " bytes of buffer \"%s\" to %" PRIu64
                        " bytes of buffer \"%s\": %s",
                        from.size, from.buffer->label, to.size, to.buffer->label,
                        from.buffer == to.buffer ? "one buffer" : "the sizes differ");
        return;
    }
    if (from.size > 0 && add_command(rec, GPU_COMMAND_COPY, 2, 0) != NULL) {
        add_view(rec, from);
        add_view(rec, to);
    }
}

void gpu_record_clear(gpu_recorder *rec, gpu_view view)
{
    assert(rec->open);
    if (check_range(rec, "clear", view) && view.size > 0 &&
        add_command(rec, GPU_COMMAND_CLEAR, 1, 0) != NULL)
        add_view(rec, view);
}

void gpu_record_readback(gpu_recorder *rec, gpu_view view)
{
    assert(rec->open);
    if (!check_range(rec, "readback", view))
        return;
    if (rec->readback_count == GPU_READBACKS_PER_SUBMIT) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT, "more than %d readbacks in one submit",
                        GPU_READBACKS_PER_SUBMIT);
        return;
    }
    view.buffer->recorded = rec->number;
    rec->readbacks[rec->readback_count++] = view;
    rec->readback_bytes += view.size;
}
