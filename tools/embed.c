/*
 * embed - a build tool: WGSL and other files become C.
 *
 *     embed kernels OUT.h OUT.c FILES.wgsl...
 *     embed texts FOLDER FILES.wgsl...
 *     embed bytes OUT.c SYMBOL FILE
 *
 * `kernels` reads what a WGSL file declares at module scope and writes, for NAME.wgsl, a constant
 * kernel_NAME (gpu/kernel.h), structs of its parameters, buffers and options, and inline functions
 * that take those structs, so that C code fills nothing by position and no access mode is written
 * twice. What it reads:
 *
 *     enable f16;                            -> gpu_kernel.needs
 *     override LANES: u32 = 64;              -> an option, set when the pipeline is created
 *     // option ROWS = 4                     -> an option, written into the text for {{ROWS}}
 *     struct Params { rows: u32, eps: f32 }  -> struct kernel_NAME_params, at most 64 bytes
 *     @group(0) @binding(0) var<storage, read> x: array<f32>;      in the order 0, 1, 2 ...
 *     @group(1) @binding(0) var<uniform> params: Params;
 *     @compute @workgroup_size(64) fn main(...)        exactly one, of that name
 *
 * Everything else is left to the WGSL compiler. A declaration that it cannot carry over stops the
 * build with file and line.
 *
 * A line `// use NAME` is followed by what pieces/NAME.wgsl beside the file holds: its bindings,
 * options and functions are the kernel's then. A piece uses no piece, and none is used twice.
 *
 * `texts` writes each kernel to FOLDER/NAME.wgsl as a compiler sees it: pieces in place, defaults
 * for
 * {{NAME}}.
 *
 * `bytes` writes `const unsigned char SYMBOL[]`, NUL-terminated, and `const size_t SYMBOL_size`
 * without the NUL.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 32, MAX_PIECES = 8, NAME_BYTES = 64, PATH_BYTES = 1024, PARAMS_LIMIT = 64 };

typedef struct option {
    char name[NAME_BYTES];
    bool is_override;
    uint32_t value;
    size_t at; /* where it is declared: options keep the order of the file */
} option;

typedef struct param {
    char name[NAME_BYTES];
    char type[NAME_BYTES];
} param;

typedef struct binding {
    char name[NAME_BYTES];
    bool write;
    uint32_t element_bytes;
} binding;

/* What stands in the text for a line `// use NAME`. */
typedef struct piece {
    char name[NAME_BYTES], path[PATH_BYTES];
    size_t at, length; /* in the text */
} piece;

typedef struct kernel {
    const char *path;
    char name[NAME_BYTES];
    char *text;  /* as written, pieces in place */
    char *plain; /* the same bytes, comments blanked, {{NAME}} replaced by a digit */
    size_t length;
    size_t at; /* the cursor of the parser, in plain */
    piece pieces[MAX_PIECES];
    uint32_t piece_count;
    option options[MAX_ITEMS];
    uint32_t option_count;
    param params[MAX_ITEMS];
    uint32_t param_count;
    bool has_params_struct, has_params_binding;
    binding bindings[MAX_ITEMS];
    uint32_t binding_count;
    uint32_t entry_count;
    char needs[256];
} kernel;

/* ---- failing and files ----------------------------------------------------------------------- */

