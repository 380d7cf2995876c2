/*
 * eval_choices.c - `temper eval choices`: questions with several answers, of which the model finds
 * one the likeliest.
 *
 * A choice's score is the sum of the log-probabilities of its tokens after the prompt. Prompt and
 * choice are tokenised as one text; the choice begins after as many tokens as the prompt alone has,
 * without white space at its end, as EleutherAI's evaluation harness counts. Tokens that choices of
 * a question have in common with the one before are computed once.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "eval.h"

static struct choices_options {
    const char *data, *join;
    temper_kv kv;
    bool json;
} opt = {.join = " "};

static const option options[] = {
    {"--data", OPTION_TEXT, &opt.data, "FILE",
     "a JSON object a line: question or prompt, a text; choices, a list of texts; answer, the "
     "right one's place from 0 on or its letter from A on"},
    {"--join", OPTION_TEXT, &opt.join, "TEXT",
     "what stands between a prompt and a choice where neither has white space (default: a space)"},
    {"--json", OPTION_FLAG, &opt.json, NULL,
     "an object a question: line, answer, best, best_norm, logprobs, bytes; at the end questions, "
     "acc, acc_stderr, acc_norm, acc_norm_stderr"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {options, cli_cache_options, cli_widen_options,
                                       cli_device_options, NULL};

/* ---- the data ------------------------------------------------------------------------------- */

typedef struct choice {
    uint32_t *ids; /* of prompt and choice */
    size_t count;
    size_t first; /* place of the choice's first token, at least 1 */
    size_t bytes; /* of the choice's text */
    double logprob;
} choice;

typedef struct question {
    size_t line; /* in the file, from 1 on */
    choice *choices;
    size_t count, answer;
} question;

typedef struct questions {
    question *rows;
    size_t count, capacity;
    size_t lines;   /* of the file that hold one */
    size_t longest; /* tokens of a whole choice */
} questions;

static void questions_free(questions *q)
{
    for (size_t i = 0; i < q->count; i++) {
        for (size_t c = 0; c < q->rows[i].count; c++)
            free(q->rows[i].choices[c].ids);
        free(q->rows[i].choices);
    }
    free(q->rows);
}

static temper_status bad_line(temper_error *err, size_t line, const char *what)
{
    return error_set(err, TEMPER_BAD_FILE, "%s:%zu: %s", opt.data, line, what);
}

/* The answer's place among so many choices; `count` when it is none. */
static size_t answer_place(const json_t *answer, size_t count)
{
    if (json_is_integer(answer)) {
        const json_int_t place = json_integer_value(answer);
        return place >= 0 && (size_t)place < count ? (size_t)place : count;
    }
    if (!json_is_string(answer) || json_string_length(answer) != 1)
        return count;
    const int letter = toupper((unsigned char)json_string_value(answer)[0]);
    return letter >= 'A' && letter <= 'Z' && (size_t)(letter - 'A') < count ? (size_t)(letter - 'A')
                                                                            : count;
}

/* What a line must have; *prompt and *choices are views of it. */
static temper_status check_line(const json_t *object, size_t line, const json_t **prompt,
                                const json_t **choices, size_t *answer, temper_error *err)
{
    const json_t *asked = json_object_get(object, "question");
    const json_t *text = json_object_get(object, "prompt");
    if (!json_is_object(object))
        return bad_line(err, line, "is no JSON object");
    if ((asked == NULL) == (text == NULL))
        return bad_line(err, line, "needs either \"question\" or \"prompt\"");
    *prompt = asked != NULL ? asked : text;
    *choices = json_object_get(object, "choices");
    if (!json_is_string(*prompt))
        return bad_line(err, line,
                        asked != NULL ? "\"question\" is no text" : "\"prompt\" is no text");
    if (!json_is_array(*choices) || json_array_size(*choices) < 2)
        return bad_line(err, line, "\"choices\" must be a list of two texts or more");
    for (size_t i = 0; i < json_array_size(*choices); i++)
        if (json_string_length(json_array_get(*choices, i)) == 0)
            return error_set(err, TEMPER_BAD_FILE, "%s:%zu: choice %zu is no text, or an empty one",
                             opt.data, line, i);
    *answer = answer_place(json_object_get(object, "answer"), json_array_size(*choices));
    if (*answer == json_array_size(*choices))
        return error_set(err, TEMPER_BAD_FILE,
                         "%s:%zu: \"answer\" must be a choice's place, 0 to %zu, or its letter",
                         opt.data, line, json_array_size(*choices) - 1);
    return TEMPER_OK;
}

