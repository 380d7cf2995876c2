/*
 * fuzz_program.c - files that only the program reads. The first byte of an input, modulo 2, chooses
 * what the rest is:
 *
 *     0  the questions of `temper eval choices`, a JSON object a line
 *     1  the saved logits of `temper eval kl`
 *
 * Both are read for a model of 291 tokens.
 */
#include "apps/cli/eval_choices.c"

#include "apps/cli/kl_file.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"

static temper_engine *engine;

static void close_engine(void)
{
    temper_engine_close(engine);
}

static void open_engine(void)
{
    static const char path[] = TEST_GOLDEN "/tiny/llama-f16.gguf";
    const temper_engine_desc desc = {.model = path, .vocabulary_only = true};
    fuzz_check(temper_engine_open(&desc, &engine, NULL) == TEMPER_OK);
    atexit(close_engine);
}

static void fuzz_questions(const void *bytes, size_t size)
{
    questions all = {0};
    temper_error err = {0};

    if (size == 0)
        return;
    opt.data = fuzz_put_file("questions.jsonl", bytes, size);
    if (read_questions(engine, &all, &err) == TEMPER_OK) {
        for (size_t i = 0; i < all.count; i++) {
            const question *q = &all.rows[i];
            fuzz_check(q->count >= 2 && q->answer < q->count);
            for (size_t c = 0; c < q->count; c++)
                fuzz_check(q->choices[c].first >= 1 && q->choices[c].first < q->choices[c].count &&
                           q->choices[c].count <= all.longest);
        }
        fuzz_accepted++;
    } else {
        fuzz_check(err.text[0] != '\0');
    }
    questions_free(&all);
}

static void fuzz_saved_logits(const void *bytes, size_t size)
{
    kl_file *file = NULL;
    temper_error err = {0};
    const char *path = fuzz_put_file("saved.logits", bytes, size);

    fuzz_check(kl_file_is(path) || size < 8 || memcmp(bytes, "TEMPERKL", 8) != 0);
    if (kl_file_open(path, engine, &file, &err) != TEMPER_OK) {
        fuzz_check(err.text[0] != '\0');
        return;
    }
    const eval_windows *w = kl_file_windows(file);
    const uint32_t rows = w->context - eval_first_scored(w->context);
    const uint32_t vocabulary = temper_engine_info(engine)->vocabulary;
    float *logits = malloc((size_t)rows * vocabulary * sizeof *logits);
    fuzz_check(logits != NULL);
    for (uint32_t i = 0; i < w->count; i++)
        fuzz_check(kl_file_read(file, i, 0, rows, logits, &err) == TEMPER_OK);
    for (uint64_t i = 0; i < (uint64_t)w->count * w->context; i++)
        fuzz_check(w->ids[i] < vocabulary);
    free(logits);
    kl_file_close(file);
    fuzz_accepted++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (engine == NULL)
        open_engine();
    const uint64_t live = mem_live_bytes();
    if (data[0] % 2 == 0)
        fuzz_questions(data + 1, size - 1);
    else
        fuzz_saved_logits(data + 1, size - 1);
    fuzz_check(mem_live_bytes() == live);
    return 0;
}
