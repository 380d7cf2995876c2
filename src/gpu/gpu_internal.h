/*
 * gpu_internal.h - what the files of this room share. adapter.c finds adapters, device.c opens
 * them and keeps the first failure, buffer.c, upload.c and guard.c own memory, limits.c knows
 * names; wgsl.c and measure.c read kernels, pipeline.c and bindgroup.c cache, recorder.c checks and
 * keeps commands, submit.c encodes them and hands results back, profile.c times them. What the
 * WebGPU libraries differ in is in dawn.c and wgpu.c, behind library.h.
 */
#ifndef TEMPER_GPU_INTERNAL_H
#define TEMPER_GPU_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <webgpu/webgpu.h>

#include "gpu/gpu.h"
#include "gpu/wgsl.h"

enum {
    GPU_PARAMS_BYTES = 64,        /* the most that a kernel's parameters take */
    GPU_ERROR_SCOPES = 3,         /* validation, out of memory, internal */
    GPU_BINDINGS_MAX = 32,
    GPU_OPTIONS_MAX = 32,
    GPU_BIND_GROUPS_MAX = 1 << 15, /* above it the cache starts anew */
    GPU_BIND_GROUP_BUCKETS = 1 << 12,
    GPU_PIPELINE_BUCKETS = 1 << 10,
    GPU_GUARD_BYTES = 256,
    GPU_MESSAGE_BYTES = 640,
};

/* ---- adapters (adapter.c) ------------------------------------------------------------------- */

typedef struct gpu_adapter {
    WGPUAdapter handle;
    gpu_adapter_info info;
    uint32_t vendor_id, device_id;
    int rank;
} gpu_adapter;

enum { GPU_ADAPTERS_MAX = 16 };

typedef struct gpu_adapter_list {
    WGPUInstance instance;
    gpu_adapter adapters[GPU_ADAPTERS_MAX];
    uint32_t count;
} gpu_adapter_list;

temper_status gpu_adapter_list_open(gpu_adapter_list *list, error *err);
void gpu_adapter_list_close(gpu_adapter_list *list);

/* Takes the handle into the list, at its place; with `once` an adapter that is already there, by
 * all that can be seen of it, is released instead. */
void gpu_adapter_list_add(gpu_adapter_list *list, WGPUAdapter handle, bool once);

/* The adapter that `wanted` names (see gpu_device_desc), or NULL with the reason in err. */
const gpu_adapter *gpu_adapter_choose(const gpu_adapter_list *list, const char *wanted, error *err);

/* The adapter's limits, worsened by the overrides. */
temper_status gpu_limits_resolve(const gpu_adapter_info *info, const gpu_device_desc *desc,
                                 gpu_limits *out, error *err);

WGPUStringView gpu_text(const char *text);

/* Copies a message of the library into out[size]: its first lines, without trailing space. */
void gpu_message(char *out, size_t size, WGPUStringView message);

/* ---- buffers (buffer.c, guard.c) ------------------------------------------------------------ */

struct gpu_buffer {
    gpu_device *device;
    gpu_buffer *previous, *next;
    WGPUBuffer handle;
    uint64_t size;        /* bytes the caller sees */
    uint64_t base;        /* bytes of poison before them */
    uint64_t real_size;
    uint64_t recorded;    /* number of the last recording that used it */
    uint32_t bind_groups; /* cached bind groups that hold it */
    gpu_purpose purpose;
    char label[];
};

/* As gpu_buffer_create, for this room's own buffers: any usage, never with poisoned edges. */
temper_status gpu_buffer_create_as(gpu_device *device, uint64_t size, gpu_purpose purpose,
                                   WGPUBufferUsage usage, const char *label, gpu_buffer **out,
                                   error *err);

/* Writes the poison around the caller's bytes. */
void gpu_guard_poison(gpu_buffer *buffer);

/* ---- pipelines (pipeline.c) ----------------------------------------------------------------- */

typedef enum gpu_pipeline_state { GPU_PIPELINE_PENDING, GPU_PIPELINE_READY, GPU_PIPELINE_FAILED }
    gpu_pipeline_state;

typedef struct gpu_layout {
    struct gpu_layout *next;
    WGPUBindGroupLayout handle;
    uint32_t count;
    uint32_t written;    /* bit i: binding i is read_write */
    bool exact;          /* the kernel asks for arrayLength: its views are bound as they are */
} gpu_layout;

