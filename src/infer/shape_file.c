/*
 * shape_file.c - a known shape with random weights as a file: to time loading, and for other
 * engines to be timed on the same shape. Llama's tensors, and a vocabulary of made-up words.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/outfile.h"
#include "base/random.h"
#include "file/gguf_head.h"
#include "infer/infer.h"
#include "model/shapes.h"

enum { CHUNK_BYTES = 4 << 20 };

typedef struct shape_file {
    const model_config *config;
    dtype type;
    outfile *out; /* NULL: only the directory is being made */
    gguf_head head;
    uint8_t *chunk; /* of random blocks, written again and again */
    uint64_t chunk_bytes;
    uint64_t done, total;
    temper_progress progress;
    void *user;
} shape_file;

/* ---- the directory --------------------------------------------------------------------------- */

static void put_keys(gguf_head *head, const model_config *c, const char *name)
{
    gguf_head_string(head, "general.architecture", "llama");
    gguf_head_string(head, "general.name", name);
    gguf_head_u32(head, "llama.block_count", c->layers);
    gguf_head_u32(head, "llama.context_length", c->context);
    gguf_head_u32(head, "llama.embedding_length", c->width);
    gguf_head_u32(head, "llama.feed_forward_length", c->ffn);
    gguf_head_u32(head, "llama.attention.head_count", c->q_heads);
    gguf_head_u32(head, "llama.attention.head_count_kv", c->kv_heads);
    gguf_head_u32(head, "llama.attention.key_length", c->head_dim);
    gguf_head_u32(head, "llama.attention.value_length", c->head_dim);
    gguf_head_u32(head, "llama.rope.dimension_count", c->rope_dims);
    gguf_head_u32(head, "llama.vocab_size", c->vocabulary);
    gguf_head_f32(head, "llama.rope.freq_base", c->rope_base);
    gguf_head_f32(head, "llama.attention.layer_norm_rms_epsilon", c->norm_eps);
    gguf_head_u32(head, "general.quantization_version", 2);
}

/* The 256 bytes as byte-level BPE spells them, then words that no text has; no merges. */
static void put_vocabulary(gguf_head *head, uint32_t count)
{
    char word[16];
    gguf_head_string(head, "tokenizer.ggml.model", "gpt2");
    gguf_head_string(head, "tokenizer.ggml.pre", "smollm");
    gguf_head_array(head, "tokenizer.ggml.tokens", GGUF_STRING, count);
    for (uint32_t i = 0, moved = 256; i < count; i++) {
        const bool printable = (i >= 33 && i <= 126) || (i >= 161 && i <= 255 && i != 173);
        const uint32_t code = printable ? i : moved;
        int length;
        if (i >= 256) {
            length = snprintf(word, sizeof word, "<%u>", i);
        } else if (code < 128) {
            length = snprintf(word, sizeof word, "%c", (char)code);
        } else {
            length = snprintf(word, sizeof word, "%c%c", (char)(0xc0 | code >> 6),
                              (char)(0x80 | (code & 0x3f)));
        }
        moved += i < 256 && !printable ? 1 : 0;
        gguf_head_element_text(head, word, (uint64_t)length);
    }
    gguf_head_array(head, "tokenizer.ggml.token_type", GGUF_INT32, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_head_element_u32(head, 1);
    gguf_head_array(head, "tokenizer.ggml.merges", GGUF_STRING, 0);
    gguf_head_u32(head, "tokenizer.ggml.bos_token_id", count - 2);
    gguf_head_u32(head, "tokenizer.ggml.eos_token_id", count - 1);
}

/* ---- the tensors ----------------------------------------------------------------------------- */

/* Blocks whose values have a deviation of about 1 / sqrt(k), so that a product keeps the size of
 * its input. */
static void fill_chunk(shape_file *f, uint64_t k, bool vector)
{
    const double deviation = 1.0 / sqrt((double)k);
    const dtype_info *info = dtype_find((uint32_t)f->type);
    random_state r = {k};
    if (vector || f->type == DTYPE_F32 || f->type == DTYPE_F16) {
        const bool half = !vector && f->type == DTYPE_F16;
        for (uint64_t i = 0; i < CHUNK_BYTES / (half ? 2 : 4); i++) {
            const float value = vector ? (float)(0.75 + 0.5 * random_unit(&r))
                                       : (float)(random_normal(&r) * deviation);
            const uint16_t narrow = f32_to_f16(value);
            memcpy(f->chunk + i * (half ? 2 : 4), half ? (const void *)&narrow : &value,
                   half ? 2 : 4);
        }
        f->chunk_bytes = CHUNK_BYTES;
        return;
    }
    /* Uniform integers of -8 to 7 have a deviation of 4.6, of -128 to 127 one of 74. */
    const double unit = deviation / (f->type == DTYPE_Q4_0 ? 4.6 : 74.0);
    f->chunk_bytes = CHUNK_BYTES / info->block_bytes * info->block_bytes;
    for (uint64_t at = 0; at < f->chunk_bytes; at += info->block_bytes) {
        const uint16_t scale = f32_to_f16((float)(unit * (0.75 + 0.5 * random_unit(&r))));
        memcpy(f->chunk + at, &scale, sizeof scale);
        for (uint32_t i = 2; i < info->block_bytes; i++)
            f->chunk[at + i] = (uint8_t)random_u64(&r);
    }
}

/* A tensor [n, k], or with n 0 a vector [k] of f32: its description, then its bytes. */
static temper_status put_tensor(shape_file *f, const char *name, uint64_t n, uint64_t k, error *err)
{
    static const uint8_t zeros[GGUF_HEAD_ALIGNMENT];
    const uint64_t dims[2] = {k, n};
    const dtype type = n == 0 ? DTYPE_F32 : f->type;
    const dtype_info *info = dtype_find((uint32_t)type);
    const uint64_t bytes = (n == 0 ? 1 : n) * (k / info->block) * info->block_bytes;
    if (f->out == NULL) {
        uint64_t offset = 0;
        gguf_head_tensor(&f->head, (gguf_string){name, strlen(name)}, n == 0 ? 1 : 2, dims,
                         (uint32_t)type, &offset);
        f->total += bytes;
        return TEMPER_OK;
    }
    fill_chunk(f, k, n == 0);
    temper_status status = TEMPER_OK;
    for (uint64_t at = 0; status == TEMPER_OK && at < bytes; at += f->chunk_bytes)
        status = outfile_write(f->out, f->chunk, min_u64(f->chunk_bytes, bytes - at), err);
    const uint64_t padding =
        (GGUF_HEAD_ALIGNMENT - bytes % GGUF_HEAD_ALIGNMENT) % GGUF_HEAD_ALIGNMENT;
    if (status == TEMPER_OK)
        status = outfile_write(f->out, zeros, padding, err);
    f->done += bytes;
    if (status == TEMPER_OK && f->progress != NULL && !f->progress(f->done, f->total, f->user))
        status = error_set(err, TEMPER_STOPPED, "writing was stopped");
    return status;
}

static temper_status put_layer(shape_file *f, uint32_t layer, error *err)
{
    const model_config *c = f->config;
    const uint64_t q = (uint64_t)c->q_heads * c->head_dim, kv = (uint64_t)c->kv_heads * c->head_dim;
    const struct {
        const char *name;
        uint64_t n, k;
    } tensors[] = {
        {"attn_norm", 0, c->width},     {"attn_q", q, c->width},
        {"attn_k", kv, c->width},       {"attn_v", kv, c->width},
        {"attn_output", c->width, q},   {"ffn_norm", 0, c->width},
        {"ffn_gate", c->ffn, c->width}, {"ffn_up", c->ffn, c->width},
        {"ffn_down", c->width, c->ffn},
    };
    temper_status status = TEMPER_OK;
    for (size_t i = 0; status == TEMPER_OK && i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].name);
        status = put_tensor(f, name, tensors[i].n, tensors[i].k, err);
    }
    return status;
}

