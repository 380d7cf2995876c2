/*
 * job.h - a request that a batch was given: a copy of it, and the answer that it gets.
 */
#ifndef TEMPER_INFER_JOB_H
#define TEMPER_INFER_JOB_H

#include <stdatomic.h>

#include "infer/answer.h"

typedef struct job {
    struct job *next; /* in a list */
    uint64_t id;
    temper_request request; /* owns its prompt, biases and stops */
    temper_on_done on_done;
    answer answer; /* begun */
    atomic_bool cancelled;
} job;

/* Copies a request that answer_check accepts and begins its answer; any thread. NULL after an
 * error. */
job *job_open(temper_engine *engine, const temper_request *request, temper_on_done on_done,
              uint32_t context, error *err);

/* Tells the caller how it ended and frees it. Its answer has ended. */
void job_finish(job *j);

/* Ends it (nothing happens where it has ended), then as above. */
void job_fail(job *j, const error *failure);
void job_cancel(job *j);

/* Frees it without a word. */
void job_close(job *j);

/* First in, first out. */
typedef struct job_list {
    job *first, *last;
    uint32_t count;
} job_list;

void job_list_push(job_list *list, job *j);
job *job_list_pop(job_list *list); /* NULL when it is empty */

/* Moves the cancelled ones to another list. */
void job_list_take_cancelled(job_list *from, job_list *to);

/* The job of that id, or NULL. */
job *job_list_find(const job_list *list, uint64_t id);

#endif
