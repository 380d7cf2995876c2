/*
 * seeds.c - what the targets start from: small right inputs of every shape, made of the goldens
 * where there are any.
 */
#include "fuzz/fuzz.h"

#include "unit/text_small.h"

#include <jansson.h>

#include "base/widen.h"
#include "file/gguf_head.h"

typedef struct seeder {
    fuzz_sink sink;
    void *user;
} seeder;

static void give(const seeder *s, const char *name, strbuf *bytes)
{
    fuzz_check(!bytes->failed);
    s->sink(name, bytes->data, bytes->length, s->user);
    strbuf_free(bytes);
}

/* ---- files of goldens ------------------------------------------------------------------------ */

static void append_file(strbuf *out, const char *format, const char *name)
{
    char path[512];
    source *src = NULL;
    error err = {0};
    snprintf(path, sizeof path, format, TEST_GOLDEN, name);
    if (source_open_file(path, &src, &err) != TEMPER_OK)
        return; /* of a directory's files some may be missing */
    uint8_t *bytes = malloc((size_t)src->size + 1);
    fuzz_check(bytes != NULL && source_read(src, 0, bytes, src->size, NULL) == TEMPER_OK);
    strbuf_append(out, (const char *)bytes, (size_t)src->size);
    free(bytes);
    source_close(src);
}

static json_t *load_json(const char *format, const char *name)
{
    strbuf text = {0};
    append_file(&text, format, name);
    json_t *root = json_loadb(strbuf_text(&text), text.length, JSON_ALLOW_NUL, NULL);
    fuzz_check(root != NULL);
    strbuf_free(&text);
    return root;
}

static gguf_file *open_golden(const char *name)
{
    char path[512];
    source *src = NULL;
    gguf_file *file = NULL;
    snprintf(path, sizeof path, "%s/%s.gguf", TEST_GOLDEN, name);
    fuzz_check(source_open_file(path, &src, NULL) == TEMPER_OK);
    fuzz_check(gguf_open(src, &file, NULL) == TEMPER_OK);
    return file;
}

static const char *const families[] = {"llama", "llama-llama3-8", "mistral-window", "qwen2-tied",
                                       "qwen3", "gemma3",         "phi3-longrope",  "phi4",
                                       "gpt2",  "llama-yarn",     "gemma3-linear",  "llama-linear"};

enum { FAMILIES = sizeof families / sizeof families[0] };

/* ---- gguf ------------------------------------------------------------------------------------ */

/* Every kind of value, alone and in an array. */
static void put_all_values(strbuf *out)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    gguf_put_header(out, "GGUF", 3, 1, 24);
    for (uint32_t array = 0; array < 2; array++)
        for (uint32_t type = 0; type < sizeof sizes; type++) {
            char key[16];
            if (type == GGUF_ARRAY)
                continue;
            snprintf(key, sizeof key, "%c.%u", array ? 'a' : 'v', type);
            if (array)
                gguf_put_array(out, key, type, 2);
            else
                gguf_put_key(out, key, type);
            for (uint32_t i = 0; i < 1 + array; i++) {
                if (type == GGUF_STRING)
                    gguf_put_string(out, "text");
                for (uint32_t byte = 0; byte < sizes[type]; byte++)
                    strbuf_putc(out, byte == 0 ? 1 : 0);
            }
        }
    gguf_put_tensor(out, "w", 4, (const uint64_t[]){2, 1, 3, 1}, DTYPE_F16, 0);
    gguf_put_padding(out, 32);
    strbuf_append(out, "0123456789ab", 12);
}

/* One block of each type that has blocks. */
static void gguf_types(const seeder *s)
{
    for (uint32_t type = 0; type < 64; type++) {
        const dtype_info *info = dtype_find(type);
        strbuf out = {0};
        if (info == NULL)
            continue;
        gguf_put_header(&out, "GGUF", 2, 1, 0);
        gguf_put_tensor(&out, "t", 2, (const uint64_t[]){info->block, 2}, type, 0);
        gguf_put_padding(&out, 32);
        for (uint32_t i = 0; i < 2 * info->block_bytes; i++)
            strbuf_putc(&out, (char)(i * 41));
        give(s, info->name, &out);
    }
}