static _Noreturn void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("embed: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static uint32_t lines_between(const kernel *k, size_t from, size_t to)
{
    uint32_t lines = 0;
    for (size_t i = from; i < to && i < k->length; i++)
        lines += k->text[i] == '\n';
    return lines;
}

/* The file and line that a place of the text comes from. */
static const char *locate(const kernel *k, size_t at, uint32_t *line)
{
    *line = 1 + lines_between(k, 0, at);
    for (uint32_t i = 0; i < k->piece_count && k->pieces[i].at <= at; i++) {
        const piece *p = &k->pieces[i];
        if (at < p->at + p->length) {
            *line = 1 + lines_between(k, p->at, at);
            return p->path;
        }
        *line -= lines_between(k, p->at, p->at + p->length);
    }
    return k->path;
}

static _Noreturn void die_at(const kernel *k, size_t at, const char *format, ...)
{
    uint32_t line;
    const char *path = locate(k, at, &line);
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%u: error: ", path, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void *allocate(size_t size)
{
    void *block = calloc(1, size);
    if (block == NULL)
        die("out of memory");
    return block;
}

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        die("cannot open %s", path);
    size_t capacity = 1 << 16, used = 0;
    char *text = allocate(capacity + 1);
    for (size_t got; (got = fread(text + used, 1, capacity - used, file)) > 0;) {
        used += got;
        if (used == capacity) {
            capacity *= 2;
            text = realloc(text, capacity + 1);
            if (text == NULL)
                die("out of memory");
        }
    }
    if (ferror(file))
        die("cannot read %s", path);
    fclose(file);
    text[used] = 0;
    *length = used;
    return text;
}

static FILE *create(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        die("cannot write %s", path);
    return file;
}

static void finish(FILE *file, const char *path)
{
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        die("cannot write %s", path);
}

static void write_bytes(FILE *out, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        fprintf(out, "%u,%s", (unsigned)(unsigned char)bytes[i], i % 24 == 23 ? "\n" : "");
    fputs("0\n", out);
}

/* ---- the text before parsing ----------------------------------------------------------------- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t copy_name(const kernel *k, size_t at, const char *from, char name[NAME_BYTES])
{
    size_t n = 0;
    while (is_name_char(from[n]))
        n++;
    if (n == 0 || isdigit((unsigned char)from[0]))
        die_at(k, at, "a name is expected here");
    if (n >= NAME_BYTES)
        die_at(k, at, "a name of more than %d characters", NAME_BYTES - 1);
    memcpy(name, from, n);
    name[n] = 0;
    return n;
}

/* The text of the piece of a line `// use NAME` at `at`, and where it comes from; `to` is where it
 * will stand. */
static char *read_piece(kernel *k, size_t at, size_t to)
{
    if (k->piece_count == MAX_PIECES)
        die_at(k, at, "more than %d pieces", MAX_PIECES);
    piece p = {.at = to};
    const size_t n = copy_name(k, at, k->text + at + strlen("// use "), p.name);
    if (k->text[at + strlen("// use ") + n] != '\n')
        die_at(k, at, "`// use %s` is a line of its own", p.name);
    for (uint32_t i = 0; i < k->piece_count; i++)
        if (strcmp(k->pieces[i].name, p.name) == 0)
            die_at(k, at, "the piece %s is used twice", p.name);
    const char *slash = strrchr(k->path, '/');
    const int folder = slash ? (int)(slash - k->path + 1) : 0;
    if (snprintf(p.path, sizeof p.path, "%.*spieces/%s.wgsl", folder, k->path, p.name) >=
        (int)sizeof p.path)
        die_at(k, at, "the path of the piece %s is too long", p.name);
    FILE *file = fopen(p.path, "rb");
    if (file == NULL)
        die_at(k, at, "there is no piece %s", p.path);
    fclose(file);
    char *text = read_file(p.path, &p.length);
    if (strlen(text) != p.length || p.length == 0 || text[p.length - 1] != '\n')
        die("%s: a piece is text that ends with a line's end", p.path);
    if (strncmp(text, "// use ", 7) == 0 || strstr(text, "\n// use ") != NULL)
        die("%s: a piece uses no piece", p.path);
    k->pieces[k->piece_count++] = p;
    return text;
}

/* Puts the pieces after the lines that ask for them. */
static void expand(kernel *k)
{
    for (size_t at = 0; at < k->length; at++) {
        if ((at > 0 && k->text[at - 1] != '\n') || strncmp(k->text + at, "// use ", 7) != 0)
            continue;
        const char *end = strchr(k->text + at, '\n');
        if (end == NULL)
            die_at(k, at, "a line without an end");
        const size_t to = (size_t)(end - k->text) + 1;
        char *inner = read_piece(k, at, to);
        const size_t length = k->pieces[k->piece_count - 1].length;
        char *longer = allocate(k->length + length + 1);
        memcpy(longer, k->text, to);
        memcpy(longer + to, inner, length);
        memcpy(longer + to + length, k->text + to, k->length - to);
        free(inner);
        free(k->text);
        k->text = longer;
        k->length += length;
        at = to + length - 1;
    }
}

static option *find_option(kernel *k, const char *name)
{
    for (uint32_t i = 0; i < k->option_count; i++)
        if (strcmp(k->options[i].name, name) == 0)
            return &k->options[i];
    return NULL;
}

/* Keeps the options sorted by where they are declared. */
static void add_option(kernel *k, size_t at, const char *name, bool is_override, uint32_t value)
{
    if (find_option(k, name) != NULL)
        die_at(k, at, "option %s is declared twice", name);
    if (k->option_count == MAX_ITEMS)
        die_at(k, at, "more than %d options", MAX_ITEMS);
    uint32_t i = k->option_count++;
    for (; i > 0 && k->options[i - 1].at > at; i--)
        k->options[i] = k->options[i - 1];
    k->options[i] = (option){.is_override = is_override, .value = value, .at = at};
    snprintf(k->options[i].name, NAME_BYTES, "%s", name);
}

static uint32_t parse_number(const kernel *k, size_t at, const char *text, size_t *used)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        die_at(k, at, "a number is expected here");
    const unsigned long long value = strtoull(text, &end, 0);
    if (value > UINT32_MAX)
        die_at(k, at, "a number above 2^32 - 1");
    if (*end == 'u')
        end++;
    *used = (size_t)(end - text);
    return (uint32_t)value;
}

