/*
 * quantize.c - `temper quantize`: a model in another type.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static struct quantize_options {
    const char *type;
    bool json;
} opt;

static const option quantize_options[] = {
    {"--type", OPTION_TEXT, &opt.type, "T", "F16, Q8_0, Q6_K, Q4_K, Q4_1 or Q4_0"},
    {"--json", OPTION_FLAG, &opt.json, NULL,
     "one JSON object: type, bytes, tensors, fallbacks, requantized"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {quantize_options, cli_widen_options, NULL};

static bool show_progress(uint64_t done, uint64_t total, void *user)
{
    (void)user;
    if (done < total)
        cli_progress("quantizing %3u%%", (unsigned)((double)done / (double)total * 100.0));
    else
        cli_progress_clear();
    return !cli_interrupted();
}

static void tell(const temper_quantize_result *result)
{
    strbuf name = {0};
    cli_one_line(&name, result->fallback_tensor, strlen(result->fallback_tensor));
    if (result->fallbacks > 0)
        fprintf(
            stderr,
            "temper quantize: the rows of %u of %u tensors do not divide into the blocks of their "
            "type; these took another (%s: %s)\n",
            result->fallbacks, result->tensors, strbuf_text(&name), result->fallback_type);
    if (result->requantized > 0)
        fprintf(stderr,
                "temper quantize: %u of %u tensors were quantised before: what they had lost stays "
                "lost\n",
                result->requantized, result->tensors);
    strbuf_free(&name);
}

int command_quantize(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help("temper quantize IN OUT --type T",
                         "Writes a model (a GGUF file or a Hugging Face directory) in another "
                         "type. Norms and other vectors stay F32; the matrix that makes the logits "
                         "is Q6_K under the types of four bits; rows that are no multiple of 256 "
                         "take Q5_0 for Q4_K and Q8_0 for Q6_K. OUT is replaced only once it is "
                         "complete.",
                         tables);
    const char *paths[2] = {NULL, NULL};
    const int usage = args_parse("quantize", argc, argv, tables, paths, 2);
    if (usage != 0)
        return usage;
    if (paths[1] == NULL)
        return cli_usage_error("quantize", "name a model to read and a file to write");
    if (opt.type == NULL)
        return cli_usage_error("quantize", "name a type: --type F16, Q8_0, Q6_K, Q4_K, Q4_1 or "
                                           "Q4_0");
    temper_error err = {0};
    temper_quantize_result result;
    const temper_status status = temper_quantize(paths[0], paths[1], opt.type, cli_widen(),
                                                 show_progress, NULL, &result, &err);
    cli_progress_clear();
    if (status != TEMPER_OK)
        return cli_fail("quantize", &err);
    tell(&result);
    if (opt.json)
        cli_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I}", "type", opt.type, "bytes",
                                 (json_int_t)result.bytes, "tensors", (json_int_t)result.tensors,
                                 "fallbacks", (json_int_t)result.fallbacks, "requantized",
                                 (json_int_t)result.requantized));
    return cli_finish("quantize");
}
