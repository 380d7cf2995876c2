/*
 * case_gather_ids.c - ids of two sources: all from the host, all chosen, mixed, places past the
 * end.
 */
#include <stdio.h>

#include "check/context.h"
#include "ref/ref.h"

static const struct {
    const char *name;
    uint32_t rows, chosen;
    uint32_t every; /* of so many rows one takes a chosen id; 0: none */
} cases[] = {
    {"one row of the host", 1, 1, 0},
    {"one chosen row", 1, 1, 1},
    {"70 chosen rows", 70, 70, 1},
    {"512 rows, some chosen", 512, 32, 3},
    {"70000 rows, some past the end", 70000, 40000, 2},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct gather_run {
    gpu_view sources, chosen, ids;
    uint32_t rows;
} gather_run;

static void record(gpu_recorder *rec, void *user)
{
    const gather_run *r = user;
    op_gather_ids(rec, r->sources, r->chosen, r->ids, r->rows);
}

static void run(check_context *c, uint32_t i)
{
    const uint32_t rows = cases[i].rows, n = cases[i].chosen, every = cases[i].every;
    uint32_t *sources = check_alloc(c, rows, sizeof *sources);
    uint32_t *chosen = check_alloc(c, n, sizeof *chosen);
    uint32_t *want = check_alloc(c, rows, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t k = 0; k < n; k++)
        chosen[k] = check_random_word(421, k) % 50000;
    for (uint32_t r = 0; r < rows; r++)
        sources[r] = every > 0 && r % every == 0
                         ? OP_CHOSEN + (r * 7 + n - 1) % (rows > n ? n + 9 : n)
                         : check_random_word(422, r) % 50000;
    gather_run r = {.rows = rows};
    r.sources = check_input(c, sources, (uint64_t)rows * 4);
    r.chosen = check_input(c, chosen, (uint64_t)n * 4);
    r.ids = check_output(c, (uint64_t)rows * 4);
    const uint32_t *ids = check_go(c, record, &r, r.ids, 0, 12.0 * rows);
    ref_gather_ids(sources, chosen, n, rows, want);
    if (ids != NULL)
        check_same(c, ids, want, rows);
}

const check_group check_gather_ids = {"gather_ids", count, describe, run};
