#include "op/choices.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "gpu/notes.h"

struct op_choices {
    op_choice *list; /* sorted by key */
    uint32_t count, capacity;
};

/* ---- the list -------------------------------------------------------------------------------- */

op_choices *op_choices_new(void)
{
    return mem_calloc(1, sizeof(op_choices));
}

void op_choices_free(op_choices *choices)
{
    if (choices == NULL)
        return;
    mem_free(choices->list);
    mem_free(choices);
}

uint32_t op_choices_count(const op_choices *choices)
{
    return choices != NULL ? choices->count : 0;
}

const op_choice *op_choices_at(const op_choices *choices, uint32_t index)
{
    assert(index < choices->count);
    return &choices->list[index];
}

uint32_t op_rows_class(uint64_t rows)
{
    uint32_t top = 1;
    while (top < rows && top < UINT32_C(1) << 31)
        top *= 2;
    return top;
}

static int order_of(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_key(const op_choice *a, const op_choice *b)
{
    const uint64_t keys[][2] = {
        {(uint64_t)(uintptr_t)a->table, (uint64_t)(uintptr_t)b->table},
        {a->k, b->k},
        {a->n, b->n},
        {a->rows, b->rows},
        {(uint64_t)a->format.layout, (uint64_t)b->format.layout},
        {(uint64_t)a->format.scale, (uint64_t)b->format.scale},
        {a->format.group, b->format.group},
    };
    int order = 0;
    for (size_t i = 0; order == 0 && i < sizeof keys / sizeof keys[0]; i++)
        order = order_of(keys[i][0], keys[i][1]);
    return order;
}

/* Where the key is, or where it would be. */
static uint32_t place_of(const op_choices *choices, const op_choice *key, bool *found)
{
    uint32_t low = 0, high = choices->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (by_key(&choices->list[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < choices->count && by_key(&choices->list[low], key) == 0;
    return low;
}

bool op_choices_add(op_choices *choices, const op_choice *choice)
{
    bool found = false;
    assert(choice->count > 0 && choice->count <= OP_CHOICE_ROWS);
    const uint32_t at = place_of(choices, choice, &found);
    if (found) {
        choices->list[at] = *choice;
        return true;
    }
    if (choices->count == choices->capacity) {
        const uint32_t capacity = choices->capacity * 2 + 16;
        op_choice *larger = mem_realloc(choices->list, capacity * sizeof *larger);
        if (larger == NULL)
            return false;
        choices->list = larger;
        choices->capacity = capacity;
    }
    memmove(&choices->list[at + 1], &choices->list[at],
            (choices->count - at) * sizeof choices->list[0]);
    choices->list[at] = *choice;
    choices->count++;
    return true;
}

const op_choice *op_choices_find(const op_choices *choices, const op_table *table,
                                 const op_shape *shape)
{
    bool found = false;
    if (choices == NULL || choices->count == 0 || shape->rows == 0)
        return NULL;
    const op_choice key = {.table = table,
                           .n = shape->n,
                           .k = shape->k,
                           .format = shape->format,
                           .rows = op_rows_class(shape->rows)};
    const uint32_t at = place_of(choices, &key, &found);
    return found ? &choices->list[at] : NULL;
}

/* ---- with a device --------------------------------------------------------------------------- */

static void release(void *choices)
{
    op_choices_free(choices);
}

void op_choices_use(gpu_device *device, op_choices *choices)
{
    gpu_device_keep(device, choices, release);
}

const op_choices *op_choices_of(const gpu_device *device)
{
    return gpu_device_kept(device);
}

void op_choices_load(gpu_device *device, const char *folder)
{
    strbuf body = {0};
    error why = {0};
    op_choices *choices = NULL;
    temper_status status = gpu_note_read(device, folder, "choices", &body, &why);
    if (status == TEMPER_OK && body.length > 0)
        status = op_choices_parse(strbuf_text(&body), body.length, &choices, &why);
    if (status != TEMPER_OK)
        log_message(LOG_WARNING,
                    "the kernel choices of this device are not used: %s; `temper kernels tune` "
                    "makes them anew",
                    why.text);
    if (choices != NULL)
        op_choices_use(device, choices);
    strbuf_free(&body);
}

/* ---- formats as text ------------------------------------------------------------------------- */

static const char *const layout_names[] = {
    [LAYOUT_F32] = "f32", [LAYOUT_F16] = "f16", [LAYOUT_BF16] = "bf16", [LAYOUT_Q8] = "q8",
    [LAYOUT_Q4] = "q4",   [LAYOUT_Q5] = "q5",   [LAYOUT_Q6] = "q6",
};
static const char *const scale_names[] = {
    [SCALE_NONE] = "none",       [SCALE_F16] = "f16", [SCALE_F32] = "f32",
    [SCALE_F16_MIN] = "f16_min", [SCALE_K] = "k",     [SCALE_K_MIN] = "k_min",
};
enum {
    LAYOUT_NAMES = sizeof layout_names / sizeof layout_names[0],
    SCALE_NAMES = sizeof scale_names / sizeof scale_names[0]
};

void op_format_print(weight_format format, strbuf *out)
{
    strbuf_printf(out, "%s %s %" PRIu32, layout_names[format.layout], scale_names[format.scale],
                  format.group);
}

/* A whole number without sign or leading blanks, up to `most`. */
static bool parse_count(const char *text, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text >= '0' && *text <= '9'; text++) {
        const uint64_t digit = (uint64_t)(*text - '0');
        if (value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return *text == '\0';
}

static bool find_name(const char *const *names, size_t count, const char *name, size_t *at)
{
    for (*at = 0; *at < count; (*at)++)
        if (strcmp(names[*at], name) == 0)
            return true;
    return false;
}

bool op_format_parse(const char *layout_name, const char *scale_name, const char *group,
                     weight_format *out)
{
    size_t l = 0, s = 0;
    uint64_t g = 0;
    if (!find_name(layout_names, LAYOUT_NAMES, layout_name, &l) ||
        !find_name(scale_names, SCALE_NAMES, scale_name, &s) || !parse_count(group, 1024, &g))
        return false;
    *out = (weight_format){(layout)l, (scale_kind)s, (uint32_t)g};
    return true;
}

/* ---- choices as text ------------------------------------------------------------------------- */

/* Of the text of every kernel that a row may choose. */
static uint64_t kernels_hash(void)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const op_table *const *table = op_tables; *table != NULL; table++)
        for (uint32_t i = 0; i < (*table)->count; i++)
            for (const char *at = (*table)->rows[i].kernel->source; *at != '\0'; at++)
                hash = (hash ^ (uint8_t)*at) * UINT64_C(1099511628211);
    return hash;
}

void op_choices_print(const op_choices *choices, strbuf *out)
{
    strbuf_printf(out, "kernels %016" PRIx64 "\n", kernels_hash());
    for (uint32_t i = 0; i < choices->count; i++) {
        const op_choice *c = &choices->list[i];
        strbuf_printf(out, "%s %" PRIu32 " %" PRIu64 " %" PRIu64 " ", c->table->op, c->rows, c->n,
                      c->k);
        op_format_print(c->format, out);
        for (uint32_t r = 0; r < c->count; r++) {
            strbuf_printf(out, " %s", c->order[r].row->name);
            if (c->order[r].slices > 0)
                strbuf_printf(out, "/%" PRIu32, c->order[r].slices);
            strbuf_printf(out, "=%.3f", c->order[r].us);
        }
        strbuf_putc(out, '\n');
    }
}

enum { LINE_BYTES = 2048, WORDS = 7 + OP_CHOICE_ROWS, MOST_SLICES = 1024 };

/* Cuts a line at its blanks; 0 when there are too many words or two blanks in a row. */
static uint32_t split(char *line, char *words[WORDS])
{
    uint32_t count = 0;
    for (char *at = line; at != NULL;) {
        char *blank = strchr(at, ' ');
        if (blank != NULL)
            *blank++ = '\0';
        if (*at == '\0' || count == WORDS)
            return 0;
        words[count++] = at;
        at = blank;
    }
    return count;
}

static bool parse_row(char *word, op_choice *c)
{
    char *equals = strchr(word, '=');
    if (equals == NULL || equals[1] < '0' || equals[1] > '9')
        return false;
    *equals = '\0';
    uint64_t slices = 0;
    char *slash = strchr(word, '/'), *end = NULL;
    if (slash != NULL) {
        *slash = '\0';
        if (!parse_count(slash + 1, MOST_SLICES, &slices) || slices == 0)
            return false;
    }
    const double us = strtod(equals + 1, &end);
    if (*end != '\0' || !isfinite(us))
        return false;
    for (uint32_t i = 0; i < c->table->count; i++) {
        const op_kernel_row *row = &c->table->rows[i];
        if (strcmp(row->name, word) != 0)
            continue;
        if (slices > 0 && row->tile == NULL)
            return false;
        for (uint32_t k = 0; k < c->count; k++)
            if (c->order[k].row == row)
                return false;
        c->order[c->count].row = row;
        c->order[c->count].slices = (uint32_t)slices;
        c->order[c->count++].us = us;
        return true;
    }
    return false;
}

static bool parse_choice(char *line, op_choice *c)
{
    char *words[WORDS];
    uint64_t rows = 0;
    const uint32_t count = split(line, words);
    *c = (op_choice){0};
    if (count < 8)
        return false;
    for (const op_table *const *table = op_tables; *table != NULL; table++)
        if (strcmp((*table)->op, words[0]) == 0)
            c->table = *table;
    if (c->table == NULL || !parse_count(words[1], UINT32_MAX, &rows) || rows == 0 ||
        op_rows_class(rows) != rows || !parse_count(words[2], UINT32_MAX, &c->n) ||
        !parse_count(words[3], UINT32_MAX, &c->k) ||
        !op_format_parse(words[4], words[5], words[6], &c->format))
        return false;
    c->rows = (uint32_t)rows;
    for (uint32_t i = 7; i < count; i++)
        if (!parse_row(words[i], c))
            return false;
    return true;
}

static temper_status parse_line(char *line, uint32_t number, op_choices *choices, error *err)
{
    op_choice choice;
    if (number == 1) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "kernels %016" PRIx64, kernels_hash());
        if (strcmp(line, wanted) == 0)
            return TEMPER_OK;
        return error_set(err, TEMPER_BAD_FILE, "they were measured with other kernels");
    }
    if (!parse_choice(line, &choice))
        return error_set(err, TEMPER_BAD_FILE, "line %" PRIu32 " of them is no choice of rows",
                         number);
    if (!op_choices_add(choices, &choice))
        return error_set(err, TEMPER_NO_MEMORY, "no memory for choices of rows");
    return TEMPER_OK;
}

temper_status op_choices_parse(const char *text, size_t length, op_choices **out, error *err)
{
    char line[LINE_BYTES];
    op_choices *choices = op_choices_new();
    temper_status status = TEMPER_OK;
    uint32_t number = 0;
    if (choices == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for choices of rows");
    for (size_t at = 0; status == TEMPER_OK && at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        const size_t size = (end != NULL ? (size_t)(end - text) : length) - at;
        number++;
        if (size >= sizeof line || memchr(text + at, '\0', size) != NULL) {
            status = error_set(err, TEMPER_BAD_FILE,
                               "line %" PRIu32 " of them is no choice of rows", number);
            break;
        }
        memcpy(line, text + at, size);
        line[size] = '\0';
        status = parse_line(line, number, choices, err);
        at += size + 1;
    }
    if (status == TEMPER_OK && number == 0)
        status = error_set(err, TEMPER_BAD_FILE, "they are empty");
    if (status != TEMPER_OK) {
        op_choices_free(choices);
        return status;
    }
    *out = choices;
    return TEMPER_OK;
}
