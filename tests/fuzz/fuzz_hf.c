/*
 * fuzz_hf.c - a Hugging Face directory, as one GGUF file and for its tokenizer. An input is its
 * files, one after the other, with a byte 0xFF (which no JSON holds) between them; one of no bytes
 * is not there: config.json, tokenizer.json, tokenizer_config.json, generation_config.json,
 * model.safetensors.index.json, model.safetensors (also under the name of a shard). Where the
 * first byte is a space, the vocabulary must be one that GGUF's keys can say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "file/hf.h"
#include "fuzz/fuzz.h"
#include "support/gguf_build.h"
#include "text/tokenizer.h"

static const char *const names[] = {"config.json",
                                    "tokenizer.json",
                                    "tokenizer_config.json",
                                    "generation_config.json",
                                    "model.safetensors.index.json",
                                    "model.safetensors",
                                    "shard.safetensors"};

enum { WEIGHTS = 5 /* the first of two names for the last file */ };

static void put_files(const uint8_t *data, size_t size)
{
    for (int i = 0; i < WEIGHTS; i++) {
        const uint8_t *end = size == 0 ? NULL : memchr(data, 0xFF, size);
        const size_t length = end == NULL ? size : (size_t)(end - data);
        fuzz_put_file(names[i], data, length);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    fuzz_put_file(names[WEIGHTS], data, size);
    fuzz_put_file(names[WEIGHTS + 1], data, size);
}

static void open_whole(bool vocabulary)
{
    source *src = NULL;
    gguf_file *file = NULL;
    error err = {0};

    if (hf_open(fuzz_folder(), vocabulary, &src, &err) != TEMPER_OK) {
        fuzz_check(err.text[0] != '\0');
        return;
    }
    /* What is written here must be what is read there. */
    if (gguf_open(src, &file, &err) != TEMPER_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    gguf_walk(file);
    gguf_close(file);
    fuzz_accepted++;
}

static void open_tokenizer(void)
{
    static const char text[] = "Hello world!\n\n  <s><|im_end|> 123 \xC3\xA9\xFF it's ab";
    tokenizer_files files = {0};
    tokenizer *tok = NULL;
    token_list ids = {0};
    error err = {0};
    source **const sources[] = {&files.config, &files.tokenizer, &files.tokenizer_config,
                                &files.generation_config};

    for (int i = 0; i < 4; i++)
        fuzz_check(hf_open_file(fuzz_folder(), names[i], sources[i], &err) == TEMPER_OK);
    if (files.tokenizer != NULL && tokenizer_open_json(&files, &tok, &err) == TEMPER_OK) {
        const temper_status status =
            tokenizer_encode_prompt(tok, text, sizeof text - 1, true, true, &ids, &err);
        fuzz_check(status == TEMPER_OK || err.text[0] != '\0');
        for (size_t i = 0; i < ids.count; i++)
            fuzz_check(ids.ids[i] < tokenizer_size(tok));
    } else {
        fuzz_check(files.tokenizer == NULL || err.text[0] != '\0');
    }
    if (files.tokenizer_config != NULL) {
        strbuf chat = {0};
        error why = {0};
        fuzz_check(tokenizer_json_template(files.tokenizer_config, &chat, &why) == TEMPER_OK ||
                   why.text[0] != '\0');
        strbuf_free(&chat);
    }
    token_list_free(&ids);
    tokenizer_close(tok);
    for (int i = 0; i < 4; i++)
        source_close(*sources[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = mem_live_bytes();
    put_files(data, size);
    open_whole(size > 0 && data[0] == ' ');
    open_tokenizer();
    fuzz_check(mem_live_bytes() == live);
    return 0;
}
