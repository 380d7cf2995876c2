/*
 * bench.c - see bench.h.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

static WGPUStringView text(const char *s)
{
    return (WGPUStringView){s, WGPU_STRLEN};
}

static void copy_text(char *out, size_t size, WGPUStringView s)
{
    size_t n = s.data == NULL ? 0 : s.length == WGPU_STRLEN ? strlen(s.data) : s.length;
    if (n >= size)
        n = size - 1;
    if (n > 0)
        memcpy(out, s.data, n);
    out[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (out[i] == '\n' || out[i] == ',' || out[i] == '|')
            out[i] = ' ';
}

static void await(bench *b, const volatile bool *arrived)
{
    const struct timespec nap = {.tv_nsec = 20 * 1000};
    while (!*arrived) {
        wgpuInstanceProcessEvents(b->instance);
        if (!*arrived)
            nanosleep(&nap, NULL);
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

typedef struct answer {
    void *handle;
    volatile bool arrived;
} answer;

static void on_adapter(WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView message,
                       void *user, void *unused)
{
    (void)message;
    (void)unused;
    answer *a = user;
    a->handle = status == WGPURequestAdapterStatus_Success ? adapter : NULL;
    a->arrived = true;
}

static void on_device(WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message,
                      void *user, void *unused)
{
    (void)unused;
    answer *a = user;
    a->handle = status == WGPURequestDeviceStatus_Success ? device : NULL;
    if (a->handle == NULL)
        fprintf(stderr, "sweep: no device: %.*s\n", (int)message.length, message.data);
    a->arrived = true;
}

static void on_error(WGPUDevice const *device, WGPUErrorType type, WGPUStringView message,
                     void *user, void *unused)
{
    (void)device;
    (void)type;
    (void)unused;
    bench *b = user;
    if (!b->failed)
        copy_text(b->failure, sizeof b->failure, message);
    b->failed = true;
}

static void on_lost(WGPUDevice const *device, WGPUDeviceLostReason reason, WGPUStringView message,
                    void *user, void *unused)
{
    (void)device;
    (void)unused;
    bench *b = user;
    if (reason == WGPUDeviceLostReason_Destroyed ||
        reason == WGPUDeviceLostReason_CallbackCancelled)
        return;
    copy_text(b->failure, sizeof b->failure, message);
    b->failed = b->lost = true;
}

static WGPUAdapter request_adapter(bench *b)
{
    static const char *const enabled[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};
    dawn_toggles toggles = {.chain = {NULL, DAWN_STYPE_TOGGLES}, .enabled_count = 2,
                            .enabled = enabled};
    const WGPURequestAdapterOptions options = {
        .nextInChain = &toggles.chain,
        .featureLevel = WGPUFeatureLevel_Core,
        .powerPreference = WGPUPowerPreference_HighPerformance,
        .backendType = b->null ? WGPUBackendType_Undefined : WGPUBackendType_Vulkan,
    };
    answer a = {0};
    const WGPURequestAdapterCallbackInfo callback = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                     .callback = on_adapter, .userdata1 = &a};
    wgpuInstanceRequestAdapter(b->instance, &options, callback);
    await(b, &a.arrived);
    return a.handle;
}

static WGPUDevice request_device(bench *b, bool robust)
{
    static const char *const enabled[] = {"allow_unsafe_apis", "disable_robustness"};
    static const char *const disabled[] = {"timestamp_quantization"};
    dawn_toggles toggles = {.chain = {NULL, DAWN_STYPE_TOGGLES},
                            .enabled_count = robust ? 1 : 2, .enabled = enabled,
                            .disabled_count = 1, .disabled = disabled};
    WGPUFeatureName features[4] = {WGPUFeatureName_TimestampQuery};
    size_t count = 1;
    if (b->f16)
        features[count++] = WGPUFeatureName_ShaderF16;
    if (b->subgroups)
        features[count++] = WGPUFeatureName_Subgroups;
    if (b->matrix)
        features[count++] = DAWN_FEATURE_SUBGROUP_MATRIX;
    const WGPUDeviceDescriptor desc = {
        .nextInChain = &toggles.chain,
        .label = text("sweep"),
        .requiredFeatureCount = count,
        .requiredFeatures = features,
        .requiredLimits = &b->limits,
        .deviceLostCallbackInfo = {.mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_lost,
                                   .userdata1 = b},
        .uncapturedErrorCallbackInfo = {.callback = on_error, .userdata1 = b},
    };
    answer a = {0};
    const WGPURequestDeviceCallbackInfo callback = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                    .callback = on_device, .userdata1 = &a};
    wgpuAdapterRequestDevice(b->adapter, &desc, callback);
    await(b, &a.arrived);
    return a.handle;
}

static void describe(bench *b)
{
    WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
    wgpuAdapterGetInfo(b->adapter, &info);
    copy_text(b->adapter_name, sizeof b->adapter_name, info.device);
    copy_text(b->driver, sizeof b->driver, info.description);
    b->subgroup = info.subgroupMaxSize > 0 ? info.subgroupMaxSize : 32;
    wgpuAdapterInfoFreeMembers(info);
    b->f16 = wgpuAdapterHasFeature(b->adapter, WGPUFeatureName_ShaderF16);
    b->subgroups = wgpuAdapterHasFeature(b->adapter, WGPUFeatureName_Subgroups);
    b->matrix = b->subgroups && wgpuAdapterHasFeature(b->adapter, DAWN_FEATURE_SUBGROUP_MATRIX);
}

const char *bench_open(bench *b, bool null, bool robust)
{
    *b = (bench){.null = null};
    b->instance = wgpuCreateInstance(NULL);
    b->adapter = b->instance != NULL ? request_adapter(b) : NULL;
    if (b->adapter == NULL)
        return "no adapter";
    describe(b);
    if (!wgpuAdapterHasFeature(b->adapter, WGPUFeatureName_TimestampQuery))
        return "the adapter has no timestamps";
    const WGPULimits none = WGPU_LIMITS_INIT;
    b->limits = none;
    wgpuAdapterGetLimits(b->adapter, &b->limits);
    b->limits.nextInChain = NULL;
    b->device = request_device(b, robust);
    if (b->device == NULL)
        return "no device";
    b->queue = wgpuDeviceGetQueue(b->device);
    const WGPUQuerySetDescriptor queries = {.type = WGPUQueryType_Timestamp,
                                            .count = BENCH_PASSES * 2};
    b->queries = wgpuDeviceCreateQuerySet(b->device, &queries);
    b->resolved = bench_buffer(b, BENCH_PASSES * 16, WGPUBufferUsage_QueryResolve);
    const WGPUBufferDescriptor readable = {.usage = WGPUBufferUsage_MapRead |
                                                    WGPUBufferUsage_CopyDst,
                                           .size = UINT64_C(1) << 20};
    b->readable = wgpuDeviceCreateBuffer(b->device, &readable);
    return NULL;
}

void bench_close(bench *b)
{
    if (b->device != NULL)
        wgpuDeviceDestroy(b->device);
}

void bench_clear_failure(bench *b)
{
    wgpuInstanceProcessEvents(b->instance);
    if (b->lost)
        return;
    b->failed = false;
    b->failure[0] = '\0';
}

/* ---- buffers -------------------------------------------------------------------------------- */

