/*
 * dawn.c - what is Dawn's own (library.h): toggles, subgroup matrices, how adapters are found, how
 * pipelines and waits work, and how a device must be let go.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "gpu/dawn.h"
#include "gpu/dawn_quiet.h"
#include "gpu/library.h"

const library_traits library = {
    .name = "Dawn",
    .immediate_directive = "requires immediate_address_space; ",
    .scope_count = 3,
    .submit_aborts = false,
};

/* ---- adapters ------------------------------------------------------------------------------- */

typedef struct adapter_answer {
    WGPUAdapter handle;
    bool arrived;
} adapter_answer;

static void on_adapter(WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView message,
                       void *user, void *unused)
{
    (void)message;
    (void)unused;
    adapter_answer *answer = user;
    answer->handle = status == WGPURequestAdapterStatus_Success ? adapter : NULL;
    answer->arrived = true;
}

static WGPUAdapter request(WGPUInstance instance, WGPUBackendType backend,
                           WGPUPowerPreference power, bool fallback)
{
    static const char *const enabled[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};
    dawn_toggles toggles = {.chain = {NULL, DAWN_STYPE_TOGGLES},
                            .enabled_count = sizeof enabled / sizeof enabled[0],
                            .enabled = enabled};
    const WGPURequestAdapterOptions options = {
        .nextInChain = &toggles.chain,
        .featureLevel = WGPUFeatureLevel_Core,
        .powerPreference = power,
        .forceFallbackAdapter = fallback,
        .backendType = backend,
    };
    adapter_answer answer = {0};
    const WGPURequestAdapterCallbackInfo callback = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_adapter, .userdata1 = &answer};

    wgpuInstanceRequestAdapter(instance, &options, callback);
    while (!answer.arrived)
        wgpuInstanceProcessEvents(instance);
    return answer.handle;
}

/* The C interface has no list of adapters: it answers requests. So every kind of request is made
 * (each backend, each power preference, the fallback), and what comes again is dropped. Of several
 * equal cards only the first can be had. */
static void request_all(gpu_adapter_list *list)
{
    /* "Undefined" is the library's own choice, which includes its Null backend as a last resort. */
    static const WGPUBackendType backends[] = {
        WGPUBackendType_Vulkan,
        WGPUBackendType_Metal,
        WGPUBackendType_D3D12,
        WGPUBackendType_Undefined,
    };
    static const WGPUPowerPreference powers[] = {WGPUPowerPreference_HighPerformance,
                                                 WGPUPowerPreference_LowPower};

    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++)
        for (size_t p = 0; p < sizeof powers / sizeof powers[0]; p++)
            for (int fallback = 0; fallback < 2; fallback++) {
                WGPUAdapter handle = request(list->instance, backends[b], powers[p], fallback != 0);
                if (handle != NULL)
                    gpu_adapter_list_add(list, handle, true);
            }
}

static bool has_timed_wait(void)
{
    return wgpuHasInstanceFeature(WGPUInstanceFeatureName_TimedWaitAny);
}

temper_status library_find_adapters(gpu_adapter_list *list, error *err)
{
    static const WGPUInstanceFeatureName timed[] = {WGPUInstanceFeatureName_TimedWaitAny};
    const WGPUInstanceDescriptor desc = {.requiredFeatureCount = has_timed_wait() ? 1 : 0,
                                         .requiredFeatures = timed};
    dawn_quiet quiet;

    /* Warnings about drivers would go to stderr, where they mean nothing to the user. */
    dawn_quiet_begin(&quiet);
    list->instance = wgpuCreateInstance(&desc);
    if (list->instance != NULL)
        request_all(list);
    dawn_quiet_end(&quiet);
    return list->instance != NULL ? TEMPER_OK
                                  : error_set(err, TEMPER_NO_DEVICE, "Dawn gives no instance");
}

