/*
 * sweep.c - tries every candidate of a list on this machine's GPU, checks what it computes, and
 * writes one table.
 *
 *     sweep --templates lab --list lab/sweep.txt --out results [--seconds 200] [--only gemv]
 *           [--small] [--null] [--robust] [--show] [--subgroup 32] [--ahead]
 *
 * A line of the list: FAMILY SHAPES name=value,value name=value ... expands FAMILY.wgsl with every
 * combination of the values on every shape (MxNxK, comma separated, or a set's name). A line
 * `again COUNT FAMILY SHAPE SHAPES name=value` runs the COUNT best of FAMILY on SHAPE (of those of
 * these values) on the other shapes too. Candidates run in the list's order; results.csv grows
 * line by line, so a cut run keeps what it has. --small checks values without timing and fails when
 * one is wrong. The first lines measure the denominators, family `copy` the bandwidth, and family
 * `peak` the rates of arithmetic (variable `unit`). A share is the time that the larger of bytes
 * over bandwidth and operations over rate would take, over the time measured.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "problem.h"

enum { CANDIDATES_MAX = 8000, SHAPES_MAX = 16, UNITS = 8, PIPELINES_MAX = 8000 };

typedef struct pipeline_row {
    char *source;
    bench_pipeline pipeline;
} pipeline_row;

typedef struct candidate {
    char family[NAME_MAX_BYTES], label[160];
    shape shape;
    vars v;
    expansion x;
    pipeline_row *pipeline;
    double median, least, error;
    bool done;
} candidate;

typedef struct sweep {
    const char *templates, *only, *out;
    double deadline;
    bool small, null, robust, show;
    bool ahead;              /* wait for every pipeline of the window before timing */
    int window;
    bench b;
    problem p;
    candidate *rows;
    size_t count, started;
    pipeline_row *pipelines;
    size_t pipeline_count;
    size_t failures;         /* candidates that are wrong or did not run */
    double bandwidth;        /* bytes a second of the copy kernel */
    double peak[UNITS];      /* operations a second by unit */
    bench_step canary;       /* a fixed amount of arithmetic: tells the card's clock */
    double canary_best;
    FILE *csv;
} sweep;

