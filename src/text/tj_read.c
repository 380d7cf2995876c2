/*
 * tj_read.c - values of a tokenizer.json, its decoder and its post-processor.
 */
#include "text/tj_read.h"

#include <string.h>

#include "text/byte_level.h"

/* ---- values ---------------------------------------------------------------------------------- */

static temper_status wrong_type(const char *where, const char *key, const char *wanted, error *err)
{
    return error_set(err, TEMPER_BAD_FILE, "%s: \"%s\" is not %s", where, key, wanted);
}

temper_status tj_get_bool(const json_t *object, const char *where, const char *key, bool *out,
                          error *err)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL || json_is_null(value))
        return TEMPER_OK;
    if (!json_is_boolean(value))
        return wrong_type(where, key, "true or false", err);
    *out = json_is_true(value);
    return TEMPER_OK;
}

temper_status tj_get_text(const json_t *object, const char *where, const char *key,
                          const char **text, size_t *length, error *err)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL || json_is_null(value))
        return TEMPER_OK;
    if (!json_is_string(value))
        return wrong_type(where, key, "a string", err);
    *text = json_string_value(value);
    *length = json_string_length(value);
    return TEMPER_OK;
}

temper_status tj_get_type(const json_t *object, const char *where, const char **type, error *err)
{
    size_t length;

    *type = NULL;
    if (!json_is_object(object))
        return error_set(err, TEMPER_BAD_FILE, "%s is not an object", where);
    const temper_status status = tj_get_text(object, where, "type", type, &length, err);
    if (status == TEMPER_OK && *type == NULL)
        return error_set(err, TEMPER_BAD_FILE, "%s has no \"type\"", where);
    return status;
}

temper_status tj_refuse(const char *where, const char *type, error *err)
{
    return error_set(err, TEMPER_UNSUPPORTED, "%s: the type \"%.100s\" is not known", where, type);
}

temper_status tj_get_list(const json_t *object, const char *where, const char *key,
                          const json_t **list, error *err)
{
    *list = json_object_get(object, key);
    return json_is_array(*list) ? TEMPER_OK : wrong_type(where, key, "an array", err);
}

/* ---- the decoder ----------------------------------------------------------------------------- */

static const char decoder_where[] = "decoder";

/* Pieces are decoded one by one into a place of their spelling's size. */
static temper_status add_replacement(tj_decoder *out, const char *find, const char *text,
                                     error *err)
{
    if (find == NULL || text == NULL || find[0] == '\0' || strlen(text) > strlen(find)
        || out->find != NULL)
        return tj_refuse(decoder_where, "Replace (by something longer, or twice)", err);
    out->find = find;
    out->text = text;
    return TEMPER_OK;
}

static temper_status read_replace(const json_t *object, tj_decoder *out, error *err)
{
    const json_t *wanted = json_object_get(object, "pattern");
    const char *find = NULL, *text = NULL;
    size_t length;
    temper_status status = TEMPER_OK;

    if (json_is_object(wanted))
        status = tj_get_text(wanted, decoder_where, "String", &find, &length, err);
    if (status == TEMPER_OK)
        status = tj_get_text(object, decoder_where, "content", &text, &length, err);
    return status == TEMPER_OK ? add_replacement(out, find, text, err) : status;
}

static temper_status read_metaspace(const json_t *object, tj_decoder *out, error *err)
{
    const char *scheme = "always", *mark = "\xE2\x96\x81";
    bool prefix = true;
    size_t length;
    temper_status status = tj_get_bool(object, decoder_where, "add_prefix_space", &prefix, err);

    if (status == TEMPER_OK)
        status = tj_get_text(object, decoder_where, "prepend_scheme", &scheme, &length, err);
    if (status == TEMPER_OK)
        status = tj_get_text(object, decoder_where, "replacement", &mark, &length, err);
    out->strips_space = prefix && strcmp(scheme, "never") != 0;
    return status == TEMPER_OK ? add_replacement(out, mark, " ", err) : status;
}

static temper_status read_strip(const json_t *object, tj_decoder *out, error *err)
{
    const json_int_t start = json_integer_value(json_object_get(object, "start"));
    const json_int_t stop = json_integer_value(json_object_get(object, "stop"));
    const char *content = "";
    size_t length = 0;
    const temper_status status = tj_get_text(object, decoder_where, "content", &content, &length,
                                             err);

    if (status == TEMPER_OK && (start > 1 || stop != 0 || strcmp(content, " ") != 0))
        return tj_refuse(decoder_where, "Strip (of more than one space in front)", err);
    out->strips_space = out->strips_space || start == 1;
    return status;
}

static temper_status read_decoder(const json_t *object, int depth, tj_decoder *out, error *err)
{
    const char *type;
    size_t length = 0, index;
    const json_t *list;
    json_t *element;
    temper_status status = tj_get_type(object, decoder_where, &type, err);

    if (status != TEMPER_OK)
        return status;
    if (strcmp(type, "ByteLevel") == 0) {
        out->byte_level = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        out->byte_fallback = true;
    } else if (strcmp(type, "Metaspace") == 0) {
        return read_metaspace(object, out, err);
    } else if (strcmp(type, "Replace") == 0) {
        return read_replace(object, out, err);
    } else if (strcmp(type, "Strip") == 0) {
        return read_strip(object, out, err);
    } else if (strcmp(type, "WordPiece") == 0) {
        out->word_pieces = out->strips_space = true;
        out->inner = "##";
        return tj_get_text(object, decoder_where, "prefix", &out->inner, &length, err);
    } else if (strcmp(type, "BPEDecoder") == 0) {
        out->suffix = "</w>";
        return tj_get_text(object, decoder_where, "suffix", &out->suffix, &length, err);
    } else if (strcmp(type, "Sequence") == 0 && depth < TJ_DEPTH_MAX) {
        status = tj_get_list(object, decoder_where, "decoders", &list, err);
        if (status != TEMPER_OK)
            return status;
        json_array_foreach((json_t *)(uintptr_t)list, index, element)
        {
            status = read_decoder(element, depth + 1, out, err);
            if (status != TEMPER_OK)
                return status;
        }
    } else if (strcmp(type, "Fuse") != 0) {
        return tj_refuse(decoder_where, type, err);
    }
    return TEMPER_OK;
}

