/*
 * adapter.c - which adapters there are, what they offer, and which of them can compute.
 */
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/library.h"

WGPUStringView gpu_text(const char *text)
{
    return (WGPUStringView){text, text != NULL ? strlen(text) : 0};
}

void gpu_message(char *out, size_t size, WGPUStringView message)
{
    enum { LINES = 4 };
    size_t used = 0;
    int lines = 1;

    assert(size > 0);
    if (message.data == NULL)
        message = (WGPUStringView){"", 0};
    if (message.length == WGPU_STRLEN)
        message.length = strlen(message.data);
    message = library_message(message);
    while (message.length > 0 && isspace((unsigned char)message.data[message.length - 1]))
        message.length--;
    for (size_t i = 0; i < message.length && used + 1 < size; i++) {
        if (message.data[i] == '\n' && ++lines > LINES)
            break;
        out[used++] = message.data[i];
    }
    out[used] = '\0';
    if (used == 0)
        snprintf(out, size, "no reason given");
}

static void copy_view(char *out, size_t size, WGPUStringView text)
{
    size_t length = text.data == NULL ? 0
                    : text.length == WGPU_STRLEN ? strlen(text.data) : text.length;
    if (length >= size)
        length = size - 1;
    if (length > 0)
        memcpy(out, text.data, length);
    out[length] = '\0';
}

static const char *backend_name(WGPUBackendType backend)
{
    switch (backend) {
    case WGPUBackendType_Null: return "Null";
    case WGPUBackendType_WebGPU: return "WebGPU";
    case WGPUBackendType_D3D11: return "D3D11";
    case WGPUBackendType_D3D12: return "D3D12";
    case WGPUBackendType_Metal: return "Metal";
    case WGPUBackendType_Vulkan: return "Vulkan";
    case WGPUBackendType_OpenGL: return "OpenGL";
    case WGPUBackendType_OpenGLES: return "OpenGLES";
    default: return "unknown";
    }
}

static const char *type_name(WGPUAdapterType type)
{
    switch (type) {
    case WGPUAdapterType_DiscreteGPU: return "discrete GPU";
    case WGPUAdapterType_IntegratedGPU: return "integrated GPU";
    case WGPUAdapterType_CPU: return "CPU";
    default: return "unknown";
    }
}

static int type_rank(WGPUAdapterType type)
{
    switch (type) {
    case WGPUAdapterType_DiscreteGPU: return 0;
    case WGPUAdapterType_IntegratedGPU: return 1;
    case WGPUAdapterType_CPU: return 3;
    default: return 2;
    }
}

/* ---- what an adapter offers ----------------------------------------------------------------- */

static gpu_limits limits_of(const WGPULimits *from)
{
    return (gpu_limits){
        .max_buffer_size = from->maxBufferSize,
        .max_storage_binding = from->maxStorageBufferBindingSize,
        .max_storage_buffers = from->maxStorageBuffersPerShaderStage,
        .max_workgroup_memory = from->maxComputeWorkgroupStorageSize,
        .max_invocations = from->maxComputeInvocationsPerWorkgroup,
        .max_workgroup_x = from->maxComputeWorkgroupSizeX,
        .max_workgroup_y = from->maxComputeWorkgroupSizeY,
        .max_workgroup_z = from->maxComputeWorkgroupSizeZ,
        .max_workgroups = from->maxComputeWorkgroupsPerDimension,
        .storage_alignment = from->minStorageBufferOffsetAlignment,
        .uniform_alignment = from->minUniformBufferOffsetAlignment,
    };
}

static void judge(gpu_adapter *adapter, WGPUBackendType backend)
{
    gpu_adapter_info *info = &adapter->info;

    info->usable = true;
    if (backend == WGPUBackendType_Null) {
        info->usable = false;
        snprintf(info->reason, sizeof info->reason, "the Null backend computes nothing");
    }
#define X(field, name, initial, higher)                                                            \
    if (info->usable && (higher ? info->limits.field < initial : info->limits.field > initial)) {  \
        info->usable = false;                                                                      \
        snprintf(info->reason, sizeof info->reason,                                                \
                 "its %s is %" PRIu64 ", WebGPU asks for %d", name, info->limits.field, initial);  \
    }
    GPU_LIMIT_TABLE(X)
#undef X
    if (!info->usable)
        adapter->rank += 16;
}

