/*
 * expand.h - kernel templates: a WGSL file with integer expressions in it and a few directives.
 *
 *     {{ROWS * 4}}u            an integer expression over the variables, in decimal
 *     //% let NAME EXPR        a derived variable
 *     //% need EXPR            0: this combination of variables is no candidate
 *     //% for NAME EXPR        the lines up to `//% end`, EXPR times, NAME counting from 0
 *     //% if EXPR              ... `//% else` ... `//% end`
 *     //% grid EXPR EXPR       workgroups (expressions without spaces)
 *     //% bind NAME ...        the buffers of bindings 0, 1, ...
 *     //% ref NAME             the reference that the result is compared with
 *
 * Expressions: + - * / % < <= > >= == != && || ! ( ), names and decimal numbers. An unknown name
 * is an error: every variable that a template reads has a value in the list or a `let`.
 */
#ifndef TEMPER_LAB_EXPAND_H
#define TEMPER_LAB_EXPAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VARS_MAX = 96, NAME_MAX_BYTES = 32, BINDS_MAX = 8 };

typedef struct vars {
    struct {
        char name[NAME_MAX_BYTES];
        int64_t value;
    } row[VARS_MAX];
    size_t count;
} vars;

/* Later values of a name hide earlier ones. */
void vars_set(vars *v, const char *name, int64_t value);
int64_t vars_get(const vars *v, const char *name, int64_t otherwise);

typedef struct expansion {
    char *source;   /* owned: free() */
    size_t length, capacity;
    bool wanted;    /* every `need` held */
    int64_t grid_x, grid_y;
    char binds[BINDS_MAX][NAME_MAX_BYTES];
    size_t bind_count;
    char ref[NAME_MAX_BYTES];
    char failure[160];   /* empty: none */
} expansion;

/* Expands `text` with `v`, to which `let` adds. */
void expand(const char *text, vars *v, expansion *out);

#endif
