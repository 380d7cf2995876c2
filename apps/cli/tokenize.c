/*
 * tokenize.c - `temper tokenize`: the ids of a text. Needs no device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli.h"

static struct tokenize_options {
    const char *prompt, *file;
    bool bos, no_special, json, pieces;
} opt;

static const option tokenize_options[] = {
    {"-p", OPTION_TEXT, &opt.prompt, "TEXT", "the text"},
    {"-f", OPTION_TEXT, &opt.file, "FILE",
     "read the text from a file as it is (-: standard input)"},
    {"--bos", OPTION_FLAG, &opt.bos, NULL, "put BOS first"},
    {"--no-special", OPTION_FLAG, &opt.no_special, NULL,
     "special tokens in the text are plain text"},
    {"--pieces", OPTION_FLAG, &opt.pieces, NULL, "one line an id, with the text it stands for"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object: ids, pieces"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {tokenize_options, NULL};

static void print_json(const temper_engine *engine, temper_tokens tokens)
{
    json_t *ids = json_array(), *pieces = json_array();
    for (size_t i = 0; i < tokens.count; i++) {
        size_t length = 0;
        const char *piece = temper_piece(engine, tokens.ids[i], &length);
        json_array_append_new(ids, json_integer(tokens.ids[i]));
        json_array_append_new(pieces, cli_json_text(piece, length));
    }
    cli_print_json(json_pack("{s:o, s:o}", "ids", ids, "pieces", pieces));
}

static void print_text(const temper_engine *engine, temper_tokens tokens)
{
    for (size_t i = 0; i < tokens.count; i++) {
        if (!opt.pieces) {
            cli_print(i == 0 ? "%u" : " %u", tokens.ids[i]);
            continue;
        }
        size_t length = 0;
        const char *piece = temper_piece(engine, tokens.ids[i], &length);
        strbuf line = {0};
        cli_one_line(&line, piece, length);
        cli_print("%8u  %s\n", tokens.ids[i], strbuf_text(&line));
        strbuf_free(&line);
    }
    if (!opt.pieces)
        cli_print("\n");
}

static temper_status read_text(char **text, size_t *length, temper_error *err)
{
    if (opt.prompt != NULL && opt.file != NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT, "-p and -f both give a text: use one of them");
    if (opt.prompt == NULL)
        return cli_read_file(opt.file == NULL ? "-" : opt.file, text, length, err);
    *length = strlen(opt.prompt);
    *text = malloc(*length + 1);
    if (*text == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the text");
    memcpy(*text, opt.prompt, *length + 1);
    return TEMPER_OK;
}

int command_tokenize(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help("temper tokenize [MODEL] [-p TEXT | -f FILE] [OPTIONS]",
                         "Prints the ids of a text (of standard input without -p or -f). MODEL is "
                         "a GGUF file, which may\n"
                         "hold a vocabulary and no tensors.",
                         tables);
    const char *model = NULL;
    const int usage = args_parse("tokenize", argc, argv, tables, &model, 1);
    if (usage != 0)
        return usage;
    temper_error err = {0};
    temper_engine *engine = NULL;
    temper_tokens tokens = {0};
    char *text = NULL;
    size_t length = 0;
    const char *path = cli_model_path(model);
    if (path == NULL)
        return EXIT_FAILED;
    const uint32_t flags =
        (opt.bos ? TEMPER_ADD_BOS : 0u) | (opt.no_special ? 0u : TEMPER_PARSE_SPECIAL);
    int code = 0;
    if (read_text(&text, &length, &err) != TEMPER_OK ||
        cli_open_vocabulary(path, &engine, &err) != TEMPER_OK ||
        temper_tokenize(engine, text, length, flags, &tokens, &err) != TEMPER_OK)
        code = cli_fail("tokenize", &err);
    else if (opt.json)
        print_json(engine, tokens);
    else
        print_text(engine, tokens);
    temper_free(tokens.ids);
    temper_engine_close(engine);
    free(text);
    return code != 0 ? code : cli_finish("tokenize");
}
