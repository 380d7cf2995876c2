/*
 * gpu.h - the only door to the GPU. Native builds implement it over webgpu.h, a web page over
 * navigator.gpu; nothing outside this room sees either, and nothing in this room knows what a
 * tensor is.
 *
 *     gpu_device *device;                      // an adapter that can compute, or a reason why not
 *     gpu_device_open(&desc, &device, &err);
 *     gpu_buffer *x;
 *     gpu_buffer_create(device, bytes, GPU_PURPOSE_SCRATCH, "x", &x, &err);
 *     gpu_pipeline *scale = gpu_pipeline_get(device, &kernel_scale, &options);  // cached, async
 *     gpu_recorder *rec = gpu_record_begin(device);
 *     gpu_record_dispatch(rec, scale, views, &params, groups_x, 1, 1);          // any number
 *     gpu_record_readback(rec, gpu_whole(x));
 *     gpu_ticket ticket;
 *     gpu_submit(rec, &ticket, &err);          // one submit; the recording's first error comes out
 *     gpu_wait(device, ticket, out, bytes, &err);
 *
 * Rules
 *  - One thread drives a device. gpu_wait, gpu_finish, gpu_trim, gpu_upload_begin and
 *    gpu_check_guards wait for the GPU; gpu_write may, natively, after many megabytes (see there);
 *    gpu_pipelines_wait waits for the compiler, and so does gpu_submit for a pipeline that is not
 *    there yet.
 *  - Work in one recorder runs in order, as if each dispatch saw all that came before it; submits
 *    run in order too.
 *  - Errors are sticky. A validation, out-of-memory or internal error of a submit is reported by
 *    the gpu_wait of its ticket, no data is handed out, and every later call on the device says
 *    the first cause (TEMPER_DEVICE_LOST once the device is gone). Closing always works.
 *  - A recorder records its own errors (a view past its buffer, too large a dispatch, a buffer
 *    bound for reading and for writing at once): dispatch calls return nothing, gpu_submit reports
 *    the first and submits nothing. Such an error is not sticky: the device stays as it was. The
 *    same holds for gpu_buffer_create: what could not be created was not, and nothing else
 *    changed.
 *  - Pipelines, bind-group layouts and bind groups are cached for the life of the device (bind
 *    groups until one of their buffers is destroyed). In a steady loop none is created: see
 *    gpu_counters.
 */
#ifndef TEMPER_GPU_GPU_H
#define TEMPER_GPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "gpu/kernel.h"

typedef struct gpu_device gpu_device;
typedef struct gpu_buffer gpu_buffer;
typedef struct gpu_pipeline gpu_pipeline;
typedef struct gpu_recorder gpu_recorder;

/* ---- adapters, features, limits ------------------------------------------------------------- */

/* One table: every limit that temper looks at, in WebGPU's words.
 * X(field, "webgpu name", WebGPU's default, higher is better). */
#define GPU_LIMIT_TABLE(X)                                                                         \
    X(max_buffer_size, "maxBufferSize", 268435456, true)                                           \
    X(max_storage_binding, "maxStorageBufferBindingSize", 134217728, true)                         \
    X(max_storage_buffers, "maxStorageBuffersPerShaderStage", 8, true)                             \
    X(max_workgroup_memory, "maxComputeWorkgroupStorageSize", 16384, true)                         \
    X(max_invocations, "maxComputeInvocationsPerWorkgroup", 256, true)                             \
    X(max_workgroup_x, "maxComputeWorkgroupSizeX", 256, true)                                      \
    X(max_workgroup_y, "maxComputeWorkgroupSizeY", 256, true)                                      \
    X(max_workgroup_z, "maxComputeWorkgroupSizeZ", 64, true)                                       \
    X(max_workgroups, "maxComputeWorkgroupsPerDimension", 65535, true)                             \
    X(storage_alignment, "minStorageBufferOffsetAlignment", 256, false)                            \
    X(uniform_alignment, "minUniformBufferOffsetAlignment", 256, false)

typedef struct gpu_limits {
#define X(field, name, initial, higher) uint64_t field;
    GPU_LIMIT_TABLE(X)
#undef X
} gpu_limits;

