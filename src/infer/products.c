/*
 * products.c - which matrices a network multiplies with.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "infer/infer.h"
#include "op/choices.h"

typedef struct product_list {
    temper_product *rows;
    uint32_t capacity, count;
} product_list;

static void add(product_list *list, const op_weight *w, uint32_t most_rows)
{
    temper_product p = {.n = w->n, .k = w->k, .most_rows = most_rows, .count = 1};
    strbuf format = {0};
    op_format_print(w->format, &format);
    snprintf(p.format, sizeof p.format, "%s", strbuf_text(&format));
    strbuf_free(&format);
    for (uint32_t i = 0; i < list->count && i < list->capacity; i++) {
        temper_product *known = &list->rows[i];
        if (known->n != p.n || known->k != p.k || strcmp(known->format, p.format) != 0)
            continue;
        known->count++;
        known->most_rows = known->most_rows > most_rows ? known->most_rows : most_rows;
        return;
    }
    if (list->count < list->capacity)
        list->rows[list->count] = p;
    list->count++;
}

static void add_linear(product_list *list, const model_linear *linear, uint32_t most_rows)
{
    for (uint32_t i = 0; i < linear->count; i++)
        add(list, linear->weights[i], most_rows);
}

uint32_t temper_engine_products(const temper_engine *engine, temper_product *rows,
                                uint32_t capacity)
{
    assert(engine != NULL && (rows != NULL || capacity == 0));
    const model *m = engine->net;
    product_list list = {rows, capacity, 0};
    for (uint32_t i = 0; m != NULL && i < m->config.layers; i++) {
        const model_layer *layer = &m->layers[i];
        add_linear(&list, &layer->qkv, m->max_rows);
        add_linear(&list, &layer->attn_output, m->max_rows);
        add_linear(&list, &layer->gate_up, m->max_rows);
        add_linear(&list, &layer->ffn_down, m->max_rows);
    }
    if (m != NULL)
        add(&list, m->head, MODEL_LOGIT_ROWS);
    return list.count;
}