struct gpu_pipeline {
    gpu_device *device;
    gpu_pipeline *next;         /* in its bucket */
    gpu_pipeline *next_asked;   /* in the order of asking */
    const gpu_kernel *kernel;
    uint64_t hash;
    gpu_pipeline_state state;
    WGPUComputePipeline handle;
    gpu_layout *layout;         /* owned by the device */
    WGPUFuture future;
    bool arrived;               /* the library has answered */
    bool scope_arrived;         /* ... and told what it thinks of the module */
    WGPUFuture scope_future;
    error failure;
    gpu_unit unit;
    uint64_t profile_dispatches, profile_bytes, profile_operations;
    double profile_seconds;
    uint32_t values[];
};

/* The pipeline that stands for those that the host had no memory for; made with the device. */
gpu_pipeline *gpu_pipeline_stand_in(gpu_device *device);

/* Blocks until the pipeline is ready or failed; its failure comes out. */
temper_status gpu_pipeline_finish(gpu_pipeline *pipeline, error *err);
void gpu_pipelines_close(gpu_device *device);

/* ---- bind groups (bindgroup.c) -------------------------------------------------------------- */

typedef struct gpu_bound {
    gpu_buffer *buffer;
    uint64_t offset, size;
} gpu_bound;

typedef struct gpu_bind_group {
    struct gpu_bind_group *next;
    uint64_t hash;
    const gpu_layout *layout;
    WGPUBindGroup handle;
    uint32_t count;
    gpu_bound bound[];
} gpu_bind_group;

/* The cached group of these views; NULL when the host's memory is exhausted. */
WGPUBindGroup gpu_bind_group_get(gpu_device *device, const gpu_layout *layout,
                                 const gpu_view *views, uint32_t count);
void gpu_bind_groups_forget(gpu_device *device, gpu_buffer *buffer);
void gpu_bind_groups_clear(gpu_device *device);

/* ---- recording (recorder.c) ----------------------------------------------------------------- */

typedef enum gpu_command_kind { GPU_COMMAND_DISPATCH, GPU_COMMAND_COPY, GPU_COMMAND_CLEAR }
    gpu_command_kind;

typedef struct gpu_command {
    gpu_command_kind kind;
    uint32_t first_view;      /* in gpu_recorder.views */
    uint32_t first_param;     /* in gpu_recorder.params */
    uint32_t x, y, z;
    gpu_pipeline *pipeline;
    uint64_t bytes, operations;   /* of gpu_record_work */
} gpu_command;

struct gpu_recorder {
    gpu_device *device;
    bool open;
    bool prepare;
    uint64_t number;          /* of this recording, counted from 1 */
    gpu_command *commands;
    gpu_view *views;
    uint32_t *params;
    uint32_t command_count, command_capacity;
    uint32_t view_count, view_capacity;
    uint32_t param_count, param_capacity;
    uint32_t dispatch_count;
    uint32_t param_slots;     /* dispatches with parameters */
    gpu_view readbacks[GPU_READBACKS_PER_SUBMIT];
    uint32_t readback_count;
    uint64_t readback_bytes;
    uint64_t next_bytes, next_operations;   /* of the next dispatch */
    error failure;
};

void gpu_recorder_free(gpu_recorder *rec);

/* ---- submits (submit.c) --------------------------------------------------------------------- */

typedef struct gpu_staging {
    struct gpu_staging *next;
    gpu_buffer *buffer;
    bool busy;
} gpu_staging;

struct gpu_profile_block;

typedef struct gpu_submission {
    struct gpu_submission *next;
    gpu_device *device;
    uint64_t serial;
    bool wanted;              /* somebody holds the ticket */
    bool finished;            /* the GPU is done, and mapping too */
    bool mapped;
    bool scope_arrived[GPU_ERROR_SCOPES];
    WGPUFuture future;
    WGPUFuture scope_futures[GPU_ERROR_SCOPES];
    gpu_staging *staging;     /* NULL without readbacks */
    uint64_t readback_bytes;
    struct gpu_profile_block *profile;
} gpu_submission;

/* A free staging buffer of at least `size` bytes, marked busy. */
temper_status gpu_staging_take(gpu_device *device, uint64_t size, gpu_staging **out, error *err);
void gpu_staging_trim(gpu_device *device);

/* Runs callbacks that are due and recycles submits nobody waits for. */
void gpu_submissions_reap(gpu_device *device);
void gpu_submissions_close(gpu_device *device);