typedef enum gpu_component {
    GPU_COMPONENT_F32 = 1,
    GPU_COMPONENT_F16 = 2,
    GPU_COMPONENT_U32 = 3,
    GPU_COMPONENT_I32 = 4,
    GPU_COMPONENT_U8 = 5,
    GPU_COMPONENT_I8 = 6,
} gpu_component;

/* A product that subgroup matrices can do: [m, k] by [k, n], components added up in `result`. */
typedef struct gpu_matrix_shape {
    gpu_component component;
    gpu_component result;
    uint32_t m, n, k;
} gpu_matrix_shape;

enum { GPU_MATRIX_SHAPES = 32 };

typedef struct gpu_adapter_info {
    char name[256];          /* "NVIDIA H200" */
    char driver[256];        /* driver and version as the WebGPU library tells them */
    char backend[32];        /* "Vulkan", "Metal", "D3D12", "WebGPU" */
    char type[32];           /* "discrete GPU", "integrated GPU", "CPU", "unknown" */
    uint32_t features;       /* gpu_feature bits the adapter offers */
    gpu_limits limits;       /* what the adapter offers */
    uint32_t subgroup_min;   /* 0 where unknown */
    uint32_t subgroup_max;
    uint32_t matrix_count;   /* 0 without GPU_FEATURE_SUBGROUP_MATRIX */
    gpu_matrix_shape matrices[GPU_MATRIX_SHAPES];
    bool usable;
    char reason[256];        /* why not, when it is not: "the Null backend computes nothing" */
} gpu_adapter_info;

/* Fills up to `capacity` rows and sets *count to the number of adapters found, unusable ones
 * included. Best first: usable before unusable, then discrete, integrated, others, CPU; the place
 * in this list is the adapter's number. None found is TEMPER_OK with a count of 0. Dawn's C
 * interface answers requests and has no list, so that of several equal cards it gives one;
 * wgpu-native gives each. */
temper_status gpu_adapters(gpu_adapter_info *rows, uint32_t capacity, uint32_t *count, error *err);

/* The WebGPU library that this build computes with: "Dawn", "wgpu-native". */
const char *gpu_library_name(void);

typedef struct gpu_limit_override {
    const char *name;   /* WebGPU's name of the limit */
    uint64_t value;
} gpu_limit_override;

typedef struct gpu_device_desc {
    const char *adapter;     /* NULL: the best usable one; a number of gpu_adapters; or part of a
                              * name or driver, in any case */
    uint32_t without_features;        /* gpu_feature bits that the device must not have; without
                                       * subgroups there are no subgroup matrices either */
    const gpu_limit_override *limits; /* worsened limits; beyond WebGPU's defaults temper enforces
                                       * them itself */
    uint32_t limit_count;
    bool robust;             /* keep the WebGPU library's bounds checks in shaders */
    bool guard;              /* every buffer gets poisoned edges, and a view that ends with its
                              * buffer is bound with the edge behind it (but for kernels that ask
                              * for arrayLength), so that writes past it land there on every
                              * adapter; see gpu_check_guards */
} gpu_device_desc;

/* Opens a device (desc NULL: all defaults); *out holds one reference, owned by the caller. Errors:
 * TEMPER_NO_DEVICE with what was found and why it was refused; TEMPER_BAD_ARGUMENT for an unknown
 * adapter or limit, or a limit better than the adapter's. */
temper_status gpu_device_open(const gpu_device_desc *desc, gpu_device **out, error *err);

gpu_device *gpu_device_retain(gpu_device *device);

/* The last release closes, after what is in flight; open recordings and tickets are dropped, and
 * buffers that are still there go with the device (and are reported to the log). NULL is fine. */
void gpu_device_release(gpu_device *device);

const gpu_adapter_info *gpu_device_adapter(const gpu_device *device);
uint32_t gpu_device_features(const gpu_device *device);        /* after the mask */
const gpu_limits *gpu_device_limits(const gpu_device *device); /* as enforced */
bool gpu_device_robust(const gpu_device *device);

/* Bits that the rooms above keep with a device: what they found out about it. 0 at first; each mark
 * stays. */
uint32_t gpu_device_marks(const gpu_device *device);
void gpu_device_mark(gpu_device *device, uint32_t bits);

