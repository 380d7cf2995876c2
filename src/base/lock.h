/*
 * lock.h - one thread at a time: for the few places that several threads may enter.
 */
#ifndef TEMPER_BASE_LOCK_H
#define TEMPER_BASE_LOCK_H

typedef struct lock lock;

/* NULL when there is no memory. */
lock *lock_open(void);
void lock_close(lock *l); /* NULL is fine; nobody holds it */

/* Taken once by a thread, never twice. */
void lock_take(lock *l);
void lock_give(lock *l);

#endif
