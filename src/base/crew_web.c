/*
 * crew_web.c - the crew of a web page: its caller alone.
 */
#include <assert.h>
#include <stdbool.h>

#include "base/crew.h"
#include "base/mem.h"

struct crew {
    bool running;
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

void crew_run(crew *c, uint64_t parts, crew_work work, void *user)
{
    assert(!c->running);
    c->running = true;
    for (uint64_t part = 0; part < parts; part++)
        work(part, 0, user);
    c->running = false;
}
