/*
 * dawn_quiet.c - Dawn prints warnings about a driver's limits straight to stderr, with no way to
 * turn that off. For the few milliseconds of an adapter search stderr is a temporary file;
 * afterwards the library's warnings go to the log, and every other line goes to stderr after all,
 * so that nothing that another thread printed meanwhile is lost.
 */
#include "gpu/dawn_quiet.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

void dawn_quiet_begin(dawn_quiet *quiet)
{
    pthread_mutex_lock(&one_at_a_time);
    fflush(stderr);
    quiet->kept = tmpfile();
    quiet->stderr_copy = quiet->kept != NULL ? dup(STDERR_FILENO) : -1;
    if (quiet->stderr_copy < 0 || dup2(fileno(quiet->kept), STDERR_FILENO) < 0) {
        if (quiet->stderr_copy >= 0)
            close(quiet->stderr_copy);
        if (quiet->kept != NULL)
            fclose(quiet->kept);
        quiet->kept = NULL;
    }
}

void dawn_quiet_end(dawn_quiet *quiet)
{
    static const char warning[] = "Warning: ", detail[] = "    at ";
    char line[1024];

    if (quiet->kept != NULL) {
        fflush(stderr);
        dup2(quiet->stderr_copy, STDERR_FILENO);
        close(quiet->stderr_copy);
        rewind(quiet->kept);
        while (fgets(line, sizeof line, quiet->kept) != NULL) {
            const bool own = strncmp(line, warning, sizeof warning - 1) == 0 ||
                             strncmp(line, detail, sizeof detail - 1) == 0 || line[0] == '\n';
            if (!own) {
                fputs(line, stderr);
                continue;
            }
            line[strcspn(line, "\n")] = '\0';
            if (line[0] != '\0')
                log_message(LOG_DEBUG, "WebGPU library: %s", line);
        }
        fclose(quiet->kept);
    }
    pthread_mutex_unlock(&one_at_a_time);
}
