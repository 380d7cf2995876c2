/*
 * eval_kl.c - `temper eval kl`: how far a model's probabilities are from a reference's over a text.
 * The reference is a second model, opened at the same time, or logits that an earlier call saved.
 *
 * With p the reference's probabilities at a place and q the model's, over the vocabulary:
 *
 *     KL(p || q) = sum p log(p / q)
 *
 * Windows, scored places and statistics are those of llama.cpp's perplexity tool.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "kl_file.h"
#include "kl_stats.h"

/* --ctx was not given: a number that nobody gives. */
#define CONTEXT_UNSET (UINT64_MAX - 1)

static struct kl_options {
    const char *against, *save, *text;
    uint64_t context, chunks;
    temper_kv kv;
    bool json;
} opt = {.context = CONTEXT_UNSET};

static const option options[] = {
    {"--against", OPTION_TEXT, &opt.against, "MODEL", "the reference: a model, or saved logits"},
    {"--save", OPTION_TEXT, &opt.save, "FILE",
     "save this model's logits as a reference (4 bytes a token of the vocabulary and place)"},
    {"--text", OPTION_TEXT, &opt.text, "FILE", "the text (saved logits have their own)"},
    {"--ctx", OPTION_COUNT, &opt.context, "N", "tokens a window (default 512, or as saved)"},
    {"--chunks", OPTION_COUNT, &opt.chunks, "K", "only the first K windows (default: all)"},
    {"--json", OPTION_FLAG, &opt.json, NULL,
     "one JSON object: tokens, ppl, ppl_against, kl_mean, kl_stderr, kl_median, kl_90, kl_95, "
     "kl_99, kl_max, same_best, p_change_mean, p_change_rms"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {options, cli_cache_options, cli_widen_options,
                                       cli_device_options, NULL};

enum { DEFAULT_CONTEXT = 512 };

/* Logits of so many rows, and of at most so many bytes, are held of each model at a time; Ctrl-C is
 * looked for between them. */
enum { PART_ROWS = 64 };
static const uint64_t part_bytes = UINT64_C(64) << 20;

/* ---- what is told --------------------------------------------------------------------------- */

static void print_result(kl_sums *s)
{
    const kl_result r = kl_summarise(s);
    if (opt.json) {
        cli_print_json(eval_with_lossy(
            json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "tokens",
                      (json_int_t)s->count, "ppl", r.ppl, "ppl_against", r.ppl_against, "kl_mean",
                      r.mean, "kl_stderr", r.error, "kl_median", r.median, "kl_90", r.percent90,
                      "kl_95", r.percent95, "kl_99", r.percent99, "kl_max", r.most, "same_best",
                      r.same_best, "p_change_mean", r.p_change, "p_change_rms", r.p_change_rms)));
        return;
    }
    cli_print("\nperplexity     %.4f over %zu tokens%s\n", r.ppl, s->count, eval_lossy_note());
    cli_print("  reference    %.4f\n", r.ppl_against);
    cli_print("KL divergence  %.6f \u00b1 %.6f\n", r.mean, r.error);
    cli_print("  median       %.6f\n", r.median);
    cli_print("  90 %%         %.6f\n", r.percent90);
    cli_print("  95 %%         %.6f\n", r.percent95);
    cli_print("  99 %%         %.6f\n", r.percent99);
    cli_print("  maximum      %.6f\n", r.most);
    cli_print("same best      %.2f %%\n", 100.0 * r.same_best);
    cli_print("change of p    %.3f %%, root mean square %.3f %%\n", 100.0 * r.p_change,
              100.0 * r.p_change_rms);
}

/* ---- windows -------------------------------------------------------------------------------- */

/* A call: the model, what it is compared with or saved to, and the text. */
typedef struct comparison {
    temper_engine *engine, *other; /* other: NULL where the reference is saved */
    temper_session *session, *other_session;
    kl_file *saved;
    outfile *out;
    eval_text read;
    eval_windows text;
    float *logits, *against; /* [rows][vocabulary] each */
    uint32_t vocabulary, rows;
    kl_sums sums;
} comparison;

static temper_status open_sessions(comparison *c, temper_error *err)
{
    /* --kv and --lossy are of the model that is looked at; what it is compared with is as good as
     * it can be. */
    const temper_session_desc desc = {.context = c->text.context, .kv = opt.kv},
                              exact = {.context = c->text.context};
    temper_status status = temper_session_open(c->engine, &desc, &c->session, err);
    if (status == TEMPER_OK && c->other != NULL &&
        temper_session_open(c->other, &exact, &c->other_session, err) != TEMPER_OK) {
        error_prefix(err, "%s", opt.against);
        status = err->status;
    }
    const uint64_t row_bytes = (uint64_t)c->vocabulary * sizeof(float);
    c->rows = (uint32_t)max_u64(1, min_u64(part_bytes / row_bytes, PART_ROWS));
    c->logits = malloc((size_t)(c->rows * row_bytes));
    c->against = malloc((size_t)(c->rows * row_bytes));
    if (status == TEMPER_OK && (c->logits == NULL || c->against == NULL))
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for %u rows of logits", c->rows);
    return status;
}

/* Rows of a window from place `first` on. What is saved counts from the first scored place. */
static temper_status take_rows(comparison *c, uint32_t window, uint32_t first, uint32_t rows,
                               temper_error *err)
{
    uint32_t *ids = c->text.ids + (size_t)window * c->text.context;
    const temper_tokens upto = {ids, first + rows};
    const uint32_t begin = eval_first_scored(c->text.context) - 1;
    temper_status status = temper_session_logits_from(c->session, upto, first, c->logits, err);
    if (status != TEMPER_OK || c->out != NULL)
        return status == TEMPER_OK
                   ? outfile_write(c->out, c->logits,
                                   (uint64_t)rows * c->vocabulary * sizeof(float), err)
                   : status;
    if (c->saved != NULL)
        return kl_file_read(c->saved, window, first - begin, rows, c->against, err);
    return temper_session_logits_from(c->other_session, upto, first, c->against, err);
}

/* Scores one window: place i of it is predicted by the logits after place i - 1. */
static temper_status take_window(comparison *c, uint32_t window, temper_error *err)
{
    const uint32_t n = c->text.context, begin = eval_first_scored(n) - 1;
    const uint32_t *ids = c->text.ids + (size_t)window * n;
    /* What is saved stands beside itself: only its perplexity is told. */
    const float *against = c->out != NULL ? c->logits : c->against;
    temper_status status = TEMPER_OK;
    for (uint32_t first = begin; status == TEMPER_OK && first < n - 1 && !cli_interrupted();
         first += c->rows) {
        const uint32_t rows = (uint32_t)min_u64(c->rows, n - 1 - first);
        status = take_rows(c, window, first, rows, err);
        for (uint32_t i = 0; status == TEMPER_OK && i < rows; i++) {
            const size_t at = (size_t)i * c->vocabulary;
            status = kl_add(&c->sums, against + at, c->logits + at, c->vocabulary,
                            ids[first + i + 1], err);
        }
    }
    return status;
}

static void print_window(const comparison *c, uint32_t window)
{
    const kl_sums *s = &c->sums;
    const double n = (double)s->count;
    if (opt.json)
        return;
    if (c->out != NULL)
        cli_print("[%u] %.4f\n", window + 1, exp(s->nll / n));
    else
        cli_print("[%u] %.4f, reference %.4f, divergence %.6f, same best %.2f %%\n", window + 1,
                  exp(s->nll / n), exp(s->nll_against / n), s->kl_sum / n,
                  100.0 * (double)s->same_best / n);
    cli_write("", 0);
}

static temper_status compare(comparison *c, temper_error *err)
{
    temper_status status = open_sessions(c, err);
    for (uint32_t w = 0;
         status == TEMPER_OK && w < c->text.count && !cli_interrupted() && !cli_output_failed();
         w++) {
        status = take_window(c, w, err);
        if (status == TEMPER_OK && !cli_interrupted())
            print_window(c, w);
    }
    if (status != TEMPER_OK || cli_interrupted() || cli_output_failed())
        return status;
    if (c->out == NULL) {
        print_result(&c->sums);
        return TEMPER_OK;
    }
    status = outfile_commit(c->out, err);
    c->out = NULL;
    const double ppl = exp(c->sums.nll / (double)c->sums.count);
    if (status == TEMPER_OK && opt.json)
        cli_print_json(eval_with_lossy(
            json_pack("{s:f, s:I}", "ppl", ppl, "tokens", (json_int_t)c->sums.count)));
    else if (status == TEMPER_OK)
        cli_print("perplexity %.4f over %zu tokens%s\n", ppl, c->sums.count, eval_lossy_note());
    return status;
}

/* ---- the reference -------------------------------------------------------------------------- */

/* Fails where the two models do not mean the same by an id. */
static temper_status check_vocabularies(const temper_engine *a, const temper_engine *b,
                                        temper_error *err)
{
    const uint32_t count = temper_engine_info(a)->vocabulary,
                   other = temper_engine_info(b)->vocabulary;
    if (count != other)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%s has %u tokens, the model %u: only models of one vocabulary can be "
                         "compared",
                         opt.against, other, count);
    for (uint32_t id = 0; id < count; id++) {
        size_t length[2] = {0, 0};
        const char *piece[2] = {temper_piece(a, id, &length[0]), temper_piece(b, id, &length[1])};
        if (length[0] != length[1] || memcmp(piece[0], piece[1], length[0]) != 0)
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "token %u is \"%.*s\" in %s and \"%.*s\" in the model: only models of "
                             "one vocabulary can be compared",
                             id, (int)min_u64(length[1], 64), piece[1], opt.against,
                             (int)min_u64(length[0], 64), piece[0]);
    }
    return TEMPER_OK;
}

