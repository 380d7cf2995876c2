/*
 * base_folder.c - the user's folder, and making folders.
 */
#include "base/folder.h"

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

static char place[] = "/tmp/temper-folder-XXXXXX";

static int make_place(void **state)
{
    (void)state;
    return mkdtemp(place) == NULL ? -1 : 0;
}

static int remove_place(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/a/b/c", place);
    rmdir(path);
    snprintf(path, sizeof path, "%s/a/b", place);
    rmdir(path);
    snprintf(path, sizeof path, "%s/a", place);
    rmdir(path);
    snprintf(path, sizeof path, "%s/file", place);
    unlink(path);
    return rmdir(place);
}

static void set(const char *name, const char *value)
{
    if (value == NULL)
        unsetenv(name);
    else
        setenv(name, value, 1);
}

static void expect(const char *cache, const char *xdg, const char *home, const char *want)
{
    char path[FOLDER_PATH_BYTES];
    set("TEMPER_CACHE", cache);
    set("XDG_CACHE_HOME", xdg);
    set("HOME", home);
    assert_int_equal(folder_of_user("models/x", path), want != NULL);
    assert_string_equal(path, want != NULL ? want : "");
}

static void the_first_that_is_set_counts(void **state)
{
    (void)state;
    expect("/c", "/x", "/h", "/c/models/x");
    expect("", "/x", "/h", "/x/temper/models/x");
    expect(NULL, "/x", "/h", "/x/temper/models/x");
    expect(NULL, "relative", "/h", "/h/.cache/temper/models/x");
    expect(NULL, NULL, "/h", "/h/.cache/temper/models/x");
    expect(NULL, NULL, "", NULL);
    expect(NULL, NULL, NULL, NULL);
    char longest[FOLDER_PATH_BYTES + 1];
    memset(longest, 'c', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    expect(longest, NULL, NULL, NULL);
}

static bool is_folder(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 && S_ISDIR(there.st_mode);
}

static void folders_are_made_with_those_above(void **state)
{
    (void)state;
    char path[128];
    error err = {0};
    snprintf(path, sizeof path, "%s/a/b/c", place);
    assert_int_equal(folder_make(path, &err), TEMPER_OK);
    assert_true(is_folder(path));
    assert_int_equal(folder_make(path, &err), TEMPER_OK); /* it may be there */
    snprintf(path, sizeof path, "%s/a/b/", place);
    assert_int_equal(folder_make(path, &err), TEMPER_OK);
    assert_int_equal(folder_make("/", &err), TEMPER_OK);
}

static void what_is_in_the_way_is_named(void **state)
{
    (void)state;
    char path[128], below[160];
    error err = {0}, longer = {0}, empty = {0};
    snprintf(path, sizeof path, "%s/file", place);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    snprintf(below, sizeof below, "%s/more", path);
    assert_int_equal(folder_make(below, &err), TEMPER_IO);
    assert_non_null(strstr(err.text, path));
    char longest[FOLDER_PATH_BYTES + 1];
    memset(longest, 'c', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(folder_make(longest, &longer), TEMPER_IO);
    assert_int_equal(folder_make("", &empty), TEMPER_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_is_set_counts),
        cmocka_unit_test(folders_are_made_with_those_above),
        cmocka_unit_test(what_is_in_the_way_is_named),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
