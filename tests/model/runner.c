/*
 * runner.c - passes put together by hand: rows of one text are never taken for texts of their own,
 * however many texts the pass was begun for.
 */
#include "support/model_test.h"

#include "infer/runner.h"
#include "op/rows.h"

enum { SLOTS = 3, CONTEXT = 64 };

/* The dispatches of a pass of SLOTS rows, begun for as many texts. */
static uint64_t dispatches_of(runner *r, const uint32_t slots[SLOTS],
                              const uint32_t positions[SLOTS])
{
    error err = {0};
    gpu_recorder *rec = NULL;
    gpu_device *device = r->net->device;
    const uint64_t before = gpu_device_counters(device).dispatches;
    runner_begin(r, SLOTS, 0);
    for (uint32_t i = 0; i < SLOTS; i++)
        runner_add(r, slots[i], positions[i], 7 + i);
    assert_ok(runner_record(r, NULL, &rec, &err));
    assert_ok(gpu_submit(rec, NULL, &err));
    assert_ok(gpu_finish(device, &err));
    return gpu_device_counters(device).dispatches - before;
}

/* The row of attention's table that stores and attends at once: it wants subgroups. */
static bool teams_run(gpu_device *device)
{
    for (uint32_t i = 0; i < op_table_attention.count; i++)
        if (strcmp(op_table_attention.rows[i].name, "teams") == 0)
            return op_row_runs(device, &op_table_attention.rows[i]);
    fail_msg("attention has no row teams");
    return false;
}

/* Where each row has a text of its own, storing and attention are one dispatch a layer. Rows of one
 * text must see what the others of them store, so there they are two, at least. */
static void rows_of_one_text_see_each_other(void **state)
{
    (void)state;
    error err = {0};
    texts t = {0};
    runner r = {0};
    temper_device *device = test_device(&test_masks[0]);
    if (!teams_run(device->gpu)) {
        temper_device_release(device);
        skip();
    }
    temper_engine *engine = test_engine(device, "tiny/llama-q4_1.gguf", 8);
    const kv_cache_shape shape = {.sequences = SLOTS, .positions = CONTEXT, .blocks = SLOTS};
    op_prefer_row("teams");
    assert_ok(texts_open(device->gpu, SLOTS, CONTEXT, &t, &err));
    assert_ok(runner_open(&r, engine->net, &t, shape, SLOTS, 1, &err));
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_ok(kv_cache_grow(r.cache, i, CONTEXT, &err));
    const uint64_t chosen = op_preferred_choices();
    const uint64_t apart =
        dispatches_of(&r, (const uint32_t[]){0, 1, 2}, (const uint32_t[]){0, 0, 0});
    assert_true(op_preferred_choices() > chosen);
    const uint64_t together =
        dispatches_of(&r, (const uint32_t[]){1, 1, 1}, (const uint32_t[]){1, 2, 3});
    const uint64_t mixed =
        dispatches_of(&r, (const uint32_t[]){0, 2, 0}, (const uint32_t[]){1, 1, 2});
    print_message("%llu dispatches for three texts, %llu for one, %llu for two\n",
                  (unsigned long long)apart, (unsigned long long)together,
                  (unsigned long long)mixed);
    const uint32_t layers = temper_engine_info(engine)->layers;
    assert_true(together >= apart + layers && mixed >= apart + layers);
    op_prefer_row(NULL);
    runner_close(&r);
    texts_close(&t);
    temper_engine_close(engine);
    test_nothing_left(device);
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_one_text_see_each_other)};
    return cmocka_run_group_tests_name("model_runner", tests, NULL, NULL);
}
