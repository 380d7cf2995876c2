/*
 * hf_internal.h - what the files behind hf.h share.
 */
#ifndef TEMPER_FILE_HF_INTERNAL_H
#define TEMPER_FILE_HF_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "file/assembly.h"

typedef enum hf_kind { HF_LLAMA, HF_QWEN, HF_GEMMA3, HF_PHI3, HF_GPT2 } hf_kind;

typedef struct hf_family {
    const char *class_name; /* in config.json's "architectures" */
    const char *arch;       /* GGUF's name */
    hf_kind kind;           /* llama: rows of Q and K are reordered, halves of a pair side by side;
                             * gemma3: norms are stored less 1; gpt2: matrices are transposed */
    const char *activation_key, *activation;
    bool tied; /* unless config.json says otherwise */
} hf_family;

typedef struct hf_directory {
    const char *path;
    assembly *whole;
    json_t *config, *tokenizer, *tokenizer_config; /* the last one may be NULL */
    const hf_family *family;
    uint32_t layers, q_heads, kv_heads, head_dim, vocabulary;
    bool must_have_vocabulary;
    bool tied;             /* the embedding is the head */
    dtype widest;          /* the type of the largest matrix */
    uint64_t widest_bytes; /* and its bytes */
} hf_directory;

/* Reads a JSON file of the directory that must hold an object; *out stays NULL where the file is
 * missing and may be. */
temper_status hf_read_json(const hf_directory *hf, const char *name, bool must, json_t **out,
                           error *err);

/* Reads a whole text file of the directory; *out stays NULL where it is missing. */
temper_status hf_read_text(const hf_directory *hf, const char *name, char **out, uint64_t *length,
                           error *err);

/* hf_config.c: config.json to keys, and to the fields above. */
temper_status hf_write_config(hf_directory *hf, error *err);

/* hf_vocabulary.c: the tokenizer's files to keys. */
temper_status hf_write_vocabulary(hf_directory *hf, error *err);

#endif
