/*
 * skip.h - what a test leaves out because a device lacks it. Each is told by name, counted by
 * ./test, and has to be expected (tests/expected_skips.txt).
 */
#ifndef TEST_SUPPORT_SKIP_H
#define TEST_SUPPORT_SKIP_H

#include <stdio.h>

/* tools/count_tests.awk reads this line; the list's patterns see PROGRAM/GROUP/NAME: REASON. */
static inline void test_skipped_case(const char *group, const char *name, const char *reason)
{
    printf("[ LEFT OUT ] %s/%s: %s\n", group, name, reason);
    fflush(stdout);
}

#endif
