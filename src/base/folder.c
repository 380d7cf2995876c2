#include "base/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool folder_of_user(const char *name, char out[FOLDER_PATH_BYTES])
{
    const char *cache = getenv("TEMPER_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    int length = -1;
    if (cache != NULL && cache[0] != '\0')
        length = snprintf(out, FOLDER_PATH_BYTES, "%s/%s", cache, name);
    else if (xdg != NULL && xdg[0] == '/') /* as set-up has it: a relative one is ignored */
        length = snprintf(out, FOLDER_PATH_BYTES, "%s/temper/%s", xdg, name);
    else if (home != NULL && home[0] != '\0')
        length = snprintf(out, FOLDER_PATH_BYTES, "%s/.cache/temper/%s", home, name);
    if (length >= 0 && length < FOLDER_PATH_BYTES)
        return true;
    out[0] = '\0';
    return false;
}

temper_status folder_make(const char *path, error *err)
{
    char part[FOLDER_PATH_BYTES];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part)
        return error_set(err, TEMPER_IO, "%s: is no path of a folder", path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        struct stat there;
        /* What cannot be made may be there already, in a folder that is not ours to write to. */
        if (mkdir(part, 0777) != 0 && (stat(part, &there) != 0 || !S_ISDIR(there.st_mode)))
            return error_set(err, TEMPER_IO, "%s: cannot be made: %s", part, strerror(errno));
    }
    return TEMPER_OK;
}