/* ---- the list ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *shapes;
} shape_sets[] = {
    {"llama", "1x3072x2048,1x2048x2048,1x16384x2048,1x2048x8192,1x128256x2048"},
    {"smol", "1x960x576,1x576x576,1x3072x576,1x576x1536,1x49152x576"},
};

static int parse_shapes(const char *text, shape out[SHAPES_MAX])
{
    int count = 0;
    for (size_t i = 0; i < sizeof shape_sets / sizeof shape_sets[0]; i++)
        if (strcmp(text, shape_sets[i].name) == 0)
            text = shape_sets[i].shapes;
    while (*text != '\0' && count < SHAPES_MAX) {
        shape s;
        int used = 0;
        if (sscanf(text, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%n", &s.m, &s.n, &s.k, &used) != 3) {
            fprintf(stderr, "sweep: '%s' is no shape\n", text);
            exit(2);
        }
        out[count++] = s;
        text += used;
        text += *text == ',';
    }
    return count;
}

typedef struct axis {
    char name[NAME_MAX_BYTES];
    int64_t values[32];
    int count;
} axis;

static int parse_axes(char *rest, axis out[VARS_MAX])
{
    int count = 0;
    for (char *word = strtok(rest, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            fprintf(stderr, "sweep: '%s' is no name=value\n", word);
            exit(2);
        }
        axis *a = &out[count++];
        *equals = '\0';
        snprintf(a->name, sizeof a->name, "%.*s", NAME_MAX_BYTES - 1, word);
        a->count = 0;
        for (char *at = equals + 1; *at != '\0' && a->count < 32; at += *at == ',')
            a->values[a->count++] = strtoll(at, &at, 10);
    }
    return count;
}

static char *template_text(sweep *w, const char *family)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.wgsl", w->templates, family);
    char *text = read_text_file(path);
    if (text == NULL) {
        fprintf(stderr, "sweep: no template %s\n", path);
        exit(2);
    }
    return text;
}

static void free_candidate(candidate *c)
{
    free(c->x.source);
    c->x.source = NULL;
}

static void add_candidate(sweep *w, const char *text, const candidate *like)
{
    if (w->count == CANDIDATES_MAX)
        return;
    candidate *c = &w->rows[w->count];
    *c = *like;
    c->pipeline = NULL;
    c->done = false;
    c->median = c->least = c->error = 0;
    vars_set(&c->v, "M", c->shape.m);
    vars_set(&c->v, "N", c->shape.n);
    vars_set(&c->v, "K", c->shape.k);
    expand(text, &c->v, &c->x);
    if (c->x.failure[0] != '\0') {
        fprintf(stderr, "sweep: %s.wgsl (%s): %s\n", c->family, c->label, c->x.failure);
        exit(2);
    }
    if (!c->x.wanted) {
        free_candidate(c);
        return;
    }
    for (size_t i = 0; i < w->count; i++)
        if (w->rows[i].shape.m == c->shape.m && w->rows[i].shape.n == c->shape.n &&
            w->rows[i].shape.k == c->shape.k && strcmp(w->rows[i].family, c->family) == 0 &&
            strcmp(w->rows[i].label, c->label) == 0) {
            free_candidate(c);
            return;
        }
    w->count++;
}

static void cross(sweep *w, const char *text, const char *family, const shape *shapes,
                  int shape_count, const axis *axes, int axis_count)
{
    int64_t total = 1;
    for (int i = 0; i < axis_count; i++)
        total *= axes[i].count;
    for (int s = 0; s < shape_count; s++)
        for (int64_t at = 0; at < total; at++) {
            candidate c = {.shape = shapes[s]};
            snprintf(c.family, sizeof c.family, "%s", family);
            vars_set(&c.v, "sg", w->b.subgroup);
            int64_t rest = at;
            size_t used = 0;
            for (int i = axis_count; i-- > 0;) {
                vars_set(&c.v, axes[i].name, axes[i].values[rest % axes[i].count]);
                rest /= axes[i].count;
            }
            for (int i = 0; i < axis_count && used < sizeof c.label; i++)
                used += (size_t)snprintf(c.label + used, sizeof c.label - used, "%s%s=%" PRId64,
                                         i > 0 ? " " : "", axes[i].name,
                                         vars_get(&c.v, axes[i].name, 0));
            add_candidate(w, text, &c);
        }
}

static int by_median(const void *a, const void *b)
{
    const double x = (*(candidate *const *)a)->median, y = (*(candidate *const *)b)->median;
    return (x > y) - (x < y);
}

static bool has_values(const candidate *c, const axis *axes, int count)
{
    for (int i = 0; i < count; i++) {
        bool one = false;
        for (int j = 0; j < axes[i].count; j++)
            one = one || vars_get(&c->v, axes[i].name, INT64_MIN) == axes[i].values[j];
        if (!one)
            return false;
    }
    return true;
}

/* The best `count` of a family on `from`, on other shapes. */
static void again(sweep *w, int count, const char *family, shape from, const shape *shapes,
                  int shape_count, const axis *axes, int axis_count)
{
    candidate **good = calloc(w->count + 1, sizeof *good);
    size_t n = 0;
    for (size_t i = 0; i < w->count; i++) {
        candidate *c = &w->rows[i];
        if (c->done && strcmp(c->family, family) == 0 && c->shape.m == from.m &&
            c->shape.n == from.n && c->shape.k == from.k && has_values(c, axes, axis_count))
            good[n++] = c;
    }
    qsort(good, n, sizeof good[0], by_median);
    char *text = template_text(w, family);
    for (int s = 0; s < shape_count; s++)
        for (size_t i = 0; i < n && i < (size_t)count; i++) {
            candidate c = {.shape = shapes[s]};
            memcpy(c.family, good[i]->family, sizeof c.family);
            memcpy(c.label, good[i]->label, sizeof c.label);
            char words[160];
            axis own[VARS_MAX];
            memcpy(words, c.label, sizeof words);
            const int own_count = parse_axes(words, own);
            vars_set(&c.v, "sg", w->b.subgroup);
            for (int j = 0; j < own_count; j++)
                vars_set(&c.v, own[j].name, own[j].values[0]);
            add_candidate(w, text, &c);
        }
    free(text);
    free(good);
}

