/*
 * stream.c - bytes of tokens become whole characters, and characters that no stop string can claim
 * become text.
 *
 * The stop strings are one automaton (Aho and Corasick, "Efficient string matching", 1975): a tree
 * of their beginnings, where each node knows the longest proper suffix of itself that is in the
 * tree too. After each byte the automaton stands at the longest end of the text that begins a stop
 * string, so what lies before that end can be shown.
 */
#include "text/stream.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

#define NO_MATCH UINT64_MAX

enum { ROOT = 0, NO_NODE = 0 };   /* the root is nobody's child or sibling */

typedef struct stop_node {
    uint8_t byte;         /* on the edge from the parent */
    uint32_t child;       /* the first of its children, NO_NODE */
    uint32_t sibling;     /* the next child of its parent, NO_NODE */
    uint32_t suffix;      /* the node of its longest proper suffix */
    uint32_t depth;       /* bytes from the root */
    uint32_t match;       /* length of the longest stop string that ends here, 0 for none */
} stop_node;

struct text_stream {
    const tokenizer *tok;   /* borrowed */
    stop_node *nodes;       /* owned; [0] is the root; NULL without stop strings */
    uint32_t node_count;
    uint32_t at;            /* the automaton's state */
    char tail[4];           /* the beginning of a character that is not complete */
    size_t tail_length;
    strbuf held;            /* text[shown..seen) lies at held.data + held_start */
    size_t held_start;
    uint64_t seen;          /* bytes of text so far */
    uint64_t shown;         /* of these, bytes given out */
    uint64_t match_start;   /* of the earliest complete stop string, NO_MATCH */
    bool strips_space;      /* a space that comes first is not shown */
    bool stopped;
    bool failed;            /* ran out of memory: the text has a hole, nothing more comes */
};

/* ---- the automaton --------------------------------------------------------------------------- */

static uint32_t child_by(const stop_node *nodes, uint32_t parent, uint8_t byte)
{
    uint32_t child = nodes[parent].child;

    while (child != NO_NODE && nodes[child].byte != byte)
        child = nodes[child].sibling;
    return child;
}

static void add_stop(text_stream *stream, const char *stop)
{
    uint32_t at = ROOT;

    for (size_t i = 0; stop[i] != '\0'; i++) {
        uint32_t child = child_by(stream->nodes, at, (uint8_t)stop[i]);
        if (child == NO_NODE) {
            child = stream->node_count++;
            stream->nodes[child] = (stop_node){.byte = (uint8_t)stop[i],
                                               .sibling = stream->nodes[at].child,
                                               .depth = stream->nodes[at].depth + 1};
            stream->nodes[at].child = child;
        }
        at = child;
    }
    stream->nodes[at].match = stream->nodes[at].depth;
}

/* The state after `byte`. */
static uint32_t step(const stop_node *nodes, uint32_t at, uint8_t byte)
{
    for (;;) {
        const uint32_t child = child_by(nodes, at, byte);
        if (child != NO_NODE || at == ROOT)
            return child;
        at = nodes[at].suffix;
    }
}

/* Fills in suffixes and matches, the shallow nodes first. */
static temper_status link_suffixes(text_stream *stream, error *err)
{
    stop_node *nodes = stream->nodes;
    uint32_t *queue = mem_calloc(stream->node_count, sizeof *queue);
    uint32_t head = 0, end = 0;

    if (queue == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the stop strings");
    queue[end++] = ROOT;
    while (head < end) {
        const uint32_t parent = queue[head++];
        for (uint32_t child = nodes[parent].child; child != NO_NODE; child = nodes[child].sibling) {
            stop_node *node = &nodes[child];
            node->suffix = parent == ROOT ? ROOT : step(nodes, nodes[parent].suffix, node->byte);
            assert(nodes[node->suffix].depth < node->depth);
            if (node->match == 0)
                node->match = nodes[node->suffix].match;
            queue[end++] = child;
        }
    }
    assert(end == stream->node_count);
    mem_free(queue);
    return TEMPER_OK;
}

static temper_status build_automaton(text_stream *stream, const char *const *stops, size_t count,
                                     error *err)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(stops[i]);
        if (length == 0)
            return error_set(err, TEMPER_BAD_ARGUMENT, "stop string %zu is empty", i + 1);
        /* Only then do matches begin and end between characters. */
        if (utf8_valid_length(stops[i], length) != length)
            return error_set(err, TEMPER_BAD_ARGUMENT, "stop string %zu is not valid UTF-8", i + 1);
        bytes += length;
    }
    if (bytes >= UINT32_MAX)
        return error_set(err, TEMPER_BAD_ARGUMENT, "the stop strings are longer than 4 GiB");
    stream->nodes = mem_calloc((size_t)bytes + 1, sizeof *stream->nodes);
    if (stream->nodes == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the stop strings");
    stream->node_count = 1;
    for (size_t i = 0; i < count; i++)
        add_stop(stream, stops[i]);
    return link_suffixes(stream, err);
}

