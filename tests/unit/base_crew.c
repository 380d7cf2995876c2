/*
 * base_crew.c - every part of a job is done once, in order of beginning, by members with numbers of
 * their own; and the crew of a web page does the same.
 */
#include "base/crew.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"

/* The same functions under other names, and the struct that this file alone sees. */
#define crew_open web_crew_open
#define crew_close web_crew_close
#define crew_size web_crew_size
#define crew_run web_crew_run
#define crew_start web_crew_start
#define crew_finish web_crew_finish
crew *crew_open(uint32_t members);
void crew_close(crew *c);
uint32_t crew_size(const crew *c);
void crew_run(crew *c, uint64_t parts, crew_work work, void *user);
void crew_start(crew *c, uint64_t parts, crew_work work, void *user);
void crew_finish(crew *c);
#include "base/crew_web.c"
#undef crew_open
#undef crew_close
#undef crew_size
#undef crew_run
#undef crew_start
#undef crew_finish

enum { PARTS = 5000 };

typedef struct count {
    _Atomic uint32_t done[PARTS];
    _Atomic uint32_t at_work[CREW_MOST]; /* with this number, at this moment */
    _Atomic uint64_t begun, sum;
    uint32_t size;
    atomic_bool wrong;
    uint64_t plain[CREW_MOST]; /* written without locks: each member its own */
} count;

static void count_part(uint64_t part, uint32_t member, void *user)
{
    count *c = user;
    const uint64_t before = atomic_fetch_add(&c->begun, 1);
    /* No part begins a whole crew earlier than its turn. */
    if (member >= c->size || atomic_fetch_add(&c->at_work[member], 1) != 0 ||
        part > before + c->size)
        atomic_store(&c->wrong, true);
    c->plain[member] += part;
    atomic_fetch_add(&c->done[part], 1);
    atomic_fetch_add(&c->sum, part);
    atomic_fetch_sub(&c->at_work[member], 1);
}

static void check(const count *c, uint64_t parts)
{
    uint64_t plain = 0;
    for (uint64_t i = 0; i < PARTS; i++)
        assert_int_equal(c->done[i], i < parts);
    for (int i = 0; i < CREW_MOST; i++)
        plain += c->plain[i];
    assert_int_equal(c->sum, parts * (parts - (parts > 0)) / 2);
    assert_int_equal(plain, c->sum);
    assert_false(c->wrong);
}

static void every_part_is_done_once(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, CREW_MOST};
    static const uint64_t parts[] = {PARTS, 0, 1, 2, 3, 100, PARTS};
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const uint64_t live = mem_live_bytes();
        crew *c = crew_open(sizes[s]);
        assert_non_null(c);
        assert_int_equal(crew_size(c), sizes[s]);
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            static count job;
            job = (count){.size = sizes[s]};
            crew_run(c, parts[i], count_part, &job);
            check(&job, parts[i]);
        }
        crew_close(c);
        assert_int_equal(mem_live_bytes(), live);
    }
}

static void its_size_has_bounds(void **state)
{
    (void)state;
    crew *own = crew_open(0), *large = crew_open(1000);
    assert_true(crew_size(own) >= 4 && crew_size(own) <= CREW_MOST);
    assert_int_equal(crew_size(large), CREW_MOST);
    crew_close(own);
    crew_close(large);
    crew_close(NULL);
    mem_fail_at(1, 0);
    assert_null(crew_open(2));
    mem_fail_at(0, 0);
}

/* Two parts that wait for each other: only several threads can do them. */
static void meet(uint64_t part, uint32_t member, void *user)
{
    count *c = user;
    (void)member;
    atomic_fetch_add(&c->done[part], 1);
    while (atomic_load(&c->done[1 - part]) == 0)
        usleep(100);
}

static void parts_run_side_by_side(void **state)
{
    static count job;
    (void)state;
    crew *c = crew_open(2);
    for (int i = 0; i < 100; i++) {
        job = (count){0};
        crew_run(c, 2, meet, &job);
        assert_int_equal(job.done[0] + job.done[1], 2);
    }
    crew_close(c);
}

/* Of two parts each waits for the other's: the crew works before its caller comes to help. */
static void a_job_goes_on_meanwhile(void **state)
{
    static count job;
    (void)state;
    crew *c = crew_open(3);
    for (int i = 0; i < 100; i++) {
        job = (count){0};
        crew_start(c, 2, meet, &job);
        while (atomic_load(&job.done[0]) + atomic_load(&job.done[1]) < 2)
            usleep(100);
        crew_finish(c);
    }
    crew_close(c);
}

static void a_page_has_one_thread(void **state)
{
    static count job;
    (void)state;
    crew *c = web_crew_open(8);
    assert_non_null(c);
    assert_int_equal(web_crew_size(c), 1);
    for (uint64_t parts = 0; parts < 3; parts++) {
        job = (count){.size = 1};
        web_crew_run(c, parts, count_part, &job);
        check(&job, parts);
    }
    web_crew_close(c);
    web_crew_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_once), cmocka_unit_test(its_size_has_bounds),
        cmocka_unit_test(parts_run_side_by_side),  cmocka_unit_test(a_job_goes_on_meanwhile),
        cmocka_unit_test(a_page_has_one_thread),
    };
    return cmocka_run_group_tests_name("base_crew", tests, NULL, NULL);
}