/* ---- running -------------------------------------------------------------------------------- */

static pipeline_row *pipeline_of(sweep *w, candidate *c)
{
    for (size_t i = 0; i < w->pipeline_count; i++)
        if (strcmp(w->pipelines[i].source, c->x.source) == 0)
            return &w->pipelines[i];
    if (w->pipeline_count == PIPELINES_MAX)
        return NULL;
    pipeline_row *row = &w->pipelines[w->pipeline_count++];
    row->source = c->x.source;
    bench_pipeline_start(&w->b, &row->pipeline, c->label, row->source);
    return row;
}

static int64_t operations(const candidate *c)
{
    return vars_get(&c->v, "ops", 2 * c->shape.m * c->shape.n * c->shape.k);
}

static int64_t bytes_moved(const candidate *c)
{
    const shape s = c->shape;
    const bool q4 = strcmp(c->x.ref, "q4") == 0;
    const int64_t weight = q4 ? s.n * s.k / 2 + s.n * s.k / 16 : s.n * s.k * 2;
    return vars_get(&c->v, "bytes", weight + s.m * s.k * 2 + s.m * s.n * 4);
}

/* The time that the larger of bytes over bandwidth and operations over peak takes. */
static double floor_seconds(const sweep *w, const candidate *c)
{
    const double peak = w->peak[vars_get(&c->v, "unit", 0) % UNITS];
    const double by_bytes = w->bandwidth > 0 ? (double)bytes_moved(c) / w->bandwidth : 0;
    const double by_operations = peak > 0 ? (double)operations(c) / peak : 0;
    return fmax(by_bytes, by_operations);
}

static void print_row(sweep *w, const candidate *c, const char *verdict)
{
    w->failures += strcmp(verdict, "ok") != 0 && strcmp(verdict, "compiles") != 0;
    char line[1024];
    const double t = c->median > 0 ? c->median : NAN;
    snprintf(line, sizeof line,
             "%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%" PRId64 "x%" PRId64
             ",%.3f,%.3f,%.1f,%.3f,%.3f,%.2e,%s,%.2f",
             c->family, c->shape.m, c->shape.n, c->shape.k, c->label, c->x.grid_x, c->x.grid_y,
             t * 1e6, c->least * 1e6, (double)bytes_moved(c) / t * 1e-9,
             (double)operations(c) / t * 1e-12, floor_seconds(w, c) / t, c->error, verdict,
             c->pipeline != NULL ? c->pipeline->pipeline.seconds : 0.0);
    fprintf(w->csv, "%s\n", line);
    fflush(w->csv);
}

/* A card that has waited for a compiler runs at a fraction of its clock for some milliseconds, and
 * what is timed then looks several times slower than it is. So each candidate is timed between two
 * runs of a fixed kernel that both took its least time. */
static bool clock_is_up(sweep *w)
{
    double seconds[BENCH_PASSES];
    if (!bench_time(&w->b, &w->canary, 1, 1, seconds))
        return false;
    if (w->canary_best == 0 || seconds[0] < w->canary_best)
        w->canary_best = seconds[0];
    return seconds[BENCH_PASSES / 2] < w->canary_best * 1.03;
}

static void warm_up(sweep *w)
{
    const double end = clock_seconds() + 0.5;
    while (!clock_is_up(w) && clock_seconds() < end)
        bench_run(&w->b, &w->canary, 1);
}

