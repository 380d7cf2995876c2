#include "support/masks.h"

#include "gpu/gpu.h"

#define EVERY_FEATURE "f16,subgroups,subgroup-matrix,timestamps,immediates"

const device_mask test_masks[] = {
    {"everything", NULL, false, false},
    {"everything, checked", NULL, false, true},
    {"without f16", "f16", false, false},
    {"without f16, checked", "f16", false, true},
    {"without subgroups", "subgroups", false, false},
    {"without subgroups, checked", "subgroups", false, true},
    {"without immediates", "immediates", false, false},
    {"without immediates, checked", "immediates", false, true},
    {"default limits", NULL, true, false},
    {"default limits, checked", NULL, true, true},
    {"bare", EVERY_FEATURE, true, false},
    {"bare, checked", EVERY_FEATURE, true, true},
};

const size_t test_mask_count = sizeof test_masks / sizeof test_masks[0];

temper_device_desc test_mask_desc(const device_mask *mask)
{
    static const char *const defaults[] = {
#define X(field, name, initial, higher) name "=" #initial,
        GPU_LIMIT_TABLE(X)
#undef X
    };
    temper_device_desc desc = {.without = mask->without, .robust = mask->robust};
    if (mask->default_limits) {
        desc.limits = defaults;
        desc.limit_count = sizeof defaults / sizeof defaults[0];
    }
    return desc;
}
