/*
 * base_outfile.c - files that are there whole or not at all.
 */
#include "base/outfile.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"

static char folder[] = "/tmp/temper-outfile-XXXXXX";
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
    unlink(path);
    return rmdir(folder);
}

/* What the folder holds beside the file itself. */
static int strangers(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "file") != 0;
    closedir(dir);
    return count;
}

static void assert_holds(const char *text)
{
    char got[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(got, 1, sizeof got - 1, file), strlen(text));
    fclose(file);
    assert_string_equal(got, text);
    assert_int_equal(strangers(), 0);
}

static void write_it(const char *text)
{
    outfile *out = NULL;
    error err = {0};
    assert_int_equal(outfile_create(path, &out, &err), TEMPER_OK);
    assert_int_equal(outfile_write(out, text, 2, &err), TEMPER_OK);
    assert_int_equal(outfile_write(out, text + 2, strlen(text) - 2, &err), TEMPER_OK);
    assert_int_equal(strangers(), 1);
    assert_int_equal(outfile_commit(out, &err), TEMPER_OK);
}

static void whole_or_not_at_all(void **state)
{
    outfile *out = NULL;
    error err = {0};
    (void)state;
    write_it("first");
    assert_holds("first");
    assert_int_equal(outfile_create(path, &out, &err), TEMPER_OK);
    assert_int_equal(outfile_write(out, "half", 4, &err), TEMPER_OK);
    outfile_discard(out);
    assert_holds("first");
    write_it("second");
    assert_holds("second");
    outfile_discard(NULL);
    assert_int_equal(mem_live_bytes(), 0);
}

/* A limit on the size of files stands for a full disk. */
static void a_full_disk_leaves_what_was_there(void **state)
{
    const struct rlimit small = {4096, RLIM_INFINITY};
    struct rlimit before;
    outfile *out = NULL;
    error err = {0};
    char block[3000] = {0};
    (void)state;
    write_it("kept");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(outfile_create(path, &out, &err), TEMPER_OK);
    assert_int_equal(outfile_write(out, block, sizeof block, &err), TEMPER_OK);
    assert_int_equal(outfile_write(out, block, sizeof block, &err), TEMPER_IO);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_non_null(strstr(err.text, path));
    outfile_discard(out);
    assert_holds("kept");
}

static void places_that_are_no_files(void **state)
{
    static const struct {
        const char *path, *reason;
    } rows[] = {{"/dev/null", "no regular file"},
                {"/tmp", "a directory"},
                {"/no/such/folder/file", "No such file"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        outfile *out = NULL;
        error err = {0};
        assert_int_equal(outfile_create(rows[i].path, &out, &err), TEMPER_IO);
        assert_non_null(strstr(err.text, rows[i].path));
        assert_non_null(strstr(err.text, rows[i].reason));
    }
    struct stat null;
    assert_int_equal(stat("/dev/null", &null), 0);
    assert_true(S_ISCHR(null.st_mode));
}

static void allocations_fail(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        outfile *out = NULL;
        error err = {0};
        mem_fail_at(n, 1);
        const temper_status status = outfile_create(path, &out, &err);
        mem_fail_at(0, 0);
        if (status == TEMPER_OK) {
            outfile_discard(out);
            break;
        }
        assert_int_equal(status, TEMPER_NO_MEMORY);
        assert_int_equal(mem_live_bytes(), 0);
        assert_true(n < 20);
    }
    assert_int_equal(strangers(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_or_not_at_all),
        cmocka_unit_test(a_full_disk_leaves_what_was_there),
        cmocka_unit_test(places_that_are_no_files),
        cmocka_unit_test(allocations_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