static void make_canary(sweep *w)
{
    static bench_pipeline pipeline;
    char path[512];
    snprintf(path, sizeof path, "%s/canary.wgsl", w->templates);
    char *source = read_text_file(path);
    if (source == NULL) {
        fprintf(stderr, "sweep: no %s\n", path);
        exit(2);
    }
    bench_pipeline_start(&w->b, &pipeline, "canary", source);
    bench_pipeline_wait(&w->b, &pipeline);
    free(source);
    const bench_binding out = {bench_buffer(&w->b, 1 << 22, WGPUBufferUsage_Storage), 0, 1 << 22};
    w->canary = (bench_step){pipeline.handle, bench_group(&w->b, &pipeline, &out, 1), 1056, 1};
    for (int i = 0; i < 400 && !w->small; i++)
        clock_is_up(w);
}

static const char *measure(sweep *w, candidate *c, bench_step *steps, size_t copies)
{
    double seconds[BENCH_PASSES];
    const uint32_t first = (uint32_t)copies;
    if (!bench_time(&w->b, steps, copies, first, seconds))
        return "FAILED no times";
    const double each = seconds[0] / first;
    const double target = w->small ? 0.0 : 0.8e-3;
    uint32_t dispatches = each > 0 ? (uint32_t)(target / each) : first;
    if (dispatches < first)
        dispatches = first;
    if (dispatches > BENCH_CHAIN_MAX)
        dispatches = BENCH_CHAIN_MAX;
    for (int turn = 0; turn < 4 && !w->small; turn++) {
        warm_up(w);
        if (!bench_time(&w->b, steps, copies, dispatches, seconds))
            return "FAILED no times";
        if (clock_is_up(w))
            break;
    }
    if (w->small)
        dispatches = first;
    c->median = seconds[BENCH_PASSES / 2] / dispatches;
    c->least = seconds[0] / dispatches;
    return NULL;
}

static const char *bind_and_run(sweep *w, candidate *c, bench_step *steps, size_t copies)
{
    const bool checked = strcmp(c->x.ref, "none") != 0;
    for (size_t i = 0; i < copies; i++) {
        bench_binding bindings[BINDS_MAX];
        for (size_t j = 0; j < c->x.bind_count; j++)
            if (!problem_bind(&w->p, c->x.binds[j], &c->v, c->shape, (int64_t)i, &bindings[j]))
                return "FAILED binding";
        steps[i] = (bench_step){c->pipeline->pipeline.handle,
                                bench_group(&w->b, &c->pipeline->pipeline, bindings,
                                            c->x.bind_count),
                                (uint32_t)c->x.grid_x, (uint32_t)c->x.grid_y};
    }
    if (checked) {
        problem_poison(&w->p, c->x.ref);
        bench_run(&w->b, &steps[copies - 1], 1);
        c->error = problem_error(&w->p, c->x.ref, &c->v, c->shape, (int64_t)copies - 1);
    }
    wgpuInstanceProcessEvents(w->b.instance);
    if (w->b.failed)
        return w->b.failure;
    if (checked && !(c->error * 1e6 <= (double)vars_get(&c->v, "limit", 3000)))
        return "WRONG";
    return measure(w, c, steps, copies);
}

static void run_candidate(sweep *w, candidate *c)
{
    static bench_step steps[64];
    if (c->pipeline == NULL)
        c->pipeline = pipeline_of(w, c);
    if (c->pipeline == NULL) {
        print_row(w, c, "FAILED too many pipelines");
        return;
    }
    bench_pipeline_wait(&w->b, &c->pipeline->pipeline);
    if (c->pipeline->pipeline.handle == NULL) {
        print_row(w, c, c->pipeline->pipeline.message);
        return;
    }
    if (w->null) {
        print_row(w, c, "compiles");
        return;
    }
    const size_t copies = (size_t)problem_copies(&c->v, c->shape);
    bench_clear_failure(&w->b);
    memset(steps, 0, sizeof steps);
    const char *verdict = bind_and_run(w, c, steps, copies);
    for (size_t i = 0; i < copies; i++)
        if (steps[i].group != NULL)
            wgpuBindGroupRelease(steps[i].group);
    c->done = verdict == NULL;
    if (c->done && strcmp(c->family, "copy") == 0)
        w->bandwidth = fmax(w->bandwidth, (double)bytes_moved(c) / c->least);
    const int64_t unit = vars_get(&c->v, "unit", 0) % UNITS;
    if (c->done && strcmp(c->family, "peak") == 0)
        w->peak[unit] = fmax(w->peak[unit], (double)operations(c) / c->least);
    print_row(w, c, verdict != NULL ? verdict : "ok");
}