/* The windows of saved logits; those of the text, where one is given too, must be the same. */
static temper_status take_saved_text(comparison *c, temper_error *err)
{
    const eval_windows *saved = kl_file_windows(c->saved);
    const size_t bytes = (size_t)saved->count * saved->context * sizeof(uint32_t);
    if (opt.context != CONTEXT_UNSET && opt.context != saved->context)
        return error_set(err, TEMPER_BAD_ARGUMENT, "%s has windows of %u tokens, --ctx is %llu",
                         opt.against, saved->context, (unsigned long long)opt.context);
    if (opt.text != NULL) {
        eval_windows given = {0};
        const temper_status status =
            eval_windows_cut(c->engine, &c->read, saved->context, saved->count, &given, err);
        const bool same = status == TEMPER_OK && given.count == saved->count &&
                          memcmp(given.ids, saved->ids, bytes) == 0;
        free(given.ids);
        if (status != TEMPER_OK)
            return status;
        if (!same)
            return error_set(
                err, TEMPER_BAD_ARGUMENT,
                "%s was saved of another text than %s: leave --text out to take its own",
                opt.against, opt.text);
    }
    c->text = *saved;
    c->text.count = opt.chunks > 0 ? (uint32_t)min_u64(opt.chunks, saved->count) : saved->count;
    c->text.ids = malloc(bytes);
    if (c->text.ids == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the ids of %s", opt.against);
    memcpy(c->text.ids, saved->ids, bytes);
    return TEMPER_OK;
}

/* What can be read before any model: the text, saved logits, and whether a reference is a model. */
static temper_status read_inputs(comparison *c, temper_error *err)
{
    temper_status status = opt.text == NULL ? TEMPER_OK : eval_text_read(opt.text, &c->read, err);
    if (status != TEMPER_OK || opt.against == NULL)
        return status;
    if (kl_file_is(opt.against))
        return kl_file_open(opt.against, &c->saved, err);
    temper_file *file = NULL;
    status = temper_file_open(opt.against, cli_widen(), &file, err);
    temper_file_close(file);
    return status;
}

/* Opens what the model is compared with, or what is saved; and cuts the text. */
static temper_status open_reference(comparison *c, temper_error *err)
{
    if (c->saved != NULL) {
        const temper_status suits = kl_file_suits(c->saved, c->engine, err);
        return suits == TEMPER_OK ? take_saved_text(c, err) : suits;
    }
    const uint64_t context = opt.context != CONTEXT_UNSET ? opt.context : DEFAULT_CONTEXT;
    temper_status status =
        eval_windows_cut(c->engine, &c->read, context, opt.chunks, &c->text, err);
    /* A first Ctrl-C waits until the unfinished file is removed. */
    if (opt.save != NULL)
        cli_be_patient();
    if (status == TEMPER_OK && opt.save != NULL)
        return kl_file_create(opt.save, c->engine, &c->text, &c->out, err);
    if (status == TEMPER_OK)
        status = cli_open_engine_beside(c->engine, opt.against, TEMPER_LOSSY_NONE, &c->other, err);
    return status == TEMPER_OK ? check_vocabularies(c->engine, c->other, err) : status;
}

static void close_comparison(comparison *c)
{
    temper_session_close(c->session);
    temper_session_close(c->other_session);
    temper_engine_close(c->engine);
    temper_engine_close(c->other);
    kl_file_close(c->saved);
    outfile_discard(c->out);
    free(c->text.ids);
    free(c->read.bytes);
    free(c->logits);
    free(c->against);
    free(c->sums.kl);
}

/* ---- the command ---------------------------------------------------------------------------- */

static int check_options(void)
{
    if ((opt.against == NULL) == (opt.save == NULL))
        return cli_usage_error(
            "eval kl", "give a reference with --against MODEL, or make one with --save FILE");
    if (opt.text == NULL && (opt.save != NULL || !kl_file_is(opt.against)))
        return cli_usage_error("eval kl", "give a text with --text FILE");
    return opt.context == CONTEXT_UNSET ? 0 : eval_check_context("eval kl", opt.context);
}

static int run(int argc, char **argv)
{
    const char *model = NULL;
    int usage = args_parse("eval kl", argc, argv, tables, &model, 1);
    if (usage == 0)
        usage = check_options();
    if (usage == 0)
        usage = cli_kv("eval kl", &opt.kv);
    if (usage != 0)
        return usage;
    const char *path = cli_model_path(model);
    if (path == NULL)
        return EXIT_FAILED;
    temper_error err = {0};
    comparison c = {0};
    temper_status status = read_inputs(&c, &err);
    if (status == TEMPER_OK)
        status = cli_open_engine(path, 0, &c.engine, &err);
    if (status == TEMPER_OK) {
        c.vocabulary = temper_engine_info(c.engine)->vocabulary;
        status = open_reference(&c, &err);
    }
    if (status == TEMPER_OK)
        status = compare(&c, &err);
    close_comparison(&c);
    if (status == TEMPER_OK && cli_interrupted())
        return EXIT_INTERRUPTED;
    return status != TEMPER_OK ? cli_fail("eval kl", &err) : cli_finish("eval kl");
}

const eval_command eval_kl = {
    .name = "kl",
    .usage = "temper eval kl [MODEL] (--against MODEL | --save FILE) --text FILE [OPTIONS]",
    .about = "How far a model's probabilities are from a reference's: KL divergence over "
             "consecutive windows, the second half of each scored, as eval ppl does. The reference "
             "is a model of the same vocabulary, or what --save wrote of one.",
    .tables = tables,
    .run = run,
};
