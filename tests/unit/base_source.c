/*
 * base_source.c - files and memory as sources, and what is no file.
 */
#include "base/source.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"

static char folder[] = "/tmp/temper_source_XXXXXX";
static char path[64];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void write_file(uint64_t at, const char *text)
{
    const int file = open(path, O_WRONLY | O_CREAT, 0600);

    assert_true(file >= 0);
    assert_int_equal(pwrite(file, text, strlen(text), (off_t)at), (int)strlen(text));
    close(file);
}

static void expect_refusal(const char *name, temper_status status, const char *reason)
{
    const uint64_t live = mem_live_bytes();
    source *src = NULL;
    error err = {0};

    assert_int_equal(source_open_file(name, &src, &err), status);
    assert_null(src);
    assert_non_null(strstr(err.text, name));
    assert_non_null(strstr(err.text, reason));
    assert_int_equal(mem_live_bytes(), live);
}

static void test_file(void **state)
{
    const uint64_t live = mem_live_bytes();
    source *src = NULL;
    char got[8] = "";
    error err = {0};

    (void)state;
    write_file(0, "0123456789");
    assert_int_equal(source_open_file(path, &src, &err), TEMPER_OK);
    assert_string_equal(src->name, path);
    assert_int_equal(src->size, 10);
    assert_int_equal(source_read(src, 3, got, 4, &err), TEMPER_OK);
    assert_string_equal(got, "3456");
    assert_int_equal(source_read(src, 10, got, 0, &err), TEMPER_OK);
    assert_int_equal(source_read(src, 7, got, 4, &err), TEMPER_BAD_FILE);
    assert_non_null(strstr(err.text, "4 bytes at byte 7"));
    assert_non_null(strstr(err.text, "10 bytes"));
    error_clear(&err);
    assert_int_equal(source_read(src, UINT64_MAX, got, 2, &err), TEMPER_BAD_FILE);
    error_clear(&err);

    source_expect(src, 0, UINT64_MAX);
    source_expect(src, UINT64_MAX, 1);
    source_expect(src, 3, 0);
    assert_int_equal(source_read(src, 8, got, 2, &err), TEMPER_OK);
    assert_memory_equal(got, "89", 2);

    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(source_read(src, 3, got, 4, &err), TEMPER_IO);
    assert_non_null(strstr(err.text, "ends at byte 5"));
    source_close(src);
    source_close(NULL);
    unlink(path);
    assert_int_equal(mem_live_bytes(), live);
}

static void test_large_file(void **state)
{
    const uint64_t far = ((uint64_t)1 << 32) + 7;
    source *src = NULL;
    char got[8] = "";
    error err = {0};

    (void)state;
    write_file(far, "beyond");
    assert_int_equal(source_open_file(path, &src, &err), TEMPER_OK);
    assert_true(src->size == far + 6);
    assert_int_equal(source_read(src, far, got, 6, &err), TEMPER_OK);
    assert_string_equal(got, "beyond");
    source_close(src);
    unlink(path);
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(path, TEMPER_IO, "No such file");
    expect_refusal(folder, TEMPER_IO, "directory");
    expect_refusal("/dev/null", TEMPER_IO, "not a regular file");
    /* A pipe that nobody writes to must not hang the open. */
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_refusal(path, TEMPER_IO, "pipe");
    unlink(path);
    write_file(0, "secret");
    chmod(path, 0);
    if (geteuid() != 0)
        expect_refusal(path, TEMPER_IO, "Permission denied");
    for (int n = 1; n <= 2; n++) {
        chmod(path, 0600);
        mem_fail_at((uint64_t)n, 0);
        expect_refusal(path, TEMPER_NO_MEMORY, "memory");
        mem_fail_at(0, 0);
    }
    unlink(path);
}

static void test_memory(void **state)
{
    const uint64_t live = mem_live_bytes();
    static const char bytes[] = "abcdef";
    source *src = NULL;
    char got[8] = "";
    error err = {0};

    (void)state;
    assert_int_equal(source_open_memory("block", bytes, 6, &src, &err), TEMPER_OK);
    assert_int_equal(source_read(src, 2, got, 4, &err), TEMPER_OK);
    assert_string_equal(got, "cdef");
    source_expect(src, 2, 4);
    assert_int_equal(source_read(src, 6, got, 1, &err), TEMPER_BAD_FILE);
    assert_non_null(strstr(err.text, "block"));
    source_close(src);
    for (int n = 1; n <= 2; n++) {
        error_clear(&err);
        mem_fail_at((uint64_t)n, 0);
        assert_int_equal(source_open_memory("block", bytes, 6, &src, &err), TEMPER_NO_MEMORY);
        mem_fail_at(0, 0);
    }
    error_clear(&err);
    assert_int_equal(source_open_memory("nothing", NULL, 0, &src, &err), TEMPER_OK);
    assert_int_equal(source_read(src, 0, got, 0, &err), TEMPER_OK);
    source_close(src);
    assert_int_equal(mem_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_large_file),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
