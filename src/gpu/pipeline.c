/*
 * pipeline.c - from a kernel and its options to a pipeline, once a device and without waiting.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gpu/library.h"

/* ---- layouts -------------------------------------------------------------------------------- */

static WGPUBindGroupLayoutEntry buffer_entry(uint32_t binding, WGPUBufferBindingType type)
{
    return (WGPUBindGroupLayoutEntry){
        .binding = binding,
        .visibility = WGPUShaderStage_Compute,
        .buffer = {.type = type, .hasDynamicOffset = type == WGPUBufferBindingType_Uniform},
    };
}

/* Kernels that bind as many buffers with the same access share a layout, and so bind groups. */
static gpu_layout *layout_of(gpu_device *device, const gpu_kernel *kernel)
{
    WGPUBindGroupLayoutEntry entries[GPU_BINDINGS_MAX];
    uint32_t written = 0;

    for (uint32_t i = 0; i < kernel->binding_count; i++)
        if (kernel->bindings[i].access == GPU_READ_WRITE)
            written |= UINT32_C(1) << i;
    const bool exact = strstr(kernel->source, "arrayLength") != NULL;
    for (gpu_layout *layout = device->layouts; layout != NULL; layout = layout->next)
        if (layout->count == kernel->binding_count && layout->written == written &&
            layout->exact == exact)
            return layout;

    gpu_layout *layout = mem_calloc(1, sizeof *layout);
    if (layout == NULL)
        return NULL;
    for (uint32_t i = 0; i < kernel->binding_count; i++)
        entries[i] = buffer_entry(i, (written >> i & 1) ? WGPUBufferBindingType_Storage
                                                        : WGPUBufferBindingType_ReadOnlyStorage);
    const WGPUBindGroupLayoutDescriptor desc = {.label = gpu_text(kernel->name),
                                                .entryCount = kernel->binding_count,
                                                .entries = entries};
    *layout = (gpu_layout){.next = device->layouts, .count = kernel->binding_count,
                           .written = written, .exact = exact,
                           .handle = wgpuDeviceCreateBindGroupLayout(device->handle, &desc)};
    device->layouts = layout;
    return layout;
}

static WGPUBindGroupLayout params_layout(gpu_device *device)
{
    if (device->params_layout == NULL) {
        const WGPUBindGroupLayoutEntry entry = buffer_entry(0, WGPUBufferBindingType_Uniform);
        const WGPUBindGroupLayoutDescriptor desc = {.label = gpu_text("params"), .entryCount = 1,
                                                    .entries = &entry};
        device->params_layout = wgpuDeviceCreateBindGroupLayout(device->handle, &desc);
    }
    return device->params_layout;
}

static WGPUPipelineLayout pipeline_layout(gpu_device *device, const gpu_pipeline *pipeline)
{
    const gpu_kernel *kernel = pipeline->kernel;
    const bool immediates = (device->features & GPU_FEATURE_IMMEDIATES) != 0;
    const bool uniform = kernel->params_bytes > 0 && !immediates;
    const WGPUBindGroupLayout groups[2] = {pipeline->layout->handle,
                                           uniform ? params_layout(device) : NULL};
    const WGPUPipelineLayoutDescriptor desc = {
        .label = gpu_text(kernel->name),
        .bindGroupLayoutCount = uniform ? 2 : 1,
        .bindGroupLayouts = groups,
        .immediateSize = immediates ? kernel->params_bytes : 0,
    };
    return wgpuDeviceCreatePipelineLayout(device->handle, &desc);
}

/* ---- what a device must have ---------------------------------------------------------------- */