/* ---- tokens --------------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c != '\0' && strchr(" \t\n\r\f\v", c) != NULL;
}

/* Prompt, what joins them, and choice: the text that is tokenised. */
static void put_whole(strbuf *out, const json_t *prompt, const json_t *text)
{
    const char *left = json_string_value(prompt), *right = json_string_value(text);
    const size_t length = json_string_length(prompt);
    strbuf_clear(out);
    strbuf_append(out, left, length);
    if (length > 0 && !is_space(left[length - 1]) && !is_space(right[0]))
        strbuf_puts(out, opt.join);
    strbuf_append(out, right, json_string_length(text));
}

/* Where the prompt has no token, the choice begins after BOS, or after the token that ends texts.
 */
static temper_status take_tokens(const temper_engine *engine, temper_tokens tokens, size_t before,
                                 choice *c, temper_error *err)
{
    const temper_model_info *info = temper_engine_info(engine);
    const int32_t start = info->bos >= 0 ? info->bos : info->eos;
    if (tokens.count == 0)
        return error_set(err, TEMPER_BAD_FILE, "the vocabulary has no token for it");
    c->first = before < tokens.count ? before : tokens.count - 1;
    const size_t added = c->first == 0;
    if (added > 0 && start < 0)
        return error_set(err, TEMPER_BAD_FILE,
                         "the prompt is empty, and the vocabulary has no token to begin with");
    c->count = tokens.count + added;
    c->ids = malloc(c->count * sizeof *c->ids);
    if (c->ids == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for its tokens");
    c->ids[0] = (uint32_t)start;
    memcpy(c->ids + added, tokens.ids, tokens.count * sizeof *c->ids);
    c->first += added;
    return TEMPER_OK;
}

static temper_status tokenize_choices(const temper_engine *engine, const json_t *prompt,
                                      const json_t *texts, question *q, temper_error *err)
{
    size_t length = json_string_length(prompt);
    while (length > 0 && is_space(json_string_value(prompt)[length - 1]))
        length--;
    strbuf whole = {0};
    temper_tokens alone = {0};
    temper_status status =
        temper_tokenize(engine, json_string_value(prompt), length, TEMPER_AUTO_BOS, &alone, err);
    for (size_t i = 0; status == TEMPER_OK && i < q->count; i++) {
        const json_t *text = json_array_get(texts, i);
        temper_tokens tokens = {0};
        put_whole(&whole, prompt, text);
        q->choices[i].bytes = json_string_length(text);
        if (whole.failed)
            status = error_set(err, TEMPER_NO_MEMORY, "no memory for the text");
        if (status == TEMPER_OK)
            status = temper_tokenize(engine, strbuf_text(&whole), whole.length, TEMPER_AUTO_BOS,
                                     &tokens, err);
        if (status == TEMPER_OK)
            status = take_tokens(engine, tokens, alone.count, &q->choices[i], err);
        if (status != TEMPER_OK)
            error_prefix(err, "choice %zu", i);
        temper_free(tokens.ids);
    }
    temper_free(alone.ids);
    strbuf_free(&whole);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static temper_status add_question(const temper_engine *engine, const json_t *object, size_t line,
                                  questions *all, temper_error *err)
{
    const json_t *prompt = NULL, *texts = NULL;
    question q = {.line = line};
    temper_status status = check_line(object, line, &prompt, &texts, &q.answer, err);
    if (status != TEMPER_OK)
        return status;
    all->lines++;
    if (engine == NULL)
        return TEMPER_OK;
    if (all->count == all->capacity) {
        const size_t capacity = all->capacity == 0 ? 256 : all->capacity * 2;
        question *larger = realloc(all->rows, capacity * sizeof *larger);
        if (larger == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu questions", capacity);
        all->rows = larger;
        all->capacity = capacity;
    }
    q.count = json_array_size(texts);
    q.choices = calloc(q.count, sizeof *q.choices);
    if (q.choices == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu choices", q.count);
    all->rows[all->count++] = q;
    status = tokenize_choices(engine, prompt, texts, &q, err);
    for (size_t i = 0; status == TEMPER_OK && i < q.count; i++) {
        const uint32_t context = temper_engine_info(engine)->context;
        all->longest = q.choices[i].count > all->longest ? q.choices[i].count : all->longest;
        if (q.choices[i].count > context)
            status = error_set(err, TEMPER_CONTEXT_FULL,
                               "prompt and choice %zu have %zu tokens, and the model's context %u",
                               i, q.choices[i].count, context);
    }
    if (status != TEMPER_OK)
        error_prefix(err, "%s:%zu", opt.data, line);
    return status;
}

/* Every line is checked before the first is computed, with engine == NULL as far as that goes
 * without a model. Lines of white space alone are none. */
static temper_status read_questions(const temper_engine *engine, const char *text, size_t length,
                                    questions *all, temper_error *err)
{
    size_t line = 0;
    temper_status status = TEMPER_OK;
    all->lines = 0;
    for (size_t at = 0; status == TEMPER_OK && at < length;) {
        const char *begin = text + at, *end = memchr(begin, '\n', length - at);
        const size_t size = end == NULL ? length - at : (size_t)(end - begin);
        size_t blank = 0;
        line++;
        at += size + 1;
        while (blank < size && is_space(begin[blank]))
            blank++;
        if (blank == size)
            continue;
        json_error_t why;
        json_t *object = json_loadb(begin, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
        status = object == NULL ? error_set(err, TEMPER_BAD_FILE, "%s:%zu: is not JSON: %s",
                                            opt.data, line, why.text)
                                : add_question(engine, object, line, all, err);
        json_decref(object);
    }
    if (status == TEMPER_OK && all->lines == 0)
        return error_set(err, TEMPER_BAD_FILE, "%s: holds no question", opt.data);
    return status;
}

/* ---- scores --------------------------------------------------------------------------------- */

static temper_status score_choice(temper_session *session, choice *c, float *nll, temper_error *err)
{
    const temper_status status =
        temper_session_score(session, (temper_tokens){c->ids, c->count}, c->first, nll, err);
    c->logprob = 0.0;
    for (size_t i = 0; status == TEMPER_OK && i < c->count - c->first; i++)
        c->logprob -= (double)nll[i];
    if (status == TEMPER_OK && !isfinite(c->logprob))
        return error_set(err, TEMPER_NOT_FINITE, "the log-probability is not finite");
    return status;
}

/* The place of the best choice, the first among equals; per byte of its text with `norm`. */
static size_t best_of(const question *q, bool norm)
{
    size_t best = 0;
    for (size_t i = 1; i < q->count; i++) {
        const choice *a = &q->choices[best], *b = &q->choices[i];
        const double of_a = norm ? a->logprob / (double)a->bytes : a->logprob;
        const double of_b = norm ? b->logprob / (double)b->bytes : b->logprob;
        best = of_b > of_a ? i : best;
    }
    return best;
}

static void print_question(const question *q)
{
    json_t *logprobs = json_array(), *bytes = json_array();
    for (size_t i = 0; i < q->count; i++) {
        json_array_append_new(logprobs, json_real(q->choices[i].logprob));
        json_array_append_new(bytes, json_integer((json_int_t)q->choices[i].bytes));
    }
    cli_print_json(json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "line", (json_int_t)q->line,
                             "answer", (json_int_t)q->answer, "best", (json_int_t)best_of(q, false),
                             "best_norm", (json_int_t)best_of(q, true), "logprobs", logprobs,
                             "bytes", bytes));
    cli_write("", 0);
}

/* The standard error of a share of n. */
static double share_error(double share, double n)
{
    return n > 1.0 ? sqrt(share * (1.0 - share) / (n - 1.0)) : 0.0;
}

static void print_accuracy(size_t right, size_t right_norm, size_t count)
{
    const double n = (double)count, acc = (double)right / n, norm = (double)right_norm / n;
    const double acc_error = share_error(acc, n), norm_error = share_error(norm, n);
    if (opt.json) {
        cli_print_json(eval_with_lossy(
            json_pack("{s:I, s:f, s:f, s:f, s:f}", "questions", (json_int_t)count, "acc", acc,
                      "acc_stderr", acc_error, "acc_norm", norm, "acc_norm_stderr", norm_error)));
        return;
    }
    cli_print("questions           %zu%s\n", count, eval_lossy_note());
    cli_print("accuracy            %.2f \u00b1 %.2f %%\n", 100.0 * acc, 100.0 * acc_error);
    cli_print("accuracy, per byte  %.2f \u00b1 %.2f %%\n", 100.0 * norm, 100.0 * norm_error);
}

static temper_status answer_all(temper_engine *engine, questions *all, temper_error *err)
{
    const temper_session_desc desc = {.context = (uint32_t)all->longest, .kv = opt.kv};
    temper_session *session = NULL;
    temper_status status = temper_session_open(engine, &desc, &session, err);
    float *nll = malloc(all->longest * sizeof *nll);
    size_t right = 0, right_norm = 0;
    if (status == TEMPER_OK && nll == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for the scores");
    for (size_t i = 0; status == TEMPER_OK && i < all->count && !cli_output_failed(); i++) {
        question *q = &all->rows[i];
        for (size_t c = 0; status == TEMPER_OK && c < q->count && !cli_interrupted(); c++) {
            status = score_choice(session, &q->choices[c], nll, err);
            if (status != TEMPER_OK)
                error_prefix(err, "%s:%zu: choice %zu", opt.data, q->line, c);
        }
        if (status != TEMPER_OK || cli_interrupted())
            break;
        right += best_of(q, false) == q->answer;
        right_norm += best_of(q, true) == q->answer;
        if (opt.json)
            print_question(q);
        else
            cli_progress("question %zu/%zu, %.1f %% right", i + 1, all->count,
                         100.0 * (double)right / (double)(i + 1));
    }
    cli_progress_clear();
    if (status == TEMPER_OK && !cli_interrupted() && !cli_output_failed())
        print_accuracy(right, right_norm, all->count);
    free(nll);
    temper_session_close(session);
    return status;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int run(int argc, char **argv)
{
    const char *model = NULL;
    int usage = args_parse("eval choices", argc, argv, tables, &model, 1);
    if (usage == 0)
        usage = cli_kv("eval choices", &opt.kv);
    if (usage == 0 && opt.data == NULL)
        usage = cli_usage_error("eval choices", "give questions with --data FILE");
    if (usage != 0)
        return usage;
    const char *path = cli_model_path(model);
    if (path == NULL)
        return EXIT_FAILED;
    temper_error err = {0};
    temper_engine *engine = NULL;
    questions all = {0};
    char *text = NULL;
    size_t length = 0;
    temper_status status = cli_read_file(opt.data, &text, &length, &err);
    if (status == TEMPER_OK)
        status = read_questions(NULL, text, length, &all, &err);
    if (status == TEMPER_OK)
        status = cli_open_engine(path, 0, &engine, &err);
    if (status == TEMPER_OK)
        status = read_questions(engine, text, length, &all, &err);
    free(text);
    if (status == TEMPER_OK)
        status = answer_all(engine, &all, &err);
    questions_free(&all);
    temper_engine_close(engine);
    if (status == TEMPER_OK && cli_interrupted())
        return EXIT_INTERRUPTED;
    return status != TEMPER_OK ? cli_fail("eval choices", &err) : cli_finish("eval choices");
}

const eval_command eval_choices = {
    .name = "choices",
    .usage = "temper eval choices [MODEL] --data FILE [OPTIONS]",
    .about =
        "Multiple choice: the share of questions whose right answer the model finds likeliest, "
        "by the sum of the log-probabilities of its tokens after the prompt, and by that sum "
        "per byte.",
    .tables = tables,
    .run = run,
};