/* Fills `out` from a handle; false when the library tells nothing about it. */
static bool describe(WGPUInstance instance, WGPUAdapter handle, gpu_adapter *out)
{
    WGPUAdapterInfo told = {0};
    WGPULimits limits = WGPU_LIMITS_INIT;

    if (wgpuAdapterGetInfo(handle, &told) != WGPUStatus_Success)
        return false;
    const bool known = wgpuAdapterGetLimits(handle, &limits) == WGPUStatus_Success;
    if (known) {
        gpu_adapter_info *info = &out->info;
        *out = (gpu_adapter){.handle = handle, .vendor_id = told.vendorID,
                             .device_id = told.deviceID, .rank = type_rank(told.adapterType)};
        copy_view(info->name, sizeof info->name, told.device);
        copy_view(info->driver, sizeof info->driver, told.description);
        if (info->name[0] == '\0')
            snprintf(info->name, sizeof info->name, "unnamed adapter %04" PRIx32 ":%04" PRIx32,
                     told.vendorID, told.deviceID);
        snprintf(info->backend, sizeof info->backend, "%s", backend_name(told.backendType));
        snprintf(info->type, sizeof info->type, "%s", type_name(told.adapterType));
        info->features = library_features(instance, handle, &limits);
        info->limits = limits_of(&limits);
        if (info->features & GPU_FEATURE_SUBGROUPS) {
            info->subgroup_min = told.subgroupMinSize;
            info->subgroup_max = told.subgroupMaxSize;
        }
        if (info->features & GPU_FEATURE_SUBGROUP_MATRIX)
            library_matrix_shapes(handle, info);
        judge(out, told.backendType);
    }
    wgpuAdapterInfoFreeMembers(told);
    return known;
}

/* ---- the list ------------------------------------------------------------------------------- */

static bool same_adapter(const gpu_adapter *a, const gpu_adapter *b)
{
    return a->vendor_id == b->vendor_id && a->device_id == b->device_id &&
           strcmp(a->info.name, b->info.name) == 0 && strcmp(a->info.driver, b->info.driver) == 0 &&
           strcmp(a->info.backend, b->info.backend) == 0;
}

void gpu_adapter_list_add(gpu_adapter_list *list, WGPUAdapter handle, bool once)
{
    gpu_adapter found;

    if (list->count == GPU_ADAPTERS_MAX || !describe(list->instance, handle, &found)) {
        wgpuAdapterRelease(handle);
        return;
    }
    uint32_t at = list->count;
    for (uint32_t i = 0; i < list->count; i++) {
        if (once && same_adapter(&list->adapters[i], &found)) {
            wgpuAdapterRelease(handle);
            return;
        }
        if (at == list->count && found.rank < list->adapters[i].rank)
            at = i;
    }
    memmove(&list->adapters[at + 1], &list->adapters[at],
            (list->count - at) * sizeof list->adapters[0]);
    list->adapters[at] = found;
    list->count++;
}

temper_status gpu_adapter_list_open(gpu_adapter_list *list, error *err)
{
    *list = (gpu_adapter_list){0};
    return library_find_adapters(list, err);
}

void gpu_adapter_list_close(gpu_adapter_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->adapters[i].handle != NULL)
            wgpuAdapterRelease(list->adapters[i].handle);
    if (list->instance != NULL)
        wgpuInstanceRelease(list->instance);
    *list = (gpu_adapter_list){0};
}

