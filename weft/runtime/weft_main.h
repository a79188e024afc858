/* What runs a program's steps. Its weft_main.c says which those are:

     #define WEFT_CHECKED 0          // whether a kernel may have a fault
     #define WEFT_CONSTANTS 1        // how many inputs the once steps read
     #include "weft_main.h"
     const weft_step weft_steps[] = {{relu, weft_apply2, weft_operands}};
     const int weft_constants[] = {0};
     static const weft_place weft_inputs[] = {{0, 0}};       // buffer 0 is input 0 of the call
     WEFT_EXPORT int weft_segment0(void **b, void **inputs, void **fresh, int threads) {
         weft_addresses(b, inputs, weft_inputs, 1);
         return weft_run(0, 1, b, threads);
     }

   A step is data, so that this compiles at once however many there are: a kernel, the function that
   passes it its operands, and which buffers those are. All names here begin with weft_, so that a
   kernel may have any other.

   Tensors come as arrays of Python objects: reading their addresses here costs some 5 ns each, where
   tensor.data_ptr() in Python costs 100. */
#ifndef WEFT_MAIN_H
#define WEFT_MAIN_H

#include "weft.h"

typedef void (*weft_kernel)(void);

/* An operand of a kernel: a buffer, from so many bytes on. */
typedef struct {
    int buffer;
    long long start;
} weft_operand;

typedef struct {
    weft_kernel run;
    void (*apply)(weft_kernel run, void **b, const weft_operand *operand);
    const weft_operand *operand;
} weft_step;

/* Which of some tensors a buffer is. */
typedef struct {
    int buffer;
    int position;
} weft_place;

typedef void *(*weft_data)(void *tensor);

extern WEFT_LOCAL const weft_step weft_steps[];
extern WEFT_LOCAL const int weft_constants[];

const weft_table *weft_shared;
int weft_threads = 1;
_Thread_local int *weft_fault;
static weft_data weft_data_of; /* where a tensor's elements are */

WEFT_EXPORT void weft_bind(const weft_table *table, weft_data data_of) {
    weft_shared = table;
    weft_data_of = data_of;
}

/* Put the addresses of tensors into the array of addresses. */
static void weft_addresses(void **b, void **tensors, const weft_place *place, int count) {
    for (int i = 0; i < count; i++) b[place[i].buffer] = weft_data_of(tensors[place[i].position]);
}

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
    for (int i = 0; i < WEFT_CONSTANTS; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)b[weft_constants[i]]) * 1099511628211u;
    return hash;
}

#endif
