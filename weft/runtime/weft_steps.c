/* Runs a program's steps, which are tables of its own (weft_main.h). It is part of each program:
   what kernels reach through weft.h is defined here. */
#include "weft_main.h"

#include "weft.h"

const weft_table *weft_shared;
WEFT_PER_CALL int weft_threads = 1;
_Thread_local int *weft_fault;

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

int weft_run_steps(const weft_program *p, int first, int stop, void **b, int threads) {
    int fault = 0, has_faults = p->has_faults, at = first;
    weft_threads = threads;
    if (has_faults) weft_fault = &fault;
    for (; at < stop; at++) {
        const weft_step *step = p->steps + at;
        weft_rows rows = {step, b, weft_fault};
        if (step->grain)
            weft_for(step->rows, step->grain, run_rows, &rows);
        else
            run_rows(&rows, 0, step->rows, 0);
        if (has_faults && __atomic_load_n(&fault, __ATOMIC_RELAXED)) break;
    }
    weft_fault = NULL;
    return fault ? 4 * at + fault : 0;
}
