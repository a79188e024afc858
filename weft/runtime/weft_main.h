/* What runs a program's steps. Its weft_main.c says which those are:

     #define WEFT_CHECKED 0          // whether a kernel may have a fault
     #define WEFT_STAMPED 1          // how many inputs the once steps read
     #include "weft_main.h"
     const weft_step weft_steps[] = {{relu, weft_apply2, weft_operands}};
     const weft_input weft_stamped[] = {{0, 1024}};
     WEFT_EXPORT int weft_segment0(void **b, int threads) { return weft_run(0, 1, b, threads); }

   A step is data, so that this compiles at once however many there are: a kernel, the function that
   passes it its operands, and which buffers those are. All names here begin with weft_, so that a
   kernel may have any other. */
#ifndef WEFT_MAIN_H
#define WEFT_MAIN_H

#include <string.h>

#include "weft.h"

typedef void (*weft_kernel)(void);
typedef struct {
    weft_kernel run;
    void (*apply)(weft_kernel run, void **b, const int *operand);
    const int *operand;
} weft_step;

typedef struct {
    int buffer;
    int64_t words;
} weft_input;

extern WEFT_LOCAL const weft_step weft_steps[];
extern WEFT_LOCAL const weft_input weft_stamped[];

const weft_table *weft_shared;
int weft_threads = 1;
_Thread_local int *weft_fault;

WEFT_EXPORT void weft_bind(const weft_table *table) { weft_shared = table; }

/* 0, or 4 * the first step with a fault + the fault. */
static int weft_run(int first, int stop, void **b, int threads) {
    int fault = 0;
    weft_threads = threads;
    if (WEFT_CHECKED) weft_fault = &fault;
    for (int s = first; s < stop; s++) {
        weft_steps[s].apply(weft_steps[s].run, b, weft_steps[s].operand);
        if (WEFT_CHECKED && __atomic_load_n(&fault, __ATOMIC_RELAXED)) return 4 * s + fault;
    }
    return 0;
}

/* Run one step alone and return its microseconds. */
WEFT_EXPORT double weft_time(int first, void **b, int threads) {
    double start = weft_shared->now();
    weft_run(first, first + 1, b, threads);
    return weft_shared->now() - start;
}

/* A hash of where the inputs of the once steps lie and of words sampled from them: an update that
   torch's version counters miss, such as one through .data, is all but sure to change it. */
WEFT_EXPORT uint64_t weft_stamp(void **b) {
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < WEFT_STAMPED; i++) {
        const char *at = b[weft_stamped[i].buffer];
        hash = (hash ^ (uint64_t)(uintptr_t)at) * 1099511628211u;
        for (int64_t k = 0; k < 16; k++) {
            uint32_t word;
            memcpy(&word, at + weft_stamped[i].words * k / 16 * 4, 4);
            hash = (hash ^ word) * 1099511628211u;
        }
    }
    return hash;
}

#endif