/* "option NAME = 4" alone in a line comment. */
static void parse_option_comment(kernel *k, size_t at)
{
    const char *p = k->text + at + 2;
    while (*p == ' ')
        p++;
    if (strncmp(p, "option ", 7) != 0)
        return;
    p += 7;
    char name[NAME_BYTES];
    p += copy_name(k, at, p, name);
    while (*p == ' ')
        p++;
    if (*p++ != '=')
        die_at(k, at, "expected `// option %s = NUMBER`", name);
    while (*p == ' ')
        p++;
    size_t used;
    add_option(k, at, name, false, parse_number(k, at, p, &used));
}

static void blank(kernel *k, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (k->plain[i] != '\n')
            k->plain[i] = ' ';
}

static void strip_comments(kernel *k)
{
    for (size_t i = 0; i + 1 < k->length; i++) {
        if (k->text[i] != '/')
            continue;
        size_t end = i;
        if (k->text[i + 1] == '/') {
            parse_option_comment(k, i);
            while (end < k->length && k->text[end] != '\n')
                end++;
        } else if (k->text[i + 1] == '*') {
            uint32_t depth = 1; /* WGSL's block comments nest */
            for (end = i + 2; end < k->length && depth > 0;) {
                const bool more = end + 1 < k->length;
                if (more && k->text[end] == '/' && k->text[end + 1] == '*') {
                    depth++;
                    end += 2;
                } else if (more && k->text[end] == '*' && k->text[end + 1] == '/') {
                    depth--;
                    end += 2;
                } else {
                    end++;
                }
            }
            if (depth > 0)
                die_at(k, i, "a comment without an end");
        } else {
            continue;
        }
        blank(k, i, end);
        i = end == i ? i : end - 1;
    }
}