temper_status text_stream_open(const tokenizer *tok, const char *const *stops, size_t stop_count,
                               text_stream **out, error *err)
{
    *out = NULL;
    text_stream *stream = mem_calloc(1, sizeof *stream);
    if (stream == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a text stream");
    stream->tok = tok;
    stream->match_start = NO_MATCH;
    if (stop_count > 0) {
        const temper_status status = build_automaton(stream, stops, stop_count, err);
        if (status != TEMPER_OK) {
            text_stream_close(stream);
            return status;
        }
    }
    *out = stream;
    return TEMPER_OK;
}

void text_stream_close(text_stream *stream)
{
    if (stream == NULL)
        return;
    mem_free(stream->nodes);
    strbuf_free(&stream->held);
    mem_free(stream);
}

void text_stream_begin_text(text_stream *stream)
{
    assert(stream->tok != NULL && stream->seen == 0 && stream->tail_length == 0);
    stream->strips_space = tokenizer_strips_space(stream->tok);
}

bool text_stream_stopped(const text_stream *stream)
{
    return stream->stopped;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Gives out the text before the byte number `until`. */
static void show_until(text_stream *stream, uint64_t until, strbuf *text)
{
    assert(until >= stream->shown && until <= stream->seen);
    const size_t length = (size_t)(until - stream->shown);

    if (length == 0)
        return;
    strbuf_append(text, stream->held.data + stream->held_start, length);
    stream->held_start += length;
    stream->shown = until;
    /* Moving what is left down costs at most what was given out since the last time. */
    const size_t left = stream->held.length - stream->held_start;
    if (left <= stream->held_start) {
        memmove(stream->held.data, stream->held.data + stream->held_start, left);
        stream->held.length = left;
        stream->held_start = 0;
    }
}

/* Lets the automaton read the bytes that were added to `held`. */
static void look_for_stops(text_stream *stream, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && !stream->stopped; i++) {
        stream->at = step(stream->nodes, stream->at, (uint8_t)bytes[i]);
        const stop_node *node = &stream->nodes[stream->at];
        const uint64_t read = stream->seen + i + 1;

        if (node->match > 0 && read - node->match < stream->match_start)
            stream->match_start = read - node->match;
        /* No stop string that is still possible begins before the one that is complete. */
        if (stream->match_start != NO_MATCH && read - node->depth >= stream->match_start)
            stream->stopped = true;
    }
}

/* Adds valid text. */
static void add_text(text_stream *stream, const char *bytes, size_t length)
{
    if (length == 0 || stream->stopped)
        return;
    strbuf_append(&stream->held, bytes, length);
    if (stream->nodes != NULL)
        look_for_stops(stream, bytes, length);
    stream->seen += length;
}

/* Adds the tail of the last push and bytes; keeps the beginning of a character as the new tail. */
static void add_bytes(text_stream *stream, const char *bytes, size_t length)
{
    size_t at = 0;

    /* Complete the character in the tail byte by byte. */
    while (stream->tail_length > 0 && at < length) {
        utf8_state state;
        assert(stream->tail_length < sizeof stream->tail);
        stream->tail[stream->tail_length] = bytes[at];
        utf8_next(stream->tail, stream->tail_length + 1, &state);
        if (state == UTF8_BROKEN) {
            /* The byte that breaks it begins something of its own. */
            add_text(stream, "\xEF\xBF\xBD", 3);
            stream->tail_length = 0;
            break;
        }
        at++;
        stream->tail_length++;
        if (state == UTF8_WHOLE) {
            add_text(stream, stream->tail, stream->tail_length);
            stream->tail_length = 0;
        }
    }
    while (at < length) {
        const size_t valid = utf8_valid_length(bytes + at, length - at);
        add_text(stream, bytes + at, valid);
        at += valid;
        if (at == length)
            break;
        utf8_state state;
        const size_t unit = utf8_next(bytes + at, length - at, &state);
        if (state == UTF8_CUT) {
            memcpy(stream->tail, bytes + at, unit);
            stream->tail_length = unit;
        } else {
            add_text(stream, "\xEF\xBF\xBD", 3);
        }
        at += unit;
    }
}

static temper_status check_memory(text_stream *stream, const strbuf *text, error *err)
{
    stream->failed = stream->failed || stream->held.failed || text->failed;
    return stream->failed ? error_set(err, TEMPER_NO_MEMORY, "no memory for the text") : TEMPER_OK;
}

temper_status text_stream_push_bytes(text_stream *stream, const char *bytes, size_t length,
                                     strbuf *text, bool *stopped, error *err)
{
    temper_status status = check_memory(stream, text, err);

    *stopped = stream->stopped;
    if (status != TEMPER_OK || stream->stopped)
        return status;
    add_bytes(stream, bytes, length);
    status = check_memory(stream, text, err);
    if (status != TEMPER_OK)
        return status;

    const uint32_t depth = stream->nodes == NULL ? 0 : stream->nodes[stream->at].depth;
    uint64_t until = stream->stopped ? stream->match_start : stream->seen - depth;
    if (until > stream->match_start)
        until = stream->match_start;
    show_until(stream, until, text);
    *stopped = stream->stopped;
    return check_memory(stream, text, err);
}

temper_status text_stream_push(text_stream *stream, uint32_t id, strbuf *text, bool *stopped,
                               error *err)
{
    size_t length;

    assert(stream->tok != NULL);
    if (id >= tokenizer_size(stream->tok))
        return error_set(err, TEMPER_BAD_ARGUMENT, "token id %u: the vocabulary has %u tokens", id,
                         tokenizer_size(stream->tok));
    const char *piece = tokenizer_piece(stream->tok, id, false, &length);
    if (stream->strips_space && length > 0) {
        stream->strips_space = false;
        if (piece[0] == ' ') {
            piece++;
            length--;
        }
    }
    return text_stream_push_bytes(stream, piece, length, text, stopped, err);
}

temper_status text_stream_finish(text_stream *stream, strbuf *text, error *err)
{
    temper_status status = check_memory(stream, text, err);

    if (status != TEMPER_OK || stream->stopped)
        return status;
    if (stream->tail_length > 0) {
        stream->tail_length = 0;
        add_text(stream, "\xEF\xBF\xBD", 3);
    }
    status = check_memory(stream, text, err);
    if (status != TEMPER_OK)
        return status;
    if (stream->match_start != NO_MATCH)
        stream->stopped = true;
    show_until(stream, stream->stopped ? stream->match_start : stream->seen, text);
    return check_memory(stream, text, err);
}
