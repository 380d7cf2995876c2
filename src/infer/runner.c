#include "infer/runner.h"

#include <assert.h>

#include "base/checked.h"
#include "base/mem.h"

/* ---- the texts ------------------------------------------------------------------------------ */

temper_status texts_open(gpu_device *device, uint32_t slots, uint32_t context, texts *out,
                         error *err)
{
    const uint64_t bytes = (uint64_t)slots * (context + 1) * sizeof(uint32_t);
    const uint64_t most = gpu_device_limits(device)->max_storage_binding;
    *out = (texts){.slots = slots, .context = context};
    if (bytes > most)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "the ids of %u texts of %u positions take %llu bytes, and this device "
                         "binds %llu at once: ask for fewer sequences or a shorter context",
                         slots, context, (unsigned long long)bytes, (unsigned long long)most);
    const temper_status status =
        gpu_buffer_create(device, bytes, GPU_PURPOSE_INPUT, "history", &out->history, err);
    return status != TEMPER_OK
               ? status
               : gpu_buffer_create(device,
                                   (uint64_t)slots * TEMPER_MAX_BIASES * sizeof(op_logit_bias),
                                   GPU_PURPOSE_INPUT, "logit biases", &out->biases, err);
}

void texts_close(texts *t)
{
    gpu_buffer_destroy(t->history);
    gpu_buffer_destroy(t->biases);
}

/* Where a slot's history begins. */
static uint32_t history_of(const texts *t, uint32_t slot)
{
    return slot * (t->context + 1);
}

