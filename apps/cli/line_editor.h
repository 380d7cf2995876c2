/*
 * line_editor.h - lines typed at a terminal: edited, with a history, pasted text as one line, and
 * several lines as one message.
 */
#ifndef TEMPER_CLI_LINE_EDITOR_H
#define TEMPER_CLI_LINE_EDITOR_H

#include <stddef.h>

typedef struct line_editor line_editor;

/* Begins on stdin and stderr; NULL after a message. */
line_editor *line_editor_open(void);
/* Leaves the terminal as it was. NULL is fine. */
void line_editor_close(line_editor *editor);

typedef enum line_outcome {
    LINE_READ,
    LINE_END,        /* Ctrl-D on an empty line, or no more input */
    LINE_INTERRUPTED /* Ctrl-C twice in a row on an empty line */
} line_outcome;

/* Reads a message: a line without its newline, and as long as it ends with a backslash the next one
 * too, with a newline in the backslash's place. *text is a view until the next call; it joins the
 * history unless it is blank. Ctrl-C throws away what was typed. */
line_outcome line_editor_read(line_editor *editor, const char **text, size_t *length);

#endif
