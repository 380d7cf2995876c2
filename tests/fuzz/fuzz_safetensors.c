/*
 * fuzz_safetensors.c - the safetensors reader: opens any bytes and reads all that the file holds.
 */
#include "base/mem.h"
#include "file/safetensors.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = mem_live_bytes();
    source *src = NULL;
    safetensors *file = NULL;
    error err = {0};

    fuzz_check(source_open_memory("fuzz", data, size, &src, &err) == TEMPER_OK);
    if (safetensors_open(src, &file, &err) == TEMPER_OK) {
        for (uint64_t i = 0; i < safetensors_count(file); i++) {
            const safetensors_tensor *tensor = safetensors_at(file, i);
            uint8_t byte = 0;
            for (uint64_t at = 0; at < tensor->bytes; at++)
                fuzz_check(source_read(src, tensor->offset + at, &byte, 1, NULL) == TEMPER_OK);
            fuzz_check(safetensors_find(file, tensor->name) != NULL);
        }
        safetensors_close(file);
        fuzz_accepted++;
    } else {
        fuzz_check(err.text[0] != '\0');
    }
    source_close(src);
    fuzz_check(mem_live_bytes() == live);
    return 0;
}
