/*
 * crew.c - threads that sleep until there is a job. A part is taken under a lock: parts are of some
 * ten microseconds and more.
 */
#include "base/crew.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "base/mem.h"

typedef struct member {
    crew *crew;
    uint32_t number;
    pthread_t thread;
} member;

struct crew {
    pthread_mutex_t lock;     /* for all below */
    pthread_cond_t work_left; /* or the crew is closing */
    pthread_cond_t work_done;
    crew_work work;
    void *user;
    uint64_t next, parts; /* of the job; equal when none is left */
    uint32_t running;     /* parts that have begun and not ended */
    bool closing;
    uint32_t hired;   /* threads beside the caller's */
    member members[]; /* [hired], numbered from 1 */
};

/* Works until no part is left, and comes and goes with the lock taken. */
static void work_on(crew *c, uint32_t number)
{
    while (c->next < c->parts) {
        const uint64_t part = c->next++;
        c->running++;
        pthread_mutex_unlock(&c->lock);
        c->work(part, number, c->user);
        pthread_mutex_lock(&c->lock);
        c->running--;
    }
}

static void *member_main(void *user)
{
    const member *self = user;
    crew *c = self->crew;

    pthread_mutex_lock(&c->lock);
    while (!c->closing) {
        work_on(c, self->number);
        if (c->running == 0)
            pthread_cond_signal(&c->work_done);
        pthread_cond_wait(&c->work_left, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Signals of the process are for its own threads. */
static bool start(member *one)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&one->thread, NULL, member_main, one) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static uint32_t processors(void)
{
    enum { LEAST = 4 };
    const long count = sysconf(_SC_NPROCESSORS_ONLN);

    if (count < LEAST)
        return LEAST;
    return count < CREW_MOST ? (uint32_t)count : CREW_MOST;
}

crew *crew_open(uint32_t members)
{
    const uint32_t wanted = members == 0 ? processors() : members;
    const uint32_t most = wanted < CREW_MOST ? wanted : CREW_MOST;
    crew *c = mem_calloc(1, sizeof *c + most * sizeof c->members[0]);

    if (c == NULL)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work_left, NULL);
    pthread_cond_init(&c->work_done, NULL);
    for (uint32_t i = 1; i < most; i++) {
        member *one = &c->members[c->hired];
        *one = (member){.crew = c, .number = c->hired + 1};
        if (!start(one))
            break;
        c->hired++;
    }
    return c;
}

void crew_close(crew *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    assert(c->next == c->parts && c->running == 0);
    c->closing = true;
    pthread_cond_broadcast(&c->work_left);
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->hired; i++)
        pthread_join(c->members[i].thread, NULL);
    pthread_cond_destroy(&c->work_done);
    pthread_cond_destroy(&c->work_left);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

uint32_t crew_size(const crew *c)
{
    return c->hired + 1;
}

void crew_start(crew *c, uint64_t parts, crew_work work, void *user)
{
    pthread_mutex_lock(&c->lock);
    assert(c->next == c->parts && c->running == 0);
    c->work = work;
    c->user = user;
    c->next = 0;
    c->parts = parts;
    pthread_cond_broadcast(&c->work_left);
    pthread_mutex_unlock(&c->lock);
}

void crew_finish(crew *c)
{
    pthread_mutex_lock(&c->lock);
    work_on(c, 0);
    while (c->running > 0)
        pthread_cond_wait(&c->work_done, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

void crew_run(crew *c, uint64_t parts, crew_work work, void *user)
{
    crew_start(c, parts, work, user);
    crew_finish(c);
}
