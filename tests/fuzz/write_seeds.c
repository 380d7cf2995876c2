/*
 * write_seeds.c - writes a target's seeds into a folder, a file each: write_seeds TARGET FOLDER.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fuzz/fuzz.h"

static void write_one(const char *name, const void *bytes, size_t size, void *user)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/seed-%s", (const char *)user, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: write_seeds TARGET FOLDER\n");
        return 2;
    }
    fuzz_seeds(argv[1], write_one, argv[2]);
    return 0;
}