static bool has_immediates(WGPUInstance instance, const WGPULimits *limits)
{
    if (limits->maxImmediateSize == WGPU_LIMIT_U32_UNDEFINED ||
        limits->maxImmediateSize < GPU_PARAMS_BYTES)
        return false;

    WGPUSupportedWGSLLanguageFeatures language = {0};
    bool found = false;
    wgpuInstanceGetWGSLLanguageFeatures(instance, &language);
    for (size_t i = 0; i < language.featureCount; i++)
        found |= language.features[i] == DAWN_LANGUAGE_IMMEDIATES ||
                 language.features[i] == DAWN_LANGUAGE_IMMEDIATES_EARLIER;
    wgpuSupportedWGSLLanguageFeaturesFreeMembers(language);
    return found;
}

uint32_t library_features(WGPUInstance instance, WGPUAdapter adapter, const WGPULimits *limits)
{
    uint32_t features = 0;

    if (wgpuAdapterHasFeature(adapter, WGPUFeatureName_ShaderF16))
        features |= GPU_FEATURE_F16;
    if (wgpuAdapterHasFeature(adapter, WGPUFeatureName_Subgroups))
        features |= GPU_FEATURE_SUBGROUPS;
    if (wgpuAdapterHasFeature(adapter, DAWN_FEATURE_SUBGROUP_MATRIX))
        features |= GPU_FEATURE_SUBGROUP_MATRIX;
    if (wgpuAdapterHasFeature(adapter, WGPUFeatureName_TimestampQuery))
        features |= GPU_FEATURE_TIMESTAMPS;
    if (has_immediates(instance, limits))
        features |= GPU_FEATURE_IMMEDIATES;
    return features;
}

/* True when `count` configs of `stride` words make sense; the library does not tell its stride. */
static bool configs_plausible(const uint32_t *words, size_t count, size_t stride)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t *config = words + i * stride;
        for (int k = 0; k < 2; k++)
            if (config[k] < GPU_COMPONENT_F32 || config[k] > GPU_COMPONENT_I8)
                return false;
        for (int k = 2; k < 5; k++)
            if (config[k] < 4 || config[k] > 256)
                return false;
    }
    return true;
}

static void read_configs(const dawn_subgroup_matrix_configs *configs, gpu_adapter_info *info)
{
    size_t stride = 5;

    if (configs->count == 0 || configs->words == NULL)
        return;
    if (!configs_plausible(configs->words, configs->count, stride)) {
        stride = 7;
        if (!configs_plausible(configs->words, configs->count, stride))
            return;
    }
    for (size_t i = 0; i < configs->count && info->matrix_count < GPU_MATRIX_SHAPES; i++) {
        const uint32_t *config = configs->words + i * stride;
        info->matrices[info->matrix_count++] = (gpu_matrix_shape){
            (gpu_component)config[0], (gpu_component)config[1], config[2], config[3], config[4]};
    }
}

void library_matrix_shapes(WGPUAdapter adapter, gpu_adapter_info *info)
{
    dawn_subgroup_matrix_configs configs = {.chain = {NULL, DAWN_STYPE_SUBGROUP_MATRIX_CONFIGS}};
    WGPUAdapterInfo told = {.nextInChain = &configs.chain};

    if (wgpuAdapterGetInfo(adapter, &told) != WGPUStatus_Success)
        return;
    read_configs(&configs, info);
    wgpuAdapterPropertiesSubgroupMatrixConfigsFreeMembers(configs);
    wgpuAdapterInfoFreeMembers(told);
}

/* ---- devices -------------------------------------------------------------------------------- */

size_t library_feature_names(uint32_t features, WGPUFeatureName *out)
{
    size_t count = 0;

    if (features & GPU_FEATURE_F16)
        out[count++] = WGPUFeatureName_ShaderF16;
    if (features & GPU_FEATURE_SUBGROUPS)
        out[count++] = WGPUFeatureName_Subgroups;
    if (features & GPU_FEATURE_SUBGROUP_MATRIX)
        out[count++] = DAWN_FEATURE_SUBGROUP_MATRIX;
    if (features & GPU_FEATURE_TIMESTAMPS)
        out[count++] = WGPUFeatureName_TimestampQuery;
    return count;
}

