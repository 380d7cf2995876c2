/*
 * choices.h - rows in the order in which a device runs them, as `temper kernels tune` measured it.
 *
 * A choice belongs to a table, a shape of the weight and a class of rows, and lists rows of the
 * table, the fastest first. op_choose tries them before the table's own order. It takes none that
 * the device or the shape does not allow, or that the self-check closed: a choice changes which
 * right answer is computed, never whether it is right.
 *
 * As text a choice is a line
 *
 *     TABLE ROWS N K LAYOUT SCALE GROUP ROW=MICROSECONDS ROW/SLICES=MICROSECONDS ...
 *     matmul 16 2048 8192 q4 f16 32 matrix_16/4=11.9 matrix_32/2=14.7 register_tile=411.3
 *
 * under a first line "kernels HASH" of the rows' own kernels: after a change of one of them the
 * choices say nothing any more.
 */
#ifndef TEMPER_OP_CHOICES_H
#define TEMPER_OP_CHOICES_H

#include "base/strbuf.h"
#include "op/rows.h"

enum { OP_CHOICE_ROWS = 16 }; /* rows of a choice, the fastest */

typedef struct op_choice {
    const op_table *table;
    uint64_t n, k;
    weight_format format;
    uint32_t rows;  /* a power of two: for more than half as many rows, and up to as many */
    uint32_t count; /* at least 1 */
    struct {
        const op_kernel_row *row;
        uint32_t slices; /* of K, for a row with a tile; 0: as the row has it */
        double us;
    } order[OP_CHOICE_ROWS];
} op_choice;

typedef struct op_choices op_choices;

op_choices *op_choices_new(void); /* NULL without memory */
void op_choices_free(op_choices *choices);

/* Adds a copy, in place of the one for the same table, shape and rows; false without memory. */
bool op_choices_add(op_choices *choices, const op_choice *choice);

uint32_t op_choices_count(const op_choices *choices);
const op_choice *op_choices_at(const op_choices *choices, uint32_t index);

/* The choice for a shape, or NULL. choices may be NULL. */
const op_choice *op_choices_find(const op_choices *choices, const op_table *table,
                                 const op_shape *shape);

/* The class of rows that a number of rows (1 or more) belongs to. */
uint32_t op_rows_class(uint64_t rows);

void op_choices_print(const op_choices *choices, strbuf *out);

/* TEMPER_BAD_FILE with the line for text that is no list of choices or is of other kernels; *out is
 * owned by the caller. */
temper_status op_choices_parse(const char *text, size_t length, op_choices **out, error *err);

/* From now on op_choose on this device looks into the choices; the device owns them. NULL ends
 * that. */
void op_choices_use(gpu_device *device, op_choices *choices);
const op_choices *op_choices_of(const gpu_device *device);

/* The device's note in a folder, if there is one. A note that cannot be used is told to the log,
 * and there are no choices then. */
void op_choices_load(gpu_device *device, const char *folder);

/* "q4 f16 32" and back; false for anything else. */
void op_format_print(weight_format format, strbuf *out);
bool op_format_parse(const char *layout, const char *scale, const char *group, weight_format *out);

#endif
