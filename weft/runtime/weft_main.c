/* Runs a program's steps, which are tables of its own (weft_main.h). It is part of each program:
   what kernels reach through weft.h is defined here. */
#include "weft.h"
#include "weft_main.h"

const weft_table *weft_shared;
int weft_threads = 1;
_Thread_local int *weft_fault;
static void *(*weft_data_of)(void *tensor); /* where a tensor's elements are */

WEFT_EXPORT void weft_bind(const weft_table *table, void *(*data_of)(void *tensor)) {
    weft_shared = table;
    weft_data_of = data_of;
}

/* Put the addresses of tensors into the array of addresses; 1 where one is new there, else 0. */
static int put(void **b, void **tensors, const weft_place *place, int count) {
    int moved = 0;
    for (int i = 0; i < count; i++) {
        void *at = weft_data_of(tensors[place[i].position]);
        moved |= b[place[i].buffer] != at;
        b[place[i].buffer] = at;
    }
    return moved;
}

int weft_put(const weft_segment *s, void **b, void **inputs, void **fresh) {
    put(b, fresh, s->fresh, s->made);
    return put(b, inputs, s->inputs, s->given);
}

typedef struct {
    const weft_step *step;
    void **b;
    int *fault;
} weft_rows;

/* Rows [begin, end) of a step. */
static void run_rows(void *args, int64_t begin, int64_t end, int worker) {
    const weft_rows *r = args;
    const weft_step *s = r->step;
    (void)worker;
    weft_fault = r->fault;
    for (int64_t row = begin; row < end; row++)
        s->apply(s->run, r->b, s->operand + row * s->arity);
}

/* 0, or 4 * the first step with a fault + the fault. */
int weft_run(int first, int stop, void **b, int threads) {
    int fault = 0;
    weft_threads = threads;
    if (weft_has_faults) weft_fault = &fault;
    for (int s = first; s < stop; s++) {
        const weft_step *step = weft_steps + s;
        weft_rows rows = {step, b, weft_fault};
        if (step->grain)
            weft_for(step->rows, step->grain, run_rows, &rows);
        else
            run_rows(&rows, 0, step->rows, 0);
        if (weft_has_faults && __atomic_load_n(&fault, __ATOMIC_RELAXED)) return 4 * s + fault;
    }
    return 0;
}

/* Run one step alone. */
WEFT_EXPORT int weft_one(int step, void **b, int threads) {
    return weft_run(step, step + 1, b, threads);
}

/* Run one step alone and return its microseconds. */
WEFT_EXPORT double weft_time(int first, void **b, int threads) {
    double start = weft_shared->now();
    weft_run(first, first + 1, b, threads);
    return weft_shared->now() - start;
}

/* A hash of where the inputs of the once steps lie. */
WEFT_EXPORT uint64_t weft_stamp(void **b) {
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < weft_constant_count; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)b[weft_constants[i]]) * 1099511628211u;
    return hash;
}