/* Pipelines are made ahead of the candidate in hand, side by side. */
static void run_up_to(sweep *w, size_t *next)
{
    while (*next < w->count && clock_seconds() < w->deadline && !w->b.lost) {
        for (; w->started < w->count && w->started < *next + (size_t)w->window; w->started++) {
            candidate *c = &w->rows[w->started];
            c->pipeline = pipeline_of(w, c);
        }
        for (size_t i = *next; w->ahead && i < w->started; i++)
            if (w->rows[i].pipeline != NULL)
                bench_pipeline_wait(&w->b, &w->rows[i].pipeline->pipeline);
        run_candidate(w, &w->rows[(*next)++]);
    }
}

static void run_list(sweep *w, const char *path)
{
    char line[1024], family[NAME_MAX_BYTES], from[64], shapes[512];
    size_t next = 0;
    int used = 0, count = 0;
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        fprintf(stderr, "sweep: no list %s\n", path);
        exit(2);
    }
    while (fgets(line, sizeof line, f) != NULL) {
        shape some[SHAPES_MAX], start[SHAPES_MAX];
        axis axes[VARS_MAX];
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "again %d %31s %63s %511s%n", &count, family, from, shapes, &used) == 4) {
            if (w->show)
                continue;
            run_up_to(w, &next);
            parse_shapes(from, start);
            const int shape_count = parse_shapes(shapes, some);
            const int axis_count = parse_axes(line + used, axes);
            again(w, count, family, start[0], some, shape_count, axes, axis_count);
            continue;
        }
        if (sscanf(line, "%31s %511s%n", family, shapes, &used) != 2)
            continue;
        if (w->only != NULL && strstr(w->only, family) == NULL)
            continue;
        const int shape_count = parse_shapes(shapes, some);
        const int axis_count = parse_axes(line + used, axes);
        char *text = template_text(w, family);
        cross(w, text, family, some, shape_count, axes, axis_count);
        free(text);
    }
    fclose(f);
    fprintf(stderr, "sweep: %zu candidates\n", w->count);
    for (size_t i = 0; w->show && i < w->count; i++)
        printf("// @@ %s %s\n%s\n", w->rows[i].family, w->rows[i].label, w->rows[i].x.source);
    if (w->show)
        return;
    run_up_to(w, &next);
    fprintf(stderr, "sweep: %zu of %zu candidates ran\n", next, w->count);
}

/* ---- the summary ---------------------------------------------------------------------------- */

static void summary(sweep *w)
{
    enum { TOP = 6 };
    char path[512];
    snprintf(path, sizeof path, "%s.md", w->out);
    FILE *f = fopen(path, "w");
    candidate **good = calloc(w->count + 1, sizeof *good);
    bool *seen = calloc(w->count + 1, sizeof *seen);
    if (f == NULL || good == NULL || seen == NULL)
        exit(1);
    fprintf(f, "%s, %s\n\nCopy %.0f GB/s; peaks by unit (TFLOP/s or TOP/s):", w->b.adapter_name,
            w->b.driver, w->bandwidth * 1e-9);
    for (int i = 0; i < UNITS; i++)
        fprintf(f, " %d: %.1f", i, w->peak[i] * 1e-12);
    fprintf(f, "\n\n| family | M x N x K | us | GB/s | TFLOP/s | share | error | candidate |\n"
               "|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < w->count; i++) {
        size_t n = 0;
        const candidate *a = &w->rows[i];
        if (seen[i])
            continue;
        for (size_t j = i; j < w->count; j++) {
            candidate *c = &w->rows[j];
            if (strcmp(c->family, a->family) != 0 || c->shape.m != a->shape.m ||
                c->shape.n != a->shape.n || c->shape.k != a->shape.k)
                continue;
            seen[j] = true;
            if (c->done)
                good[n++] = c;
        }
        qsort(good, n, sizeof good[0], by_median);
        for (size_t j = 0; j < n && j < TOP; j++)
            fprintf(f,
                    "| %s | %" PRId64 " x %" PRId64 " x %" PRId64
                    " | %.2f | %.0f | %.2f | %.0f %% | %.1e | %s |\n",
                    a->family, a->shape.m, a->shape.n, a->shape.k, good[j]->median * 1e6,
                    (double)bytes_moved(good[j]) / good[j]->median * 1e-9,
                    (double)operations(good[j]) / good[j]->median * 1e-12,
                    100 * floor_seconds(w, good[j]) / good[j]->median, good[j]->error,
                    good[j]->label);
    }
    fclose(f);
    free(good);
    free(seen);
}

