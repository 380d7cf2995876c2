/*
 * fuzz_gguf.c - the GGUF reader: opens any bytes, reads all that the file holds, and again as
 * --widen does; and takes its keys for a model's configuration.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "file/widened.h"
#include "fuzz/fuzz.h"
#include "model/config.h"
#include "support/gguf_build.h"

static void count(const temper_widened *what, void *user)
{
    *(uint64_t *)user += what->tensors;
    fuzz_check(what->tensor != NULL && what->type != NULL && what->tensors > 0);
}

/* Every byte of every tensor. Values that F16 cannot hold are errors with a reason. */
static void read_widened(gguf_file *file)
{
    uint64_t told = 0, there = 0;
    error err = {0};
    gguf_file *wide = NULL;

    for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
        there += gguf_check_loadable(file, gguf_tensor_at(file, i), NULL) != TEMPER_OK;
    if (gguf_widen(file, &(temper_widen){count, &told}, &wide, &err) != TEMPER_OK) {
        fuzz_check(err.text[0] != '\0');
        return;
    }
    fuzz_check(told <= there);
    for (uint64_t i = 0; i < gguf_tensor_count(wide); i++) {
        const gguf_tensor *t = gguf_tensor_at(wide, i);
        uint8_t block[777];
        for (uint64_t at = 0, some; at < t->bytes; at += some) {
            some = t->bytes - at < sizeof block ? t->bytes - at : sizeof block;
            error why = {0};
            const temper_status status = gguf_read_tensor(wide, t, at, block, some, &why);
            fuzz_check(status == TEMPER_OK || (status == TEMPER_BAD_FILE && why.text[0] != '\0'));
        }
    }
    gguf_close(wide);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = mem_live_bytes();
    source *src = NULL;
    gguf_file *file = NULL;
    error err = {0};

    fuzz_check(source_open_memory("fuzz", data, size, &src, &err) == TEMPER_OK);
    if (gguf_open(src, &file, &err) == TEMPER_OK) {
        model_config config;
        gguf_walk(file);
        model_config_peek(file, &config);
        fuzz_check(model_config_read(file, 256, &config, &err) == TEMPER_OK || err.text[0] != '\0');
        read_widened(file);
        fuzz_accepted++;
    } else {
        fuzz_check(err.text[0] != '\0');
    }
    fuzz_check(mem_live_bytes() == live);
    return 0;
}
