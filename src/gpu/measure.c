/*
 * measure.c - the size of a kernel's workgroup and of its workgroup memory.
 *
 * A WebGPU library enforces limits at WebGPU's defaults or better. To run as if on a smaller
 * device, the room has to know what a kernel takes: this reads the module's constants, overrides,
 * structures and workgroup variables and works out their values. What it cannot work out it
 * refuses, so that nothing passes a lowered limit unseen.
 */
#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "gpu/wgsl.h"

/* DEPTH_MAX bounds the recursion; parentheses cost six levels each. */
enum { NAMES_MAX = 256, DEPTH_MAX = 384 };

typedef enum name_kind { NAME_CONSTANT, NAME_ALIAS, NAME_STRUCT } name_kind;

/* A name of the module: where its value (or type, or members) begins. */
typedef struct module_name {
    name_kind kind;
    wgsl_token name;
    const char *at;
    bool known;        /* an override given a value */
    int64_t value;
} module_name;

typedef struct reader {
    const gpu_kernel *kernel;
    const uint32_t *values;
    module_name names[NAMES_MAX];
    uint32_t count;
    int depth;
    bool failed;
    wgsl_token culprit;
} reader;

typedef struct type_size {
    uint64_t size, align;
} type_size;

static int64_t expression(reader *r, const char **at, int level);
static type_size type(reader *r, const char **at);

static void refuse(reader *r, wgsl_token culprit)
{
    if (!r->failed)
        r->culprit = culprit;
    r->failed = true;
}

static wgsl_token peek(const char *at)
{
    return wgsl_next(&at);
}

static void expect(reader *r, const char **at, const char *text)
{
    const wgsl_token token = wgsl_next(at);
    if (!wgsl_is(token, text))
        refuse(r, token);
}

static const module_name *find(const reader *r, wgsl_token name)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (r->names[i].name.length == name.length &&
            memcmp(r->names[i].name.text, name.text, name.length) == 0)
            return &r->names[i];
    return NULL;
}

/* ---- expressions of integers ---------------------------------------------------------------- */

static int64_t number(reader *r, wgsl_token token)
{
    char text[32];
    char *end;

    if (token.length >= sizeof text) {
        refuse(r, token);
        return 0;
    }
    memcpy(text, token.text, token.length);
    text[token.length] = '\0';
    const int64_t value = strtoll(text, &end, 0);
    if (*end == 'u' || *end == 'i')
        end++;
    if (*end != '\0')
        refuse(r, token);
    return value;
}

static int64_t call(reader *r, wgsl_token name, const char **at)
{
    expect(r, at, "(");
    const int64_t a = expression(r, at, 0);
    if (wgsl_is(name, "u32") || wgsl_is(name, "i32")) {
        expect(r, at, ")");
        return a;
    }
    expect(r, at, ",");
    const int64_t b = expression(r, at, 0);
    expect(r, at, ")");
    if (wgsl_is(name, "min"))
        return a < b ? a : b;
    if (wgsl_is(name, "max"))
        return a > b ? a : b;
    refuse(r, name);
    return 0;
}

static int64_t primary(reader *r, const char **at)
{
    const wgsl_token token = wgsl_next(at);
    int64_t value = 0;

    if (token.kind == WGSL_NUMBER)
        return number(r, token);
    if (wgsl_is(token, "(")) {
        value = expression(r, at, 0);
        expect(r, at, ")");
        return value;
    }
    if (token.kind == WGSL_NAME && wgsl_is(peek(*at), "("))
        return call(r, token, at);

    const module_name *name = token.kind == WGSL_NAME ? find(r, token) : NULL;
    if (name == NULL || name->kind != NAME_CONSTANT || (!name->known && name->at == NULL)) {
        refuse(r, token);
    } else if (name->known) {
        value = name->value;
    } else {
        const char *inner = name->at;
        value = expression(r, &inner, 0);
    }
    return value;
}

/* The operator at *at, when it binds at `level` (0: |, 1: &, 2: shifts, 3: + -, 4: * / %), else 0.
 * Shifts are '<' and '>' here. */
static char operator_at(const char *at, int level)
{
    static const char *const levels[] = {"|", "&", "<>", "+-", "*/%"};
    const wgsl_token token = wgsl_next(&at);
    const char mark = token.kind == WGSL_MARK ? token.text[0] : '\0';

    if (mark == '\0' || strchr(levels[level], mark) == NULL)
        return '\0';
    return level != 2 || *at == mark ? mark : '\0';
}

