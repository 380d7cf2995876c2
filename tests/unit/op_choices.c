/*
 * op_choices.c - choices of rows as a list and as text, and text that is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "op/choices.h"

static const weight_format q4 = {LAYOUT_Q4, SCALE_F16, 32};

static op_choice choice_of(uint64_t n, uint64_t k, uint32_t rows, uint32_t first, uint32_t second)
{
    op_choice c = {
        .table = &op_table_matmul, .n = n, .k = k, .format = q4, .rows = rows, .count = 2};
    c.order[0].row = &op_table_matmul.rows[first];
    c.order[0].us = 64.7;
    c.order[1].row = &op_table_matmul.rows[second];
    c.order[1].us = 310.25;
    return c;
}

static op_choices *some(void)
{
    op_choices *choices = op_choices_new();
    assert_non_null(choices);
    /* In no order, and one twice. */
    const op_choice list[] = {
        choice_of(8192, 2048, 512, 0, 1), choice_of(2048, 2048, 1, 1, 2),
        choice_of(8192, 2048, 1, 2, 0),   choice_of(8192, 4096, 512, 0, 2),
        choice_of(8192, 2048, 512, 2, 1),
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        assert_true(op_choices_add(choices, &list[i]));
    return choices;
}

static const op_kernel_row *first_of(const op_choices *choices, uint64_t rows, uint64_t n,
                                     uint64_t k)
{
    const op_shape shape = {.rows = rows, .n = n, .k = k, .format = q4};
    const op_choice *c = op_choices_find(choices, &op_table_matmul, &shape);
    return c != NULL ? c->order[0].row : NULL;
}

static void rows_belong_to_classes(void **state)
{
    (void)state;
    static const uint32_t classes[][2] = {{1, 1},     {2, 2},     {3, 4},      {4, 4},      {5, 8},
                                          {257, 512}, {512, 512}, {513, 1024}, {4096, 4096}};
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        assert_int_equal(op_rows_class(classes[i][0]), classes[i][1]);
    assert_int_equal(op_rows_class(UINT64_MAX), UINT32_C(1) << 31);
}

static void the_choice_of_a_shape_is_found(void **state)
{
    (void)state;
    op_choices *choices = some();
    const op_kernel_row *rows = op_table_matmul.rows;
    assert_int_equal(op_choices_count(choices), 4);
    assert_ptr_equal(first_of(choices, 512, 8192, 2048), &rows[2]); /* the later one */
    assert_ptr_equal(first_of(choices, 300, 8192, 2048), &rows[2]);
    assert_null(first_of(choices, 256, 8192, 2048));
    assert_null(first_of(choices, 513, 8192, 2048));
    assert_ptr_equal(first_of(choices, 1, 8192, 2048), &rows[2]);
    assert_ptr_equal(first_of(choices, 1, 2048, 2048), &rows[1]);
    assert_null(first_of(choices, 2, 2048, 2048));
    assert_null(first_of(choices, 1, 2048, 2049));
    assert_null(first_of(choices, 0, 2048, 2048));
    const op_shape other = {.rows = 1, .n = 2048, .k = 2048, .format = {LAYOUT_Q4, SCALE_F16, 64}};
    assert_null(op_choices_find(choices, &op_table_matmul, &other));
    const op_shape same = {.rows = 1, .n = 2048, .k = 2048, .format = q4};
    assert_null(op_choices_find(choices, &op_table_lookup, &same));
    assert_null(op_choices_find(NULL, &op_table_matmul, &same));
    op_choices_free(choices);
}

static const op_kernel_row *row_with_a_tile(void)
{
    const op_kernel_row *row = op_table_matmul.rows;
    while (strcmp(row->name, "matrix_32") != 0)
        row++;
    return row;
}

