/*
 * session.h - a session from inside: a decoder of one slot and the answer that was made there last.
 */
#ifndef TEMPER_INFER_SESSION_H
#define TEMPER_INFER_SESSION_H

#include "infer/decoder.h"

struct temper_session {
    temper_engine *engine; /* the decoder keeps it alive */
    decoder *decoder;
    answer answer;       /* the last one: what a result's views point into */
    gpu_buffer *targets; /* u32 [max_rows]: what temper_session_score scores */
    gpu_buffer *scores;  /* f32 [max_rows] */
};

/* Puts ids [first, first + rows) of the text in slot 0 into the pass that is recorded next. */
temper_status session_add_rows(decoder *d, uint32_t first, uint32_t rows, error *err);

/* Before and after a whole text is read for its logits or scores: its ids are checked and the
 * device is entered; where reading failed, nothing of the text counts as cached. The end gives
 * `status` back. */
temper_status session_begin_reading(temper_session *session, temper_tokens text, error *err);
temper_status session_end_reading(temper_session *session, temper_status status);

#endif