WGPUChainedStruct *library_device_chain(bool robust)
{
    /* Timestamps are rounded to 100 us for web pages; a profile needs them as they are. */
    static const char *const enabled[] = {"allow_unsafe_apis", "disable_robustness"};
    static const char *const disabled[] = {"timestamp_quantization"};
    static dawn_toggles toggles[2] = {
        {{NULL, DAWN_STYPE_TOGGLES}, 2, enabled, 1, disabled},
        {{NULL, DAWN_STYPE_TOGGLES}, 1, enabled, 1, disabled},
    };
    return &toggles[robust ? 1 : 0].chain;
}

bool library_wait(const gpu_device *device, WGPUFuture future, const bool *arrived)
{
    enum { SLICE_NS = 100 * 1000 * 1000 };
    const struct timespec nap = {.tv_nsec = 50 * 1000};

    if (has_timed_wait()) {
        WGPUFutureWaitInfo info = {.future = future};
        return wgpuInstanceWaitAny(device->instance, 1, &info, SLICE_NS) != WGPUWaitStatus_Error;
    }
    const double start = clock_seconds();
    for (;;) {
        wgpuInstanceProcessEvents(device->instance);
        if (*arrived || clock_seconds() - start > SLICE_NS * 1e-9)
            return true;
        nanosleep(&nap, NULL);
    }
}

WGPUShaderModule library_create_module(gpu_device *device, const WGPUShaderModuleDescriptor *desc)
{
    return wgpuDeviceCreateShaderModule(device->handle, desc);
}

WGPUFuture library_create_pipeline(gpu_device *device, const WGPUComputePipelineDescriptor *desc,
                                   WGPUCreateComputePipelineAsyncCallbackInfo callback)
{
    return wgpuDeviceCreateComputePipelineAsync(device->handle, desc, callback);
}

void library_lose(gpu_device *device)
{
    wgpuDeviceForceLoss(device->handle, WGPUDeviceLostReason_Unknown,
                        gpu_text("gpu_lose was called"));
    wgpuInstanceProcessEvents(device->instance);
}

WGPUStringView library_message(WGPUStringView message)
{
    return message;
}

/* ---- letting a device go -------------------------------------------------------------------- */

/* Dawn tells of a finished pipeline from a worker thread that lets go of the device only a moment
 * later. Were ours released first, the worker would be the one to delete the device, with it its
 * own thread pool, and abort the process while it waits for itself. So a device that has just
 * compiled is destroyed at once, which frees what it holds on the GPU, and its handle is released
 * later: by an open or close that comes a second after its last pipeline, or never when the
 * process ends before. */
enum { BURIED_MAX = 64 };
static const double buried_seconds = 1.0;

static struct {
    pthread_mutex_t lock;
    WGPUDevice handles[BURIED_MAX];
    double since[BURIED_MAX]; /* in order */
    uint32_t count;
} buried = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Call with the lock held. */
static void release_oldest(void)
{
    wgpuDeviceRelease(buried.handles[0]);
    buried.count--;
    memmove(&buried.handles[0], &buried.handles[1], buried.count * sizeof buried.handles[0]);
    memmove(&buried.since[0], &buried.since[1], buried.count * sizeof buried.since[0]);
}

void library_release_due(void)
{
    pthread_mutex_lock(&buried.lock);
    while (buried.count > 0 && clock_seconds() - buried.since[0] >= buried_seconds)
        release_oldest();
    pthread_mutex_unlock(&buried.lock);
}

void library_release_device(gpu_device *device)
{
    const struct timespec nap = {.tv_nsec = 10 * 1000 * 1000};

    pthread_mutex_lock(&buried.lock);
    if (clock_seconds() - device->last_pipeline >= buried_seconds) {
        wgpuDeviceRelease(device->handle);
    } else {
        while (buried.count == BURIED_MAX) {
            if (clock_seconds() - buried.since[0] >= buried_seconds)
                release_oldest();
            else
                nanosleep(&nap, NULL);
        }
        buried.handles[buried.count] = device->handle;
        buried.since[buried.count++] = clock_seconds();
    }
    pthread_mutex_unlock(&buried.lock);
}