static void choices_survive_their_text(void **state)
{
    (void)state;
    op_choices *choices = some(), *again = NULL;
    strbuf text = {0}, twice = {0};
    error err = {0};
    op_choice split = choice_of(64, 2048, 16, 0, 1);
    split.order[1].row = row_with_a_tile();
    split.order[1].slices = 4;
    assert_true(op_choices_add(choices, &split));
    op_choices_print(choices, &text);
    assert_int_equal(op_choices_parse(strbuf_text(&text), text.length, &again, &err), TEMPER_OK);
    op_choices_print(again, &twice);
    assert_string_equal(strbuf_text(&text), strbuf_text(&twice));
    assert_int_equal(op_choices_count(again), 5);
    assert_ptr_equal(first_of(again, 512, 8192, 2048), &op_table_matmul.rows[2]);
    const op_shape shape = {.rows = 16, .n = 64, .k = 2048, .format = q4};
    const op_choice *found = op_choices_find(again, &op_table_matmul, &shape);
    assert_int_equal(found->order[0].slices, 0);
    assert_int_equal(found->order[1].slices, 4);
    assert_non_null(strstr(strbuf_text(&text), " matrix_32/4=310.250"));
    assert_non_null(strstr(strbuf_text(&text), "matmul 512 8192 2048 q4 f16 32 "));
    assert_non_null(strstr(strbuf_text(&text), "=64.700 "));
    op_choices_free(choices);
    op_choices_free(again);
    strbuf_free(&text);
    strbuf_free(&twice);
}

/* The text in a block of exactly its size: the sanitizer sees a read past it. */
static temper_status parse_exactly(const char *text, size_t length, error *err)
{
    char *copy = malloc(length > 0 ? length : 1);
    op_choices *choices = NULL;
    assert_non_null(copy);
    memcpy(copy, text, length);
    const temper_status status = op_choices_parse(copy, length, &choices, err);
    assert_true((status == TEMPER_OK) == (choices != NULL));
    op_choices_free(choices);
    free(copy);
    return status;
}

static void cut_text_is_no_list(void **state)
{
    (void)state;
    op_choices *choices = some();
    strbuf text = {0};
    op_choices_print(choices, &text);
    const size_t head = (size_t)(strchr(text.data, '\n') - text.data);
    for (size_t i = 0; i < text.length; i++) {
        error err = {0};
        const temper_status status = parse_exactly(text.data, i, &err);
        if (i < head)
            assert_int_equal(status, TEMPER_BAD_FILE);
        else /* a shorter list, or one whose last line is damaged; never anything else */
            assert_true(status == TEMPER_OK || status == TEMPER_BAD_FILE);
    }
    op_choices_free(choices);
    strbuf_free(&text);
}

