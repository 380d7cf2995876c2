/*
 * dawn.h - the few things that Dawn adds to the standard webgpu.h and that this room uses, declared
 * here so that one standard header serves every library. Each is looked at only after the library
 * has said that it offers it.
 */
#ifndef TEMPER_GPU_DAWN_H
#define TEMPER_GPU_DAWN_H

#include <webgpu/webgpu.h>

#define DAWN_STYPE_TOGGLES ((WGPUSType)0x0005000A)
#define DAWN_STYPE_SUBGROUP_MATRIX_CONFIGS ((WGPUSType)0x0005003B)
#define DAWN_FEATURE_SUBGROUP_MATRIX ((WGPUFeatureName)0x00050034)

/* The number moved when the language feature became a standard one. */
#define DAWN_LANGUAGE_IMMEDIATES ((WGPUWGSLLanguageFeatureName)0x0000000B)
#define DAWN_LANGUAGE_IMMEDIATES_EARLIER ((WGPUWGSLLanguageFeatureName)0x0005000B)

/* Chained to an adapter request and to a device descriptor. */
typedef struct dawn_toggles {
    WGPUChainedStruct chain;
    size_t enabled_count;
    const char *const *enabled;
    size_t disabled_count;
    const char *const *disabled;
} dawn_toggles;

/* Chained to WGPUAdapterInfo. A config is five u32 (component, result, M, N, K), seven in later
 * versions (smallest and largest subgroup). */
typedef struct dawn_subgroup_matrix_configs {
    WGPUChainedStruct chain;
    size_t count;
    const uint32_t *words;
} dawn_subgroup_matrix_configs;

void wgpuAdapterPropertiesSubgroupMatrixConfigsFreeMembers(dawn_subgroup_matrix_configs configs);
void wgpuDeviceForceLoss(WGPUDevice device, WGPUDeviceLostReason reason, WGPUStringView message);

#endif
