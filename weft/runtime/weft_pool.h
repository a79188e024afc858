/* The pool of weft_pool.c, for whoever binds a program to it (weft.h), and what its regions are.

     weft_shared = weft_pool_table();      // a pool of threads, scratch memory and a clock
     weft_pool_stop();                     // ends the threads; the next region starts others */
#ifndef WEFT_POOL_H
#define WEFT_POOL_H

#include "weft.h"

WEFT_LOCAL const weft_table *weft_pool_table(void);
WEFT_LOCAL void weft_pool_stop(void);

typedef struct {
    int64_t chunks, count;
    weft_body body;
    void *args;
} weft_region;

/* Chunk i of n: the first count % n chunks are one longer. */
static inline void weft_run_chunk(const weft_region *r, int64_t chunk, int worker) {
    int64_t size = r->count / r->chunks, longer = r->count % r->chunks;
    int64_t begin = chunk * size + (chunk < longer ? chunk : longer);
    r->body(r->args, begin, begin + size + (chunk < longer), worker);
}

/* The share of one worker of a team, which may be smaller than the one asked for. */
static inline void weft_run_share(const weft_region *r, int worker, int team) {
    for (int64_t chunk = worker; chunk < r->chunks; chunk += team) weft_run_chunk(r, chunk, worker);
}

#endif
