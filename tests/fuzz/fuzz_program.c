/*
 * fuzz_program.c - files that only the program reads. The first byte of an input, modulo 5, chooses
 * what the rest is:
 *
 *     0  the questions of `temper eval choices`, a JSON object a line
 *     1  the saved logits of `temper eval kl`
 *     2  the choices of `temper kernels tune`, after the line of this program's kernels
 *     3  the peak of a card
 *     4  a conversation of `temper chat`: loaded, saved, and loaded again it is the same
 *
 * The first two are read for a model of 291 tokens.
 */
#include "apps/cli/eval_choices.c"

#include <math.h>

#include "apps/cli/chat_file.h"
#include "apps/cli/kl_file.h"
#include "base/mem.h"
#include "check/peak.h"
#include "fuzz/fuzz.h"
#include "op/choices.h"

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
    opt.data = "questions.jsonl";
    const temper_status first = read_questions(NULL, bytes, size, &all, &err);
    fuzz_check(all.count == 0 && (first == TEMPER_OK) == (err.text[0] == '\0'));
    if (first == TEMPER_OK && read_questions(engine, bytes, size, &all, &err) == TEMPER_OK) {
        fuzz_check(all.count == all.lines);
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
    if (kl_file_open(path, &file, &err) != TEMPER_OK ||
        kl_file_suits(file, engine, &err) != TEMPER_OK) {
        fuzz_check(err.text[0] != '\0');
        kl_file_close(file);
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

/* What is taken prints as what is taken again. */
static void fuzz_choices(const void *bytes, size_t size)
{
    op_choices *none = op_choices_new(), *choices = NULL, *again = NULL;
    strbuf text = {0}, twice = {0};
    temper_error err = {0};

    op_choices_print(none, &text);
    op_choices_free(none);
    strbuf_append(&text, bytes, size);
    if (op_choices_parse(text.data, text.length, &choices, &err) == TEMPER_OK) {
        strbuf_clear(&text);
        op_choices_print(choices, &text);
        fuzz_check(op_choices_parse(text.data, text.length, &again, &err) == TEMPER_OK);
        op_choices_print(again, &twice);
        fuzz_check(strcmp(strbuf_text(&text), strbuf_text(&twice)) == 0);
        fuzz_accepted++;
    } else {
        fuzz_check(err.text[0] != '\0');
    }
    op_choices_free(choices);
    op_choices_free(again);
    strbuf_free(&text);
    strbuf_free(&twice);
}

static void fuzz_peak(const void *bytes, size_t size)
{
    strbuf text = {0};
    check_peak peak;

    strbuf_append(&text, bytes, size);
    if (check_peak_parse(strbuf_text(&text), &peak)) {
        fuzz_check(isfinite(peak.read_bytes) && peak.read_bytes > 0);
        for (int unit = 0; unit < GPU_UNITS; unit++)
            fuzz_check(isfinite(peak.operations[unit]) && peak.operations[unit] >= 0);
        fuzz_accepted++;
    }
    strbuf_free(&text);
}

static void fuzz_conversation(const void *bytes, size_t size)
{
    conversation first = {0}, second = {0};
    temper_error err = {0}, kept = {0};
    const char *path = fuzz_put_file("chat.json", bytes, size);

    if (conversation_load(path, &first, &err) != TEMPER_OK) {
        fuzz_check(err.text[0] != '\0' && first.messages == NULL && first.count == 0);
        /* What holds no chat is kept; where no file is, one is made. */
        fuzz_check(conversation_save(&first, path, &kept) ==
                   (size == 0 ? TEMPER_OK : TEMPER_BAD_ARGUMENT));
        return;
    }
    fuzz_check(conversation_save(&first, path, &err) == TEMPER_OK);
    fuzz_check(conversation_load(path, &second, &err) == TEMPER_OK);
    fuzz_check(second.count == first.count);
    for (size_t i = 0; i < first.count; i++)
        fuzz_check(first.messages[i].role == second.messages[i].role &&
                   strcmp(first.messages[i].content, second.messages[i].content) == 0);
    conversation_free(&first);
    conversation_free(&second);
    fuzz_accepted++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (engine == NULL)
        open_engine();
    const uint64_t live = mem_live_bytes();
    switch (data[0] % 5) {
    case 0:
        fuzz_questions(data + 1, size - 1);
        break;
    case 1:
        fuzz_saved_logits(data + 1, size - 1);
        break;
    case 2:
        fuzz_choices(data + 1, size - 1);
        break;
    case 3:
        fuzz_peak(data + 1, size - 1);
        break;
    default:
        fuzz_conversation(data + 1, size - 1);
    }
    fuzz_check(mem_live_bytes() == live);
    return 0;
}