/* What a model says of itself, without its vocabulary and its tensors. */
static void gguf_configurations(const seeder *s)
{
    for (size_t i = 0; i < FAMILIES; i++) {
        char name[64];
        snprintf(name, sizeof name, "arch/%s", families[i]);
        gguf_file *file = open_golden(name);
        gguf_head head = {0};
        strbuf out = {0};
        for (uint64_t k = 0; k < gguf_value_count(file); k++)
            if (gguf_value_at(file, k)->count <= 16)
                gguf_head_value(&head, gguf_value_at(file, k));
        gguf_put_header(&out, "GGUF", 3, 0, head.key_count);
        strbuf_append(&out, head.keys.data, head.keys.length);
        gguf_head_free(&head);
        gguf_close(file);
        give(s, families[i], &out);
    }
}

static void seed_gguf(const seeder *s)
{
    strbuf out = {0};
    put_all_values(&out);
    give(s, "values", &out);
    gguf_types(s);
    gguf_configurations(s);
}

/* ---- split ----------------------------------------------------------------------------------- */

static gguf_file *open_small_whole(strbuf *bytes)
{
    source *src = NULL;
    gguf_file *file = NULL;
    gguf_put_header(bytes, "GGUF", 3, 3, 1);
    gguf_put_key_u32(bytes, "a.key", 7);
    gguf_put_tensor(bytes, "one", 1, (const uint64_t[]){8}, DTYPE_F32, 0);
    gguf_put_tensor(bytes, "two", 2, (const uint64_t[]){32, 2}, DTYPE_Q4_0, 32);
    gguf_put_tensor(bytes, "three", 1, (const uint64_t[]){4}, DTYPE_F16, 96);
    gguf_put_padding(bytes, 32);
    for (int i = 0; i < 104; i++)
        strbuf_putc(bytes, (char)(i * 29));
    fuzz_check(source_open_memory("whole", bytes->data, bytes->length, &src, NULL) == TEMPER_OK);
    fuzz_check(gguf_open(src, &file, NULL) == TEMPER_OK);
    return file;
}

