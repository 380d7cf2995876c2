/*
 * bench_load.c - how fast a model comes from its file to the device, and what it takes on the host.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "bench.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How much of a file the system holds in memory, 0 to 1; 1 when it does not say. */
static double cached_part(int file, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size + page - 1) / page;
    unsigned char *there = malloc(pages);
    void *bytes = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    size_t count = pages;
    if (there != NULL && bytes != MAP_FAILED && mincore(bytes, size, there) == 0) {
        count = 0;
        for (size_t i = 0; i < pages; i++)
            count += there[i] & 1;
    }
    if (bytes != MAP_FAILED)
        munmap(bytes, size);
    free(there);
    return (double)count / (double)pages;
}

/* Asks the system to forget what it holds of a file; false when it does not, or the model is no
 * single file. */
static bool forget(const char *path)
{
    struct stat status;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    bool forgotten = false;
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0)
        forgotten = cached_part(file, (size_t)status.st_size) < 0.01;
    if (file >= 0)
        close(file);
    return forgotten;
}

static bool go_on(uint64_t done, uint64_t total, void *user)
{
    (void)user;
    (void)done;
    (void)total;
    return !cli_interrupted();
}

static temper_status load_once(temper_device *device, const char *path, bench_load *out,
                               double *seconds, temper_error *err)
{
    temper_engine *engine = NULL;
    const temper_engine_desc desc = {
        .model = path, .device = device, .exact = true, .widen = cli_widen(), .progress = go_on};
    const temper_status status = temper_engine_open(&desc, &engine, err);
    if (status != TEMPER_OK)
        return status;
    const temper_model_info *info = temper_engine_info(engine);
    *seconds = info->load_seconds;
    out->file_bytes = info->file_bytes;
    if (info->load_host_bytes > out->host_bytes)
        out->host_bytes = info->load_host_bytes;
    temper_engine_close(engine);
    return TEMPER_OK;
}

static temper_status find_largest(const char *path, uint64_t *bytes, temper_error *err)
{
    temper_file *file = NULL;
    temper_file_tensor tensor;
    temper_status status = temper_file_open(path, cli_widen(), &file, err);
    const uint64_t count = status == TEMPER_OK ? temper_file_get_info(file).tensor_count : 0;
    for (uint64_t i = 0; status == TEMPER_OK && i < count; i++) {
        status = temper_file_get_tensor(file, i, &tensor, err);
        if (status == TEMPER_OK && tensor.bytes > *bytes)
            *bytes = tensor.bytes;
    }
    temper_file_close(file);
    return status;
}

temper_status bench_load_model(const char *path, uint64_t repeats, bench_load *out,
                               temper_error *err)
{
    double seconds[BENCH_MAX_REPEATS], once = 0.0;
    temper_device *device = NULL;
    *out = (bench_load){0};
    temper_status status = find_largest(path, &out->largest_bytes, err);
    if (status == TEMPER_OK)
        status = cli_open_device(&device, err);
    /* Cold first: what comes after is in memory by then. */
    const bool cold = status == TEMPER_OK && forget(path);
    if (status == TEMPER_OK)
        status = load_once(device, path, out, &once, err);
    out->cold_seconds = cold ? once : 0.0;
    for (uint64_t i = 0; status == TEMPER_OK && i < repeats && !cli_interrupted(); i++)
        status = load_once(device, path, out, &seconds[i], err);
    temper_device_release(device);
    if (status == TEMPER_OK && cli_interrupted())
        status = error_set(err, TEMPER_STOPPED, "stopped");
    if (status != TEMPER_OK)
        return status;
    qsort(seconds, repeats, sizeof *seconds, by_value);
    out->seconds = seconds[repeats / 2];
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->resident_bytes = (uint64_t)usage.ru_maxrss * 1024;
    return TEMPER_OK;
}
