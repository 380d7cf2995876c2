#include "model/scratch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "model/model.h"

/* The moments of a step: what is read or written at one of them is a buffer of its own. What any
 * row of a table does in one dispatch is one moment. */
enum {
    AT_QKV = 1 << 0,       /* norm, and the product that makes queries, keys and values */
    AT_ATTENTION = 1 << 1, /* their way to q and into the cache, and attention */
    AT_OUTPUT = 1 << 2,    /* its product, and a norm after it */
    AT_GATE_UP = 1 << 3,   /* norm, and the feed-forward layer's first product */
    AT_DOWN = 1 << 4,      /* the gate, and the second product */
    AT_HEAD = 1 << 5,      /* norm, and the product that makes logits */
    AT_PRODUCTS = AT_QKV | AT_OUTPUT | AT_GATE_UP | AT_DOWN | AT_HEAD,
    ALWAYS = (1 << 6) - 1, /* and after the step: x and logits are read by what comes then */
};

typedef struct scratch_row {
    size_t buffer; /* where it is in model_scratch */
    uint32_t moments;
    uint64_t floats;
} scratch_row;

enum { SCRATCH_ROWS = 9 };

static bool share_all;

void scratch_share_all(bool on)
{
    share_all = on;
}

static int largest_first(const void *a, const void *b)
{
    const scratch_row *x = a, *y = b;
    if (x->floats != y->floats)
        return x->floats < y->floats ? 1 : -1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer); /* the same order everywhere */
}

/* The buffers whose size does not depend on the context, the largest first. */
static void make_rows(const model_config *c, uint32_t max_rows, scratch_row out[SCRATCH_ROWS])
{
    const uint64_t n = max_rows, q = (uint64_t)c->q_heads * c->head_dim,
                   kv = (uint64_t)c->kv_heads * c->head_dim;
    const uint64_t inputs = c->arch == MODEL_GPT2 ? 1 : 2; /* of the feed-forward layer: no gate */
#define AT(field) offsetof(model_scratch, field)
    const scratch_row rows[SCRATCH_ROWS] = {
        {AT(x), ALWAYS, n * c->width},
        {AT(h), AT_PRODUCTS, n * c->width},
        {AT(qkv), AT_QKV | AT_ATTENTION, n * (q + 2 * kv)},
        {AT(q), AT_ATTENTION, n * q},
        {AT(mixed), AT_ATTENTION | AT_OUTPUT, n * q},
        {AT(gate_up), AT_GATE_UP | AT_DOWN, n * inputs * c->ffn},
        {AT(act), AT_DOWN, n * c->ffn},
        {AT(last), AT_HEAD, (uint64_t)MODEL_LOGIT_ROWS * c->width},
        {AT(logits), ALWAYS, (uint64_t)MODEL_LOGIT_ROWS * c->vocabulary},
    };
#undef AT
    memcpy(out, rows, sizeof rows);
    qsort(out, SCRATCH_ROWS, sizeof out[0], largest_first);
}

static void take_rows(gpu_pool *pool, const scratch_row rows[SCRATCH_ROWS],
                      uint32_t slots[SCRATCH_ROWS])
{
    for (uint32_t i = 0; i < SCRATCH_ROWS; i++)
        slots[i] = gpu_pool_take(pool, rows[i].floats * sizeof(float), rows[i].moments);
}

static void take_products(gpu_pool *pool, op_product_bytes bytes, uint32_t slots[2])
{
    slots[0] = gpu_pool_take(pool, max_u64(bytes.scratch, 4), AT_PRODUCTS);
    slots[1] = gpu_pool_take(pool, max_u64(bytes.sums, 4), AT_PRODUCTS);
}

/* Shared buffers are no larger than the device binds; 0: any size. */
static uint64_t pool_limit(const gpu_device *device)
{
    return device == NULL ? 0 : gpu_device_limits(device)->max_storage_binding;
}

