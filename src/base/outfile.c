#include "base/outfile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/mem.h"
#include "base/strbuf.h"

struct outfile {
    char *path;    /* where it will be */
    char *partial; /* where it is written */
    int descriptor;
};

/* Linux transfers at most about 2 GiB a call. */
static const uint64_t max_transfer = (uint64_t)1 << 30;

enum { NAMES_TRIED = 100 };

static void outfile_free(outfile *file)
{
    mem_free(file->path);
    mem_free(file->partial);
    mem_free(file);
}

/* Opens a file of a name that is not there yet: PATH.partial-PID, with a number where another one
 * of this process is being written. */
static temper_status open_partial(outfile *file, error *err)
{
    for (int i = 0; i < NAMES_TRIED && file->descriptor < 0; i++) {
        strbuf name = {0};
        strbuf_printf(&name, "%s.partial-%ld", file->path, (long)getpid());
        if (i > 0)
            strbuf_printf(&name, "-%d", i);
        mem_free(file->partial);
        file->partial = name.failed ? NULL : mem_strdup(strbuf_text(&name));
        strbuf_free(&name);
        if (file->partial == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to write it", file->path);
        file->descriptor = open(file->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->descriptor < 0 && errno != EEXIST)
            break;
    }
    if (file->descriptor < 0)
        return error_set(err, TEMPER_IO, "%s: cannot be written: %s", file->path, strerror(errno));
    return TEMPER_OK;
}

temper_status outfile_create(const char *path, outfile **out, error *err)
{
    assert(path != NULL && out != NULL);
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return error_set(err, TEMPER_IO, "%s: is %s; a file is needed", path,
                         S_ISDIR(there.st_mode) ? "a directory" : "no regular file");
    outfile *file = mem_calloc(1, sizeof *file);
    char *copy = mem_strdup(path);
    if (file == NULL || copy == NULL) {
        mem_free(file);
        mem_free(copy);
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to write it", path);
    }
    *file = (outfile){.path = copy, .descriptor = -1};
    const temper_status status = open_partial(file, err);
    if (status != TEMPER_OK) {
        outfile_free(file);
        return status;
    }
    *out = file;
    return TEMPER_OK;
}

temper_status outfile_write(outfile *file, const void *bytes, uint64_t size, error *err)
{
    const uint8_t *from = bytes;
    while (size > 0) {
        const ssize_t done = write(file->descriptor, from, (size_t)min_u64(size, max_transfer));
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return error_set(err, TEMPER_IO, "%s: cannot be written: %s", file->path,
                             strerror(errno));
        from += done;
        size -= (uint64_t)done;
    }
    return TEMPER_OK;
}

/* Syncs the folder that holds a file, so that its new name survives a crash; where folders cannot
 * be opened or synced, nothing better can be done. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? mem_strdup(".")
                   : slash == path ? mem_strdup("/")
                                   : mem_strndup(path, (size_t)(slash - path));
    const int descriptor = folder == NULL ? -1 : open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
    mem_free(folder);
}

temper_status outfile_commit(outfile *file, error *err)
{
    /* A full disk may show only here. */
    const int failed_sync = fsync(file->descriptor) != 0 ? errno : 0;
    const int failed_close = close(file->descriptor) != 0 ? errno : 0;
    file->descriptor = -1;
    int reason = failed_sync != 0 ? failed_sync : failed_close;
    if (reason == 0 && rename(file->partial, file->path) != 0)
        reason = errno;
    if (reason != 0) {
        const temper_status status =
            error_set(err, TEMPER_IO, "%s: cannot be written: %s", file->path, strerror(reason));
        outfile_discard(file);
        return status;
    }
    sync_folder(file->path);
    outfile_free(file);
    return TEMPER_OK;
}

void outfile_discard(outfile *file)
{
    if (file == NULL)
        return;
    if (file->descriptor >= 0)
        close(file->descriptor);
    unlink(file->partial);
    outfile_free(file);
}
