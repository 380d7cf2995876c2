/*
 * wgsl.c - reading WGSL by tokens, putting options into it, and checking its bindings.
 */
#include "gpu/wgsl.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const char params_uniform[] = "@group(1) @binding(0) var<uniform> params: Params;";
static const char params_immediate[] = "var<immediate> params: Params;";

/* ---- tokens --------------------------------------------------------------------------------- */

static const char *skip_block_comment(const char *at)
{
    int depth = 0;

    do {
        if (at[0] == '/' && at[1] == '*') {
            depth++;
            at += 2;
        } else if (at[0] == '*' && at[1] == '/') {
            depth--;
            at += 2;
        } else if (*at != '\0') {
            at++;
        }
    } while (depth > 0 && *at != '\0');
    return at;
}

static const char *skip_space(const char *at)
{
    for (;;) {
        if (isspace((unsigned char)*at))
            at++;
        else if (at[0] == '/' && at[1] == '/')
            at += strcspn(at, "\n");
        else if (at[0] == '/' && at[1] == '*')
            at = skip_block_comment(at);
        else
            return at;
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

wgsl_token wgsl_next(const char **at)
{
    const char *start = skip_space(*at);
    const char *end = start;
    wgsl_token_kind kind = WGSL_END;

    if (isdigit((unsigned char)*start)) {
        kind = WGSL_NUMBER;
        while (is_word(*end) || *end == '.')
            end++;
    } else if (is_word(*start)) {
        kind = WGSL_NAME;
        while (is_word(*end))
            end++;
    } else if (*start != '\0') {
        kind = WGSL_MARK;
        end++;
    }
    *at = end;
    return (wgsl_token){kind, start, (uint32_t)(end - start)};
}

bool wgsl_is(wgsl_token token, const char *text)
{
    return strlen(text) == token.length && memcmp(token.text, text, token.length) == 0;
}

/* ---- options and parameters ----------------------------------------------------------------- */

/* Appends the value of the {{NAME}} at `at` and returns what follows it, or NULL. */
static const char *substitute(const gpu_kernel *kernel, const uint32_t *values, const char *at,
                              strbuf *out, error *err)
{
    const char *name = at + 2;
    const char *close = strstr(name, "}}");
    const size_t length = close != NULL ? (size_t)(close - name) : 0;

    for (uint32_t i = 0; close != NULL && i < kernel->option_count; i++) {
        const gpu_kernel_option *option = &kernel->options[i];
        if (!option->is_override && strlen(option->name) == length &&
            memcmp(option->name, name, length) == 0) {
            strbuf_printf(out, "%" PRIu32, values[i]);
            return close + 2;
        }
    }
    error_set(err, TEMPER_INTERNAL, "kernel %s: nothing is called {{%.*s}}", kernel->name,
              length < 60 ? (int)length : 60, name);
    return NULL;
}

/* Where the parameters are declared: on a line of their own, not in a comment that mentions it. */
static const char *find_params(const char *source)
{
    for (const char *at = source; (at = strstr(at, params_uniform)) != NULL; at++) {
        const char *line = at;
        while (line > source && (line[-1] == ' ' || line[-1] == '\t'))
            line--;
        if (line == source || line[-1] == '\n')
            return at;
    }
    return NULL;
}

temper_status wgsl_prepare(const gpu_kernel *kernel, const uint32_t *values, const char *immediates,
                           strbuf *out, error *err)
{
    const char *params = find_params(kernel->source);

    if ((params != NULL) != (kernel->params_bytes > 0))
        return error_set(err, TEMPER_INTERNAL,
                         "kernel %s: %" PRIu32 " bytes of parameters, but the line \"%s\" is %s",
                         kernel->name, kernel->params_bytes, params_uniform,
                         params != NULL ? "there" : "missing");
    /* The directive goes on the first line, before what is there, so that line numbers stay. */
    if (params != NULL && immediates != NULL)
        strbuf_puts(out, immediates);

    for (const char *at = kernel->source; *at != '\0';) {
        if (at == params && immediates != NULL) {
            strbuf_puts(out, params_immediate);
            at += sizeof params_uniform - 1;
        } else if (at[0] == '{' && at[1] == '{') {
            at = substitute(kernel, values, at, out, err);
            if (at == NULL)
                return TEMPER_INTERNAL;
        } else {
            const size_t plain = 1 + strcspn(at + 1, "{@");
            strbuf_append(out, at, plain);
            at += plain;
        }
    }
    if (out->failed)
        return error_set(err, TEMPER_NO_MEMORY, "kernel %s: no memory for its source",
                         kernel->name);
    return TEMPER_OK;
}

/* ---- bindings ------------------------------------------------------------------------------- */

/* Reads "(NUMBER)". */
static bool read_number(const char **at, uint32_t *out)
{
    const wgsl_token open = wgsl_next(at), number = wgsl_next(at), close = wgsl_next(at);
    uint32_t value = 0;

    if (!wgsl_is(open, "(") || number.kind != WGSL_NUMBER || !wgsl_is(close, ")"))
        return false;
    for (uint32_t i = 0; i < number.length && isdigit((unsigned char)number.text[i]); i++)
        value = value * 10 + (uint32_t)(number.text[i] - '0');
    *out = value;
    return true;
}

/* Reads "<storage, read_write> NAME" behind "var" and holds it against the descriptor. */
static temper_status check_binding(const gpu_kernel *kernel, const char **at, uint32_t number,
                                   error *err)
{
    gpu_access access = GPU_READ;
    wgsl_token token = wgsl_next(at);

    if (!wgsl_is(token, "<") || !wgsl_is(wgsl_next(at), "storage"))
        return error_set(err, TEMPER_INTERNAL,
                         "kernel %s: binding %" PRIu32 " of group 0 is no storage buffer",
                         kernel->name, number);
    token = wgsl_next(at);
    if (wgsl_is(token, ",")) {
        access = wgsl_is(wgsl_next(at), "read_write") ? GPU_READ_WRITE : GPU_READ;
        wgsl_next(at);
    }
    const wgsl_token name = wgsl_next(at);
    if (number >= kernel->binding_count || !wgsl_is(name, kernel->bindings[number].name) ||
        kernel->bindings[number].access != access)
        return error_set(err, TEMPER_INTERNAL,
                         "kernel %s: binding %" PRIu32 " is %.*s (%s) in the WGSL and %s in its "
                         "descriptor",
                         kernel->name, number, (int)name.length, name.text,
                         access == GPU_READ_WRITE ? "read_write" : "read",
                         number >= kernel->binding_count ? "missing"
                         : kernel->bindings[number].access == GPU_READ_WRITE
                             ? "another, or not read_write" : "another, or not read");
    return TEMPER_OK;
}

temper_status wgsl_check_bindings(const gpu_kernel *kernel, const char *source, error *err)
{
    uint32_t found = 0, group = UINT32_MAX, number = UINT32_MAX;
    const char *at = source;

    for (wgsl_token token = wgsl_next(&at); token.kind != WGSL_END; token = wgsl_next(&at)) {
        if (wgsl_is(token, "@")) {
            const wgsl_token name = wgsl_next(&at);
            if (wgsl_is(name, "group") && !read_number(&at, &group))
                break;
            if (wgsl_is(name, "binding") && !read_number(&at, &number))
                break;
        } else if (wgsl_is(token, "var") && number != UINT32_MAX) {
            if (group == 0) {
                const temper_status status = check_binding(kernel, &at, number, err);
                if (status != TEMPER_OK)
                    return status;
                found++;
            }
            group = number = UINT32_MAX;
        }
    }
    if (found != kernel->binding_count)
        return error_set(err, TEMPER_INTERNAL,
                         "kernel %s: its WGSL has %" PRIu32 " storage bindings, its descriptor %"
                         PRIu32, kernel->name, found, kernel->binding_count);
    return TEMPER_OK;
}