static void seed_split(const seeder *s)
{
    strbuf bytes = {0};
    gguf_file *whole = open_small_whole(&bytes);
    for (uint32_t count = 1; count <= 3; count++) {
        strbuf out = {0};
        char name[16];
        for (uint32_t i = 0; i < count; i++) {
            strbuf part = {0};
            gguf_put_part(&part, whole, i, count);
            strbuf_putc(&out, (char)(part.length & 255));
            strbuf_putc(&out, (char)(part.length >> 8));
            strbuf_append(&out, part.data, part.length);
            strbuf_free(&part);
        }
        snprintf(name, sizeof name, "parts-%u", count);
        give(s, name, &out);
    }
    gguf_close(whole);
    strbuf_free(&bytes);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

/* The header's length, the header, then so many bytes of data. */
static void put_safetensors(strbuf *out, const char *header, size_t data_bytes)
{
    const uint64_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        strbuf_putc(out, (char)(length >> (8 * i)));
    strbuf_puts(out, header);
    for (size_t i = 0; i < data_bytes; i++)
        strbuf_putc(out, (char)(i * 7));
}

static void seed_safetensors(const seeder *s)
{
    static const struct {
        const char *name, *header;
        size_t bytes;
    } rows[] = {
        {"empty", "{}", 0},
        {"metadata",
         "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],"
         "\"data_offsets\":[0,24]}}",
         24},
        {"several",
         "{\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]},"
         "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
         "\"c\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1,1,2],\"data_offsets\":[16,18]},"
         "\"d\":{\"dtype\":\"F16\",\"shape\":[0,5],\"data_offsets\":[18,18]}}",
         18},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strbuf out = {0};
        put_safetensors(&out, rows[i].header, rows[i].bytes);
        give(s, rows[i].name, &out);
    }
}

/* ---- Hugging Face directories ---------------------------------------------------------------- */

/* The tensors of a golden directory's first layer and around the layers, 8 rows of one number. */
static void put_small_weights(strbuf *out, const char *family)
{
    strbuf header = {0}, file = {0};
    size_t at = 0;
    append_file(&file, "%s/hf/%s/model.safetensors", family);
    fuzz_check(file.length > 8);
    const size_t length = (size_t)(uint8_t)file.data[0] | (size_t)(uint8_t)file.data[1] << 8 |
                          (size_t)(uint8_t)file.data[2] << 16;
    json_t *root = json_loadb(file.data + 8, length, 0, NULL);
    fuzz_check(root != NULL);
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry)
    {
        const size_t dims = json_array_size(json_object_get(entry, "shape"));
        const bool inner = strstr(name, "h.") == name || strstr(name, ".layers.") != NULL;
        if (dims == 0 || (inner && strstr(name, ".0.") == NULL))
            continue;
        strbuf_printf(&header,
                      "%c\"%s\":{\"dtype\":\"F16\",\"shape\":[8%s],\"data_offsets\":[%zu,%zu]}",
                      at == 0 ? '{' : ',', name, dims == 2 ? ",1" : "", at, at + 16);
        at += 16;
    }
    strbuf_putc(&header, '}');
    put_safetensors(out, strbuf_text(&header), at);
    json_decref(root);
    strbuf_free(&header);
    strbuf_free(&file);
}

static void put_json(strbuf *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    fuzz_check(text != NULL);
    strbuf_puts(out, text);
    free(text);
}

/* A whole directory: the family's own small files, and a tokenizer of the goldens of the text
 * room, which are shorter; with room for its tokens. */
static void put_directory(strbuf *out, const char *family, const char *words, bool index)
{
    json_t *golden = load_json("%s/text/hf-%s.json", words);
    json_t *config = load_json("%s/hf/%s/config.json", family);
    json_object_set_new(config, "vocab_size", json_integer(1000));
    put_json(out, config);
    strbuf_putc(out, (char)0xFF);
    put_json(out, json_object_get(golden, "tokenizer"));
    strbuf_putc(out, (char)0xFF);
    append_file(out, "%s/hf/%s/tokenizer_config.json", family);
    strbuf_putc(out, (char)0xFF);
    append_file(out, "%s/hf/%s/generation_config.json", family);
    strbuf_putc(out, (char)0xFF);
    if (index)
        strbuf_puts(out, "{\"weight_map\":{\"model.norm.weight\":\"shard.safetensors\"}}");
    strbuf_putc(out, (char)0xFF);
    put_small_weights(out, family);
    json_decref(config);
    json_decref(golden);
}

static void seed_hf(const seeder *s)
{
    /* The first two can be said in GGUF's keys too: a space before asks for that. */
    static const char *const tokenizers[] = {"byte-level", "prepended", "unigram-bytes",
                                             "word-ends"};
    for (size_t i = 0; i < FAMILIES; i++) {
        strbuf out = {0};
        if (i % 4 < 2)
            strbuf_putc(&out, ' ');
        put_directory(&out, families[i], tokenizers[i % 4], i == 0);
        give(s, families[i], &out);
    }
}

/* ---- chat ------------------------------------------------------------------------------------ */

