/*
 * script.c - QuickJS-ng with a heap that is one list of blocks. Closing the engine frees the list,
 * at whatever point the engine is. That makes the way out of a lack of memory short and safe: a
 * jump out of the engine, whose own handling of it is not sound everywhere (its compiler reads
 * behind a buffer that did not grow).
 */
#include "text/script.h"

#include <assert.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "text/utf8.h"

/* The module's source, generated from the package's dist/index.js; NUL-terminated. */
extern const unsigned char jinja_module[];
extern const size_t jinja_module_size;

/* What the module's Template class does, with three differences: what the template raises itself
 * can be told from other errors; range() refuses to fill the heap; strftime_now needs no Intl. */
static const char glue[] =
    "(function (jinja, strftime) {\n"
    "  class Refusal extends Error {}\n"
    "  function range(start, stop, step = 1) {\n"
    "    if (stop === undefined) [start, stop] = [0, start];\n"
    "    if (step === 0) throw new Error('range() step must not be zero');\n"
    "    const count = Math.max(0, Math.ceil((stop - start) / step));\n"
    "    if (!(count <= 1e6)) throw new Error(`range() of ${count} numbers`);\n"
    "    return Array.from({ length: count }, (_, i) => start + i * step);\n"
    "  }\n"
    "  return {\n"
    "    parse(text) {\n"
    "      return jinja.parse(jinja.tokenize(text, { lstrip_blocks: true, trim_blocks: true }));\n"
    "    },\n"
    "    render(program, variables) {\n"
    "      const scope = new jinja.Environment();\n"
    "      const builtins = {\n"
    "        true: true, True: true, false: false, False: false, none: null, None: null,\n"
    "        range, strftime_now: strftime,\n"
    "        raise_exception: (message) => { throw new Refusal(message); },\n"
    "      };\n"
    "      for (const [name, value] of Object.entries({ ...builtins, ...variables }))\n"
    "        scope.set(name, value);\n"
    "      try {\n"
    "        return { text: new jinja.Interpreter(scope).run(program).value.toWellFormed() };\n"
    "      } catch (error) {\n"
    "        if (error instanceof Refusal) return { refusal: error.message.toWellFormed() };\n"
    "        throw error;\n"
    "      }\n"
    "    },\n"
    "  };\n"
    "})";

/* ---- the heap -------------------------------------------------------------------------------- */

typedef union heap_block {
    struct {
        union heap_block *previous;
        union heap_block *next;
        size_t size;   /* of what follows */
    } link;
    max_align_t align;
} heap_block;

struct script {
    heap_block *blocks;
    size_t heap_bytes;
    jmp_buf way_out;       /* of script_run */
    bool running;
    bool heap_full;        /* why it was left: the limit, or else the host */
    bool out_of_time;
    strbuf scratch;        /* here and not on a body's stack, which may be left */
    struct timespec begin;
    JSRuntime *runtime;
    JSContext *context;
    JSValue functions;
};

/* Leaves the body that is running. */
static _Noreturn void leave(script *s, bool heap_full)
{
    assert(s->running);
    s->heap_full = heap_full;
    longjmp(s->way_out, 1);
}

static void need_room(script *s, size_t more)
{
    if (more > SCRIPT_HEAP_BYTES || s->heap_bytes > SCRIPT_HEAP_BYTES - more)
        leave(s, true);
}

static void *link_block(script *s, heap_block *block, size_t size)
{
    block->link.size = size;
    block->link.previous = NULL;
    block->link.next = s->blocks;
    if (s->blocks != NULL)
        s->blocks->link.previous = block;
    s->blocks = block;
    s->heap_bytes += size;
    return block + 1;
}

static void unlink_block(script *s, heap_block *block)
{
    if (block->link.previous != NULL)
        block->link.previous->link.next = block->link.next;
    else
        s->blocks = block->link.next;
    if (block->link.next != NULL)
        block->link.next->link.previous = block->link.previous;
    assert(s->heap_bytes >= block->link.size);
    s->heap_bytes -= block->link.size;
}

static void *heap_malloc(void *user, size_t size)
{
    need_room(user, size);
    heap_block *block = mem_alloc(sizeof *block + size);
    if (block == NULL)
        leave(user, false);
    return link_block(user, block, size);
}