static void replace_substitutions(kernel *k)
{
    for (char *p = k->plain; (p = strstr(p, "{{")) != NULL;) {
        const size_t at = (size_t)(p - k->plain);
        char name[NAME_BYTES];
        const size_t n = copy_name(k, at, p + 2, name);
        if (p[2 + n] != '}' || p[3 + n] != '}')
            die_at(k, at, "{{%s without }}", name);
        const option *found = find_option(k, name);
        if (found == NULL)
            die_at(k, at, "{{%s}} needs a line `// option %s = NUMBER`", name, name);
        blank(k, at, at + n + 4);
        *p = '1';
    }
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void skip_space(kernel *k)
{
    while (k->at < k->length && isspace((unsigned char)k->plain[k->at]))
        k->at++;
}

static bool accept(kernel *k, const char *word)
{
    skip_space(k);
    const size_t n = strlen(word);
    if (strncmp(k->plain + k->at, word, n) != 0)
        return false;
    if (is_name_char(word[n - 1]) && is_name_char(k->plain[k->at + n]))
        return false;
    k->at += n;
    return true;
}

static void expect(kernel *k, const char *word)
{
    if (!accept(k, word))
        die_at(k, k->at, "expected `%s`", word);
}

static void expect_name(kernel *k, char name[NAME_BYTES])
{
    skip_space(k);
    k->at += copy_name(k, k->at, k->plain + k->at, name);
}

static uint32_t expect_number(kernel *k)
{
    skip_space(k);
    size_t used;
    const uint32_t value = parse_number(k, k->at, k->plain + k->at, &used);
    k->at += used;
    return value;
}

/* Skips a declaration that is the WGSL compiler's business: up to `;` or past a closed brace. */
static void skip_declaration(kernel *k)
{
    const size_t start = k->at;
    for (uint32_t depth = 0; k->at < k->length;) {
        const char c = k->plain[k->at++];
        if (c == '{') {
            depth++;
        } else if (c == '}') {
            if (depth == 0)
                die_at(k, k->at - 1, "a brace too many");
            if (--depth == 0)
                return;
        } else if (c == ';' && depth == 0) {
            return;
        }
    }
    die_at(k, start, "a declaration without an end");
}

/* ---- declarations ---------------------------------------------------------------------------- */

static void parse_enable(kernel *k)
{
    static const struct {
        const char *name, *bit;
    } features[] = {
        {"f16", "GPU_FEATURE_F16"},
        {"subgroups", "GPU_FEATURE_SUBGROUPS"},
        {"chromium_experimental_subgroup_matrix", "GPU_FEATURE_SUBGROUP_MATRIX"},
    };
    do {
        char name[NAME_BYTES];
        const size_t at = k->at;
        expect_name(k, name);
        size_t i = 0;
        while (i < sizeof features / sizeof *features && strcmp(features[i].name, name) != 0)
            i++;
        if (i == sizeof features / sizeof *features)
            die_at(k, at, "embed knows no feature `%s`", name);
        const size_t used = strlen(k->needs);
        snprintf(k->needs + used, sizeof k->needs - used, "%s%s", used ? " | " : "",
                 features[i].bit);
    } while (accept(k, ","));
    expect(k, ";");
}

static void parse_override(kernel *k, size_t at)
{
    char name[NAME_BYTES];
    expect_name(k, name);
    expect(k, ":");
    if (!accept(k, "u32"))
        die_at(k, at, "override %s: only u32 with a default is carried over", name);
    expect(k, "=");
    const uint32_t value = expect_number(k);
    expect(k, ";");
    add_option(k, at, name, true, value);
}

static void parse_params(kernel *k, size_t at)
{
    if (k->has_params_struct)
        die_at(k, at, "struct Params twice");
    k->has_params_struct = true;
    expect(k, "{");
    while (!accept(k, "}")) {
        if (k->param_count * 4 == PARAMS_LIMIT)
            die_at(k, k->at, "struct Params is above %d bytes", PARAMS_LIMIT);
        param *p = &k->params[k->param_count++];
        expect_name(k, p->name);
        expect(k, ":");
        const size_t type_at = k->at;
        expect_name(k, p->type);
        if (strcmp(p->type, "u32") != 0 && strcmp(p->type, "i32") != 0 &&
            strcmp(p->type, "f32") != 0)
            die_at(k, type_at, "Params.%s: u32, i32 and f32 only, not %s", p->name, p->type);
        if (!accept(k, ",")) {
            expect(k, "}");
            break;
        }
    }
    if (k->param_count == 0)
        die_at(k, at, "struct Params is empty");
}

static uint32_t scalar_bytes(const char *type)
{
    if (strcmp(type, "u32") == 0 || strcmp(type, "i32") == 0 || strcmp(type, "f32") == 0)
        return 4;
    return strcmp(type, "f16") == 0 ? 2 : 0;
}

/* u32, f16, atomic<u32>, vec2<f32>, vec4<f16>, vec4f, vec2u, vec4h ... -> bytes. */
static uint32_t parse_element(kernel *k)
{
    const size_t at = k->at;
    char type[NAME_BYTES], inner[NAME_BYTES];
    expect_name(k, type);
    uint32_t bytes = scalar_bytes(type);
    if (bytes != 0)
        return bytes;
    const uint32_t width = strncmp(type, "vec2", 4) == 0   ? 2
                           : strncmp(type, "vec4", 4) == 0 ? 4
                                                           : 0;
    if (width != 0 && strlen(type) == 5 && strchr("fuih", type[4]) != NULL)
        return width * (type[4] == 'h' ? 2u : 4u);
    if ((width != 0 && type[4] == 0) || strcmp(type, "atomic") == 0) {
        expect(k, "<");
        expect_name(k, inner);
        expect(k, ">");
        bytes = scalar_bytes(inner);
        if (bytes != 0)
            return bytes * (width ? width : 1);
    }
    die_at(k, at, "an array element of type %s is not carried over", type);
}

static void parse_storage(kernel *k, uint32_t index, size_t at)
{
    if (index != k->binding_count)
        die_at(k, at, "@binding(%u) where @binding(%u) is next", index, k->binding_count);
    if (k->binding_count == MAX_ITEMS)
        die_at(k, at, "more than %d bindings", MAX_ITEMS);
    binding *b = &k->bindings[k->binding_count++];
    expect(k, "storage");
    expect(k, ",");
    if (accept(k, "read_write"))
        b->write = true;
    else
        expect(k, "read");
    expect(k, ">");
    expect_name(k, b->name);
    expect(k, ":");
    expect(k, "array");
    expect(k, "<");
    b->element_bytes = parse_element(k);
    expect(k, ">");
    expect(k, ";");
}

static void parse_group(kernel *k, size_t at)
{
    expect(k, "(");
    const uint32_t group = expect_number(k);
    expect(k, ")");
    expect(k, "@binding");
    expect(k, "(");
    const uint32_t index = expect_number(k);
    expect(k, ")");
    expect(k, "var");
    expect(k, "<");
    if (group == 0) {
        parse_storage(k, index, at);
        return;
    }
    if (group != 1 || index != 0)
        die_at(k, at, "only group 0 (storage) and group 1 binding 0 (params) are used");
    expect(k, "uniform");
    expect(k, ">");
    expect(k, "params");
    expect(k, ":");
    expect(k, "Params");
    expect(k, ";");
    k->has_params_binding = true;
}

static void parse_entry(kernel *k)
{
    expect(k, "@workgroup_size");
    while (k->at < k->length && k->plain[k->at] != ')')
        k->at++;
    expect(k, ")");
    expect(k, "fn");
    char name[NAME_BYTES];
    const size_t at = k->at;
    expect_name(k, name);
    if (strcmp(name, "main") != 0 || k->entry_count++ > 0)
        die_at(k, at, "one entry point, named main, not %s", name);
    skip_declaration(k);
}

static void parse_declaration(kernel *k)
{
    const size_t at = k->at;
    if (accept(k, "enable"))
        parse_enable(k);
    else if (accept(k, "override"))
        parse_override(k, at);
    else if (accept(k, "@group"))
        parse_group(k, at);
    else if (accept(k, "@compute"))
        parse_entry(k);
    else if (accept(k, "struct") && accept(k, "Params"))
        parse_params(k, at);
    else
        skip_declaration(k);
}

static void parse_kernel(kernel *k, const char *path)
{
    k->path = path;
    k->text = read_file(path, &k->length);
    if (strlen(k->text) != k->length)
        die_at(k, strlen(k->text), "a NUL byte");
    const char *slash = strrchr(path, '/');
    const char *file_name = slash ? slash + 1 : path;
    const size_t n = copy_name(k, 0, file_name, k->name);
    if (strcmp(file_name + n, ".wgsl") != 0)
        die("%s: the name of a kernel is letters, digits and _, then .wgsl", path);
    expand(k);
    k->plain = allocate(k->length + 1);
    memcpy(k->plain, k->text, k->length);
    strip_comments(k);
    replace_substitutions(k);
    for (skip_space(k); k->at < k->length; skip_space(k)) {
        if (accept(k, ";"))
            continue;
        parse_declaration(k);
    }
    if (k->entry_count != 1)
        die_at(k, k->length, "no `@compute @workgroup_size(...) fn main`");
    if (k->binding_count == 0)
        die_at(k, k->length, "no storage binding");
    if (k->has_params_struct != k->has_params_binding)
        die_at(k, k->length,
               "struct Params and `@group(1) @binding(0) var<uniform> params: Params;` "
               "go together");
}

/* ---- writing C ------------------------------------------------------------------------------- */

static void lower(const char *name, char out[NAME_BYTES])
{
    size_t i = 0;
    for (; name[i] != 0; i++)
        out[i] = (char)tolower((unsigned char)name[i]);
    out[i] = 0;
}

static void write_structs(FILE *out, const kernel *k)
{
    if (k->param_count > 0) {
        fprintf(out, "struct kernel_%s_params {\n", k->name);
        for (uint32_t i = 0; i < k->param_count; i++) {
            const char *type = k->params[i].type;
            fprintf(out, "    %s %s;\n",
                    type[0] == 'u'   ? "uint32_t"
                    : type[0] == 'i' ? "int32_t"
                                     : "float",
                    k->params[i].name);
        }
        fprintf(out, "};\n\n");
    }
    fprintf(out, "struct kernel_%s_views {\n", k->name);
    for (uint32_t i = 0; i < k->binding_count; i++)
        fprintf(out, "    gpu_view %s; /* %s */\n", k->bindings[i].name,
                k->bindings[i].write ? "read_write" : "read");
    fprintf(out, "};\n\n");
    if (k->option_count == 0)
        return;
    fprintf(out, "struct kernel_%s_options {\n", k->name);
    for (uint32_t i = 0; i < k->option_count; i++) {
        char name[NAME_BYTES];
        lower(k->options[i].name, name);
        fprintf(out, "    uint32_t %s; /* default %u */\n", name, k->options[i].value);
    }
    fprintf(out, "};\n\n");
}

static void write_functions(FILE *out, const kernel *k)
{
    const bool has_options = k->option_count > 0, has_params = k->param_count > 0;
    if (has_options) {
        fprintf(out, "static inline struct kernel_%s_options kernel_%s_defaults(void)\n{\n",
                k->name, k->name);
        fprintf(out, "    return (struct kernel_%s_options){", k->name);
        for (uint32_t i = 0; i < k->option_count; i++)
            fprintf(out, "%s%u", i ? ", " : "", k->options[i].value);
        fprintf(out, "};\n}\n\n");
    }
    fprintf(out, "static inline gpu_pipeline *kernel_%s_get(gpu_device *device", k->name);
    if (has_options)
        fprintf(out, ",\n    const struct kernel_%s_options *options", k->name);
    fprintf(out, ")\n{\n    return gpu_pipeline_get(device, &kernel_%s, %s);\n}\n\n", k->name,
            has_options ? "options" : "NULL");

    fprintf(out,
            "static inline void kernel_%s_dispatch(gpu_recorder *rec, gpu_pipeline *pipeline,\n"
            "    const struct kernel_%s_views *views,%s%s%s\n    uint32_t x, uint32_t y, uint32_t "
            "z)\n{\n",
            k->name, k->name, has_params ? " const struct kernel_" : "", has_params ? k->name : "",
            has_params ? "_params *values," : "");
    fprintf(out, "    const gpu_view list[] = {");
    for (uint32_t i = 0; i < k->binding_count; i++)
        fprintf(out, "%sviews->%s", i ? ", " : "", k->bindings[i].name);
    fprintf(out, "};\n    gpu_record_dispatch(rec, pipeline, list, %s, x, y, z);\n}\n\n",
            has_params ? "values" : "NULL");
}

static void write_header(FILE *out, const kernel *kernels, uint32_t count)
{
    fprintf(out, "/* Written by tools/embed from src/kernels/. */\n#ifndef TEMPER_KERNELS_GEN_H\n"
                 "#define TEMPER_KERNELS_GEN_H\n\n#include \"gpu/gpu.h\"\n\n");
    fprintf(out, "enum { KERNEL_COUNT = %u };\n\n", count);
    fprintf(out, "/* Every kernel, in the order of the names. */\n"
                 "extern const gpu_kernel *const kernel_list[];\n\n");
    for (uint32_t i = 0; i < count; i++) {
        const kernel *k = &kernels[i];
        fprintf(out, "/* %s */\n\nextern const gpu_kernel kernel_%s;\n\n", k->name, k->name);
        write_structs(out, k);
        write_functions(out, k);
    }
    fprintf(out, "#endif\n");
}

static void write_kernel(FILE *out, const kernel *k)
{
    fprintf(out, "static const char %s_source[] = {\n", k->name);
    write_bytes(out, k->text, k->length);
    fprintf(out, "};\n\nstatic const gpu_kernel_binding %s_bindings[] = {\n", k->name);
    for (uint32_t i = 0; i < k->binding_count; i++)
        fprintf(out, "    {\"%s\", %s, %u},\n", k->bindings[i].name,
                k->bindings[i].write ? "GPU_READ_WRITE" : "GPU_READ", k->bindings[i].element_bytes);
    fprintf(out, "};\n\n");
    if (k->option_count > 0) {
        fprintf(out, "static const gpu_kernel_option %s_options[] = {\n", k->name);
        for (uint32_t i = 0; i < k->option_count; i++)
            fprintf(out, "    {\"%s\", %s, %uu},\n", k->options[i].name,
                    k->options[i].is_override ? "true" : "false", k->options[i].value);
        fprintf(out, "};\n\n");
    }
    fprintf(out, "const gpu_kernel kernel_%s = {\n    .name = \"%s\",\n    .source = %s_source,\n",
            k->name, k->name, k->name);
    fprintf(out,
            "    .bindings = %s_bindings,\n    .binding_count = %u,\n    .params_bytes = %u,\n",
            k->name, k->binding_count, k->param_count * 4);
    if (k->option_count > 0)
        fprintf(out, "    .options = %s_options,\n", k->name);
    fprintf(out, "    .option_count = %u,\n    .needs = %s,\n};\n\n", k->option_count,
            k->needs[0] ? k->needs : "0");
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const kernel *)a)->name, ((const kernel *)b)->name);
}