/* A case's variables as one object. */
static void put_variables(strbuf *out, json_t *item)
{
    json_t *all = json_object();
    static const char *const names[] = {"messages", "tools", "add_generation_prompt"};
    json_object_update(all, json_object_get(item, "names"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        json_object_set(all, names[i], json_object_get(item, names[i]));
    put_json(out, all);
    json_decref(all);
}

static void seed_chat(const seeder *s)
{
    json_t *root = load_json("%s/text/%s.json", "templates");
    size_t i, k;
    json_t *template, *item;
    json_array_foreach(json_object_get(root, "templates"), i, template)
    {
        strbuf out = {0};
        char name[64];
        strbuf_putc(&out, 0);
        strbuf_puts(&out, json_string_value(json_object_get(template, "source")));
        snprintf(name, sizeof name, "template-%zu", i);
        give(s, name, &out);
        json_array_foreach(json_object_get(template, "cases"), k, item)
        {
            if (k >= 2)
                break;
            strbuf_putc(&out, 1);
            put_variables(&out, item);
            snprintf(name, sizeof name, "variables-%zu-%zu", i, k);
            give(s, name, &out);
        }
    }
    json_decref(root);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void put_plain_whitespace(model_file *file)
{
    put_small_whitespace(file, true);
}

/* Vocabularies, each in a file; the tokens of bytes make them long. */
static void text_files(const seeder *s)
{
    static const struct {
        const char *name;
        void (*put)(model_file *file);
    } rows[] = {
        {"file-llama", put_small_spm},     {"file-gemma4", put_small_gemma4},
        {"file-bert", put_small_bert},     {"file-t5", put_small_t5},
        {"file-rwkv", put_small_rwkv},     {"file-plamo2", put_small_plamo2},
        {"file-dna", put_small_hybriddna}, {"file-whitespace", put_plain_whitespace},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        model_file file = {0};
        strbuf out = {0};
        rows[i].put(&file);
        strbuf_putc(&out, 0);
        gguf_put_header(&out, "GGUF", 3, 0, file.key_count);
        strbuf_append(&out, file.keys.data, file.keys.length);
        free_model_file(&file);
        give(s, rows[i].name, &out);
    }
}

static void text_of_goldens(const seeder *s)
{
    json_t *root = load_json("%s/text/%s.json", "smollm");
    json_t *item;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, item)
    {
        const json_t *text = json_object_get(item, "text");
        char name[32];
        strbuf out = {0};
        if (json_string_length(text) > 200)
            continue;
        strbuf_putc(&out, 1);
        strbuf_append(&out, json_string_value(text), json_string_length(text));
        snprintf(name, sizeof name, "encode-%zu", i);
        give(s, name, &out);
    }
    json_decref(root);
}

static void text_small(const seeder *s)
{
    static const struct {
        const char *name, *bytes;
        size_t length;
    } rows[] = {
#define ROW(name, text) {name, text, sizeof(text) - 1}
        ROW("stream",
            "\2\3end\4stop\0A text that ends, then a st\xC3op: the end. \xF0\x9F\x98\x8A"),
        ROW("pattern-gpt2",
            "\4's|'t| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+\0It's 12!"),
        ROW("pattern-case",
            "\4(?i:'s|'re)|[^\\r\\n\\p{L}]?\\p{Lu}*\\p{Ll}+|\\p{Han}{1,3}\0We'RE \xE5\x8C\x97"),
        ROW("pattern-ruby", "\4^\\h+\\b|\\A[a-z&\\]]*?$|(?<=x)\\u00e9++\\z\0deadbeef x\xC3\xA9"),
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strbuf out = {0};
        strbuf_append(&out, rows[i].bytes, rows[i].length);
        give(s, rows[i].name, &out);
    }
}

static void text_json(const seeder *s)
{
    static const char *const names[] = {
        "added-tokens",    "bert-cased",          "bert-lower",        "byte-level",
        "byte-normalized", "cased-words",         "chained",           "metaspace-first",
        "prepended",       "split-digits",        "unigram",           "word-ends",
        "unigram-bytes",   "unigram-precompiled", "unknown-characters"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t *golden = load_json("%s/text/hf-%s.json", names[i]);
        strbuf out = {0};
        char name[64];
        strbuf_putc(&out, 3);
        put_json(&out, json_object_get(golden, "tokenizer"));
        json_decref(golden);
        snprintf(name, sizeof name, "json-%s", names[i]);
        give(s, name, &out);
    }
}

static void seed_text(const seeder *s)
{
    text_files(s);
    text_of_goldens(s);
    text_small(s);
    text_json(s);
}

/* ---- the program's own files ----------------------------------------------------------------- */

/* A window of four ids, of which one is predicted, over the vocabulary of tiny/llama-f16. */
static void put_saved_logits(strbuf *out)
{
    enum { VOCABULARY = 291, IDS = 4 };
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    error err = {0};
    tokenizer *tok = NULL;
    gguf_file *file = open_golden("tiny/llama-f16");
    fuzz_check(tokenizer_open(file, &tok, &err) == TEMPER_OK);
    gguf_close(file);
    /* kl_vocabulary_hash: FNV-1a over the pieces, each followed by its length. */
    for (uint32_t id = 0; id < VOCABULARY; id++) {
        size_t length;
        const char *piece = tokenizer_piece(tok, id, true, &length);
        for (size_t i = 0; i <= length; i++)
            hash = (hash ^ (i < length ? (uint8_t)piece[i] : (uint64_t)length)) *
                   UINT64_C(0x100000001b3);
    }
    tokenizer_close(tok);
    strbuf_puts(out, "TEMPERKL");
    gguf_put_u32(out, 1);
    gguf_put_u32(out, VOCABULARY);
    gguf_put_u32(out, IDS);
    gguf_put_u32(out, 1);
    gguf_put_u64(out, hash);
    for (uint32_t i = 0; i < IDS; i++)
        gguf_put_u32(out, 17 * i);
    for (uint32_t i = 0; i < VOCABULARY; i++)
        gguf_put_f32(out, (float)i / 16);
}

static void seed_program(const seeder *s)
{
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"one", "{\"question\":\"Why?\",\"choices\":[\"a\",\"b\"],\"answer\":1}"},
        {"several",
         "{\"prompt\": \"The end \", \"choices\": [\"is near\", \"is not\", \"\\u00e9\"], "
         "\"answer\": \"C\"}\n\n  \n"
         "{\"question\":\"\",\"choices\":[\" x\",\"y\"],\"answer\":0}\r\n"},
        {"more",
         "{\"question\":\"1 + 1 =\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],\"answer\":\"B\"}"},
    };
    strbuf out = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strbuf_putc(&out, 0);
        strbuf_puts(&out, rows[i].text);
        give(s, rows[i].name, &out);
    }
    strbuf_putc(&out, 1);
    put_saved_logits(&out);
    give(s, "logits", &out);
    strbuf_puts(&out, "\x02matmul 1 64 64 q4 f16 32 one_row=11.479 register_tile=153.773\n"
                      "matmul 512 8192 2048 bf16 none 0 register_tile=1e3\n");
    give(s, "choices", &out);
    strbuf_puts(&out, "\x03read 4.6e12\nf32 6.45e13\ndot4 1.2e14\nmatrix 0\nsteady 1\n");
    give(s, "peak", &out);
    strbuf_puts(&out, "\x04{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                      "{\"role\":\"user\",\"content\":\"\\u00e9\\\"?\"},"
                      "{\"role\":\"assistant\",\"content\":\"\"}]}");
    give(s, "chat", &out);
}

void fuzz_seeds(const char *target, fuzz_sink sink, void *user)
{
    static const struct {
        const char *target;
        void (*seed)(const seeder *s);
    } rows[] = {
        {"gguf", seed_gguf},       {"split", seed_split}, {"safetensors", seed_safetensors},
        {"hf", seed_hf},           {"chat", seed_chat},   {"text", seed_text},
        {"program", seed_program},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].target, target) == 0) {
            rows[i].seed(&(seeder){sink, user});
            return;
        }
    fuzz_check(false);
}
