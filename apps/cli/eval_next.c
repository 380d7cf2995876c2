/*
 * eval_next.c - `temper eval next`: the likeliest next tokens with their raw logits.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "eval.h"

static struct next_options {
    const char *prompt, *ids;
    uint64_t k;
    temper_kv kv;
    bool json;
} opt = {.k = 10};

static const option options[] = {
    {"-p", OPTION_TEXT, &opt.prompt, "TEXT",
     "the text to continue (special tokens in it are parsed)"},
    {"--ids", OPTION_TEXT, &opt.ids, "IDS", "the ids to continue: \"1 2 3\""},
    {"-k", OPTION_COUNT, &opt.k, "K", "how many tokens to list (default 10)"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object: next, a list of id, piece, logit"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {options, cli_cache_options, cli_widen_options,
                                       cli_device_options, NULL};

/* "1 2,3" into ids; *out is freed with temper_free's twin free. */
static temper_status parse_ids(const char *text, temper_tokens *out, temper_error *err)
{
    uint32_t *ids = malloc((strlen(text) + 1) * sizeof *ids);
    size_t count = 0;
    if (ids == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the ids");
    for (const char *at = text; *at != '\0';) {
        if (isspace((unsigned char)*at) || *at == ',') {
            at++;
            continue;
        }
        char *end = NULL;
        errno = 0;
        const unsigned long long value = strtoull(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno != 0 || value > UINT32_MAX ||
            (*end != '\0' && *end != ',' && !isspace((unsigned char)*end))) {
            free(ids);
            const size_t length = strcspn(at, " ,\t\n");
            return error_set(err, TEMPER_BAD_ARGUMENT, "--ids: \"%.*s\" is no id",
                             length < 200 ? (int)length : 200, at);
        }
        ids[count++] = (uint32_t)value;
        at = end;
    }
    *out = (temper_tokens){ids, count};
    return TEMPER_OK;
}

/* What by_logit sorts by: qsort passes nothing on. */
static const float *sort_logits;

/* The larger logit first, the lower id first among equals. */
static int by_logit(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (sort_logits[a] > sort_logits[b])
        return -1;
    if (sort_logits[a] < sort_logits[b])
        return 1;
    return a < b ? -1 : a > b;
}

static void print_next(const temper_engine *engine, const float *logits, const uint32_t *ids,
                       size_t count)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < count; i++) {
        size_t length = 0;
        const char *piece = temper_piece(engine, ids[i], &length);
        if (opt.json) {
            json_array_append_new(rows, json_pack("{s:I, s:o, s:f}", "id", (json_int_t)ids[i],
                                                  "piece", cli_json_text(piece, length), "logit",
                                                  (double)logits[ids[i]]));
            continue;
        }
        strbuf shown = {0};
        cli_one_line(&shown, piece, length);
        cli_print("%8u  %12.6f  \"%s\"\n", ids[i], (double)logits[ids[i]], strbuf_text(&shown));
        strbuf_free(&shown);
    }
    if (opt.json)
        cli_print_json(eval_with_lossy(json_pack("{s:o}", "next", rows)));
    else
        json_decref(rows);
}

static temper_status next_tokens(temper_engine *engine, temper_error *err)
{
    const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
    const size_t k = opt.k < vocabulary ? (size_t)opt.k : vocabulary;
    temper_tokens prompt = {0};
    temper_session *session = NULL;
    temper_status status =
        opt.ids != NULL ? parse_ids(opt.ids, &prompt, err)
                        : temper_tokenize(engine, opt.prompt, SIZE_MAX,
                                          TEMPER_AUTO_BOS | TEMPER_PARSE_SPECIAL, &prompt, err);
    if (status == TEMPER_OK)
        status = temper_session_open(engine, &(temper_session_desc){.kv = opt.kv}, &session, err);
    float *logits = malloc(vocabulary * sizeof *logits);
    uint32_t *ids = malloc(vocabulary * sizeof *ids);
    if (status == TEMPER_OK && (logits == NULL || ids == NULL))
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for the logits");
    if (status == TEMPER_OK)
        status = temper_session_logits(session, prompt, logits, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < vocabulary; i++) {
        ids[i] = i;
        if (!isfinite(logits[i]))
            status = error_set(err, TEMPER_NOT_FINITE, "the logit of token %u is not finite", i);
    }
    if (status == TEMPER_OK) {
        sort_logits = logits;
        qsort(ids, vocabulary, sizeof *ids, by_logit);
        print_next(engine, logits, ids, k);
    }
    free(ids);
    free(logits);
    temper_session_close(session);
    if (opt.ids != NULL)
        free(prompt.ids);
    else
        temper_free(prompt.ids);
    return status;
}

static int run(int argc, char **argv)
{
    const char *model = NULL;
    int usage = args_parse("eval next", argc, argv, tables, &model, 1);
    if (usage == 0)
        usage = cli_kv("eval next", &opt.kv);
    if (usage != 0)
        return usage;
    if ((opt.prompt == NULL) == (opt.ids == NULL))
        return cli_usage_error("eval next", "give either -p TEXT or --ids IDS");
    const char *path = cli_model_path(model);
    if (path == NULL)
        return EXIT_FAILED;
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_status status = cli_open_engine(path, 0, &engine, &err);
    if (status == TEMPER_OK)
        status = next_tokens(engine, &err);
    temper_engine_close(engine);
    return status != TEMPER_OK ? cli_fail("eval next", &err) : cli_finish("eval next");
}

const eval_command eval_next = {
    .name = "next",
    .usage = "temper eval next [MODEL] (-p TEXT | --ids IDS) [OPTIONS]",
    .about = "Lists the likeliest next tokens with their raw logits.",
    .tables = tables,
    .run = run,
};