temper_status gpu_adapters(gpu_adapter_info *rows, uint32_t capacity, uint32_t *count, error *err)
{
    assert(count != NULL && (rows != NULL || capacity == 0));
    *count = 0;
    gpu_adapter_list *list = mem_calloc(1, sizeof *list);
    if (list == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the list of adapters");

    const temper_status status = gpu_adapter_list_open(list, err);
    if (status == TEMPER_OK) {
        *count = list->count;
        for (uint32_t i = 0; i < list->count && i < capacity; i++)
            rows[i] = list->adapters[i].info;
    }
    gpu_adapter_list_close(list);
    mem_free(list);
    return status;
}

const char *gpu_library_name(void)
{
    return library.name;
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* Case-insensitive search, ASCII only. */
static bool contains(const char *text, const char *part)
{
    const size_t length = strlen(part);

    for (; strlen(text) >= length; text++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (i == length)
            return true;
        if (*text == '\0')
            break;
    }
    return false;
}

/* "0 is llvmpipe (Vulkan); 1 is ..., which is refused: ..." */
static void list_text(const gpu_adapter_list *list, char *out, size_t size)
{
    size_t used = 0;

    snprintf(out, size, "none");
    for (uint32_t i = 0; i < list->count && used < size; i++) {
        const gpu_adapter_info *info = &list->adapters[i].info;
        used += (size_t)snprintf(out + used, size - used, "%s%" PRIu32 " is %.60s (%s)%s%s",
                                 i > 0 ? "; " : "", i, info->name, info->backend,
                                 info->usable ? "" : ", which is refused: ", info->reason);
    }
}

static temper_status no_device(const gpu_adapter_list *list, error *err)
{
    char found[512];
    const char *files = getenv("VK_DRIVER_FILES");
    const char *older = getenv("VK_ICD_FILENAMES");
    const char *set = files != NULL ? files : older;

    list_text(list, found, sizeof found);
    if (set != NULL)
        return error_set(err, TEMPER_NO_DEVICE,
                         "no adapter can be used; found: %s.\n%s is set to \"%.200s\": does that "
                         "file exist and name a driver?",
                         found, files != NULL ? "VK_DRIVER_FILES" : "VK_ICD_FILENAMES", set);
    return error_set(err, TEMPER_NO_DEVICE,
                     "no adapter can be used; found: %s.\nA graphics driver is missing or too old: "
                     "on Linux install the card's Vulkan driver,\nor mesa-vulkan-drivers 25 or "
                     "newer, which also computes without a GPU.",
                     list->count > 0 ? found : "none");
}

const gpu_adapter *gpu_adapter_choose(const gpu_adapter_list *list, const char *wanted, error *err)
{
    const gpu_adapter *best = list->count > 0 ? &list->adapters[0] : NULL;
    const gpu_adapter *chosen = NULL;

    if (best == NULL || !best->info.usable) {
        no_device(list, err);
        return NULL;
    }
    if (wanted == NULL)
        return best;

    const bool number = wanted[0] != '\0' && strspn(wanted, "0123456789") == strlen(wanted);
    if (number) {
        const unsigned long at = strtoul(wanted, NULL, 10);
        chosen = strlen(wanted) < 8 && at < list->count ? &list->adapters[at] : NULL;
    } else if (wanted[0] != '\0') {
        /* The list is sorted, so the first that matches is the best that does. */
        for (uint32_t i = list->count; i-- > 0;)
            if (contains(list->adapters[i].info.name, wanted) ||
                contains(list->adapters[i].info.driver, wanted))
                chosen = &list->adapters[i];
    }
    if (chosen == NULL) {
        char found[512];
        list_text(list, found, sizeof found);
        error_set(err, TEMPER_BAD_ARGUMENT,
                  number ? "there is no adapter %.100s; number %s"
                         : "no adapter is called \"%.100s\"; number %s",
                  wanted, found);
        return NULL;
    }
    if (!chosen->info.usable) {
        error_set(err, TEMPER_NO_DEVICE, "the adapter %s cannot be used: %s", chosen->info.name,
                  chosen->info.reason);
        return NULL;
    }
    return chosen;
}