/* One thing more that the room above keeps with a device: NULL at first. The device owns it: it
 * goes by `release` when another one comes or the device closes. */
void gpu_device_keep(gpu_device *device, void *thing, void (*release)(void *thing));
void *gpu_device_kept(const gpu_device *device);

/* The first failure of the device, or TEMPER_OK. */
temper_status gpu_device_status(gpu_device *device, error *err);

/* "f16,subgroups" -> bits; an unknown name is TEMPER_BAD_ARGUMENT and is named. "" is no bit. */
temper_status gpu_features_parse(const char *list, uint32_t *features, error *err);

/* "f16", "subgroups", "subgroup-matrix", "timestamps", "immediates"; NULL for other values. */
const char *gpu_feature_name(gpu_feature feature);

/* ---- buffers -------------------------------------------------------------------------------- */

typedef enum gpu_purpose {
    GPU_PURPOSE_WEIGHTS,
    GPU_PURPOSE_CACHE,
    GPU_PURPOSE_SCRATCH,
    GPU_PURPOSE_INPUT,    /* ids, positions, tables written by the host */
    GPU_PURPOSE_STAGING,  /* readback and parameter buffers of this room */
    GPU_PURPOSE_COUNT
} gpu_purpose;

const char *gpu_purpose_name(gpu_purpose purpose);

typedef struct gpu_view {
    gpu_buffer *buffer;
    uint64_t offset;    /* bytes, a multiple of storage_alignment where it is bound to a dispatch */
    uint64_t size;      /* bytes, a multiple of 4, at least 4 where it is bound */
} gpu_view;

/* A zeroed storage buffer of `size` bytes (rounded up to 4, at least 4). `label` is copied. Larger
 * than max_buffer_size: TEMPER_UNSUPPORTED; no memory left: TEMPER_DEVICE_MEMORY (a web page learns
 * of it only at the next gpu_wait, where it is sticky). */
temper_status gpu_buffer_create(gpu_device *device, uint64_t size, gpu_purpose purpose,
                                const char *label, gpu_buffer **out, error *err);

/* NULL is fine. Work submitted before still runs; an open recording that uses it fails. */
void gpu_buffer_destroy(gpu_buffer *buffer);
uint64_t gpu_buffer_size(const gpu_buffer *buffer);   /* after rounding */
const char *gpu_buffer_label(const gpu_buffer *buffer);
gpu_view gpu_whole(gpu_buffer *buffer);

/* Queued write of host bytes, ordered after earlier submits and before the next one (an open
 * recording counts as not yet submitted). offset and size are multiples of 4. The bytes are copied
 * before it returns; natively, every 64 MiB without a submit in between wait for the GPU to take
 * them, so that the library's own copies stay small. */
temper_status gpu_write(gpu_device *device, gpu_buffer *buffer, uint64_t offset, const void *bytes,
                        uint64_t size, error *err);

/* ---- uploads --------------------------------------------------------------------------------- */

/* Blocks of bytes that any threads of the host make and the device copies to where they belong. Two
 * blocks take turns, so that one can be filled while the other is on its way. */
typedef struct gpu_upload gpu_upload;

/* Blocks of so many bytes, made when they are first needed. `mapped`: they are memory that host and
 * GPU both reach (GPU_PURPOSE_STAGING), and the GPU copies; else they are the host's own and go by
 * gpu_write, which is better where the GPU is the host. *out is owned by the caller and keeps the
 * device borrowed. Errors: TEMPER_NO_MEMORY. */
temper_status gpu_upload_open(gpu_device *device, uint64_t bytes, bool mapped, gpu_upload **out,
                              error *err);

/* What was sent still arrives. NULL is fine. */
void gpu_upload_close(gpu_upload *upload);

/* Begins a block: *out has its bytes, to be written, never read (such memory may be slow to read),
 * by any threads until gpu_upload_send. Two may have begun. Waits until the GPU has taken what was
 * there. Errors: TEMPER_NO_MEMORY, TEMPER_DEVICE_MEMORY, or the device's failure. */
temper_status gpu_upload_begin(gpu_upload *upload, void **out, error *err);

/* Of the block that began first: bytes [from, from + bytes) are to go to [to, to + bytes) of the
 * buffer; all are multiples of 4, and inside (assert). */