WGPUBuffer bench_buffer(bench *b, uint64_t size, WGPUBufferUsage more)
{
    const WGPUBufferDescriptor desc = {
        .usage = WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst | more,
        .size = (size + 255) / 256 * 256,
    };
    return wgpuDeviceCreateBuffer(b->device, &desc);
}

void bench_write(bench *b, WGPUBuffer to, uint64_t offset, const void *bytes, size_t size)
{
    wgpuQueueWriteBuffer(b->queue, to, offset, bytes, size);
}

static void on_map(WGPUMapAsyncStatus status, WGPUStringView message, void *user, void *unused)
{
    (void)message;
    (void)unused;
    answer *a = user;
    a->handle = status == WGPUMapAsyncStatus_Success ? a : NULL;
    a->arrived = true;
}

static bool read_mapped(bench *b, void *bytes, size_t size)
{
    answer a = {0};
    const WGPUBufferMapCallbackInfo callback = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                .callback = on_map, .userdata1 = &a};
    wgpuBufferMapAsync(b->readable, WGPUMapMode_Read, 0, (size + 7) / 8 * 8, callback);
    await(b, &a.arrived);
    if (a.handle == NULL)
        return false;
    memcpy(bytes, wgpuBufferGetConstMappedRange(b->readable, 0, (size + 7) / 8 * 8), size);
    wgpuBufferUnmap(b->readable);
    return true;
}

static void submit(bench *b, WGPUCommandEncoder encoder)
{
    WGPUCommandBuffer commands = wgpuCommandEncoderFinish(encoder, NULL);
    wgpuQueueSubmit(b->queue, 1, &commands);
    wgpuCommandBufferRelease(commands);
    wgpuCommandEncoderRelease(encoder);
}

bool bench_read(bench *b, WGPUBuffer from, uint64_t offset, void *bytes, size_t size)
{
    WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(b->device, NULL);
    wgpuCommandEncoderCopyBufferToBuffer(encoder, from, offset, b->readable, 0, (size + 3) / 4 * 4);
    submit(b, encoder);
    return read_mapped(b, bytes, size);
}

/* ---- pipelines ------------------------------------------------------------------------------ */

static void on_pipeline(WGPUCreatePipelineAsyncStatus status, WGPUComputePipeline handle,
                        WGPUStringView message, void *user, void *unused)
{
    (void)unused;
    bench_pipeline *p = user;
    p->handle = status == WGPUCreatePipelineAsyncStatus_Success ? handle : NULL;
    if (p->handle == NULL && p->message[0] == '\0')
        copy_text(p->message, sizeof p->message, message);
    p->seconds = clock_seconds() - p->asked;
    p->arrived = true;
}

