/*
 * tj_read.h - the parts of a tokenizer.json (tj), read from its JSON: private to tokenizer_json.c
 * and the tj_*.c files. Format: what Hugging Face's tokenizers library writes.
 *
 * `where` is the path of an object in the file, for messages ("normalizer"). Components that are
 * not known are TEMPER_UNSUPPORTED with where and their type.
 */
#ifndef TEMPER_TEXT_TJ_READ_H
#define TEMPER_TEXT_TJ_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "text/tokenizer_parts.h"

enum { TJ_DEPTH_MAX = 16 };   /* sequences within sequences */

/* ---- values ---------------------------------------------------------------------------------- */

/* A value that is missing or null leaves *out as it is; one of another type is TEMPER_BAD_FILE. */
temper_status tj_get_bool(const json_t *object, const char *where, const char *key, bool *out,
                          error *err);
temper_status tj_get_text(const json_t *object, const char *where, const char *key,
                          const char **text, size_t *length, error *err);

/* The "type" of a component, which must be there. */
temper_status tj_get_type(const json_t *object, const char *where, const char **type, error *err);

/* "WHERE: type "TYPE" is not known". */
temper_status tj_refuse(const char *where, const char *type, error *err);

/* The elements of a "Sequence", in `key`. */
temper_status tj_get_list(const json_t *object, const char *where, const char *key,
                          const json_t **list, error *err);

/* ---- components ------------------------------------------------------------------------------ */

/* A component that is missing or null is none. */
temper_status tj_read_normalizer(const json_t *object, normalizer *out, error *err);
temper_status tj_read_splitter(const json_t *object, splitter *out, error *err);

/* How ids become text. */
typedef struct tj_decoder {
    bool byte_level;
    bool byte_fallback;      /* "<0x0A>" is a byte */
    bool word_pieces;        /* a piece begins with a space, unless it is spelled with inner */
    bool strips_space;
    const char *find;        /* as all below a view into the JSON, NULL for none; it becomes text */
    const char *text;        /* no longer than find */
    const char *inner;
    const char *suffix;      /* the end of a word: a space */
} tj_decoder;

temper_status tj_read_decoder(const json_t *object, tj_decoder *out, error *err);
size_t tj_decode_piece(const void *decoder, const char *spelling, size_t length, char *out);

/* The special tokens that the post-processor puts before and behind a text, or TOKEN_NONE. */
typedef struct tj_frame {
    int32_t first, last;
} tj_frame;

temper_status tj_read_frame(const json_t *object, tj_frame *out, error *err);

/* ---- the model ------------------------------------------------------------------------------- */

typedef struct tj_vocabulary {
    vocabulary_entry *entries;   /* [count] owned; spellings are views into the JSON */
    bool *in_model;              /* [count] owned */
    size_t count;
    model_kind model;
    bool byte_fallback;
} tj_vocabulary;

/* Reads the tokens of the model and the added tokens. tj_vocabulary_free also after a failure. */
temper_status tj_read_vocabulary(const json_t *model, const json_t *added, tj_vocabulary *out,
                                 error *err);
void tj_vocabulary_free(tj_vocabulary *v);

/* Fills in the model of tok, whose vocabulary was built from v. */
temper_status tj_read_model(const json_t *model, const tj_vocabulary *v, tokenizer *tok,
                            error *err);

#endif
