#include "fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

unsigned long fuzz_accepted;

void fuzz_check(bool holds)
{
    if (!holds)
        abort();
}

static char folder[64];

static void remove_folder(void)
{
    DIR *files = opendir(folder);
    for (struct dirent *entry; files != NULL && (entry = readdir(files)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (files != NULL)
        closedir(files);
    rmdir(folder);
}

const char *fuzz_folder(void)
{
    static const char in_memory[] = "/dev/shm";
    if (folder[0] == '\0') {
        snprintf(folder, sizeof folder, "%s/temper-fuzz-XXXXXX",
                 access(in_memory, W_OK) == 0 ? in_memory : "/tmp");
        fuzz_check(mkdtemp(folder) != NULL);
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_put_file(const char *name, const void *bytes, size_t size)
{
    static char paths[2][512];
    static unsigned calls;
    char *path = paths[calls++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_folder(), name);
    if (size == 0) {
        fuzz_check(unlink(path) == 0 || errno == ENOENT);
        return path;
    }
    FILE *file = fopen(path, "wb");
    fuzz_check(file != NULL && fwrite(bytes, 1, size, file) == size);
    fuzz_check(fclose(file) == 0);
    return path;
}