static temper_status check_needs(const gpu_pipeline *pipeline, error *err)
{
    const gpu_kernel *kernel = pipeline->kernel;
    const gpu_device *device = pipeline->device;
    const uint32_t missing = kernel->needs & ~device->features;

    for (uint32_t bit = 1; bit != 0 && bit <= missing; bit <<= 1)
        if (missing & bit) {
            const char *name = gpu_feature_name((gpu_feature)bit);
            return error_set(err, TEMPER_UNSUPPORTED, "kernel %s needs the feature %s, which %s",
                             kernel->name, name != NULL ? name : "(unknown)",
                             device->info.features & bit ? "was taken away from the device"
                                                         : "the adapter does not have");
        }
    if (kernel->binding_count > device->limits.max_storage_buffers)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "kernel %s binds %" PRIu32 " buffers, the device's "
                         "maxStorageBuffersPerShaderStage is %" PRIu64,
                         kernel->name, kernel->binding_count, device->limits.max_storage_buffers);
    return TEMPER_OK;
}

static temper_status check_workgroup(const gpu_pipeline *pipeline, const char *source, error *err)
{
    const gpu_limits *limits = &pipeline->device->limits;
    wgsl_workgroup group;
    const temper_status status =
        wgsl_measure(pipeline->kernel, source, pipeline->values, &group, err);
    if (status != TEMPER_OK)
        return status;

    const struct {
        const char *name;
        uint64_t taken, limit;
    } rows[] = {
        {"maxComputeWorkgroupSizeX", group.size[0], limits->max_workgroup_x},
        {"maxComputeWorkgroupSizeY", group.size[1], limits->max_workgroup_y},
        {"maxComputeWorkgroupSizeZ", group.size[2], limits->max_workgroup_z},
        {"maxComputeInvocationsPerWorkgroup", group.size[0] * group.size[1] * group.size[2],
         limits->max_invocations},
        {"maxComputeWorkgroupStorageSize", group.memory, limits->max_workgroup_memory},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].taken > rows[i].limit)
            return error_set(err, TEMPER_UNSUPPORTED,
                             "kernel %s takes %" PRIu64 ", the device's %s is %" PRIu64,
                             pipeline->kernel->name, rows[i].taken, rows[i].name, rows[i].limit);
    return TEMPER_OK;
}

/* ---- creation ------------------------------------------------------------------------------- */

static void settle(gpu_pipeline *pipeline)
{
    if (!pipeline->arrived || !pipeline->scope_arrived)
        return;
    pipeline->state = pipeline->failure.status == TEMPER_OK && pipeline->handle != NULL
                          ? GPU_PIPELINE_READY
                          : GPU_PIPELINE_FAILED;
    if (pipeline->state == GPU_PIPELINE_FAILED)
        error_set(&pipeline->failure, TEMPER_DEVICE_ERROR, "kernel %s: no pipeline",
                  pipeline->kernel->name);
}

static void on_pipeline(WGPUCreatePipelineAsyncStatus status, WGPUComputePipeline handle,
                        WGPUStringView message, void *user, void *unused)
{
    (void)unused;
    gpu_pipeline *pipeline = user;
    char text[GPU_MESSAGE_BYTES];

    pipeline->handle = handle;
    if (status != WGPUCreatePipelineAsyncStatus_Success) {
        gpu_message(text, sizeof text, message);
        error_set(&pipeline->failure, TEMPER_DEVICE_ERROR, "kernel %s: %s", pipeline->kernel->name,
                  text);
    }
    pipeline->arrived = true;
    pipeline->device->last_pipeline = clock_seconds();
    settle(pipeline);
}

static void on_module_scope(WGPUPopErrorScopeStatus status, WGPUErrorType type,
                            WGPUStringView message, void *user, void *unused)
{
    (void)unused;
    gpu_pipeline *pipeline = user;
    char text[GPU_MESSAGE_BYTES];

    /* The compiler's own words about the source beat "the module is invalid". */
    if (status == WGPUPopErrorScopeStatus_Success && type != WGPUErrorType_NoError) {
        gpu_message(text, sizeof text, message);
        error_clear(&pipeline->failure);
        error_set(&pipeline->failure, TEMPER_DEVICE_ERROR, "kernel %s: %s", pipeline->kernel->name,
                  text);
    }
    pipeline->scope_arrived = true;
    settle(pipeline);
}

static WGPUShaderModule create_module(gpu_device *device, const char *name, const strbuf *source)
{
    WGPUShaderSourceWGSL wgsl = {.chain = {NULL, WGPUSType_ShaderSourceWGSL},
                                 .code = {source->data, source->length}};
    const WGPUShaderModuleDescriptor desc = {.nextInChain = &wgsl.chain, .label = gpu_text(name)};

    return library_create_module(device, &desc);
}

