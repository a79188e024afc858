/* What every emitted C file includes: integer types, the parallel loop and per-worker scratch.

     static void body(void *args, int64_t begin, int64_t end, int worker) { ... }
     weft_for(rows, 64, body, &args);          // at least 64 rows for each thread that takes part

   The thread pool (weft_pool.c) lives in a library with weft_runtime.c, built once and shared by
   all programs of a process; a program reaches it through the table that weft_bind() is given. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_EXPORT __attribute__((visibility("default")))
#define WEFT_LOCAL __attribute__((visibility("hidden")))
#define WEFT_ALIGNMENT 64 /* of outputs, temporaries and scratch; inputs promise nothing */

/* Iterations [begin, end) on worker 0 <= worker < weft_threads. */
typedef void (*weft_body)(void *args, int64_t begin, int64_t end, int worker);

typedef struct {
    void (*parallel)(int threads, int64_t chunks, int64_t count, weft_body body, void *args);
    void *(*scratch)(size_t bytes);
    double (*now)(void); /* microseconds */
} weft_table;

/* Of what each call sets. A process has one torch.get_num_threads(); a library whose callers ask
   for several numbers at a time defines this as _Thread_local. */
#ifndef WEFT_PER_CALL
#define WEFT_PER_CALL
#endif

extern WEFT_LOCAL const weft_table *weft_shared;
extern WEFT_LOCAL WEFT_PER_CALL int weft_threads; /* of the call */

/* Run `body` over [0, count) in static contiguous chunks of at least `grain` iterations, one per
   thread. One chunk runs on the caller, as does everything inside another parallel region. */
static inline void weft_for(int64_t count, int64_t grain, weft_body body, void *args) {
    int threads = weft_threads;
    int64_t chunks = count / (grain > 1 ? grain : 1);
    if (chunks > threads) chunks = threads;
    if (chunks > 1)
        weft_shared->parallel(threads, chunks, count, body, args);
    else if (count > 0)
        body(args, 0, count, 0);
}

/* Where a checked function of weft_math.h leaves the number of a fault: an int of the call that
   this thread works for, which weft_steps.c reads after each kernel. */
enum { WEFT_INDEX_OUT_OF_RANGE = 1, WEFT_DIVISION_BY_ZERO = 2 };
extern WEFT_LOCAL _Thread_local int *weft_fault;

typedef struct {
    weft_body body;
    void *args;
    int *fault;
} weft_checked;

static inline void weft_checked_body(void *args, int64_t begin, int64_t end, int worker) {
    const weft_checked *c = args;
    weft_fault = c->fault;
    c->body(c->args, begin, end, worker);
}

/* weft_for, for a body with checked functions. */
static inline void weft_for_checked(int64_t count, int64_t grain, weft_body body, void *args) {
    weft_checked c = {body, args, weft_fault};
    weft_for(count, grain, weft_checked_body, &c);
}

/* A 64-byte aligned buffer private to the calling thread and kept between calls. The next call on
   the same thread returns the same memory, moved when it has to grow; the contents are undefined. */
static inline void *weft_scratch(size_t bytes) { return weft_shared->scratch(bytes); }

#endif
