/*
 * convert.c - `temper convert`: a Hugging Face directory, or a split model, as one GGUF file.
 */
#include <stdio.h>

#include "cli.h"

static const option *const tables[] = {cli_widen_options, NULL};

static bool show_progress(uint64_t done, uint64_t total, void *user)
{
    (void)user;
    if (done < total)
        cli_progress("converting %3u%%", (unsigned)((double)done / (double)total * 100.0));
    else
        cli_progress_clear();
    return !cli_interrupted();
}

int command_convert(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help("temper convert HF_DIR OUT.gguf [--widen]",
                         "Writes a Hugging Face directory (config.json, tokenizer.json, "
                         "*.safetensors) as a GGUF file. Matrices keep their types: F32, F16 or "
                         "BF16. A part of a split GGUF model gives the whole model in one file. "
                         "OUT is replaced only once it is complete.",
                         tables);
    const char *paths[2] = {NULL, NULL};
    const int usage = args_parse("convert", argc, argv, tables, paths, 2);
    if (usage != 0)
        return usage;
    if (paths[1] == NULL)
        return cli_usage_error("convert", "name a directory to read and a file to write");
    temper_error err = {0};
    const temper_status status =
        temper_convert(paths[0], paths[1], cli_widen(), show_progress, NULL, &err);
    cli_progress_clear();
    return status == TEMPER_OK ? 0 : cli_fail("convert", &err);
}