static void request_pipeline(gpu_pipeline *pipeline, const strbuf *source)
{
    gpu_device *device = pipeline->device;
    const gpu_kernel *kernel = pipeline->kernel;
    WGPUConstantEntry constants[GPU_OPTIONS_MAX];
    size_t constant_count = 0;

    for (uint32_t i = 0; i < kernel->option_count; i++)
        if (kernel->options[i].is_override)
            constants[constant_count++] = (WGPUConstantEntry){
                .key = gpu_text(kernel->options[i].name), .value = pipeline->values[i]};

    wgpuDevicePushErrorScope(device->handle, WGPUErrorFilter_Validation);
    WGPUShaderModule module = create_module(device, kernel->name, source);
    WGPUPipelineLayout layout = pipeline_layout(device, pipeline);
    const WGPUComputePipelineDescriptor desc = {
        .label = gpu_text(kernel->name),
        .layout = layout,
        .compute = {.module = module, .entryPoint = {NULL, WGPU_STRLEN},
                    .constantCount = constant_count, .constants = constants},
    };
    const WGPUCreateComputePipelineAsyncCallbackInfo created = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_pipeline,
        .userdata1 = pipeline};
    pipeline->future = library_create_pipeline(device, &desc, created);
    const WGPUPopErrorScopeCallbackInfo popped = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                  .callback = on_module_scope,
                                                  .userdata1 = pipeline};
    pipeline->scope_future = wgpuDevicePopErrorScope(device->handle, popped);
    wgpuPipelineLayoutRelease(layout);
    wgpuShaderModuleRelease(module);
    device->counters.pipelines_created++;
}

static void start(gpu_pipeline *pipeline)
{
    gpu_device *device = pipeline->device;
    const gpu_kernel *kernel = pipeline->kernel;
    const bool immediates = (device->features & GPU_FEATURE_IMMEDIATES) != 0;
    strbuf source = {0};
    error *err = &pipeline->failure;

    temper_status status = gpu_device_status(device, err);
    if (status == TEMPER_OK)
        status = check_needs(pipeline, err);
    if (status == TEMPER_OK)
        status = wgsl_prepare(kernel, pipeline->values,
                              immediates ? library.immediate_directive : NULL, &source, err);
    if (status == TEMPER_OK)
        status = wgsl_check_bindings(kernel, source.data, err);
    if (status == TEMPER_OK && device->measure)
        status = check_workgroup(pipeline, source.data, err);
    if (status == TEMPER_OK) {
        pipeline->layout = layout_of(device, kernel);
        if (pipeline->layout == NULL)
            status = error_set(err, TEMPER_NO_MEMORY, "kernel %s: no memory", kernel->name);
    }
    if (status == TEMPER_OK)
        request_pipeline(pipeline, &source);
    else
        pipeline->state = GPU_PIPELINE_FAILED;
    strbuf_free(&source);
}

/* ---- the cache ------------------------------------------------------------------------------ */

static uint64_t hash_of(const gpu_kernel *kernel, const uint32_t *values)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)(uintptr_t)kernel;

    hash *= UINT64_C(1099511628211);
    for (uint32_t i = 0; i < kernel->option_count; i++)
        hash = (hash ^ values[i]) * UINT64_C(1099511628211);
    return hash ^ hash >> 29;
}

static void check_descriptor(const gpu_kernel *kernel)
{
    assert(kernel->name != NULL && kernel->source != NULL);
    assert(kernel->binding_count <= GPU_BINDINGS_MAX && kernel->option_count <= GPU_OPTIONS_MAX);
    assert(kernel->params_bytes <= GPU_PARAMS_BYTES && kernel->params_bytes % 4 == 0);
    (void)kernel;
}