static void *heap_calloc(void *user, size_t count, size_t size)
{
    const size_t bytes = size != 0 && count > SCRIPT_HEAP_BYTES / size ? SIZE_MAX : count * size;

    need_room(user, bytes);
    heap_block *block = mem_calloc(1, sizeof *block + bytes);
    if (block == NULL)
        leave(user, false);
    return link_block(user, block, bytes);
}

static void heap_free(void *user, void *data)
{
    if (data == NULL)
        return;
    heap_block *block = (heap_block *)data - 1;
    unlink_block(user, block);
    mem_free(block);
}

static void *heap_realloc(void *user, void *data, size_t size)
{
    if (data == NULL)
        return heap_malloc(user, size);
    heap_block *block = (heap_block *)data - 1;
    const size_t old_size = block->link.size;
    if (size > old_size)
        need_room(user, size - old_size);
    unlink_block(user, block);
    heap_block *moved = mem_realloc(block, sizeof *block + size);
    if (moved == NULL) {
        link_block(user, block, old_size);
        leave(user, false);
    }
    return link_block(user, moved, size);
}

static size_t heap_usable_size(const void *data)
{
    return data == NULL ? 0 : ((const heap_block *)data - 1)->link.size;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Processor time, not the wall's: a busy machine does not make a template fail. */
static struct timespec processor_time(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now;
}

static int interrupt(JSRuntime *runtime, void *user)
{
    script *s = user;
    const struct timespec now = processor_time();
    const time_t seconds = now.tv_sec - s->begin.tv_sec;

    (void)runtime;
    if (seconds > SCRIPT_SECONDS
        || (seconds == SCRIPT_SECONDS && now.tv_nsec >= s->begin.tv_nsec))
        s->out_of_time = true;
    return s->out_of_time;
}

temper_status script_run(script *s, const char *what, script_body body, void *user, error *err)
{
    temper_status status;

    assert(!s->running);
    s->begin = processor_time();
    s->out_of_time = false;
    s->running = true;
    if (s->runtime != NULL)
        JS_UpdateStackTop(s->runtime);
    if (setjmp(s->way_out) == 0)
        status = body(s, user, err);
    else if (s->heap_full)
        status = error_set(err, TEMPER_TEMPLATE, "%s: it needs more than %d MiB", what,
                           SCRIPT_HEAP_BYTES >> 20);
    else
        status = error_set(err, TEMPER_NO_MEMORY, "%s: no memory", what);
    s->running = false;
    return status;
}

/* strftime_now(format): the local time, as Hugging Face's library gives it to templates. */
static JSValue strftime_now(JSContext *context, JSValueConst self, int count,
                            JSValueConst *arguments)
{
    char text[256];
    struct tm parts;
    const time_t now = time(NULL);
    (void)self;
    const char *format = JS_ToCString(context, count > 0 ? arguments[0] : JS_UNDEFINED);

    if (format == NULL)
        return JS_EXCEPTION;
    size_t length = 0;
    if (format[0] != '\0' && localtime_r(&now, &parts) != NULL)
        length = strftime(text, sizeof text, format, &parts);
    const bool failed = length == 0 && format[0] != '\0';
    JS_FreeCString(context, format);
    if (failed)
        return JS_ThrowRangeError(context, "strftime_now: the date has no text or a very long one");
    return JS_NewStringLen(context, text, length);
}

/* ---- start and end --------------------------------------------------------------------------- */

/* The namespace of the Jinja module, or an exception. */
static JSValue load_module(JSContext *context)
{
    JSValue compiled = JS_Eval(context, (const char *)jinja_module, jinja_module_size, "jinja",
                               JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
    if (JS_IsException(compiled))
        return compiled;
    assert(JS_VALUE_GET_TAG(compiled) == JS_TAG_MODULE);
    JSModuleDef *module = JS_VALUE_GET_PTR(compiled);
    JSValue done = JS_EvalFunction(context, compiled);
    if (JS_IsException(done))
        return done;
    if (JS_PromiseState(context, done) == JS_PROMISE_REJECTED)
        JS_Throw(context, JS_PromiseResult(context, done));
    JS_FreeValue(context, done);
    return JS_HasException(context) ? JS_EXCEPTION : JS_GetModuleNamespace(context, module);
}

static const char cannot_start[] = "the template engine does not start";

/* A body: makes the engine and loads the functions. */
static temper_status start(script *s, void *user, error *err)
{
    static const JSMallocFunctions heap = {heap_calloc, heap_malloc, heap_free, heap_realloc,
                                           heap_usable_size};
    JSValue arguments[2] = {JS_UNDEFINED, JS_UNDEFINED};

    (void)user;
    s->runtime = JS_NewRuntime2(&heap, s);
    if (s->runtime == NULL)
        return error_set(err, TEMPER_INTERNAL, "%s", cannot_start);
    JS_SetMaxStackSize(s->runtime, SCRIPT_STACK_BYTES);
    JS_SetInterruptHandler(s->runtime, interrupt, s);
    s->context = JS_NewContext(s->runtime);
    if (s->context == NULL)
        return error_set(err, TEMPER_INTERNAL, "%s", cannot_start);

    JSValue maker = JS_Eval(s->context, glue, sizeof glue - 1, "glue", JS_EVAL_TYPE_GLOBAL);
    if (!JS_IsException(maker))
        arguments[0] = load_module(s->context);
    if (!JS_HasException(s->context))
        arguments[1] = JS_NewCFunction(s->context, strftime_now, "strftime_now", 1);
    if (!JS_HasException(s->context))
        s->functions = JS_Call(s->context, maker, JS_UNDEFINED, 2, arguments);
    if (JS_HasException(s->context))
        return script_failure(s, TEMPER_INTERNAL, cannot_start, err);
    assert(JS_IsObject(s->functions));
    JS_FreeValue(s->context, maker);
    JS_FreeValue(s->context, arguments[0]);
    JS_FreeValue(s->context, arguments[1]);
    return TEMPER_OK;
}

temper_status script_open(script **out, error *err)
{
    *out = NULL;
    script *s = mem_calloc(1, sizeof *s);
    if (s == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory", cannot_start);
    s->functions = JS_UNDEFINED;
    const temper_status status = script_run(s, cannot_start, start, NULL, err);
    if (status != TEMPER_OK) {
        script_close(s);
        return status;
    }
    *out = s;
    return TEMPER_OK;
}

void script_close(script *s)
{
    if (s == NULL)
        return;
    assert(!s->running);
    for (heap_block *block = s->blocks, *next; block != NULL; block = next) {
        next = block->link.next;
        mem_free(block);
    }
    strbuf_free(&s->scratch);
    mem_free(s);
}

JSContext *script_context(script *s)
{
    return s->context;
}

/* ---- calls ----------------------------------------------------------------------------------- */

JSValue script_call(script *s, const char *function, int count, JSValue *arguments)
{
    JSContext *context = s->context;
    JSValue result = JS_EXCEPTION;

    if (!JS_HasException(context)) {
        JSValue callee = JS_GetPropertyStr(context, s->functions, function);
        if (!JS_IsException(callee))
            result = JS_Call(context, callee, JS_UNDEFINED, count, arguments);
        JS_FreeValue(context, callee);
    }
    for (int i = 0; i < count; i++)
        JS_FreeValue(context, arguments[i]);
    return result;
}

temper_status script_failure(script *s, temper_status status, const char *what, error *err)
{
    JSContext *context = s->context;

    if (s->out_of_time)
        return error_set(err, TEMPER_TEMPLATE, "%s: it ran for more than %d seconds", what,
                         SCRIPT_SECONDS);
    JSValue exception = JS_GetException(context);
    JSValue message = JS_IsObject(exception) ? JS_GetPropertyStr(context, exception, "message")
                                             : JS_DupValue(context, exception);
    const char *text = JS_ToCString(context, message);
    status = error_set(err, status, "%s: %s", what, text == NULL ? "unknown error" : text);
    JS_FreeCString(context, text);
    JS_FreeValue(context, message);
    JS_FreeValue(context, exception);
    return status;
}

JSValue script_string(script *s, const char *bytes, size_t length)
{
    if (utf8_valid_length(bytes, length) == length)
        return JS_NewStringLen(s->context, bytes, length);

    strbuf_clear(&s->scratch);
    utf8_append_clean(&s->scratch, bytes, length);
    if (s->scratch.failed)
        leave(s, false);
    return JS_NewStringLen(s->context, s->scratch.data, s->scratch.length);
}
