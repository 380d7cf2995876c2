/*
 * source.c - files by pread and blocks of memory, behind one read_at.
 */
#include "base/source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/mem.h"
#include "base/strbuf.h"

static_assert(sizeof(off_t) == 8, "file offsets must have 64 bits (_FILE_OFFSET_BITS=64)");

/* Linux transfers at most about 2 GiB a call. */
static const uint64_t max_transfer = (uint64_t)1 << 30;

typedef struct file_source {
    source base;
    int descriptor;
} file_source;

typedef struct memory_source {
    source base;
    const uint8_t *bytes;
} memory_source;

static void file_close(source *self)
{
    file_source *file = (file_source *)self;

    close(file->descriptor);
    mem_free((char *)(uintptr_t)self->name);
    mem_free(file);
}

static temper_status file_read_at(source *self, uint64_t offset, void *out, uint64_t size,
                                  error *err)
{
    const file_source *file = (const file_source *)self;
    uint8_t *to = out;

    while (size > 0) {
        const size_t wanted = (size_t)min_u64(size, max_transfer);
        const ssize_t got = pread(file->descriptor, to, wanted, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set(err, TEMPER_IO, "%s: cannot read at byte %" PRIu64 ": %s", self->name,
                             offset, strerror(errno));
        if (got == 0)
            return error_set(err, TEMPER_IO,
                             "%s: ends at byte %" PRIu64 ", but had %" PRIu64
                             " bytes when it was opened: it was cut while in use",
                             self->name, offset, self->size);
        to += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return TEMPER_OK;
}

/* A hint: that the system does not take it is no failure. */
static void file_expect(source *self, uint64_t offset, uint64_t size)
{
#ifdef POSIX_FADV_WILLNEED
    (void)posix_fadvise(((const file_source *)self)->descriptor, (off_t)offset, (off_t)size,
                        POSIX_FADV_WILLNEED);
#else
    (void)self, (void)offset, (void)size;
#endif
}

/* The path as messages show it, owned: on one line, and cut at its front where it would leave no
 * room for the reason. NULL without memory. */
static char *shown_path(const char *path)
{
    enum { MOST_BYTES = 300 };
    strbuf escaped = {0}, shown = {0};
    const size_t length = strlen(path);
    size_t at = length > MOST_BYTES ? length - MOST_BYTES : 0;
    while (at < length && ((unsigned char)path[at] & 0xc0) == 0x80)
        at++;
    strbuf_puts(&shown, at > 0 ? "..." : "");
    strbuf_escape(&escaped, path + at, length - at);
    for (size_t i = 0; i < escaped.length; i++)
        if (escaped.data[i] == '\n')
            strbuf_puts(&shown, "\\n");
        else
            strbuf_putc(&shown, escaped.data[i]);
    char *name = escaped.failed || shown.failed ? NULL : mem_strdup(strbuf_text(&shown));
    strbuf_free(&escaped);
    strbuf_free(&shown);
    return name;
}

/* Why an opened thing that is no regular file cannot be read; NULL when it is one. */
static const char *refusal_of(mode_t mode)
{
    if (S_ISREG(mode))
        return NULL;
    if (S_ISDIR(mode))
        return "is a directory, not a file";
    if (S_ISFIFO(mode))
        return "is a pipe; a file that can be read at any position is needed";
    return "is not a regular file";
}

/* Opens a regular file and finds its size; *descriptor stays -1 on failure. */
static temper_status open_regular(const char *path, const char *name, int *descriptor,
                                  struct stat *status, error *err)
{
    /* O_NONBLOCK: opening a pipe that nobody writes to must not wait; regular files ignore it. */
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return error_set(err, TEMPER_IO, "%s: cannot be opened: %s", name, strerror(errno));
    if (fstat(opened, status) != 0) {
        const int reason = errno;
        close(opened);
        return error_set(err, TEMPER_IO, "%s: cannot be examined: %s", name, strerror(reason));
    }
    const char *refusal = refusal_of(status->st_mode);
    if (refusal != NULL) {
        close(opened);
        return error_set(err, TEMPER_IO, "%s: %s", name, refusal);
    }
    *descriptor = opened;
    return TEMPER_OK;
}

temper_status source_open_file(const char *path, source **out, error *err)
{
    struct stat status;
    int descriptor = -1;

    assert(path != NULL && out != NULL);
    char *name = shown_path(path);
    if (name == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", path);
    const temper_status opened = open_regular(path, name, &descriptor, &status, err);
    if (opened != TEMPER_OK) {
        mem_free(name);
        return opened;
    }
    file_source *file = mem_calloc(1, sizeof *file);
    if (file == NULL) {
        error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", name);
        mem_free(name);
        close(descriptor);
        return TEMPER_NO_MEMORY;
    }
    file->base = (source){.name = name,
                          .size = (uint64_t)status.st_size,
                          .any_thread = true,
                          .read_at = file_read_at,
                          .expect = file_expect,
                          .close = file_close};
    file->descriptor = descriptor;
    *out = &file->base;
    return TEMPER_OK;
}

static void memory_close(source *self)
{
    mem_free((char *)(uintptr_t)self->name);
    mem_free(self);
}

static temper_status memory_read_at(source *self, uint64_t offset, void *out, uint64_t size,
                                    error *err)
{
    (void)err;
    memcpy(out, ((const memory_source *)self)->bytes + offset, (size_t)size);
    return TEMPER_OK;
}

temper_status source_open_memory(const char *name, const void *bytes, uint64_t size, source **out,
                                 error *err)
{
    assert(name != NULL && out != NULL && (bytes != NULL || size == 0));
    memory_source *memory = mem_calloc(1, sizeof *memory);
    char *copy = mem_strdup(name);
    if (memory == NULL || copy == NULL) {
        mem_free(memory);
        mem_free(copy);
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", name);
    }
    memory->base = (source){.name = copy,
                            .size = size,
                            .any_thread = true,
                            .read_at = memory_read_at,
                            .close = memory_close};
    memory->bytes = bytes;
    *out = &memory->base;
    return TEMPER_OK;
}

temper_status source_read(source *src, uint64_t offset, void *out, uint64_t size, error *err)
{
    assert(src != NULL && (out != NULL || size == 0));
    if (offset > src->size || size > src->size - offset)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: %" PRIu64 " bytes at byte %" PRIu64
                         " are wanted, but the file has %" PRIu64 " bytes",
                         src->name, size, offset, src->size);
    if (size == 0)
        return TEMPER_OK;
    return src->read_at(src, offset, out, size, err);
}

void source_expect(source *src, uint64_t offset, uint64_t size)
{
    assert(src != NULL);
    if (src->expect != NULL && offset < src->size && size > 0)
        src->expect(src, offset, min_u64(size, src->size - offset));
}

void source_close(source *src)
{
    if (src != NULL)
        src->close(src);
}