gpu_pipeline *gpu_pipeline_stand_in(gpu_device *device)
{
    gpu_pipeline *pipeline = mem_calloc(1, sizeof *pipeline);

    if (pipeline != NULL) {
        pipeline->device = device;
        pipeline->state = GPU_PIPELINE_FAILED;
        error_set(&pipeline->failure, TEMPER_NO_MEMORY, "no host memory for a pipeline");
    }
    return pipeline;
}

gpu_pipeline *gpu_pipeline_get(gpu_device *device, const gpu_kernel *kernel, const void *options)
{
    uint32_t values[GPU_OPTIONS_MAX];

    assert(device != NULL && kernel != NULL);
    check_descriptor(kernel);
    const size_t bytes = kernel->option_count * sizeof values[0];
    if (options != NULL && bytes > 0)
        memcpy(values, options, bytes);
    else
        for (uint32_t i = 0; i < kernel->option_count; i++)
            values[i] = kernel->options[i].default_value;

    const uint64_t hash = hash_of(kernel, values);
    gpu_pipeline **bucket = &device->pipelines[hash % GPU_PIPELINE_BUCKETS];
    for (gpu_pipeline *known = *bucket; known != NULL; known = known->next)
        if (known->hash == hash && known->kernel == kernel &&
            memcmp(known->values, values, bytes) == 0) {
            /* The host may have memory again; every other failure lasts. */
            if (known->failure.status == TEMPER_NO_MEMORY) {
                error_clear(&known->failure);
                known->state = GPU_PIPELINE_PENDING;
                start(known);
            }
            return known;
        }

    gpu_pipeline *pipeline = mem_calloc(1, sizeof *pipeline + bytes);
    if (pipeline == NULL)
        return device->no_memory;
    pipeline->device = device;
    pipeline->kernel = kernel;
    pipeline->unit = gpu_kernel_unit(kernel);
    pipeline->hash = hash;
    memcpy(pipeline->values, values, bytes);
    pipeline->next = *bucket;
    *bucket = pipeline;
    if (device->asked_last != NULL)
        device->asked_last->next_asked = pipeline;
    else
        device->asked_first = pipeline;
    device->asked_last = pipeline;
    start(pipeline);
    return pipeline;
}

temper_status gpu_pipeline_finish(gpu_pipeline *pipeline, error *err)
{
    gpu_device *device = pipeline->device;

    if (pipeline->state == GPU_PIPELINE_PENDING) {
        gpu_await(device, pipeline->scope_future, &pipeline->scope_arrived);
        gpu_await(device, pipeline->future, &pipeline->arrived);
    }
    if (pipeline->state == GPU_PIPELINE_READY)
        return TEMPER_OK;
    /* A lost device fails its pipelines too; the device's failure is the cause. */
    const temper_status status = gpu_device_status(device, err);
    if (status != TEMPER_OK)
        return status;
    return error_set(err, pipeline->failure.status, "%s", pipeline->failure.text);
}

temper_status gpu_pipelines_wait(gpu_device *device, error *err)
{
    error first = {0};
    gpu_pipeline *pipeline =
        device->reported != NULL ? device->reported->next_asked : device->asked_first;

    for (; pipeline != NULL; pipeline = pipeline->next_asked) {
        gpu_pipeline_finish(pipeline, &first);
        device->reported = pipeline;
    }
    gpu_device_status(device, &first);
    return first.status == TEMPER_OK ? TEMPER_OK
                                     : error_set(err, first.status, "%s", first.text);
}

void gpu_pipelines_close(gpu_device *device)
{
    gpu_pipeline *next_pipeline;
    gpu_layout *next_layout;

    for (gpu_pipeline *pipeline = device->asked_first; pipeline != NULL; pipeline = next_pipeline) {
        next_pipeline = pipeline->next_asked;
        if (pipeline->handle != NULL)
            wgpuComputePipelineRelease(pipeline->handle);
        mem_free(pipeline);
    }
    for (gpu_layout *layout = device->layouts; layout != NULL; layout = next_layout) {
        next_layout = layout->next;
        wgpuBindGroupLayoutRelease(layout->handle);
        mem_free(layout);
    }
    if (device->params_layout != NULL)
        wgpuBindGroupLayoutRelease(device->params_layout);
}
