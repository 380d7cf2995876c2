/*
 * bindgroup.c - bind groups by what they bind, kept until one of their buffers is destroyed.
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "gpu/gpu_internal.h"

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const gpu_layout *layout, const gpu_view *views, uint32_t count)
{
    uint64_t hash = mix(count, (uint64_t)(uintptr_t)layout);

    for (uint32_t i = 0; i < count; i++) {
        hash = mix(hash, (uint64_t)(uintptr_t)views[i].buffer);
        hash = mix(hash, views[i].offset);
        hash = mix(hash, views[i].size);
    }
    return hash;
}

static bool same(const gpu_bind_group *group, uint64_t hash, const gpu_layout *layout,
                 const gpu_view *views, uint32_t count)
{
    if (group->hash != hash || group->layout != layout || group->count != count)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (group->bound[i].buffer != views[i].buffer ||
            group->bound[i].offset != views[i].offset || group->bound[i].size != views[i].size)
            return false;
    return true;
}

/* Many drivers cut off what a shader writes past a binding, with the bounds checks of the library
 * or without them, and then no poisoned edge would ever show it. So with guards a view that ends
 * where its buffer ends is bound together with the edge behind it. A kernel that asks for
 * arrayLength would see the difference; its views stay as they are. */
static uint64_t bound_size(const gpu_layout *layout, gpu_view view)
{
    const gpu_device *device = view.buffer->device;
    const bool at_end = view.offset + view.size == view.buffer->size;

    if (!device->guard || layout->exact || !at_end)
        return view.size;
    return min_u64(view.size + view.buffer->base, device->bound_max);
}

static WGPUBindGroup create_handle(gpu_device *device, const gpu_layout *layout,
                                   const gpu_view *views, uint32_t count)
{
    WGPUBindGroupEntry entries[GPU_BINDINGS_MAX];

    assert(count <= GPU_BINDINGS_MAX);
    for (uint32_t i = 0; i < count; i++)
        entries[i] = (WGPUBindGroupEntry){.binding = i,
                                          .buffer = views[i].buffer->handle,
                                          .offset = views[i].buffer->base + views[i].offset,
                                          .size = bound_size(layout, views[i])};
    const WGPUBindGroupDescriptor desc = {.layout = layout->handle, .entryCount = count,
                                          .entries = entries};
    device->counters.bind_groups_created++;
    return wgpuDeviceCreateBindGroup(device->handle, &desc);
}

WGPUBindGroup gpu_bind_group_get(gpu_device *device, const gpu_layout *layout,
                                 const gpu_view *views, uint32_t count)
{
    const uint64_t hash = hash_of(layout, views, count);

    for (gpu_bind_group *group = device->bind_groups[hash % GPU_BIND_GROUP_BUCKETS]; group != NULL;
         group = group->next)
        if (same(group, hash, layout, views, count))
            return group->handle;

    /* Callers whose views never come again must not fill the memory. What is already encoded keeps
     * its groups alive. */
    if (device->bind_group_count >= GPU_BIND_GROUPS_MAX)
        gpu_bind_groups_clear(device);
    gpu_bind_group *group = mem_calloc(1, sizeof *group + count * sizeof group->bound[0]);
    if (group == NULL)
        return NULL;
    group->hash = hash;
    group->layout = layout;
    group->count = count;
    group->handle = create_handle(device, layout, views, count);
    for (uint32_t i = 0; i < count; i++) {
        group->bound[i] = (gpu_bound){views[i].buffer, views[i].offset, views[i].size};
        views[i].buffer->bind_groups++;
    }
    group->next = device->bind_groups[hash % GPU_BIND_GROUP_BUCKETS];
    device->bind_groups[hash % GPU_BIND_GROUP_BUCKETS] = group;
    device->bind_group_count++;
    return group->handle;
}

static void drop(gpu_device *device, gpu_bind_group **at)
{
    gpu_bind_group *group = *at;

    *at = group->next;
    for (uint32_t i = 0; i < group->count; i++)
        group->bound[i].buffer->bind_groups--;
    wgpuBindGroupRelease(group->handle);
    mem_free(group);
    device->bind_group_count--;
}

void gpu_bind_groups_forget(gpu_device *device, gpu_buffer *buffer)
{
    for (uint32_t i = 0; i < GPU_BIND_GROUP_BUCKETS && buffer->bind_groups > 0; i++)
        for (gpu_bind_group **at = &device->bind_groups[i]; *at != NULL;) {
            bool holds = false;
            for (uint32_t k = 0; k < (*at)->count; k++)
                holds |= (*at)->bound[k].buffer == buffer;
            if (holds)
                drop(device, at);
            else
                at = &(*at)->next;
        }
    assert(buffer->bind_groups == 0);
}

void gpu_bind_groups_clear(gpu_device *device)
{
    for (uint32_t i = 0; i < GPU_BIND_GROUP_BUCKETS && device->bind_group_count > 0; i++)
        while (device->bind_groups[i] != NULL)
            drop(device, &device->bind_groups[i]);
}
