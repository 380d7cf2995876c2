/*
 * eval_ppl.c - `temper eval ppl`: perplexity; and the windows that it shares with `eval kl`.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "eval.h"

static struct ppl_options {
    const char *text;
    uint64_t context, chunks;
    temper_kv kv;
    bool json;
} opt = {.context = 512};

static const option options[] = {
    {"--text", OPTION_TEXT, &opt.text, "FILE", "the text"},
    {"--ctx", OPTION_COUNT, &opt.context, "N", "tokens a window (default 512)"},
    {"--chunks", OPTION_COUNT, &opt.chunks, "K", "only the first K windows (default: all)"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object: ppl, tokens"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {options, cli_cache_options, cli_widen_options,
                                       cli_device_options, NULL};

/* ---- windows -------------------------------------------------------------------------------- */

int eval_check_context(const char *command, uint64_t context)
{
    if (context >= 4 && context <= INT32_MAX)
        return 0;
    return cli_usage_error(command, "--ctx is %llu; it must be 4 to %d",
                           (unsigned long long)context, INT32_MAX);
}

uint32_t eval_first_scored(uint32_t context)
{
    return context / 2 + 1;
}

temper_status eval_text_read(const char *path, eval_text *out, temper_error *err)
{
    out->path = path;
    return cli_read_file(path, &out->bytes, &out->length, err);
}

temper_status eval_windows_cut(const temper_engine *engine, const eval_text *text, uint64_t context,
                               uint64_t chunks, eval_windows *out, temper_error *err)
{
    const temper_model_info *info = temper_engine_info(engine);
    temper_tokens tokens = {0};
    /* As llama.cpp scores it, a text is text: what looks like a special token is none. */
    temper_status status =
        temper_tokenize(engine, text->bytes, text->length, TEMPER_AUTO_BOS, &tokens, err);
    const uint64_t filled = tokens.count / context;
    const uint64_t count = chunks > 0 && chunks < filled ? chunks : filled;
    uint32_t *ids = status == TEMPER_OK && count > 0 && count <= UINT32_MAX
                        ? malloc((size_t)(count * context) * sizeof *ids)
                        : NULL;
    if (status == TEMPER_OK && count == 0)
        status = error_set(err, TEMPER_BAD_ARGUMENT,
                           "%s has %zu tokens, fewer than one window of %llu (--ctx)", text->path,
                           tokens.count, (unsigned long long)context);
    else if (status == TEMPER_OK && ids == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for the windows of %s", text->path);
    if (status == TEMPER_OK) {
        memcpy(ids, tokens.ids, (size_t)(count * context) * sizeof *ids);
        for (uint64_t w = 0; w < count && info->adds_bos && info->bos >= 0; w++)
            ids[w * context] = (uint32_t)info->bos;
        *out = (eval_windows){ids, (uint32_t)context, (uint32_t)count};
    }
    temper_free(tokens.ids);
    return status;
}

/* ---- perplexity ----------------------------------------------------------------------------- */

static temper_status perplexity(temper_engine *engine, const eval_windows *text, temper_error *err)
{
    const size_t n = text->context, first = eval_first_scored(text->context), scored = n - first;
    temper_session *session = NULL;
    temper_status status = temper_session_open(
        engine, &(temper_session_desc){.context = text->context, .kv = opt.kv}, &session, err);
    float *nll = malloc(scored * sizeof *nll);
    if (status == TEMPER_OK && nll == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for the scores");
    double sum = 0.0;
    uint64_t tokens = 0;
    for (uint32_t w = 0;
         status == TEMPER_OK && w < text->count && !cli_interrupted() && !cli_output_failed();
         w++) {
        const temper_tokens window = {text->ids + w * n, n};
        status = temper_session_score(session, window, first, nll, err);
        for (size_t i = 0; status == TEMPER_OK && i < scored; i++) {
            if (!isfinite(nll[i]))
                status = error_set(err, TEMPER_NOT_FINITE,
                                   "the score of token %zu of window %u is not finite", i, w);
            sum += (double)nll[i];
        }
        tokens += scored;
        if (status == TEMPER_OK && !opt.json) {
            cli_print("[%u] %.4f\n", w + 1, exp(sum / (double)tokens));
            cli_write("", 0);
        }
    }
    if (status == TEMPER_OK && opt.json && !cli_interrupted())
        cli_print_json(eval_with_lossy(json_pack("{s:f, s:I}", "ppl", exp(sum / (double)tokens),
                                                 "tokens", (json_int_t)tokens)));
    else if (status == TEMPER_OK && !cli_interrupted())
        cli_print("perplexity %.4f over %llu tokens%s\n", exp(sum / (double)tokens),
                  (unsigned long long)tokens, eval_lossy_note());
    free(nll);
    temper_session_close(session);
    return status;
}

static int run(int argc, char **argv)
{
    const char *model = NULL;
    int usage = args_parse("eval ppl", argc, argv, tables, &model, 1);
    if (usage == 0 && opt.text == NULL)
        usage = cli_usage_error("eval ppl", "give a text with --text FILE");
    if (usage == 0)
        usage = eval_check_context("eval ppl", opt.context);
    if (usage == 0)
        usage = cli_kv("eval ppl", &opt.kv);
    if (usage != 0)
        return usage;
    const char *path = cli_model_path(model);
    if (path == NULL)
        return EXIT_FAILED;
    temper_error err = {0};
    temper_engine *engine = NULL;
    eval_text text = {0};
    eval_windows windows = {0};
    temper_status status = eval_text_read(opt.text, &text, &err);
    if (status == TEMPER_OK)
        status = cli_open_engine(path, 0, &engine, &err);
    if (status == TEMPER_OK)
        status = eval_windows_cut(engine, &text, opt.context, opt.chunks, &windows, &err);
    if (status == TEMPER_OK)
        status = perplexity(engine, &windows, &err);
    free(windows.ids);
    free(text.bytes);
    temper_engine_close(engine);
    if (status == TEMPER_OK && cli_interrupted())
        return EXIT_INTERRUPTED;
    return status != TEMPER_OK ? cli_fail("eval ppl", &err) : cli_finish("eval ppl");
}

const eval_command eval_ppl = {
    .name = "ppl",
    .usage = "temper eval ppl [MODEL] --text FILE [OPTIONS]",
    .about = "Perplexity over consecutive windows, the second half of each scored.",
    .tables = tables,
    .run = run,
};
