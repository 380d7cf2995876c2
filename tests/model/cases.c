/*
 * cases.c - reports of engines like this one that no other test of whole models stands for: scores
 * that are no numbers, and the context that a session gets without asking.
 */
#include "support/model_test.h"

#include <math.h>
#include <unistd.h>

typedef struct file_copy {
    char path[64];
    char *bytes;
    size_t length;
} file_copy;

static file_copy copy_of(const char *name)
{
    char path[512];
    file_copy c = {.path = "/tmp/temper-cases-XXXXXX"};
    snprintf(path, sizeof path, "%s/tiny/%s.gguf", TEST_GOLDEN, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    c.length = (size_t)ftell(file);
    rewind(file);
    c.bytes = malloc(c.length);
    assert_non_null(c.bytes);
    assert_int_equal(fread(c.bytes, 1, c.length, file), c.length);
    fclose(file);
    return c;
}

static void store(file_copy *c)
{
    const int number = mkstemp(c->path);
    assert_true(number >= 0);
    assert_int_equal(write(number, c->bytes, c->length), (ssize_t)c->length);
    close(number);
    free(c->bytes);
}

/* Replaces what stands `skip` bytes behind a name. */
static void change(file_copy *c, const char *name, size_t skip, const void *value, size_t size)
{
    const size_t length = strlen(name);
    size_t at = 0;
    while (at + length < c->length && memcmp(c->bytes + at, name, length) != 0)
        at++;
    assert_true(at + length + skip + size <= c->length);
    memcpy(c->bytes + at + length + skip, value, size);
}

/* Weights that are numbers, all of them, and products of which are not: no token comes of it, not
 * token 0, and none before the error. */
static void scores_that_are_no_numbers(void **state)
{
    temper_error err = {0};
    temper_session *session = NULL;
    temper_result result = {0};
    uint32_t ids[3] = {5, 6, 7};
    (void)state;
    file_copy c = copy_of("llama-f32");
    /* The last 64 floats of the file are those of output_norm.weight. */
    const float huge = 3e38f, minus = -3e38f;
    for (size_t i = 1; i <= 64; i++)
        memcpy(c.bytes + c.length - 4 * i, i % 2 == 0 ? &huge : &minus, sizeof huge);
    store(&c);
    temper_device *device = test_device(&test_masks[0]);
    temper_engine *engine = test_engine(device, c.path, 0);
    assert_ok(temper_session_open(engine, &(temper_session_desc){.context = 64}, &session, &err));
    static const float temperatures[] = {0.0f, 1.0f};
    for (size_t i = 0; i < 2; i++) {
        const temper_request request = {
            .prompt = {ids, 3}, .max_tokens = 4, .sampling = {.temperature = temperatures[i]}};
        assert_fails(temper_session_generate(session, &request, &result, &err), TEMPER_NOT_FINITE,
                     "");
        assert_int_equal(result.token_count, 0);
    }
    temper_session_close(session);
    temper_engine_close(engine);
    temper_device_release(device);
    unlink(c.path);
}

/* A model trained for many positions gets 8192 unless it is asked for more. */
static void the_default_context_is_bounded(void **state)
{
    static const struct {
        uint32_t trained, wanted;
    } rows[] = {{4096, 4096}, {8192, 8192}, {8193, 8192}, {131072, 8192}};
    (void)state;
    temper_device *device = test_device(&test_masks[0]);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        temper_error err = {0};
        temper_session *session = NULL;
        file_copy c = copy_of("llama-f32");
        change(&c, "llama.context_length", 4, &rows[i].trained, 4);
        store(&c);
        temper_engine *engine = test_engine(device, c.path, 0);
        assert_int_equal(temper_engine_info(engine)->context, rows[i].trained);
        assert_int_equal(temper_engine_info(engine)->default_context, rows[i].wanted);
        assert_ok(temper_session_open(engine, NULL, &session, &err));
        assert_int_equal(temper_session_context(session), rows[i].wanted);
        temper_session_close(session);
        temper_engine_close(engine);
        unlink(c.path);
    }
    test_nothing_left(device);
    temper_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_that_are_no_numbers),
        cmocka_unit_test(the_default_context_is_bounded),
    };
    return cmocka_run_group_tests_name("model_cases", tests, NULL, NULL);
}