static void wrong_lines_are_named(void **state)
{
    (void)state;
    const char *row = op_table_matmul.rows[0].name;
    const char *other = op_table_matmul.rows[1].name;
    static const char *const lines[] = {
        "",
        "matmul",
        "matmul 512 8192 2048 q4 f16 32",
        "matmul 512 8192 2048 q4 f16 32 ",
        "matmul 512 8192 2048 q4 f16 32 %s",
        "matmul 512 8192 2048 q4 f16 32 %s=",
        "matmul 512 8192 2048 q4 f16 32 %s=x",
        "matmul 512 8192 2048 q4 f16 32 %s=-1",
        "matmul 512 8192 2048 q4 f16 32 %s=nan",
        "matmul 512 8192 2048 q4 f16 32 %s=1e999",
        "matmul 512 8192 2048 q4 f16 32 %s=1 %s=2",
        "matmul 512 8192 2048 q4 f16 32 no_such_row=1",
        "matmul 512 8192 2048 q4 f16 32  %s=1",
        " matmul 512 8192 2048 q4 f16 32 %s=1",
        "multiply 512 8192 2048 q4 f16 32 %s=1",
        "matmul 0 8192 2048 q4 f16 32 %s=1",
        "matmul 500 8192 2048 q4 f16 32 %s=1",
        "matmul -1 8192 2048 q4 f16 32 %s=1",
        "matmul 512 99999999999999999999 2048 q4 f16 32 %s=1",
        "matmul 512 8192 0x800 q4 f16 32 %s=1",
        "matmul 512 8192 2048 q7 f16 32 %s=1",
        "matmul 512 8192 2048 q4 f17 32 %s=1",
        "matmul 512 8192 2048 q4 f16 32.5 %s=1",
        "matmul 512 8192 2048 q4 f16 32 %s/2=1", /* has no tile */
        "matmul 512 8192 2048 q4 f16 32 matrix_32/=1",
        "matmul 512 8192 2048 q4 f16 32 matrix_32/0=1",
        "matmul 512 8192 2048 q4 f16 32 matrix_32/1025=1",
        "matmul 512 8192 2048 q4 f16 32 matrix_32/-2=1",
        "matmul 512 8192 2048 q4 f16 32 matrix_32/2/2=1",
        "matmul 512 8192 2048 q4 f16 32 matrix_32/2=1 matrix_32/4=2",
        "matmul 512 8192 2048 q4 f16 32 matrix_32=/2",
    };
    strbuf head = {0};
    op_choices *none = op_choices_new();
    op_choices_print(none, &head); /* the line of the kernels alone */
    op_choices_free(none);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        strbuf text = {0};
        error err = {0};
        strbuf_append(&text, head.data, head.length);
        /* Every %s is the same row. */
        for (const char *at = lines[i]; *at != '\0'; at++)
            if (at[0] == '%' && at[1] == 's') {
                strbuf_puts(&text, row);
                at++;
            } else {
                strbuf_putc(&text, *at);
            }
        strbuf_putc(&text, '\n');
        if (parse_exactly(text.data, text.length, &err) != TEMPER_BAD_FILE)
            fail_msg("taken: %s", lines[i]);
        assert_non_null(strstr(err.text, "line 2"));
        strbuf_free(&text);
    }
    /* A line that is right, to prove that the others are refused for what is wrong with them. */
    strbuf text = {0};
    error err = {0};
    strbuf_printf(&text, "%smatmul 512 8192 2048 q4 f16 32 %s=1 matrix_32/2=1 %s=2.5e3\n",
                  strbuf_text(&head), row, other);
    assert_int_equal(parse_exactly(text.data, text.length, &err), TEMPER_OK);
    strbuf_free(&text);
    strbuf_free(&head);
}

static void other_kernels_are_said_so(void **state)
{
    (void)state;
    static const char text[] = "kernels 0123456789abcdef\nmatmul 1 1 1 q4 f16 32 one_row=1\n";
    error err = {0};
    assert_int_equal(parse_exactly(text, sizeof text - 1, &err), TEMPER_BAD_FILE);
    assert_non_null(strstr(err.text, "other kernels"));
    error empty = {0};
    assert_int_equal(parse_exactly("", 0, &empty), TEMPER_BAD_FILE);
    error nul = {0};
    assert_int_equal(parse_exactly("kernels\0\n", 9, &nul), TEMPER_BAD_FILE);
}

static void a_line_without_end_is_refused(void **state)
{
    (void)state;
    char *text = malloc(1 << 20);
    error err = {0};
    assert_non_null(text);
    memset(text, 'x', 1 << 20);
    assert_int_equal(parse_exactly(text, 1 << 20, &err), TEMPER_BAD_FILE);
    free(text);
}

static void without_memory_there_are_none(void **state)
{
    (void)state;
    op_choices *choices = some();
    strbuf text = {0};
    op_choices_print(choices, &text);
    const uint64_t before = mem_live_bytes();
    for (uint64_t nth = 1; nth < 50; nth++) {
        op_choices *again = NULL;
        error err = {0};
        mem_fail_at(nth, 1);
        const temper_status status =
            op_choices_parse(strbuf_text(&text), text.length, &again, &err);
        mem_fail_at(0, 0);
        op_choices_free(again);
        assert_int_equal(mem_live_bytes(), before);
        if (status == TEMPER_OK)
            break;
        assert_int_equal(status, TEMPER_NO_MEMORY);
        assert_true(nth < 49);
    }
    op_choices_free(choices);
    strbuf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_belong_to_classes),
        cmocka_unit_test(the_choice_of_a_shape_is_found),
        cmocka_unit_test(choices_survive_their_text),
        cmocka_unit_test(cut_text_is_no_list),
        cmocka_unit_test(wrong_lines_are_named),
        cmocka_unit_test(other_kernels_are_said_so),
        cmocka_unit_test(a_line_without_end_is_refused),
        cmocka_unit_test(without_memory_there_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
