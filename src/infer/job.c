#include "infer/job.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* ---- a job ---------------------------------------------------------------------------------- */

/* A copy of `size` bytes; NULL for none. */
static void *copy(const void *bytes, size_t size, bool *failed)
{
    if (size == 0)
        return NULL;
    void *block = mem_alloc(size);
    if (block == NULL)
        *failed = true;
    else
        memcpy(block, bytes, size);
    return block;
}

static temper_status copy_request(job *j, const temper_request *r, error *err)
{
    bool failed = false;
    temper_request *own = &j->request;
    *own = *r;
    own->prompt.ids = copy(r->prompt.ids, r->prompt.count * sizeof *r->prompt.ids, &failed);
    own->sampling.biases =
        copy(r->sampling.biases, r->sampling.bias_count * sizeof *r->sampling.biases, &failed);
    char **stops = r->stop_count > 0 ? mem_calloc(r->stop_count, sizeof *stops) : NULL;
    failed = failed || (r->stop_count > 0 && stops == NULL);
    for (size_t i = 0; !failed && i < r->stop_count; i++) {
        stops[i] = mem_strdup(r->stops[i]);
        failed = stops[i] == NULL;
    }
    own->stops = (const char *const *)stops;
    return failed ? error_set(err, TEMPER_NO_MEMORY, "no memory for a request") : TEMPER_OK;
}

void job_close(job *j)
{
    answer_close(&j->answer);
    for (size_t i = 0; j->request.stops != NULL && i < j->request.stop_count; i++)
        mem_free((void *)(uintptr_t)j->request.stops[i]);
    mem_free((void *)(uintptr_t)j->request.stops);
    mem_free((void *)(uintptr_t)j->request.sampling.biases);
    mem_free(j->request.prompt.ids);
    mem_free(j);
}

job *job_open(temper_engine *engine, const temper_request *request, temper_on_done on_done,
              uint32_t context, error *err)
{
    job *j = mem_calloc(1, sizeof *j);
    if (j == NULL) {
        error_set(err, TEMPER_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    j->on_done = on_done;
    atomic_init(&j->cancelled, false);
    if (copy_request(j, request, err) != TEMPER_OK ||
        answer_begin(&j->answer, engine, &j->request, context, err) != TEMPER_OK) {
        job_close(j);
        return NULL;
    }
    return j;
}

void job_finish(job *j)
{
    assert(j->answer.ended);
    if (j->on_done != NULL) {
        temper_result result;
        answer_result(&j->answer, &result);
        j->on_done(j->id, &result, &j->answer.failure, j->request.user);
    }
    job_close(j);
}

void job_fail(job *j, const error *failure)
{
    answer_fail(&j->answer, failure->status, failure->text);
    job_finish(j);
}

void job_cancel(job *j)
{
    answer_end(&j->answer, TEMPER_FINISH_CANCELLED);
    job_finish(j);
}

/* ---- lists ---------------------------------------------------------------------------------- */

void job_list_push(job_list *list, job *j)
{
    j->next = NULL;
    if (list->last != NULL)
        list->last->next = j;
    else
        list->first = j;
    list->last = j;
    list->count++;
}

job *job_list_pop(job_list *list)
{
    job *j = list->first;
    if (j == NULL)
        return NULL;
    list->first = j->next;
    if (list->first == NULL)
        list->last = NULL;
    list->count--;
    return j;
}

void job_list_take_cancelled(job_list *from, job_list *to)
{
    job_list kept = {0};
    for (job *j = job_list_pop(from); j != NULL; j = job_list_pop(from))
        job_list_push(atomic_load(&j->cancelled) ? to : &kept, j);
    *from = kept;
}

job *job_list_find(const job_list *list, uint64_t id)
{
    job *j = list->first;
    while (j != NULL && j->id != id)
        j = j->next;
    return j;
}
