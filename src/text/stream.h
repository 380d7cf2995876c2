/*
 * stream.h - ids in, text out, as it can be shown: never half a character, never the beginning of a
 * stop string.
 *
 *     text_stream *stream = NULL;
 *     strbuf text = {0};
 *     bool stopped = false;
 *     temper_status status = text_stream_open(tok, stops, stop_count, &stream, err);
 *     while (status == TEMPER_OK && !stopped && next_id(&id)) {
 *         status = text_stream_push(stream, id, &text, &stopped, err);
 *         show(&text);
 *         strbuf_clear(&text);
 *     }
 *     if (status == TEMPER_OK)
 *         status = text_stream_finish(stream, &text, err);
 *
 * The pieces joined equal the whole text. An incomplete or invalid sequence becomes U+FFFD, an
 * incomplete one at the end exactly once. A stop string may lie over several tokens; what might
 * still become one is held back, and released when it does not. The earliest match in the text
 * wins: while a longer stop string that began earlier is still possible, a completed one waits. The
 * text shown and where it stops do not depend on how it was cut into tokens.
 *
 * Time is linear in the text, whatever the number and length of the stop strings.
 */
#ifndef TEMPER_TEXT_STREAM_H
#define TEMPER_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "text/tokenizer.h"

typedef struct text_stream text_stream;

/* `stops` are copied; tok is borrowed until close (NULL: only text_stream_push_bytes is used). A
 * stop string that is empty or not valid UTF-8 is TEMPER_BAD_ARGUMENT. */
temper_status text_stream_open(const tokenizer *tok, const char *const *stops, size_t stop_count,
                               text_stream **out, error *err);
void text_stream_close(text_stream *stream);

/* Says that the ids that follow begin a text, and do not continue one: the space that encoding puts
 * in front of a text (tokenizer_strips_space) is not shown. Before the first push. */
void text_stream_begin_text(text_stream *stream);

/* Adds one id; appends to `text` what may be shown now (perhaps nothing). *stopped becomes true
 * when a stop string was completed: the text before it is out, the stop string and all after it are
 * not. An id that is no token is TEMPER_BAD_ARGUMENT. */
temper_status text_stream_push(text_stream *stream, uint32_t id, strbuf *text, bool *stopped,
                               error *err);

/* The same for bytes that come from elsewhere. */
temper_status text_stream_push_bytes(text_stream *stream, const char *bytes, size_t length,
                                     strbuf *text, bool *stopped, error *err);

/* The end: appends what was held back. A stop string that was complete but waited for an earlier
 * one counts now (text_stream_stopped). */
temper_status text_stream_finish(text_stream *stream, strbuf *text, error *err);

/* True once a stop string was found, by a push or by the end. */
bool text_stream_stopped(const text_stream *stream);

#endif