int main(int argc, char **argv)
{
    static sweep w = {.templates = "lab", .out = "results", .window = 48};
    const char *list = "lab/sweep.txt";
    double seconds = 1e9;
    uint32_t subgroup = 0;   /* 0: the adapter's */

    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--small") == 0)
            w.small = true;
        else if (strcmp(argv[i], "--null") == 0)
            w.null = true;
        else if (strcmp(argv[i], "--robust") == 0)
            w.robust = true;
        else if (strcmp(argv[i], "--ahead") == 0)
            w.ahead = true;
        else if (strcmp(argv[i], "--show") == 0)
            w.show = true;
        else if (strcmp(argv[i], "--templates") == 0)
            w.templates = next, i++;
        else if (strcmp(argv[i], "--list") == 0)
            list = next, i++;
        else if (strcmp(argv[i], "--out") == 0)
            w.out = next, i++;
        else if (strcmp(argv[i], "--only") == 0)
            w.only = next, i++;
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(next, NULL), i++;
        else if (strcmp(argv[i], "--subgroup") == 0)
            subgroup = (uint32_t)atoi(next), i++;
        else if (strcmp(argv[i], "--window") == 0)
            w.window = atoi(next), i++;
        else
            return fprintf(stderr, "sweep: what is %s?\n", argv[i]), 2;
    }
    w.deadline = clock_seconds() + seconds;
    w.rows = calloc(CANDIDATES_MAX, sizeof *w.rows);
    w.pipelines = calloc(PIPELINES_MAX, sizeof *w.pipelines);
    const char *missing = bench_open(&w.b, w.null, w.robust);
    if (missing == NULL && w.rows != NULL && w.pipelines != NULL)
        missing = problem_open(&w.p, &w.b, w.templates, w.small ? 1 << 22 : 1 << 30);
    if (missing != NULL)
        return fprintf(stderr, "sweep: %s\n", missing), 1;
    if (subgroup > 0)
        w.b.subgroup = subgroup;
    fprintf(stderr, "sweep: %s, %s, subgroups of %u%s\n", w.b.adapter_name, w.b.driver,
            w.b.subgroup, w.b.matrix ? ", matrices" : "");

    char path[512];
    snprintf(path, sizeof path, "%s.csv", w.out);
    w.csv = fopen(path, "w");
    if (w.csv == NULL)
        return fprintf(stderr, "sweep: cannot write %s\n", path), 1;
    fprintf(w.csv, "# %s; %s; robust %d\n", w.b.adapter_name, w.b.driver, w.robust);
    fprintf(w.csv, "family,M,N,K,candidate,grid,us_median,us_least,gbps,tflops,share,error,verdict,"
                   "compile_s\n");
    if (!w.show && !w.null)
        make_canary(&w);
    run_list(&w, list);
    summary(&w);
    fclose(w.csv);
    if (w.b.lost)
        fprintf(stderr, "sweep: the device was lost: %s\n", w.b.failure);
    bench_close(&w.b);
    return w.b.lost || (w.small && w.failures > 0);
}
