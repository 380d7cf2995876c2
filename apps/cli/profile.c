#include "profile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/outfile.h"
#include "check/check.h"

enum { MOST_KERNELS = 64 };

static struct {
    bool table;
    const char *trace;
} opt;

const option profile_options[] = {
    {"--profile", OPTION_FLAG, &opt.table, NULL, "time, bytes and share of the peak by kernel"},
    {"--trace", OPTION_TEXT, &opt.trace, "FILE",
     "every dispatch with its times, for chrome://tracing or Perfetto"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

/* The events of the trace so far, each on a line. */
static strbuf events;

bool profile_wanted(void)
{
    return opt.table || opt.trace != NULL;
}

temper_status profile_begin(temper_device *device, temper_error *err)
{
    return temper_device_profile(device, true, err);
}

/* ---- the table ------------------------------------------------------------------------------- */

static double share_of(const check_peak *peak, const temper_profile_row *row)
{
    double operations[GPU_UNITS] = {0};
    operations[row->unit] = (double)row->operations;
    return row->seconds > 0
               ? check_peak_seconds(peak, (double)row->bytes, operations) / row->seconds
               : 0;
}

static void print_table(const char *title, uint64_t steps, const temper_profile_row *rows,
                        uint32_t count, const check_peak *peak)
{
    const double each = 1.0 / (double)steps;
    double seconds = 0;
    uint64_t dispatches = 0;
    for (uint32_t i = 0; i < count; i++) {
        seconds += rows[i].seconds;
        dispatches += rows[i].dispatches;
    }
    fprintf(stderr, "%s: %.1f us of the GPU in %.1f dispatches%s\n", title, seconds * 1e6 * each,
            (double)dispatches * each, steps > 1 ? " a token" : "");
    fprintf(stderr, "  %-24s %10s %11s %6s %10s %9s %9s %-6s %s\n", "kernel", "dispatches", "us",
            "%", "MB", "GB/s", "TFLOP/s", "unit", peak != NULL ? "share" : "");
    for (uint32_t i = 0; i < count; i++) {
        const temper_profile_row *r = &rows[i];
        const double time = r->seconds > 0 ? r->seconds : NAN;
        fprintf(stderr, "  %-24s %10.1f %11.1f %5.1f%% %10.3f %9.1f %9.3f %-6s", r->kernel,
                (double)r->dispatches * each, r->seconds * 1e6 * each,
                seconds > 0 ? 100.0 * r->seconds / seconds : 0.0, (double)r->bytes * 1e-6 * each,
                (double)r->bytes / time * 1e-9, (double)r->operations / time * 1e-12,
                check_unit_name((gpu_unit)r->unit));
        fprintf(stderr, peak != NULL ? " %4.0f%%\n" : "\n",
                peak != NULL ? 100.0 * share_of(peak, r) : 0.0);
    }
}

/* ---- the trace ------------------------------------------------------------------------------- */

enum { GPU_TRACK = 1, HOST_TRACK = 2 };

/* Whole nanoseconds, so that what lies inside something else still does in the file. */
static int64_t nanoseconds(double seconds)
{
    return llround(seconds * 1e9);
}

/* Microseconds with their thousandths. */
static void put_time(const char *name, int64_t ns)
{
    strbuf_printf(&events, ",\"%s\":%s%" PRId64 ".%03d", name, ns < 0 ? "-" : "",
                  (int64_t)llabs(ns) / 1000, (int)(llabs(ns) % 1000));
}

static void put_span(const char *name, int64_t begin, int64_t end)
{
    json_t *text = cli_json_text(name, strlen(name));
    char *quoted = json_dumps(text, JSON_ENCODE_ANY);
    strbuf_printf(&events, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":%s", GPU_TRACK,
                  quoted != NULL ? quoted : "\"\"");
    put_time("ts", begin);
    put_time("dur", end - begin);
    free(quoted);
    json_decref(text);
}

/* The GPU's clock and the host's have nothing to do with each other: they are laid side by side so
 * that no work begins before it was submitted. */
static double host_offset(const temper_profile_event *list, uint32_t count)
{
    double offset = INFINITY;
    for (uint32_t i = 0; i < count; i++)
        offset = fmin(offset, list[i].begin - list[i].submitted);
    return offset;
}

/* When something ran, in nanoseconds of the GPU's clock. */
typedef struct span {
    int64_t begin, end;
} span;

/* The end of what the trace has so far. */
static int64_t last_end = INT64_MIN;

/* Passes may overlap on the card; on one track of a viewer they must not. What began before the one
 * before it had ended begins there. */
static void lay_out(const temper_profile_event *list, uint32_t count, span *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const int64_t begin = nanoseconds(list[i].begin), end = nanoseconds(list[i].end);
        out[i].begin = begin > last_end ? begin : last_end;
        out[i].end = end > out[i].begin ? end : out[i].begin;
        last_end = out[i].end;
    }
}

/* One submit: its span with the dispatches in it, and when the host asked for it. */
static void put_submit(const temper_profile_event *list, const span *spans, uint32_t count,
                       double offset)
{
    char name[48];
    snprintf(name, sizeof name, "submit %" PRIu64, list[0].submit);
    put_span(name, spans[0].begin, spans[count - 1].end);
    strbuf_printf(&events, ",\"args\":{\"dispatches\":%" PRIu32 "}}", count);
    for (uint32_t i = 0; i < count; i++) {
        put_span(list[i].kernel, spans[i].begin, spans[i].end);
        strbuf_printf(&events, ",\"args\":{\"bytes\":%" PRIu64 ",\"operations\":%" PRIu64 "}}",
                      list[i].bytes, list[i].operations);
    }
    strbuf_printf(&events, ",\n{\"ph\":\"i\",\"s\":\"t\",\"pid\":1,\"tid\":%d,\"name\":\"%s\"",
                  HOST_TRACK, name);
    put_time("ts", nanoseconds(list[0].submitted + offset));
    strbuf_puts(&events, "}");
}

static void put_section(const char *title, const temper_profile_event *list, const span *spans,
                        uint32_t count)
{
    const double offset = host_offset(list, count);
    put_span(title, spans[0].begin, spans[count - 1].end);
    strbuf_puts(&events, "}");
    for (uint32_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && list[end].submit == list[i].submit; end++)
            ;
        put_submit(list + i, spans + i, end - i, offset);
    }
}

