/*
 * notes.h - small files of what was measured on a device: good for that device alone, and only as
 * it was opened. A note begins with what the device is (adapter, driver, features, limits, bounds
 * checks), word for word; one that says anything else is another's.
 *
 *     temper KIND 1
 *     adapter ...
 *     (the body: lines)
 *     end
 *
 * Nothing depends on a note: one that is missing, cut or another's is as good as none.
 */
#ifndef TEMPER_GPU_NOTES_H
#define TEMPER_GPU_NOTES_H

#include "base/strbuf.h"
#include "gpu/gpu.h"

/* Appends the lines that tell this device from others. */
void gpu_note_identity(const gpu_device *device, strbuf *out);

/* The path of this device's note in a folder, "FOLDER/KIND-0123456789abcdef.txt". */
void gpu_note_path(const gpu_device *device, const char *folder, const char *kind, strbuf *out);

/* Appends the body of the device's note to `body`, nothing where there is no note. TEMPER_BAD_FILE
 * for one that is cut, too long or of another device; TEMPER_IO. */
temper_status gpu_note_read(const gpu_device *device, const char *folder, const char *kind,
                            strbuf *body, error *err);

/* Puts a note in place of the one before it, whole or not at all; makes the folder. The body's
 * lines end with a newline each. */
temper_status gpu_note_write(const gpu_device *device, const char *folder, const char *kind,
                             const char *body, error *err);

#endif