temper_status tj_read_decoder(const json_t *object, tj_decoder *out, error *err)
{
    if (object == NULL || json_is_null(object)) {
        /* Without one, the library puts pieces together with a space between them. */
        out->word_pieces = out->strips_space = true;
        return TEMPER_OK;
    }
    return read_decoder(object, 0, out, err);
}

size_t tj_decode_piece(const void *decoder, const char *spelling, size_t length, char *out)
{
    const tj_decoder *rules = decoder;
    const size_t inner = rules->inner == NULL ? 0 : strlen(rules->inner);
    const size_t suffix = rules->suffix == NULL ? 0 : strlen(rules->suffix);
    const size_t find = rules->find == NULL ? 0 : strlen(rules->find);
    size_t count = 0, at = 0, end = length;
    bool space_after = false;

    if (rules->byte_level)
        return byte_level_decode(NULL, spelling, length, out);
    if (rules->word_pieces) {
        if (inner > 0 && length > inner && memcmp(spelling, rules->inner, inner) == 0)
            at = inner;
        else if (length > 0)
            out[count++] = ' ';
    }
    if (suffix > 0 && length >= suffix
        && memcmp(spelling + length - suffix, rules->suffix, suffix) == 0) {
        end = length - suffix;
        space_after = true;
    }
    while (at < end) {
        if (find > 0 && end - at >= find && memcmp(spelling + at, rules->find, find) == 0) {
            for (const char *c = rules->text; *c != '\0'; c++)
                out[count++] = *c;
            at += find;
        } else {
            out[count++] = spelling[at++];
        }
    }
    if (space_after)
        out[count++] = ' ';
    return count;
}

/* ---- the post-processor ---------------------------------------------------------------------- */

static const char frame_where[] = "post_processor";

/* ["[CLS]", 101] */
static temper_status read_pair(const json_t *object, const char *key, int32_t *out, error *err)
{
    const json_t *id = json_array_get(json_object_get(object, key), 1);

    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
        return error_set(err, TEMPER_BAD_FILE, "%s: \"%s\" is no token with its id", frame_where,
                         key);
    *out = (int32_t)json_integer_value(id);
    return TEMPER_OK;
}

/* The id of a template's element, *out unchanged where it stands for the text. */
static temper_status read_element(const json_t *object, const json_t *element, int32_t *out,
                                  error *err)
{
    const json_t *special = json_object_get(element, "SpecialToken");
    const char *name = json_string_value(json_object_get(special, "id"));

    if (special == NULL)
        return TEMPER_OK;
    const json_t *token = name == NULL ? NULL
                          : json_object_get(json_object_get(object, "special_tokens"), name);
    const json_t *id = json_array_get(json_object_get(token, "ids"), 0);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
        return error_set(err, TEMPER_BAD_FILE, "%s: the template's token \"%.100s\" has no id",
                         frame_where, name == NULL ? "" : name);
    *out = (int32_t)json_integer_value(id);
    return TEMPER_OK;
}

static temper_status read_template(const json_t *object, tj_frame *out, error *err)
{
    const json_t *list;
    temper_status status = tj_get_list(object, frame_where, "single", &list, err);
    const size_t count = json_array_size(list);

    if (status == TEMPER_OK && count > 0)
        status = read_element(object, json_array_get(list, 0), &out->first, err);
    if (status == TEMPER_OK && count > 1)
        status = read_element(object, json_array_get(list, count - 1), &out->last, err);
    return status;
}

static temper_status read_frame(const json_t *object, int depth, tj_frame *out, error *err)
{
    const char *type;
    const json_t *list;
    json_t *element;
    size_t index;
    temper_status status = tj_get_type(object, frame_where, &type, err);

    if (status != TEMPER_OK || strcmp(type, "ByteLevel") == 0)
        return status;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(object, out, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        status = read_pair(object, "cls", &out->first, err);
        return status == TEMPER_OK ? read_pair(object, "sep", &out->last, err) : status;
    }
    if (strcmp(type, "Sequence") != 0 || depth == TJ_DEPTH_MAX)
        return tj_refuse(frame_where, type, err);
    status = tj_get_list(object, frame_where, "processors", &list, err);
    if (status != TEMPER_OK)
        return status;
    json_array_foreach((json_t *)(uintptr_t)list, index, element)
    {
        status = read_frame(element, depth + 1, out, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

temper_status tj_read_frame(const json_t *object, tj_frame *out, error *err)
{
    *out = (tj_frame){TOKEN_NONE, TOKEN_NONE};
    if (object == NULL || json_is_null(object))
        return TEMPER_OK;
    return read_frame(object, 0, out, err);
}
