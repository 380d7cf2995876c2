/*
 * crew.h - a few threads that do the parts of one job together: for work of the host that all cores
 * should share, such as the repacking of weights. Nothing of it touches a GPU.
 *
 *     crew *c = crew_open(0);
 *     crew_run(c, ceil_div(rows, PIECE), repack_piece, &job);      // comes back when all is done
 *     crew_close(c);
 *
 * In a web page, where there is one thread, the caller does every part (crew_web.c).
 */
#ifndef TEMPER_BASE_CREW_H
#define TEMPER_BASE_CREW_H

#include <stdint.h>

enum { CREW_MOST = 16 }; /* threads */

typedef struct crew crew;

/* One part of a job. `member`, below crew_size, is a number that nobody else who works at that time
 * has: for memory of one's own. */
typedef void (*crew_work)(uint64_t part, uint32_t member, void *user);

/* A crew of so many, the caller of crew_run among them; 0: one for each processor, and no fewer
 * than four, for some wait for a disk. CREW_MOST at the most; fewer where the system gives no more
 * threads. NULL when there is no memory. */
crew *crew_open(uint32_t members);
void crew_close(crew *c); /* NULL is fine */

uint32_t crew_size(const crew *c);

/* Begins a job: the others do parts of it from now on, while the caller does something else. */
void crew_start(crew *c, uint64_t parts, crew_work work, void *user);

/* Helps with the job that was started, and returns when every part below `parts` has been done,
 * once. They are begun in ascending order: when a part has begun, so have all before it. */
void crew_finish(crew *c);

/* Both. One job at a time, and none from within `work`. */
void crew_run(crew *c, uint64_t parts, crew_work work, void *user);

#endif