/* The tensors in the order of the file; the embedding is the head too. */
static temper_status put_tensors(shape_file *f, error *err)
{
    temper_status status =
        put_tensor(f, "token_embd.weight", f->config->vocabulary, f->config->width, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < f->config->layers; i++)
        status = put_layer(f, i, err);
    return status == TEMPER_OK ? put_tensor(f, "output_norm.weight", 0, f->config->width, err)
                               : status;
}

/* ---- the file -------------------------------------------------------------------------------- */

static temper_status write_all(shape_file *f, const char *name, const char *to, error *err)
{
    strbuf bytes = {0};
    outfile *out = NULL;
    put_keys(&f->head, f->config, name);
    put_vocabulary(&f->head, f->config->vocabulary);
    temper_status status = put_tensors(f, err);
    gguf_head_finish(&f->head, &bytes);
    f->chunk = mem_alloc(CHUNK_BYTES);
    if (status == TEMPER_OK && (bytes.failed || f->chunk == NULL))
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a file of random weights");
    if (status == TEMPER_OK)
        status = outfile_create(to, &out, err);
    if (status == TEMPER_OK)
        status = outfile_write(out, bytes.data, bytes.length, err);
    f->out = out;
    if (status == TEMPER_OK)
        status = put_tensors(f, err);
    strbuf_free(&bytes);
    gguf_head_free(&f->head);
    mem_free(f->chunk);
    if (status == TEMPER_OK)
        return outfile_commit(out, err);
    outfile_discard(out);
    return status;
}

temper_status temper_write_shape(const char *shape, const char *type, const char *to,
                                 temper_progress progress, void *user, temper_error *err)
{
    assert(shape != NULL && to != NULL);
    model_config config;
    shape_file f = {.config = &config, .progress = progress, .user = user};
    temper_status status = infer_shape_type(type, &f.type, err);
    if (status == TEMPER_OK)
        status = model_shape_find(shape, &config, err);
    if (status != TEMPER_OK)
        return status;
    if (f.type != DTYPE_F32 && f.type != DTYPE_F16 && f.type != DTYPE_Q4_0 && f.type != DTYPE_Q8_0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "shapes of type %s are not written as files; there are F32, F16, Q4_0, "
                         "Q8_0",
                         dtype_name((uint32_t)f.type));
    if (config.arch != MODEL_LLAMA || config.window > 0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s is of the architecture %s: only shapes of llama are written as files",
                         shape, model_arch_name(config.arch));
    return write_all(&f, shape, to, err);
}
