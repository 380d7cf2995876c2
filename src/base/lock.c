#include "base/lock.h"

#include <pthread.h>
#include <stddef.h>

#include "base/mem.h"

struct lock {
    pthread_mutex_t mutex;
};

lock *lock_open(void)
{
    lock *l = mem_alloc(sizeof *l);
    if (l != NULL && pthread_mutex_init(&l->mutex, NULL) != 0) {
        mem_free(l);
        l = NULL;
    }
    return l;
}

void lock_close(lock *l)
{
    if (l != NULL)
        pthread_mutex_destroy(&l->mutex);
    mem_free(l);
}

void lock_take(lock *l)
{
    pthread_mutex_lock(&l->mutex);
}

void lock_give(lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}