static void on_scope(WGPUPopErrorScopeStatus status, WGPUErrorType type, WGPUStringView message,
                     void *user, void *unused)
{
    (void)status;
    (void)unused;
    bench_pipeline *p = user;
    if (type != WGPUErrorType_NoError) /* the compiler's own words say more */
        copy_text(p->message, sizeof p->message, message);
}

void bench_pipeline_start(bench *b, bench_pipeline *p, const char *label, const char *wgsl)
{
    WGPUShaderSourceWGSL source = {.chain = {NULL, WGPUSType_ShaderSourceWGSL},
                                   .code = text(wgsl)};
    const WGPUShaderModuleDescriptor module_desc = {.nextInChain = &source.chain,
                                                    .label = text(label)};

    *p = (bench_pipeline){.asked = clock_seconds()};
    wgpuDevicePushErrorScope(b->device, WGPUErrorFilter_Validation);
    WGPUShaderModule module = wgpuDeviceCreateShaderModule(b->device, &module_desc);
    const WGPUPopErrorScopeCallbackInfo scope = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                 .callback = on_scope, .userdata1 = p};
    wgpuDevicePopErrorScope(b->device, scope);
    const WGPUComputePipelineDescriptor desc = {.label = text(label),
                                                .compute = {.module = module,
                                                            .entryPoint = {NULL, WGPU_STRLEN}}};
    const WGPUCreateComputePipelineAsyncCallbackInfo created = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_pipeline, .userdata1 = p};
    wgpuDeviceCreateComputePipelineAsync(b->device, &desc, created);
    wgpuShaderModuleRelease(module);
}

void bench_pipeline_wait(bench *b, bench_pipeline *p)
{
    await(b, &p->arrived);
}

WGPUBindGroup bench_group(bench *b, const bench_pipeline *p, const bench_binding *bindings,
                          size_t count)
{
    WGPUBindGroupEntry entries[16];
    for (size_t i = 0; i < count; i++)
        entries[i] = (WGPUBindGroupEntry){.binding = (uint32_t)i, .buffer = bindings[i].buffer,
                                          .offset = bindings[i].offset, .size = bindings[i].size};
    WGPUBindGroupLayout layout = wgpuComputePipelineGetBindGroupLayout(p->handle, 0);
    const WGPUBindGroupDescriptor desc = {.layout = layout, .entryCount = count,
                                          .entries = entries};
    WGPUBindGroup group = wgpuDeviceCreateBindGroup(b->device, &desc);
    wgpuBindGroupLayoutRelease(layout);
    return group;
}

/* ---- dispatching and timing ----------------------------------------------------------------- */

static void encode(WGPUComputePassEncoder pass, const bench_step *steps, size_t count,
                   uint32_t dispatches)
{
    WGPUComputePipeline set = NULL;
    for (uint32_t i = 0; i < dispatches; i++) {
        const bench_step *s = &steps[i % count];
        if (s->pipeline != set)
            wgpuComputePassEncoderSetPipeline(pass, s->pipeline);
        set = s->pipeline;
        wgpuComputePassEncoderSetBindGroup(pass, 0, s->group, 0, NULL);
        wgpuComputePassEncoderDispatchWorkgroups(pass, s->x, s->y, 1);
    }
}

void bench_run(bench *b, const bench_step *steps, size_t count)
{
    WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(b->device, NULL);
    WGPUComputePassEncoder pass = wgpuCommandEncoderBeginComputePass(encoder, NULL);
    encode(pass, steps, count, (uint32_t)count);
    wgpuComputePassEncoderEnd(pass);
    wgpuComputePassEncoderRelease(pass);
    submit(b, encoder);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool bench_time(bench *b, const bench_step *steps, size_t count, uint32_t dispatches,
                double seconds[BENCH_PASSES])
{
    WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(b->device, NULL);
    for (uint32_t i = 0; i < BENCH_PASSES; i++) {
        const WGPUPassTimestampWrites writes = {.querySet = b->queries,
                                                .beginningOfPassWriteIndex = 2 * i,
                                                .endOfPassWriteIndex = 2 * i + 1};
        const WGPUComputePassDescriptor desc = {.timestampWrites = &writes};
        WGPUComputePassEncoder pass = wgpuCommandEncoderBeginComputePass(encoder, &desc);
        encode(pass, steps, count, dispatches);
        wgpuComputePassEncoderEnd(pass);
        wgpuComputePassEncoderRelease(pass);
    }
    wgpuCommandEncoderResolveQuerySet(encoder, b->queries, 0, BENCH_PASSES * 2, b->resolved, 0);
    wgpuCommandEncoderCopyBufferToBuffer(encoder, b->resolved, 0, b->readable, 0,
                                         BENCH_PASSES * 16);
    submit(b, encoder);
    uint64_t ticks[BENCH_PASSES * 2];
    if (!read_mapped(b, ticks, sizeof ticks))
        return false;
    for (int i = 0; i < BENCH_PASSES; i++)
        seconds[i] = (double)(ticks[2 * i + 1] - ticks[2 * i]) * 1e-9;
    qsort(seconds, BENCH_PASSES, sizeof seconds[0], by_value);
    return true;
}