/* All kernels, in the order of their names. */
static kernel *parse_kernels(char **paths, uint32_t count)
{
    kernel *kernels = allocate((count + 1) * sizeof *kernels);
    for (uint32_t i = 0; i < count; i++)
        parse_kernel(&kernels[i], paths[i]);
    qsort(kernels, count, sizeof *kernels, compare_names);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(kernels[i - 1].name, kernels[i].name) == 0)
            die("%s and %s have the same name", kernels[i - 1].path, kernels[i].path);
    return kernels;
}

static void free_kernels(kernel *kernels, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(kernels[i].text);
        free(kernels[i].plain);
    }
    free(kernels);
}

static void embed_kernels(const char *header, const char *source, char **paths, uint32_t count)
{
    kernel *kernels = parse_kernels(paths, count);
    FILE *out = create(header);
    write_header(out, kernels, count);
    finish(out, header);

    out = create(source);
    fprintf(
        out,
        "/* Written by tools/embed from src/kernels/. */\n#include \"kernels/kernels.gen.h\"\n\n");
    for (uint32_t i = 0; i < count; i++)
        write_kernel(out, &kernels[i]);
    fprintf(out, "const gpu_kernel *const kernel_list[] = {\n");
    for (uint32_t i = 0; i < count; i++)
        fprintf(out, "    &kernel_%s,\n", kernels[i].name);
    fprintf(out, "    NULL,\n};\n");
    finish(out, source);
    free_kernels(kernels, count);
}