void gpu_upload_copy(gpu_upload *upload, uint64_t from, gpu_buffer *buffer, uint64_t to,
                     uint64_t bytes);

/* Ends the block that began first and queues its copies, ordered as a gpu_write. */
temper_status gpu_upload_send(gpu_upload *upload, error *err);

/* ---- pipelines ------------------------------------------------------------------------------ */

/* Returns the pipeline of a kernel with these options (the generated options struct: one uint32_t
 * an option, in order; NULL: the defaults), starting its creation if it is new. The kernel must
 * outlive the device. Never NULL: a failure (out of memory, a feature the device lacks, a
 * workgroup beyond a limit, a compile error) is kept in the pipeline and reported, each time with
 * the kernel's name, by gpu_submit of a recording that dispatches it and by the next
 * gpu_pipelines_wait. */
gpu_pipeline *gpu_pipeline_get(gpu_device *device, const gpu_kernel *kernel, const void *options);

/* Waits until every pipeline asked for so far exists; the first failure among those asked for since
 * the last call comes out, with the compiler's message. */
temper_status gpu_pipelines_wait(gpu_device *device, error *err);

/* ---- recording ------------------------------------------------------------------------------ */

typedef struct gpu_ticket {
    uint64_t serial;   /* 0: none */
} gpu_ticket;

enum { GPU_READBACKS_PER_SUBMIT = 4 };

/* A recorder is borrowed from the device until gpu_submit or gpu_record_cancel; one at a time. */
gpu_recorder *gpu_record_begin(gpu_device *device);

/* As above, but nothing is recorded and views are not looked at: run a graph once through it and
 * every pipeline that it needs is being created, side by side. gpu_submit then submits nothing and
 * gives ticket 0. */
gpu_recorder *gpu_record_prepare(gpu_device *device);
gpu_device *gpu_recorder_device(gpu_recorder *rec);
bool gpu_recorder_prepares(const gpu_recorder *rec);

/* views: one a binding of the kernel, in binding order. params: the kernel's params struct (NULL
 * when it has none); both are copied. x, y, z workgroups; any being 0 records nothing; above
 * max_workgroups is an error. Two bindings of one buffer must both be read, or both written and
 * apart from each other. */
void gpu_record_dispatch(gpu_recorder *rec, gpu_pipeline *pipeline, const gpu_view *views,
                         const void *params, uint32_t x, uint32_t y, uint32_t z);

/* What the next dispatch must move and compute at the least, for gpu_counters and profiles: every
 * byte once, an addition and a multiplication as an operation each. Said by nobody: nothing. */
void gpu_record_work(gpu_recorder *rec, uint64_t bytes, uint64_t operations);

/* The recording's last command where that is a dispatch, as it was given; borrowed until the next
 * call that records. False: it is none, or nothing is being recorded. */
typedef struct gpu_recorded {
    const gpu_kernel *kernel;
    const gpu_view *views;
    const void *params;
} gpu_recorded;

bool gpu_record_last(const gpu_recorder *rec, gpu_recorded *out);

/* Takes that dispatch back, for one that does what it did and more. There must be one (assert). */
void gpu_record_drop(gpu_recorder *rec);

/* Equal sizes, different buffers; offsets and sizes are multiples of 4. Size 0 records nothing. */
void gpu_record_copy(gpu_recorder *rec, gpu_view from, gpu_view to);
void gpu_record_clear(gpu_recorder *rec, gpu_view view);

/* Copies the view into a small host-readable buffer at the end of the submit; its bytes come out of
 * gpu_wait, several readbacks one after another in the order they were asked for. */
void gpu_record_readback(gpu_recorder *rec, gpu_view view);

/* An op that finds its arguments wrong says so here; gpu_submit reports the first such failure. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void gpu_record_fail(gpu_recorder *rec, temper_status status, const char *format, ...);

/* Ends the recording and submits it. ticket may be NULL when there is nothing to wait for; else it
 * is to be waited for or discarded, and until then it keeps the readback buffer of its submit. */
temper_status gpu_submit(gpu_recorder *rec, gpu_ticket *ticket, error *err);
void gpu_record_cancel(gpu_recorder *rec);

