/*
 * eval.c - `temper eval next` and `temper eval ppl`.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli.h"

static struct eval_options {
    const char *prompt, *ids, *text;
    uint64_t k, context, chunks;
    bool json;
} opt = {.k = 10, .context = 512};

static const option next_options[] = {
    {"-p", OPTION_TEXT, &opt.prompt, "TEXT",
     "the text to continue (special tokens in it are parsed)"},
    {"--ids", OPTION_TEXT, &opt.ids, "IDS", "the ids to continue: \"1 2 3\""},
    {"-k", OPTION_COUNT, &opt.k, "K", "how many tokens to list (default 10)"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object: next, a list of id, piece, logit"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option ppl_options[] = {
    {"--text", OPTION_TEXT, &opt.text, "FILE", "the text"},
    {"--ctx", OPTION_COUNT, &opt.context, "N", "tokens a window (default 512)"},
    {"--chunks", OPTION_COUNT, &opt.chunks, "K", "only the first K windows (default: all)"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object: ppl, tokens"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const next_tables[] = {next_options, cli_widen_options, cli_device_options,
                                            NULL};
static const option *const ppl_tables[] = {ppl_options, cli_widen_options, cli_device_options,
                                           NULL};

/* ---- next ----------------------------------------------------------------------------------- */

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
        cli_print_json(json_pack("{s:o}", "next", rows));
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
        status = temper_session_open(engine, NULL, &session, err);
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

static int eval_next(int argc, char **argv)
{
    const char *model = NULL;
    const int usage = args_parse("eval next", argc, argv, next_tables, &model, 1);
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

/* ---- ppl ------------------------------------------------------------------------------------ */

/* Scores the second half of window after window, as llama.cpp does: of N tokens the last N/2 - 1
 * are predicted. Where the file asks for BOS, it stands in the place of each window's first token.
 */
static temper_status perplexity(temper_engine *engine, temper_tokens text, temper_error *err)
{
    const uint32_t n = (uint32_t)opt.context;
    const size_t first = n / 2 + 1, scored = n - first;
    const temper_model_info *info = temper_engine_info(engine);
    uint64_t windows = text.count / n;
    if (windows == 0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%s has %zu tokens, fewer than one window of %u (--ctx)", opt.text,
                         text.count, n);
    if (opt.chunks > 0 && opt.chunks < windows)
        windows = opt.chunks;
    temper_session *session = NULL;
    temper_status status =
        temper_session_open(engine, &(temper_session_desc){.context = n}, &session, err);
    float *nll = malloc(scored * sizeof *nll);
    if (status == TEMPER_OK && nll == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for the scores");
    double sum = 0.0;
    uint64_t tokens = 0;
    for (uint64_t w = 0;
         status == TEMPER_OK && w < windows && !cli_interrupted() && !cli_output_failed(); w++) {
        const temper_tokens window = {text.ids + w * n, n};
        if (info->adds_bos && info->bos >= 0)
            window.ids[0] = (uint32_t)info->bos;
        status = temper_session_score(session, window, first, nll, err);
        for (size_t i = 0; status == TEMPER_OK && i < scored; i++) {
            if (!isfinite(nll[i]))
                status = error_set(err, TEMPER_NOT_FINITE,
                                   "the score of token %zu of window %llu is not finite", i,
                                   (unsigned long long)w);
            sum += (double)nll[i];
        }
        tokens += scored;
        if (status == TEMPER_OK && !opt.json) {
            cli_print("[%llu] %.4f\n", (unsigned long long)w + 1, exp(sum / (double)tokens));
            cli_write("", 0);
        }
    }
    if (status == TEMPER_OK && opt.json && !cli_interrupted())
        cli_print_json(json_pack("{s:f, s:I}", "ppl", exp(sum / (double)tokens), "tokens",
                                 (json_int_t)tokens));
    else if (status == TEMPER_OK && !cli_interrupted())
        cli_print("perplexity %.4f over %llu tokens\n", exp(sum / (double)tokens),
                  (unsigned long long)tokens);
    free(nll);
    temper_session_close(session);
    return status;
}

static temper_status read_and_score(temper_engine *engine, temper_error *err)
{
    char *text = NULL;
    size_t length = 0;
    temper_tokens tokens = {0};
    temper_status status = cli_read_file(opt.text, &text, &length, err);
    if (status == TEMPER_OK)
        /* As llama.cpp scores it, a text is text: what looks like a special token is none. */
        status = temper_tokenize(engine, text, length, TEMPER_AUTO_BOS, &tokens, err);
    if (status == TEMPER_OK)
        status = perplexity(engine, tokens, err);
    temper_free(tokens.ids);
    free(text);
    return status;
}

static int eval_ppl(int argc, char **argv)
{
    const char *model = NULL;
    const int usage = args_parse("eval ppl", argc, argv, ppl_tables, &model, 1);
    if (usage != 0)
        return usage;
    if (opt.text == NULL)
        return cli_usage_error("eval ppl", "give a text with --text FILE");
    if (opt.context < 4 || opt.context > INT32_MAX)
        return cli_usage_error("eval ppl", "--ctx is %llu; it must be 4 to %d",
                               (unsigned long long)opt.context, INT32_MAX);
    const char *path = cli_model_path(model);
    if (path == NULL)
        return EXIT_FAILED;
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_status status = cli_open_engine(path, 0, &engine, &err);
    if (status == TEMPER_OK)
        status = read_and_score(engine, &err);
    temper_engine_close(engine);
    if (status == TEMPER_OK && cli_interrupted())
        return EXIT_INTERRUPTED;
    return status != TEMPER_OK ? cli_fail("eval ppl", &err) : cli_finish("eval ppl");
}

/* ---- the command ---------------------------------------------------------------------------- */

int command_eval(int argc, char **argv)
{
    static const char usage[] = "temper eval next [MODEL] (-p TEXT | --ids IDS) [OPTIONS]\n"
                                "       temper eval ppl [MODEL] --text FILE [OPTIONS]";
    const bool next = argc > 0 && strcmp(argv[0], "next") == 0;
    const bool ppl = argc > 0 && strcmp(argv[0], "ppl") == 0;
    if (next && args_want_help(argc - 1, argv + 1, next_tables))
        return args_help("temper eval next [MODEL] (-p TEXT | --ids IDS) [OPTIONS]",
                         "Lists the likeliest next tokens with their raw logits.", next_tables);
    if (ppl && args_want_help(argc - 1, argv + 1, ppl_tables))
        return args_help("temper eval ppl [MODEL] --text FILE [OPTIONS]",
                         "Perplexity over consecutive windows, the second half of each scored.",
                         ppl_tables);
    if (next)
        return eval_next(argc - 1, argv + 1);
    if (ppl)
        return eval_ppl(argc - 1, argv + 1);
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        static const option *const no_tables[] = {NULL};
        return args_help(
            usage,
            "next lists the likeliest next tokens, ppl measures perplexity; each has a --help.",
            no_tables);
    }
    return cli_usage_error(
        "eval", argc > 0 ? "there is no \"%.200s\": next or ppl" : "say what: next or ppl%s",
        argc > 0 ? argv[0] : "");
}