temper_status texts_write(const texts *t, gpu_device *device, uint32_t slot, uint32_t position,
                          const uint32_t *ids, uint32_t count, error *err)
{
    const uint64_t at = (uint64_t)history_of(t, slot) + position;
    assert(position <= t->context && count <= t->context + 1 - position);
    return count == 0 ? TEMPER_OK
                      : gpu_write(device, t->history, at * sizeof(uint32_t), ids,
                                  count * sizeof(uint32_t), err);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static uint64_t info_rows(const runner *r)
{
    return max_u64(r->net->max_rows, (uint64_t)r->most_steps * RUNNER_STEP_ROWS);
}

static temper_status open_buffers(runner *r, error *err)
{
    const model *m = r->net;
    const uint64_t rows = m->max_rows, places = r->places;
    const struct {
        gpu_buffer **buffer;
        uint64_t bytes;
        const char *label;
    } table[] = {
        {&r->ids, rows * sizeof(uint32_t), "ids"},
        {&r->sources, rows * sizeof(uint32_t), "sources of ids"},
        {&r->row_info, info_rows(r) * sizeof(op_row_info), "row positions"},
        {&r->choices, places * sizeof(op_sample_params), "choices"},
        {&r->sampler, op_sample_scratch_bytes(MODEL_LOGIT_ROWS, m->config.vocabulary),
         "sampler scratch"},
        {&r->chosen, places * sizeof(uint32_t), "chosen ids"},
        {&r->surprise, places * sizeof(float), "surprise"},
        {&r->scored, places * (1 + TEMPER_MAX_LOGPROBS) * sizeof(op_scored), "best logits"},
    };
    temper_status status = TEMPER_OK;
    for (size_t i = 0; status == TEMPER_OK && i < sizeof table / sizeof table[0]; i++)
        status = gpu_buffer_create(m->device, table[i].bytes, GPU_PURPOSE_INPUT, table[i].label,
                                   table[i].buffer, err);
    return status;
}

/* Every pipeline that a choice can need is being made when this returns. */
static temper_status prepare_choices(runner *r, error *err)
{
    model *m = r->net;
    const uint32_t v = m->config.vocabulary;
    const gpu_view logits = model_logits(m), chosen = gpu_whole(r->chosen),
                   choices = gpu_whole(r->choices), sampler = gpu_whole(r->sampler);
    gpu_recorder *rec = gpu_record_prepare(m->device);
    const op_sample_params greedy = {0};
    const op_sample_params drawn = {.temperature = 1.0f, .top_k = 1, .top_p = 0.5f, .min_p = 0.1f};
    const op_penalties penalties = {.count = 1};
    op_gather_ids(rec, gpu_whole(r->sources), chosen, gpu_whole(r->ids), 1);
    op_bias_logits(rec, logits, gpu_whole(r->texts->biases), 0, v, 0, 1);
    op_penalize(rec, logits, gpu_whole(r->texts->history), 0, v, &penalties);
    op_best(rec, logits, chosen, gpu_whole(r->scored), 0, 1, v, 1);
    op_sample(rec, logits, choices, sampler, chosen, 0, 1, v, &greedy);
    op_sample(rec, logits, choices, sampler, chosen, 0, 1, v, &drawn);
    op_nll(rec, logits, chosen, gpu_whole(r->surprise), 0, 1, v);
    return gpu_submit(rec, NULL, err);
}

temper_status runner_open(runner *out, model *net, const texts *t, kv_cache_shape shape,
                          uint32_t places, uint32_t steps, error *err)
{
    runner *r = out;
    r->net = net;
    r->texts = t;
    r->most_steps = steps;
    if (steps > 1)
        places = (uint32_t)max_u64(places, (uint64_t)steps * RUNNER_STEP_ROWS);
    r->places = places;
    r->host_rows = mem_calloc((size_t)info_rows(r), sizeof *r->host_rows);
    r->host_sources = mem_calloc(net->max_rows, sizeof *r->host_sources);
    r->host_choices = mem_calloc(places, sizeof *r->host_choices);
    r->host_params = mem_calloc(places, sizeof *r->host_params);
    if (r->host_rows == NULL || r->host_sources == NULL || r->host_choices == NULL ||
        r->host_params == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the rows of a pass");
    temper_status status = kv_cache_open(net->device, &net->config, shape, &r->cache, err);
    if (status == TEMPER_OK)
        status = open_buffers(r, err);
    if (status == TEMPER_OK)
        status = prepare_choices(r, err);
    return status == TEMPER_OK ? model_reserve(net, r->cache, err) : status;
}

void runner_close(runner *r)
{
    kv_cache_close(r->cache);
    gpu_buffer_destroy(r->ids);
    gpu_buffer_destroy(r->sources);
    gpu_buffer_destroy(r->row_info);
    gpu_buffer_destroy(r->choices);
    gpu_buffer_destroy(r->sampler);
    gpu_buffer_destroy(r->chosen);
    gpu_buffer_destroy(r->surprise);
    gpu_buffer_destroy(r->scored);
    mem_free(r->host_rows);
    mem_free(r->host_sources);
    mem_free(r->host_choices);
    mem_free(r->host_params);
}

/* ---- putting a pass together ---------------------------------------------------------------- */

void runner_begin(runner *r, uint32_t sequences, uint32_t first_place)
{
    r->rows = r->choice_count = r->longest = r->best = 0;
    r->sequences = sequences;
    r->first_place = first_place;
    r->steps = 1;
    r->gathers = r->logprobs = false;
    r->in_order = true;
    r->taken = 0;
}

void runner_add(runner *r, uint32_t slot, uint32_t position, uint32_t from)
{
    const uint32_t row = r->rows++;
    assert(row < r->net->max_rows && position < kv_cache_positions(r->cache));
    assert(kv_cache_held(r->cache, slot) * KV_BLOCK_POSITIONS > position);
    r->host_rows[row] =
        (op_row_info){.position = position, .table_offset = kv_cache_table_offset(r->cache, slot)};
    r->host_sources[row] = from;
    r->longest = position + 1 > r->longest ? position + 1 : r->longest;
    r->gathers = r->gathers || from >= OP_CHOSEN;
    if (row == 0 && from >= OP_CHOSEN && (from - OP_CHOSEN) % RUNNER_STEP_ROWS == 0)
        r->taken = from - OP_CHOSEN;
    r->in_order = r->in_order && from == OP_CHOSEN + r->taken + row;
}

void runner_add_choice(runner *r, uint32_t slot, uint32_t position, uint32_t from,
                       const temper_request *request, bool remember)
{
    const uint32_t choice = r->choice_count++;
    assert(choice == r->rows && r->first_place + choice < r->places);
    r->host_choices[choice] = (runner_choice){request, slot, position + 1, remember};
    r->host_params[choice] = infer_sample_params(&request->sampling, position + 1);
    r->logprobs = r->logprobs || request->logprobs;
    if (request->logprobs && request->best > r->best)
        r->best = request->best;
    runner_add(r, slot, position, from);
}

void runner_repeat(runner *r, uint32_t steps)
{
    assert(r->rows == r->choice_count && r->rows <= RUNNER_STEP_ROWS && r->steps == 1);
    assert(steps >= 1 && steps <= r->most_steps);
    r->steps = steps;
    assert(r->first_place + runner_choices(r) <= r->places);
    for (uint32_t s = 1; s < steps; s++)
        for (uint32_t i = 0; i < r->rows; i++) {
            const runner_choice *c = &r->host_choices[i];
            const uint32_t at = s * RUNNER_STEP_ROWS + i;
            r->host_rows[at] = r->host_rows[i];
            r->host_rows[at].position += s;
            r->host_params[at] = infer_sample_params(&c->request->sampling, c->position + s);
        }
}

uint32_t runner_choices(const runner *r)
{
    return (r->steps - 1) * RUNNER_STEP_ROWS + r->choice_count;
}

/* ---- recording ------------------------------------------------------------------------------ */

static temper_status write_inputs(runner *r, error *err)
{
    gpu_device *device = r->net->device;
    const uint64_t infos = (uint64_t)(r->steps - 1) * RUNNER_STEP_ROWS + r->rows;
    temper_status status =
        gpu_write(device, r->row_info, 0, r->host_rows, infos * sizeof *r->host_rows, err);
    if (status == TEMPER_OK && !(r->gathers && r->in_order))
        status = gpu_write(device, r->gathers ? r->sources : r->ids, 0, r->host_sources,
                           r->rows * sizeof *r->host_sources, err);
    if (status == TEMPER_OK && r->choice_count > 0)
        status = gpu_write(device, r->choices, r->first_place * sizeof *r->host_params,
                           r->host_params, runner_choices(r) * sizeof *r->host_params, err);
    return status;
}

static uint64_t place_of(const runner *r, uint32_t step)
{
    return r->first_place + (uint64_t)step * RUNNER_STEP_ROWS;
}

/* Logits that a caller's biases and penalties change, before the choice. */
static void record_changes(runner *r, gpu_recorder *rec, uint32_t step, uint32_t first,
                           uint32_t rows)
{
    const texts *t = r->texts;
    const uint32_t vocabulary = r->net->config.vocabulary;
    for (uint32_t i = 0; i < rows; i++) {
        const runner_choice *c = &r->host_choices[first + i];
        op_penalties penalties = infer_penalties(&c->request->sampling, c->position + step);
        penalties.first += history_of(t, c->slot);
        op_bias_logits(rec, model_logits(r->net), gpu_whole(t->biases), i, vocabulary,
                       c->slot * TEMPER_MAX_BIASES, (uint32_t)c->request->sampling.bias_count);
        op_penalize(rec, model_logits(r->net), gpu_whole(t->history), i, vocabulary, &penalties);
    }
}

/* Under penalties a chosen id joins the history on the device, where the next choice looks. */
static void record_history(runner *r, gpu_recorder *rec, uint32_t step, uint32_t first,
                           uint32_t rows)
{
    const uint64_t size = sizeof(uint32_t);
    for (uint32_t i = first; i < first + rows; i++) {
        const runner_choice *c = &r->host_choices[i];
        const uint32_t position = c->position + step;
        if (!c->remember || infer_penalties(&c->request->sampling, position).count == 0)
            continue;
        const uint64_t to = (uint64_t)history_of(r->texts, c->slot) + position;
        gpu_record_copy(rec, (gpu_view){r->chosen, (place_of(r, step) + i) * size, size},
                        (gpu_view){r->texts->history, to * size, size});
    }
}

/* The choices [first, first + rows) of a step from the logits that the head has just written. */
static void record_choices(runner *r, gpu_recorder *rec, uint32_t step, uint32_t first,
                           uint32_t rows)
{
    const gpu_view logits = model_logits(r->net), chosen = gpu_whole(r->chosen);
    const uint32_t vocabulary = r->net->config.vocabulary;
    const uint32_t place = (uint32_t)place_of(r, step) + first;
    record_changes(r, rec, step, first, rows);
    op_sample(rec, logits, gpu_whole(r->choices), gpu_whole(r->sampler), chosen, place, rows,
              vocabulary, r->host_params + step * RUNNER_STEP_ROWS + first);
    record_history(r, rec, step, first, rows);
    if (!r->logprobs)
        return;
    op_nll(rec, logits, chosen, gpu_whole(r->surprise), place, rows, vocabulary);
    op_best(rec, logits, chosen, gpu_whole(r->scored), place, rows, vocabulary, r->best);
}

/* The sequences that the rows belong to, for a step: as many as rows only where each is one of its
 * own, since such rows are stored and attended to at once and must not see each other. Whoever
 * began the pass may have counted texts that gave it no row, or several. */
static uint32_t sequences_of(const runner *r)
{
    if (r->sequences != r->rows)
        return r->sequences;
    for (uint32_t i = 1; i < r->rows; i++)
        for (uint32_t j = 0; j < i; j++)
            if (r->host_rows[i].table_offset == r->host_rows[j].table_offset)
                return r->rows - 1;
    return r->rows;
}

/* The ids of a step's rows: those that the host wrote or a gather will, or where a pass or a step
 * before chose them. */
static gpu_view ids_of(const runner *r, gpu_buffer *from, uint32_t step)
{
    const uint64_t size = sizeof(uint32_t);
    if (step > 0)
        return (gpu_view){r->chosen, place_of(r, step - 1) * size, r->rows * size};
    if (r->gathers && r->in_order)
        return (gpu_view){from, r->taken * size, r->rows * size};
    return gpu_whole(r->ids);
}

static gpu_view info_of(const runner *r, uint32_t step)
{
    const uint64_t size = sizeof(op_row_info);
    return step == 0
               ? gpu_whole(r->row_info)
               : (gpu_view){r->row_info, (uint64_t)step * RUNNER_STEP_ROWS * size, r->rows * size};
}

static void record_step(runner *r, gpu_buffer *from, gpu_recorder *rec, uint32_t step)
{
    const uint32_t count = r->choice_count;
    const model_step what = {.rows = r->rows,
                             .longest = r->longest + step,
                             .sequences = sequences_of(r),
                             .singles = r->sequences > 1 ? count : 0,
                             .cache = r->cache,
                             .ids = ids_of(r, from, step),
                             .row_info = info_of(r, step),
                             .logit_rows = count < MODEL_LOGIT_ROWS ? count : MODEL_LOGIT_ROWS};
    model_record_step(r->net, rec, &what);
    for (uint32_t first = 0; first < count; first += MODEL_LOGIT_ROWS) {
        const uint32_t rows = (uint32_t)min_u64(MODEL_LOGIT_ROWS, count - first);
        if (first > 0)
            model_record_head(r->net, rec, first, rows);
        record_choices(r, rec, step, first, rows);
    }
}

temper_status runner_record(runner *r, gpu_buffer *from, gpu_recorder **rec, error *err)
{
    assert(r->rows > 0 && (from != NULL || !r->gathers));
    const temper_status status = write_inputs(r, err);
    if (status != TEMPER_OK)
        return status;
    *rec = gpu_record_begin(r->net->device);
    if (r->gathers && !r->in_order)
        op_gather_ids(*rec, gpu_whole(r->sources), gpu_whole(from), gpu_whole(r->ids), r->rows);
    for (uint32_t step = 0; step < r->steps; step++)
        record_step(r, from, *rec, step);
    return TEMPER_OK;
}

static gpu_view part_of(const runner *r, gpu_buffer *buffer, uint64_t entry)
{
    return (gpu_view){buffer, r->first_place * entry, runner_choices(r) * entry};
}

gpu_view runner_chosen(const runner *r)
{
    return part_of(r, r->chosen, sizeof(uint32_t));
}

gpu_view runner_surprise(const runner *r)
{
    return part_of(r, r->surprise, sizeof(float));
}

gpu_view runner_scored(const runner *r)
{
    return part_of(r, r->scored, (1 + r->best) * sizeof(op_scored));
}
