/*
 * fuzz_split.c - the parts of a split model: up to four files, each after its length in two bytes
 * (little-endian), the last one without; joined, and read through.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "file/model_file.h"
#include "fuzz/fuzz.h"
#include "support/gguf_build.h"

enum { MOST_PARTS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = mem_live_bytes();
    source *parts[MOST_PARTS];
    gguf_file *joined = NULL;
    error err = {0};
    uint32_t count = 0;

    while (count < MOST_PARTS && size > 0) {
        size_t length = size;
        if (count + 1 < MOST_PARTS && size >= 2) {
            const size_t wanted = (size_t)data[0] | (size_t)data[1] << 8;
            data += 2;
            size -= 2;
            length = wanted < size ? wanted : size;
        }
        fuzz_check(source_open_memory("part", data, length, &parts[count], &err) == TEMPER_OK);
        count++;
        data += length;
        size -= length;
    }
    if (count == 0)
        return 0;
    if (gguf_join(parts, count, &joined, &err) == TEMPER_OK) {
        gguf_walk(joined);
        gguf_close(joined);
        fuzz_accepted++;
    } else {
        fuzz_check(err.text[0] != '\0');
    }
    fuzz_check(mem_live_bytes() == live);
    return 0;
}
