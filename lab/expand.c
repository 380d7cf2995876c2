/*
 * expand.c - see expand.h. One pass over the lines; loops run over their lines again.
 */
#include "expand.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void vars_set(vars *v, const char *name, int64_t value)
{
    if (v->count == VARS_MAX) {
        fprintf(stderr, "sweep: more than %d variables\n", VARS_MAX);
        exit(1);
    }
    snprintf(v->row[v->count].name, NAME_MAX_BYTES, "%s", name);
    v->row[v->count++].value = value;
}

static const int64_t *find(const vars *v, const char *name)
{
    for (size_t i = v->count; i-- > 0;)
        if (strcmp(v->row[i].name, name) == 0)
            return &v->row[i].value;
    return NULL;
}

int64_t vars_get(const vars *v, const char *name, int64_t otherwise)
{
    const int64_t *value = find(v, name);
    return value != NULL ? *value : otherwise;
}

/* ---- expressions ---------------------------------------------------------------------------- */

typedef struct parser {
    const char *at;
    const vars *v;
    expansion *out;
} parser;

static void fail(expansion *out, const char *what, const char *near)
{
    if (out->failure[0] == '\0')
        snprintf(out->failure, sizeof out->failure, "%s near '%.40s'", what, near);
}

static void blanks(parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

static bool take(parser *p, const char *token)
{
    blanks(p);
    const size_t n = strlen(token);
    if (strncmp(p->at, token, n) != 0)
        return false;
    if (n == 1 && (*token == '<' || *token == '>' || *token == '!') && p->at[1] == '=')
        return false;
    p->at += n;
    return true;
}

static int64_t any_of(parser *p);

static int64_t primary(parser *p)
{
    if (take(p, "(")) {
        const int64_t value = any_of(p);
        if (!take(p, ")"))
            fail(p->out, "a ) is missing", p->at);
        return value;
    }
    if (take(p, "!"))
        return !primary(p);
    if (take(p, "-"))
        return -primary(p);
    blanks(p);
    if (isdigit((unsigned char)*p->at)) {
        char *end;
        const int64_t value = strtoll(p->at, &end, 10);
        p->at = end;
        return value;
    }
    char name[NAME_MAX_BYTES];
    size_t n = 0;
    while ((isalnum((unsigned char)*p->at) || *p->at == '_') && n + 1 < sizeof name)
        name[n++] = *p->at++;
    name[n] = '\0';
    const int64_t *value = find(p->v, name);
    if (value == NULL) {
        fail(p->out, "unknown name", n > 0 ? name : p->at);
        return 0;
    }
    return *value;
}

static int64_t factors(parser *p)
{
    int64_t value = primary(p);
    for (;;) {
        if (take(p, "*")) {
            value *= primary(p);
        } else if (take(p, "/") || take(p, "%")) {
            const bool rest = p->at[-1] == '%';
            const int64_t by = primary(p);
            if (by == 0)
                fail(p->out, "division by zero", p->at);
            else
                value = rest ? value % by : value / by;
        } else {
            return value;
        }
    }
}

static int64_t terms(parser *p)
{
    int64_t value = factors(p);
    for (;;) {
        if (take(p, "+"))
            value += factors(p);
        else if (take(p, "-"))
            value -= factors(p);
        else
            return value;
    }
}

static int64_t comparison(parser *p)
{
    const int64_t a = terms(p);
    if (take(p, "=="))
        return a == terms(p);
    if (take(p, "!="))
        return a != terms(p);
    if (take(p, "<="))
        return a <= terms(p);
    if (take(p, ">="))
        return a >= terms(p);
    if (take(p, "<"))
        return a < terms(p);
    if (take(p, ">"))
        return a > terms(p);
    return a;
}

static int64_t all_of(parser *p)
{
    int64_t value = comparison(p);
    while (take(p, "&&")) {
        const int64_t other = comparison(p);
        value = value && other;
    }
    return value;
}

static int64_t any_of(parser *p)
{
    int64_t value = all_of(p);
    while (take(p, "||")) {
        const int64_t other = all_of(p);
        value = value || other;
    }
    return value;
}

/* *end: the first character that is no part of it. */
static int64_t evaluate(const char *text, const vars *v, expansion *out, const char **end)
{
    parser p = {text, v, out};
    const int64_t value = any_of(&p);
    if (end != NULL)
        *end = p.at;
    return value;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void put(expansion *out, const char *text, size_t n)
{
    if (out->length + n + 1 > out->capacity) {
        out->capacity = (out->length + n + 1) * 2;
        out->source = realloc(out->source, out->capacity);
        if (out->source == NULL)
            exit(1);
    }
    memcpy(out->source + out->length, text, n);
    out->length += n;
    out->source[out->length] = '\0';
}

static const char *line_end(const char *line)
{
    const char *end = strchr(line, '\n');
    return end != NULL ? end + 1 : line + strlen(line);
}

static const char *directive(const char *line)
{
    while (*line == ' ')
        line++;
    return strncmp(line, "//% ", 4) == 0 ? line + 4 : NULL;
}

static bool is_word(const char *at, const char *word)
{
    const size_t n = strlen(word);
    return strncmp(at, word, n) == 0 && (at[n] == ' ' || at[n] == '\n' || at[n] == '\0');
}

/* The line of the `else` (where it is asked for) or `end` that closes a block whose lines begin at
 * `line`. */
static const char *closing(const char *line, bool or_else)
{
    for (int depth = 0; *line != '\0'; line = line_end(line)) {
        const char *d = directive(line);
        if (d == NULL)
            continue;
        if (is_word(d, "for") || is_word(d, "if"))
            depth++;
        else if (depth == 0 && (is_word(d, "end") || (or_else && is_word(d, "else"))))
            return line;
        else if (is_word(d, "end"))
            depth--;
    }
    return line;
}

static void put_line(const char *line, const char *end, const vars *v, expansion *out)
{
    while (line < end) {
        const char *open = strstr(line, "{{");
        if (open == NULL || open >= end) {
            put(out, line, (size_t)(end - line));
            return;
        }
        put(out, line, (size_t)(open - line));
        char number[24];
        const char *after;
        const int n = snprintf(number, sizeof number, "%" PRId64,
                               evaluate(open + 2, v, out, &after));
        put(out, number, (size_t)n);
        if (strncmp(after, "}}", 2) != 0) {
            fail(out, "a }} is missing", open);
            return;
        }
        line = after + 2;
    }
}

static const char *next_word(const char *at, char word[NAME_MAX_BYTES])
{
    size_t n = 0;
    while (*at == ' ')
        at++;
    while (*at != ' ' && *at != '\n' && *at != '\0' && n + 1 < NAME_MAX_BYTES)
        word[n++] = *at++;
    word[n] = '\0';
    return at;
}

static void lines(const char *line, const char *end, vars *v, expansion *out);

/* Does what the directive says; returns the line to go on with. */
static const char *obey(const char *d, const char *next, vars *v, expansion *out)
{
    char word[NAME_MAX_BYTES];

    if (is_word(d, "let")) {
        const char *rest = next_word(d + 3, word);
        vars_set(v, word, evaluate(rest, v, out, NULL));
    } else if (is_word(d, "need")) {
        out->wanted = out->wanted && evaluate(d + 4, v, out, NULL) != 0;
    } else if (is_word(d, "grid")) {
        const char *rest;
        out->grid_x = evaluate(d + 4, v, out, &rest);
        out->grid_y = evaluate(rest, v, out, NULL);
    } else if (is_word(d, "ref")) {
        next_word(d + 3, out->ref);
    } else if (is_word(d, "bind")) {
        const char *at = d + 4;
        for (out->bind_count = 0; out->bind_count < BINDS_MAX; out->bind_count++) {
            at = next_word(at, out->binds[out->bind_count]);
            if (out->binds[out->bind_count][0] == '\0')
                break;
        }
    } else if (is_word(d, "if")) {
        const char *middle = closing(next, true), *last = closing(next, false);
        if (evaluate(d + 2, v, out, NULL))
            lines(next, middle, v, out);
        else if (middle != last)
            lines(line_end(middle), last, v, out);
        return line_end(last);
    } else if (is_word(d, "for")) {
        const char *rest = next_word(d + 3, word), *last = closing(next, false);
        const int64_t count = evaluate(rest, v, out, NULL);
        for (int64_t i = 0; i < count && out->failure[0] == '\0'; i++) {
            const size_t outside = v->count;
            vars_set(v, word, i);
            lines(next, last, v, out);
            v->count = outside;
        }
        return line_end(last);
    } else {
        fail(out, "unknown directive", d);
    }
    return next;
}

static void lines(const char *line, const char *end, vars *v, expansion *out)
{
    while (line < end && out->wanted && out->failure[0] == '\0') {
        const char *d = directive(line), *next = line_end(line);
        if (d != NULL) {
            line = obey(d, next, v, out);
        } else {
            put_line(line, next, v, out);
            line = next;
        }
    }
}

void expand(const char *text, vars *v, expansion *out)
{
    memset(out, 0, sizeof *out);
    out->wanted = true;
    out->grid_x = out->grid_y = 1;
    put(out, "", 0);
    lines(text, text + strlen(text), v, out);
}