static void write_texts(const char *folder, char **paths, uint32_t count)
{
    kernel *kernels = parse_kernels(paths, count);
    for (uint32_t i = 0; i < count; i++) {
        kernel *k = &kernels[i];
        char path[PATH_BYTES];
        if (snprintf(path, sizeof path, "%s/%s.wgsl", folder, k->name) >= (int)sizeof path)
            die("the path of %s in %s is too long", k->name, folder);
        FILE *out = create(path);
        const char *from = k->text;
        for (const char *next; (next = strstr(from, "{{")) != NULL;) {
            char name[NAME_BYTES];
            const size_t n = copy_name(k, (size_t)(next - k->text), next + 2, name);
            fwrite(from, 1, (size_t)(next - from), out);
            const option *found = find_option(k, name);
            if (found == NULL)
                die_at(k, (size_t)(next - k->text), "{{%s}} in a comment", name);
            fprintf(out, "%u", found->value);
            from = next + n + 4;
        }
        fputs(from, out);
        finish(out, path);
    }
    free_kernels(kernels, count);
}

static void embed_bytes(const char *source, const char *symbol, const char *path)
{
    size_t length;
    char *bytes = read_file(path, &length);
    FILE *out = create(source);
    fprintf(out,
            "/* Written by tools/embed. */\n#include <stddef.h>\n\n"
            "extern const unsigned char %s[];\nextern const size_t %s_size;\n\n",
            symbol, symbol);
    fprintf(out, "const unsigned char %s[] = {\n", symbol);
    write_bytes(out, bytes, length);
    fprintf(out, "};\nconst size_t %s_size = %zu;\n", symbol, length);
    finish(out, source);
    free(bytes);
}

int main(int argc, char **argv)
{
    if (argc >= 4 && strcmp(argv[1], "kernels") == 0)
        embed_kernels(argv[2], argv[3], argv + 4, (uint32_t)(argc - 4));
    else if (argc >= 3 && strcmp(argv[1], "texts") == 0)
        write_texts(argv[2], argv + 3, (uint32_t)(argc - 3));
    else if (argc == 5 && strcmp(argv[1], "bytes") == 0)
        embed_bytes(argv[2], argv[3], argv[4]);
    else
        die("usage: embed kernels OUT.h OUT.c FILES.wgsl... | embed texts FOLDER FILES.wgsl... | "
            "embed bytes OUT.c SYMBOL FILE");
    return 0;
}
