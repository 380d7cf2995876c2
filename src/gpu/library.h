/*
 * library.h - the WebGPU library behind this room, and all in which the two that temper can be
 * built on differ. dawn.c and wgpu.c each define what is declared here, and the build compiles one
 * of them (TEMPER_WEBGPU). Every other file of the room speaks the standard webgpu.h and no more.
 */
#ifndef TEMPER_GPU_LIBRARY_H
#define TEMPER_GPU_LIBRARY_H

#include "gpu/gpu_internal.h"

typedef struct library_traits {
    const char *name;
    /* What a source must begin with to declare var<immediate>; "" where nothing is needed. */
    const char *immediate_directive;
    /* Kinds of errors that a scope can be pushed for: validation, out of memory, internal, up to
     * here.
     */
    int scope_count;
    /* Commands with an error in them end the process when they are submitted. The library's error
     * scopes answer at once, so that the error is known before. */
    bool submit_aborts;
} library_traits;

extern const library_traits library;

/* Sets list->instance and adds every adapter that the library gives. */
temper_status library_find_adapters(gpu_adapter_list *list, error *err);

/* The gpu_feature bits that an adapter has and that kernels can use with this library. */
uint32_t library_features(WGPUInstance instance, WGPUAdapter adapter, const WGPULimits *limits);

/* Fills info->matrices and matrix_count of an adapter with GPU_FEATURE_SUBGROUP_MATRIX. */
void library_matrix_shapes(WGPUAdapter adapter, gpu_adapter_info *info);

/* Writes what a device with these bits must be asked for, and returns how many names that is. */
enum { LIBRARY_FEATURES_MAX = 4 };
size_t library_feature_names(uint32_t features, WGPUFeatureName *out);

/* What a device descriptor is chained to, with or without bounds checks in shaders; NULL: to
 * nothing. It lives as long as the process. */
WGPUChainedStruct *library_device_chain(bool robust);

/* Runs the callbacks that are due, and waits until *arrived or for 100 ms, whichever comes first.
 * On false the library refuses to wait. */
bool library_wait(const gpu_device *device, WGPUFuture future, const bool *arrived);

WGPUShaderModule library_create_module(gpu_device *device, const WGPUShaderModuleDescriptor *desc);

/* As wgpuDeviceCreateComputePipelineAsync; the callback may run before it returns. */
WGPUFuture library_create_pipeline(gpu_device *device, const WGPUComputePipelineDescriptor *desc,
                                   WGPUCreateComputePipelineAsyncCallbackInfo callback);

/* Gives the device's handle back to the library, at once or when it is safe. library_release_due
 * does what has become safe since. */
void library_release_device(gpu_device *device);
void library_release_due(void);

/* Loses the device, as a driver reset would; its failure names gpu_lose. */
void library_lose(gpu_device *device);

/* The part of an error message that says what is wrong, without what the library puts around it. */
WGPUStringView library_message(WGPUStringView message);

#endif