static uint64_t attention_bytes(const model_config *c, uint32_t max_rows, uint32_t positions)
{
    const op_attention_shape widest = {.rows = max_rows,
                                       .q_heads = c->q_heads,
                                       .kv_heads = c->kv_heads,
                                       .head_dim = c->head_dim,
                                       .scale = 1.0f,
                                       .longest = positions};
    return max_u64(4, op_attention_scratch_bytes(&widest));
}

/* In the order in which the buffers are made: the pool lays them out alike. */
uint64_t scratch_bytes(const gpu_device *device, const model_config *config, uint32_t max_rows,
                       uint32_t positions, op_product_bytes products)
{
    gpu_pool pool = {.most = pool_limit(device)};
    scratch_row rows[SCRATCH_ROWS];
    uint32_t slots[SCRATCH_ROWS];
    make_rows(config, max_rows, rows);
    take_rows(&pool, rows, slots);
    gpu_pool_take(&pool, attention_bytes(config, max_rows, positions), AT_ATTENTION);
    if (products.scratch > 0 || products.sums > 0)
        take_products(&pool, products, slots);
    return gpu_pool_bytes(&pool);
}

temper_status scratch_open(model_scratch *s, gpu_device *device, const model_config *config,
                           uint32_t max_rows, error *err)
{
    scratch_row rows[SCRATCH_ROWS];
    uint32_t slots[SCRATCH_ROWS];
    s->pool.most = pool_limit(device);
    s->pool.any_size = share_all;
    make_rows(config, max_rows, rows);
    take_rows(&s->pool, rows, slots);
    const temper_status status = gpu_pool_fill(&s->pool, device, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < SCRATCH_ROWS; i++) {
        gpu_buffer *buffer = gpu_pool_buffer(&s->pool, slots[i]);
        memcpy((char *)s + rows[i].buffer, &buffer, sizeof(gpu_buffer *));
    }
    return status;
}

temper_status scratch_fit_attention(model_scratch *s, gpu_device *device,
                                    const model_config *config, uint32_t max_rows,
                                    uint32_t positions, error *err)
{
    if (positions <= s->positions)
        return TEMPER_OK;
    const uint64_t bytes = attention_bytes(config, max_rows, positions);
    if (s->attention != NULL && gpu_buffer_size(s->attention) >= bytes) {
        s->positions = positions;
        return TEMPER_OK;
    }
    /* The old slot goes once the new one is there: a failure leaves what was. */
    const uint32_t old = s->attention_slot;
    const bool had = s->attention != NULL;
    const uint32_t slot = gpu_pool_take(&s->pool, bytes, AT_ATTENTION);
    const temper_status status = gpu_pool_fill(&s->pool, device, err);
    if (status != TEMPER_OK) {
        gpu_pool_give(&s->pool, slot, AT_ATTENTION);
        return status;
    }
    if (had)
        gpu_pool_give(&s->pool, old, AT_ATTENTION);
    s->attention = gpu_pool_buffer(&s->pool, slot);
    s->attention_slot = slot;
    s->positions = positions;
    return TEMPER_OK;
}

temper_status scratch_add_products(model_scratch *s, gpu_device *device, op_product_bytes bytes,
                                   error *err)
{
    assert(s->products == NULL && (bytes.scratch > 0 || bytes.sums > 0));
    uint32_t slots[2];
    take_products(&s->pool, bytes, slots);
    const temper_status status = gpu_pool_fill(&s->pool, device, err);
    if (status != TEMPER_OK) {
        gpu_pool_give(&s->pool, slots[0], AT_PRODUCTS);
        gpu_pool_give(&s->pool, slots[1], AT_PRODUCTS);
        return status;
    }
    s->products = gpu_pool_buffer(&s->pool, slots[0]);
    s->sums = gpu_pool_buffer(&s->pool, slots[1]);
    s->allowed.scratch = gpu_whole(s->products);
    s->allowed.sums = gpu_whole(s->sums);
    return TEMPER_OK;
}

void scratch_close(model_scratch *s)
{
    gpu_pool_close(&s->pool);
    *s = (model_scratch){0};
}
