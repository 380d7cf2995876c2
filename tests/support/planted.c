#include "support/planted.h"

#include "check/check.h"
#include "gpu/notes.h"
#include "op/choices.h"

void planted_folder(void)
{
    /* program_path's folder: the file need not be there. */
    const char *file = program_path("x");
    char folder[4096];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(file, '/') - file), file);
    setenv("TEMPER_TUNE", folder, 1);
}

const char *planted_note(const char *kind, const char *body)
{
    temper_error err = {0};
    gpu_device *device = NULL;
    strbuf path = {0};
    assert_ok(check_open(&(temper_device_desc){0}, false, &device, &err));
    assert_ok(gpu_note_write(device, getenv("TEMPER_TUNE"), kind, body, &err));
    gpu_note_path(device, getenv("TEMPER_TUNE"), kind, &path);
    gpu_device_release(device);
    const char *name = program_path(strrchr(strbuf_text(&path), '/') + 1);
    strbuf_free(&path);
    return name;
}

const char *planted_choice(uint32_t rows, uint64_t n, uint64_t k)
{
    const op_table *table = &op_table_matmul;
    op_choice choice = {.table = table,
                        .n = n,
                        .k = k,
                        .format = weight_format_of(DTYPE_Q4_0),
                        .rows = rows,
                        .count = 1};
    op_choices *choices = op_choices_new();
    strbuf body = {0};
    choice.order[0].row = &table->rows[table->count - 1];
    choice.order[0].us = 12.5;
    assert_true(choices != NULL && op_choices_add(choices, &choice));
    op_choices_print(choices, &body);
    planted_note("choices", strbuf_text(&body));
    op_choices_free(choices);
    strbuf_free(&body);
    return choice.order[0].row->name;
}
