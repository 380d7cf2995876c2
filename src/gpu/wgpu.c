/*
 * wgpu.c - what is wgpu-native's own (library.h): features and bounds checks by functions of its
 * own, adapters from a list, pipelines that are made while one waits, and errors that would end the
 * process where Dawn reports them.
 */
#include <string.h>
#include <time.h>
#include <wgpu.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/library.h"

const library_traits library = {
    .name = "wgpu-native",
    .immediate_directive = "",
    .scope_count = 2,
    .submit_aborts = true,
};

/* ---- adapters ------------------------------------------------------------------------------- */

static void on_log(WGPULogLevel level, WGPUStringView message, void *user)
{
    char text[GPU_MESSAGE_BYTES];

    (void)level;
    (void)user;
    gpu_message(text, sizeof text, message);
    log_message(LOG_DEBUG, "WebGPU library: %s", text);
}

temper_status library_find_adapters(gpu_adapter_list *list, error *err)
{
    /* Not OpenGL, which would show the same card again with less to offer. */
    WGPUInstanceExtras extras = {.chain = {NULL, (WGPUSType)WGPUSType_InstanceExtras},
                                 .backends = WGPUInstanceBackend_Primary};
    const WGPUInstanceDescriptor desc = {.nextInChain = &extras.chain};
    const WGPUInstanceEnumerateAdapterOptions options = {.backends = WGPUInstanceBackend_Primary};

    wgpuSetLogCallback(on_log, NULL);
    wgpuSetLogLevel(WGPULogLevel_Warn);
    list->instance = wgpuCreateInstance(&desc);
    if (list->instance == NULL)
        return error_set(err, TEMPER_NO_DEVICE, "wgpu-native gives no instance");
    const size_t count = wgpuInstanceEnumerateAdapters(list->instance, &options, NULL);
    WGPUAdapter *handles = mem_calloc(count, sizeof handles[0]);
    if (handles == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the list of adapters");
    wgpuInstanceEnumerateAdapters(list->instance, &options, handles);
    for (size_t i = 0; i < count; i++)
        gpu_adapter_list_add(list, handles[i], false);
    mem_free(handles);
    return TEMPER_OK;
}

/* What naga, the compiler, knows of WGSL: not `enable subgroups`, no matrices of subgroups, and no
 * bitcast between u32 and vec2<f16>, by which all f16 kernels live. */
uint32_t library_features(WGPUInstance instance, WGPUAdapter adapter, const WGPULimits *limits)
{
    uint32_t features = 0;

    (void)instance;
    if (wgpuAdapterHasFeature(adapter, WGPUFeatureName_TimestampQuery))
        features |= GPU_FEATURE_TIMESTAMPS;
    if (wgpuAdapterHasFeature(adapter, (WGPUFeatureName)WGPUNativeFeature_Immediates) &&
        limits->maxImmediateSize >= GPU_PARAMS_BYTES)
        features |= GPU_FEATURE_IMMEDIATES;
    return features;
}

void library_matrix_shapes(WGPUAdapter adapter, gpu_adapter_info *info)
{
    (void)adapter;
    (void)info;
}

/* ---- devices -------------------------------------------------------------------------------- */

size_t library_feature_names(uint32_t features, WGPUFeatureName *out)
{
    size_t count = 0;

    if (features & GPU_FEATURE_TIMESTAMPS)
        out[count++] = WGPUFeatureName_TimestampQuery;
    if (features & GPU_FEATURE_IMMEDIATES)
        out[count++] = (WGPUFeatureName)WGPUNativeFeature_Immediates;
    return count;
}

WGPUChainedStruct *library_device_chain(bool robust)
{
    (void)robust;
    return NULL;
}

/* There is no waiting for one callback alone: with wgpuDevicePoll one waits for all that was
 * submitted, which would put the host and the device in turns. */
bool library_wait(const gpu_device *device, WGPUFuture future, const bool *arrived)
{
    const struct timespec nap = {.tv_nsec = 50 * 1000};
    const double start = clock_seconds();

    (void)future;
    for (;;) {
        wgpuDevicePoll(device->handle, false, NULL);
        if (*arrived || clock_seconds() - start > 0.1)
            return true;
        nanosleep(&nap, NULL);
    }
}

WGPUShaderModule library_create_module(gpu_device *device, const WGPUShaderModuleDescriptor *desc)
{
    return device->robust ? wgpuDeviceCreateShaderModule(device->handle, desc)
                          : wgpuDeviceCreateShaderModuleTrusted(device->handle, desc,
                                                                WGPUShaderRuntimeChecks_None);
}

/* Made at once. What is wrong with the source is told to the error scope around this call. What the
 * driver itself refuses is an internal error, for which there is no scope here: it fails the
 * device. */
WGPUFuture library_create_pipeline(gpu_device *device, const WGPUComputePipelineDescriptor *desc,
                                   WGPUCreateComputePipelineAsyncCallbackInfo callback)
{
    callback.callback(WGPUCreatePipelineAsyncStatus_Success,
                      wgpuDeviceCreateComputePipeline(device->handle, desc), gpu_text(NULL),
                      callback.userdata1, callback.userdata2);
    return (WGPUFuture){0};
}

void library_lose(gpu_device *device)
{
    gpu_device_fail(device, TEMPER_DEVICE_LOST, "the device %s was lost: gpu_lose was called",
                    device->info.name);
    pthread_mutex_lock(&device->failure_lock);
    device->lost = true;
    pthread_mutex_unlock(&device->failure_lock);
    wgpuDeviceDestroy(device->handle);
    wgpuInstanceProcessEvents(device->instance);
}

void library_release_device(gpu_device *device)
{
    wgpuDeviceRelease(device->handle);
}

void library_release_due(void)
{
}

/* Messages are "Validation Error", "Caused by:", "In wgpuSomething", each on a line with more or
 * less room around it, and then what is wrong. */
WGPUStringView library_message(WGPUStringView message)
{
    static const char *const headings[] = {"Caused by:", "In wgpu"};
    const char *at = message.data, *end = message.data + message.length;

    for (const char *line = at; line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline != NULL ? newline + 1 : end;
        const char *text = line;
        while (text < next && *text == ' ')
            text++;
        bool heading = text == newline;
        for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++)
            heading = heading || ((size_t)(next - text) >= strlen(headings[i]) &&
                                  memcmp(text, headings[i], strlen(headings[i])) == 0);
        if (heading)
            at = next;
        else if (at != message.data)
            break;
        line = next;
    }
    return (WGPUStringView){at, (size_t)(end - at)};
}
