/*
 * fuzz_gguf.c - libFuzzer target of the GGUF reader: opens any bytes and reads all that the file
 * holds.
 *
 *     cmake -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DTEMPER_FUZZ=ON
 *     ninja -C build/fuzz fuzz_gguf
 *     build/fuzz/tests/fuzz_gguf -max_len=4096 corpus/
 *
 * The runtime is in Debian's libclang-rt-14-dev.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "support/gguf_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    source *src = NULL;
    gguf_file *file = NULL;
    error err = {0};

    if (source_open_memory("fuzz", data, size, &src, &err) != TEMPER_OK)
        abort();
    if (gguf_open(src, &file, &err) == TEMPER_OK) {
        gguf_walk(file);
        gguf_close(file);
    } else if (err.text[0] == '\0') {
        abort();
    }
    if (mem_live_bytes() != 0)
        abort();
    return 0;
}