/* Submits are collected as they end and are waited for, which is not always their order. */
static int by_submit(const void *a, const void *b)
{
    const temper_profile_event *x = a, *y = b;
    if (x->submit != y->submit)
        return x->submit < y->submit ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Adds everything since profile_begin under one name. */
static temper_status keep_events(temper_device *device, const char *title, temper_error *err)
{
    const uint32_t count = temper_device_profile_events(device, NULL, 0);
    if (count == 0)
        return TEMPER_OK;
    temper_profile_event *list = calloc(count, sizeof *list);
    span *spans = calloc(count, sizeof *spans);
    if (list != NULL && spans != NULL) {
        temper_device_profile_events(device, list, count);
        qsort(list, count, sizeof *list, by_submit);
        lay_out(list, count, spans);
        put_section(title, list, spans, count);
    }
    const bool kept = list != NULL && spans != NULL && !events.failed;
    free(list);
    free(spans);
    return kept ? TEMPER_OK : error_set(err, TEMPER_NO_MEMORY, "no memory for a trace");
}

temper_status profile_end(temper_device *device, const char *title, uint64_t steps,
                          const check_peak *peak, temper_error *err)
{
    temper_profile_row rows[MOST_KERNELS];
    temper_status status = opt.trace != NULL ? keep_events(device, title, err) : TEMPER_OK;
    uint32_t count = temper_device_profile_take(device, rows, MOST_KERNELS);
    const temper_status off = temper_device_profile(device, false, err);
    if (count > MOST_KERNELS)
        count = MOST_KERNELS;
    if (opt.table)
        print_table(title, steps > 0 ? steps : 1, rows, count, peak);
    return status == TEMPER_OK ? off : status;
}

temper_status profile_finish(const char *adapter, temper_error *err)
{
    outfile *out = NULL;
    strbuf head = {0};
    temper_status status = TEMPER_OK;
    if (opt.trace == NULL)
        return TEMPER_OK;
    json_t *name = cli_json_text(adapter, strlen(adapter));
    char *quoted = json_dumps(name, JSON_ENCODE_ANY);
    strbuf_printf(&head,
                  "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
                  "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":%s}},\n"
                  "{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
                  "\"GPU\"}},\n"
                  "{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
                  "\"host: submits\"}}",
                  quoted != NULL ? quoted : "\"\"", GPU_TRACK, HOST_TRACK);
    free(quoted);
    json_decref(name);
    strbuf_puts(&events, "\n]}\n");
    if (head.failed || events.failed)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a trace");
    if (status == TEMPER_OK)
        status = outfile_create(opt.trace, &out, err);
    if (status == TEMPER_OK)
        status = outfile_write(out, head.data, head.length, err);
    if (status == TEMPER_OK)
        status = outfile_write(out, events.data, events.length, err);
    if (status == TEMPER_OK)
        status = outfile_commit(out, err);
    else
        outfile_discard(out);
    strbuf_free(&head);
    strbuf_free(&events);
    return status;
}

/* ---- the peak -------------------------------------------------------------------------------- */

temper_status profile_peak(bool fresh, check_peak *out, temper_error *err)
{
    gpu_device *device = NULL;
    const temper_device_desc desc = cli_device_desc(false);
    temper_status status = check_open(&desc, false, &device, err);
    if (status == TEMPER_OK)
        status = check_peak_get(device, cli_tune_folder(), fresh, out, err);
    gpu_device_release(device);
    return status;
}

/* ---- an answer ------------------------------------------------------------------------------- */

temper_status profile_generate(temper_device *device, temper_session *session,
                               const temper_request *request, temper_result *result,
                               temper_error *err)
{
    check_peak peak = {0};
    temper_request prompt = *request;
    prompt.no_tokens = true;
    temper_status status = profile_peak(false, &peak, err);
    if (status == TEMPER_OK)
        status = profile_begin(device, err);
    if (status == TEMPER_OK)
        status = temper_session_generate(session, &prompt, result, err);
    if (status == TEMPER_OK)
        status = profile_end(device, "the prompt", 1, &peak, err);
    if (status == TEMPER_OK && !request->no_tokens) {
        status = profile_begin(device, err);
        if (status == TEMPER_OK)
            status = temper_session_generate(session, request, result, err);
        if (status == TEMPER_OK)
            status = profile_end(device, "the answer", result->passes > 0 ? result->passes : 1,
                                 &peak, err);
    }
    return status == TEMPER_OK ? profile_finish(temper_device_name(device), err) : status;
}