/* Waits for a submit and its error scopes, and copies its readbacks to out (size: their sum; NULL
 * and 0 where there are none). Later submits go on meanwhile. A ticket can be waited for once, or
 * dropped with gpu_discard; a second time, or another size, is TEMPER_BAD_ARGUMENT. Ticket 0 is
 * done at once. */
temper_status gpu_wait(gpu_device *device, gpu_ticket ticket, void *out, uint64_t size, error *err);
void gpu_discard(gpu_device *device, gpu_ticket ticket);

/* Waits until nothing is in flight, queued writes included. Tickets stay good for gpu_wait. */
temper_status gpu_finish(gpu_device *device, error *err);

/* ---- what it costs -------------------------------------------------------------------------- */

typedef struct gpu_counters {
    uint64_t live_bytes[GPU_PURPOSE_COUNT];   /* as allocated, poisoned edges included */
    uint64_t peak_bytes[GPU_PURPOSE_COUNT];
    uint64_t live_total, peak_total;
    uint64_t buffers_created, bind_groups_created, pipelines_created;
    uint64_t dispatches, submits, readbacks, readback_bytes;
    uint64_t work_bytes, work_operations[GPU_UNITS];   /* of gpu_record_work, submitted */
} gpu_counters;

gpu_counters gpu_device_counters(const gpu_device *device);
void gpu_device_reset_peak(gpu_device *device);

/* Gives back what this room keeps for reuse (readback and parameter buffers, bind groups), after
 * waiting for what is in flight. With the callers' buffers destroyed and no ticket left to wait
 * for, it brings live_total to 0. */
void gpu_trim(gpu_device *device);

/* The unit that a kernel multiplies with, by what its source calls. */
gpu_unit gpu_kernel_unit(const gpu_kernel *kernel);

typedef struct gpu_profile_row {
    const char *kernel;     /* borrowed from the kernel */
    gpu_unit unit;
    uint64_t dispatches;
    double seconds;         /* GPU time by timestamps */
    uint64_t bytes, operations;   /* as gpu_record_work has them */
} gpu_profile_row;

/* One dispatch, or one pass. */
typedef struct gpu_profile_event {
    const char *kernel;     /* of a pass, its first */
    uint64_t submit;        /* its number, counted from 1 in the life of the device */
    double submitted;       /* clock_seconds when it was */
    int64_t begin, end;     /* nanoseconds of the GPU clock, from the first event that came in */
    uint64_t bytes, operations;
} gpu_profile_event;

enum { GPU_PROFILE_EVENTS = 1 << 18 };   /* kept at the most; later dispatches count in rows only */

typedef enum gpu_profile_mode {
    GPU_PROFILE_OFF,
    GPU_PROFILE_DISPATCHES,  /* every dispatch runs in a pass of its own */
    GPU_PROFILE_PASSES,      /* as without: a recording of dispatches alone is one pass */
} gpu_profile_mode;

/* Switches timing on or off (needs GPU_FEATURE_TIMESTAMPS: TEMPER_UNSUPPORTED without).
 * gpu_profile_take fills up to `capacity` rows,
 * the costliest first, returns how many kernels there were, and starts again from zero; call it
 * after gpu_wait or gpu_finish. gpu_profile_events gives the single dispatches since then, in the
 * order of their submits: *out is a view until the next call of gpu_profile_take or of anything
 * that submits or waits. */
temper_status gpu_profile(gpu_device *device, gpu_profile_mode mode, error *err);
uint32_t gpu_profile_events(gpu_device *device, const gpu_profile_event **out);
uint32_t gpu_profile_take(gpu_device *device, gpu_profile_row *rows, uint32_t capacity);

/* ---- for the tests -------------------------------------------------------------------------- */

/* Reads the poisoned edges of every live buffer (desc.guard) and names the first that was written
 * over (TEMPER_INTERNAL). Waits. TEMPER_BAD_ARGUMENT on a device without guards. */
temper_status gpu_check_guards(gpu_device *device, error *err);

/* The nth buffer creation from now (1: the next), this room's own included, fails as out of memory;
 * 0 switches it off. */
void gpu_fail_allocation(gpu_device *device, uint64_t nth);

/* Loses the device now, as a driver reset would. */
void gpu_lose(gpu_device *device);

#endif