static int64_t combine(reader *r, char operation, int64_t a, int64_t b)
{
    const bool small = a >= INT32_MIN && a <= UINT32_MAX && b >= INT32_MIN && b <= INT32_MAX;
    const bool valid = small && ((operation != '/' && operation != '%') || b != 0) &&
                       ((operation != '<' && operation != '>') || (a >= 0 && b >= 0 && b < 31));

    if (!valid) {
        refuse(r, (wgsl_token){WGSL_MARK, "arithmetic", 10});
        return 0;
    }
    switch (operation) {
    case '|': return a | b;
    case '&': return a & b;
    case '<': return a << b;
    case '>': return a >> b;
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    default: return a % b;
    }
}

static int64_t expression(reader *r, const char **at, int level)
{
    enum { LEVELS = 5 };
    int64_t value = 0;
    char operation;

    if (r->failed || ++r->depth > DEPTH_MAX) {
        refuse(r, peek(*at));
        return 0;
    }
    value = level == LEVELS ? primary(r, at) : expression(r, at, level + 1);
    while (level < LEVELS && !r->failed && (operation = operator_at(*at, level)) != '\0') {
        wgsl_next(at);
        if (level == 2)
            wgsl_next(at);
        value = combine(r, operation, value, expression(r, at, level + 1));
    }
    r->depth--;
    return value;
}

/* ---- sizes of types ------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return ceil_div(value, to) * to;
}

static type_size vector_of(type_size of, uint64_t count)
{
    return (type_size){of.size * count, of.size * (count == 3 ? 4 : count)};
}

/* A length such as the 4 of vec4 or of mat4x3; 0 when it is none. */
static uint64_t digit(char c)
{
    return c >= '2' && c <= '4' ? (uint64_t)(c - '0') : 0;
}

static type_size element(reader *r, const char **at)
{
    expect(r, at, "<");
    const type_size of = type(r, at);
    expect(r, at, ">");
    return of;
}

static type_size array(reader *r, const char **at)
{
    expect(r, at, "<");
    const type_size of = type(r, at);
    expect(r, at, ",");
    /* Level 3: a '>' closes the list and is no shift. */
    const int64_t count = expression(r, at, 3);
    if (wgsl_is(peek(*at), ","))
        wgsl_next(at);
    expect(r, at, ">");
    if (count <= 0 || count > UINT32_MAX) {
        refuse(r, (wgsl_token){WGSL_MARK, "array length", 12});
        return (type_size){0, 4};
    }
    return (type_size){round_up(of.size, of.align) * (uint64_t)count, of.align};
}

static type_size structure(reader *r, const char *at)
{
    type_size whole = {0, 1};

    expect(r, &at, "{");
    while (!r->failed && !wgsl_is(peek(at), "}")) {
        const wgsl_token name = wgsl_next(&at);
        /* An attribute may change the layout. */
        if (name.kind != WGSL_NAME)
            refuse(r, name);
        expect(r, &at, ":");
        const type_size member = type(r, &at);
        whole.align = max_u64(whole.align, member.align);
        whole.size = round_up(whole.size, member.align) + member.size;
        if (wgsl_is(peek(at), ","))
            wgsl_next(&at);
    }
    whole.size = round_up(whole.size, whole.align);
    return whole;
}

static type_size scalar(char shorthand)
{
    return shorthand == 'h' ? (type_size){2, 2} : (type_size){4, 4};
}

static type_size named_type(reader *r, wgsl_token token, const char **at)
{
    const char *text = token.text;
    const module_name *name = find(r, token);

    if (name != NULL && name->kind == NAME_STRUCT)
        return structure(r, name->at);
    if (name != NULL && name->kind == NAME_ALIAS) {
        const char *inner = name->at;
        return type(r, &inner);
    }
    if (token.length >= 4 && token.length <= 5 && memcmp(text, "vec", 3) == 0 && digit(text[3]))
        return vector_of(token.length == 5 ? scalar(text[4]) : element(r, at), digit(text[3]));
    if (token.length >= 6 && token.length <= 7 && memcmp(text, "mat", 3) == 0 && digit(text[3]) &&
        text[4] == 'x' && digit(text[5])) {
        const type_size column = vector_of(
            token.length == 7 ? scalar(text[6]) : element(r, at), digit(text[5]));
        return (type_size){round_up(column.size, column.align) * digit(text[3]), column.align};
    }
    refuse(r, token);
    return (type_size){0, 4};
}