/* ---- profiling (profile.c) ------------------------------------------------------------------ */

/* What a dispatch was, as long as the recording that held it is gone. */
typedef struct gpu_profile_mark {
    gpu_pipeline *pipeline;
    uint64_t bytes, operations;
} gpu_profile_mark;

/* The timestamps of one submit: two a dispatch, in query sets of bounded size. */
typedef struct gpu_profile_block {
    struct gpu_profile_block *next;
    WGPUQuerySet *sets;
    uint32_t set_count;
    gpu_buffer *resolved;     /* query results on the GPU */
    gpu_staging *staging;
    gpu_profile_mark *marks;  /* of each dispatch */
    uint32_t count, capacity;
    uint64_t serial;          /* of the submit */
    double submitted;
    WGPUFuture future;
    bool arrived;
    bool mapped;
} gpu_profile_block;

/* A block for `count` dispatches, or NULL with the reason in err. */
gpu_profile_block *gpu_profile_begin(gpu_device *device, uint32_t count, error *err);
WGPUPassTimestampWrites gpu_profile_writes(gpu_profile_block *block, const gpu_command *command);
void gpu_profile_resolve(gpu_profile_block *block, WGPUCommandEncoder encoder);
void gpu_profile_map(gpu_device *device, gpu_profile_block *block);

/* Adds a finished block's times to its pipelines (unless the device has failed) and frees it. */
void gpu_profile_collect(gpu_device *device, gpu_profile_block *block);
void gpu_profile_free(gpu_profile_block *block);
void gpu_profile_close(gpu_device *device);

/* ---- the device (device.c) ------------------------------------------------------------------ */

struct gpu_device {
    atomic_uint references;
    WGPUInstance instance;
    WGPUAdapter adapter;
    WGPUDevice handle;
    WGPUQueue queue;
    gpu_adapter_info info;
    gpu_limits limits;
    uint32_t features;
    uint32_t marks;
    void *kept;
    void (*release_kept)(void *kept);
    bool robust;
    bool guard;
    uint64_t bound_max;       /* the largest binding that the library takes */
    bool measure;             /* a workgroup limit is worse than the adapter's: ours to enforce */
    bool closing;
    gpu_profile_mode profiling;
    gpu_profile_event *events;
    uint32_t event_count, event_capacity;
    uint64_t event_origin;    /* what the GPU's clock showed at the first of all; 0: none yet */

    /* Guards the failure: the library may report one from a thread of its own. */
    pthread_mutex_t failure_lock;
    error failure;
    bool lost;

    gpu_counters counters;
    uint64_t fail_allocation; /* 0: never; else creations until the one that fails */
    uint64_t unsubmitted;     /* bytes written since the last submit */
    uint64_t serial;          /* of the last submit */

    gpu_buffer *buffers;
    gpu_layout *layouts;
    WGPUBindGroupLayout params_layout;
    gpu_buffer *params_buffer;
    WGPUBindGroup params_group;
    uint8_t *params_host;     /* the parameter slots of the submit being encoded */
    uint32_t params_slots;    /* capacity of the two above */

    gpu_pipeline *pipelines[GPU_PIPELINE_BUCKETS];
    gpu_pipeline *asked_first, *asked_last;
    gpu_pipeline *reported;   /* the last pipeline that gpu_pipelines_wait has told about */
    double last_pipeline;     /* when the library last answered about one; see dawn.c */
    gpu_pipeline *no_memory;  /* stands for a pipeline that could not be allocated */

    gpu_bind_group *bind_groups[GPU_BIND_GROUP_BUCKETS];
    uint32_t bind_group_count;

    gpu_recorder recorder;
    gpu_staging *staging;
    gpu_submission *submissions;      /* in flight or waiting to be fetched, oldest first */
    gpu_submission *submissions_free;
};

/* Keeps the first failure of the device. */
void gpu_device_fail(gpu_device *device, temper_status status, const char *format, ...)
    ERROR_PRINTF(3, 4);
void gpu_device_fail_by_library(gpu_device *device, WGPUErrorType type, const char *where,
                                WGPUStringView message);
bool gpu_device_lost(gpu_device *device);

/* Waits until the library has run the callback that sets *arrived; false when the device was lost
 * first and the callback does not come. */
bool gpu_await(gpu_device *device, WGPUFuture future, const bool *arrived);

/* Waits until the queue has done all that was submitted. */
void gpu_await_queue(gpu_device *device);

#endif
