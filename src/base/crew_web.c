/*
 * crew_web.c - the crew of a web page: its caller alone.
 */
#include <assert.h>

#include "base/crew.h"
#include "base/mem.h"

struct crew {
    crew_work work;
    void *user;
    uint64_t parts; /* of the job; 0 when it is done */
};

crew *crew_open(uint32_t members)
{
    (void)members;
    return mem_calloc(1, sizeof(crew));
}

void crew_close(crew *c)
{
    mem_free(c);
}

uint32_t crew_size(const crew *c)
{
    (void)c;
    return 1;
}

void crew_start(crew *c, uint64_t parts, crew_work work, void *user)
{
    assert(c->parts == 0);
    *c = (crew){work, user, parts};
}

void crew_finish(crew *c)
{
    for (uint64_t part = 0; part < c->parts; part++)
        c->work(part, 0, c->user);
    c->parts = 0;
}

void crew_run(crew *c, uint64_t parts, crew_work work, void *user)
{
    crew_start(c, parts, work, user);
    crew_finish(c);
}