static type_size type(reader *r, const char **at)
{
    const wgsl_token token = wgsl_next(at);
    type_size size = {0, 4};

    if (r->failed || ++r->depth > DEPTH_MAX)
        refuse(r, token);
    else if (wgsl_is(token, "f32") || wgsl_is(token, "u32") || wgsl_is(token, "i32") ||
             wgsl_is(token, "bool"))
        size.size = 4;
    else if (wgsl_is(token, "f16"))
        size = (type_size){2, 2};
    else if (wgsl_is(token, "atomic"))
        size = element(r, at);
    else if (wgsl_is(token, "array"))
        size = array(r, at);
    else
        size = named_type(r, token, at);
    r->depth--;
    return size;
}

/* ---- the module ----------------------------------------------------------------------------- */

static module_name *add_name(reader *r, name_kind kind, wgsl_token name)
{
    if (r->count == NAMES_MAX) {
        refuse(r, name);
        return &r->names[0];
    }
    r->names[r->count] = (module_name){.kind = kind, .name = name};
    return &r->names[r->count++];
}

/* "const NAME: type = value;" or "override NAME: type = value;" */
static void add_constant(reader *r, const char **at, bool is_override)
{
    module_name *entry = add_name(r, NAME_CONSTANT, wgsl_next(at));
    wgsl_token token = wgsl_next(at);

    while (token.kind != WGSL_END && !wgsl_is(token, "=") && !wgsl_is(token, ";"))
        token = wgsl_next(at);
    if (wgsl_is(token, "="))
        entry->at = *at;
    for (uint32_t i = 0; is_override && i < r->kernel->option_count; i++)
        if (r->kernel->options[i].is_override && wgsl_is(entry->name, r->kernel->options[i].name)) {
            entry->known = true;
            entry->value = r->values[i];
        }
}

/* First walk: the names. Anything inside a function is skipped by the depth of braces. */
static void collect(reader *r, const char *source)
{
    const char *at = source;
    int braces = 0;

    for (wgsl_token token = wgsl_next(&at); token.kind != WGSL_END && !r->failed;
         token = wgsl_next(&at)) {
        if (wgsl_is(token, "{"))
            braces++;
        else if (wgsl_is(token, "}"))
            braces--;
        if (braces != 0)
            continue;
        if (wgsl_is(token, "const"))
            add_constant(r, &at, false);
        else if (wgsl_is(token, "override"))
            add_constant(r, &at, true);
        else if (wgsl_is(token, "struct")) {
            module_name *entry = add_name(r, NAME_STRUCT, wgsl_next(&at));
            entry->at = at;
        } else if (wgsl_is(token, "alias")) {
            module_name *entry = add_name(r, NAME_ALIAS, wgsl_next(&at));
            expect(r, &at, "=");
            entry->at = at;
        }
    }
}

static void workgroup_size(reader *r, const char **at, wgsl_workgroup *out)
{
    expect(r, at, "(");
    for (int i = 0; i < 3; i++) {
        const int64_t size = expression(r, at, 0);
        out->size[i] = size > 0 ? (uint64_t)size : 0;
        if (wgsl_is(peek(*at), ","))
            wgsl_next(at);
        if (wgsl_is(peek(*at), ")"))
            break;
    }
    expect(r, at, ")");
}

/* "var<workgroup> NAME: type;" with the "var" already taken. */
static void workgroup_variable(reader *r, const char **at, wgsl_workgroup *out)
{
    const char *inner = *at;

    if (!wgsl_is(wgsl_next(&inner), "<") || !wgsl_is(wgsl_next(&inner), "workgroup"))
        return;
    expect(r, &inner, ">");
    wgsl_next(&inner);
    expect(r, &inner, ":");
    out->memory += round_up(type(r, &inner).size, 16);
    *at = inner;
}

temper_status wgsl_measure(const gpu_kernel *kernel, const char *source, const uint32_t *values,
                           wgsl_workgroup *out, error *err)
{
    reader r = {.kernel = kernel, .values = values};
    const char *at = source;

    *out = (wgsl_workgroup){.size = {0, 1, 1}};
    collect(&r, source);
    for (wgsl_token token = wgsl_next(&at); token.kind != WGSL_END && !r.failed;
         token = wgsl_next(&at)) {
        if (wgsl_is(token, "workgroup_size"))
            workgroup_size(&r, &at, out);
        else if (wgsl_is(token, "var"))
            workgroup_variable(&r, &at, out);
    }
    if (r.failed || out->size[0] == 0 || out->size[1] == 0 || out->size[2] == 0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "kernel %s: cannot work out its workgroup under lowered limits, at "
                         "\"%.*s\"", kernel->name, r.failed ? (int)r.culprit.length : 14,
                         r.failed ? r.culprit.text : "workgroup_size");
    return TEMPER_OK;
}
