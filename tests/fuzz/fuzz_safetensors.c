/*
 * fuzz_safetensors.c - libFuzzer target of the safetensors reader: opens any bytes and reads all
 * that the file holds.
 *
 *     cmake -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DTEMPER_FUZZ=ON
 *     ninja -C build/fuzz fuzz_safetensors
 *     build/fuzz/tests/fuzz_safetensors -max_len=4096 corpus/
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "file/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    source *src = NULL;
    safetensors *file = NULL;
    error err = {0};
    volatile uint8_t last = 0;

    if (source_open_memory("fuzz", data, size, &src, &err) != TEMPER_OK)
        abort();
    if (safetensors_open(src, &file, &err) == TEMPER_OK) {
        for (uint64_t i = 0; i < safetensors_count(file); i++) {
            const safetensors_tensor *tensor = safetensors_at(file, i);
            uint8_t byte = 0;
            for (uint64_t at = 0; at < tensor->bytes; at++)
                if (source_read(src, tensor->offset + at, &byte, 1, NULL) != TEMPER_OK)
                    abort();
            last = byte;
            if (safetensors_find(file, tensor->name) == NULL)
                abort();
        }
        safetensors_close(file);
    } else if (err.text[0] == '\0') {
        abort();
    }
    (void)last;
    source_close(src);
    if (mem_live_bytes() != 0)
        abort();
    return 0;
}
