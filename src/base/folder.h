/*
 * folder.h - the folder where temper keeps what it fetched and what it found out about a machine.
 * Nothing in it is needed: whoever removes it loses time, not work.
 */
#ifndef TEMPER_BASE_FOLDER_H
#define TEMPER_BASE_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { FOLDER_PATH_BYTES = 4096 };

/* Writes the path of `name` in the user's folder: $TEMPER_CACHE, else $XDG_CACHE_HOME/temper where
 * that is absolute, else $HOME/.cache/temper. False, and "" in out, when there is none of these or
 * the path is too long. */
bool folder_of_user(const char *name, char out[FOLDER_PATH_BYTES]);

/* Makes a folder and those above it. One that is there is fine. */
temper_status folder_make(const char *path, error *err);

#endif
