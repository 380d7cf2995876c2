/*
 * perplexity.c - the default model's perplexity of a text that every Debian has, as the program
 * tells it. In a file of its own because it is slow without a GPU.
 */
#include "support/program.h"

#include <math.h>

static void of_the_gpl(void **state)
{
    (void)state;
    program_result r = program_call_all(&(program_call){
        .args = ARGS("eval", "ppl", test_default_model(), "--text",
                     "/usr/share/common-licenses/GPL-3", "--ctx", "256", "--chunks", "4", "--json"),
        .limit_s = 550});
    json_t *result = program_parse(&r);
    const double ppl = json_number_value(json_object_get(result, "ppl"));
    print_message("perplexity %.4f\n", ppl);
    assert_int_equal(json_integer_value(json_object_get(result, "tokens")), 508);
    assert_true(fabs(ppl - 19.266) <= 0.02);
    json_decref(result);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_the_gpl)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
