/* A program's steps as data, in a C file of its own that has no code. weft_steps.c runs them, and
   weft_apply1 and the like (runtime/native.py) depend on a number alone: all programs share these
   objects, so that the C compiler has little to do for one more.

     #include "weft_main.h"
     void relu(void);
     static const weft_operand weft_operands[] = {{0, 0}, {1, 0}};
     static const weft_step weft_steps[] = {{relu, weft_apply2, weft_operands, 1, 2, 0}};
     static const int weft_constants[] = {0};                // inputs that once steps read
     static const weft_place weft_inputs[] = {{0, 0}};       // buffer 0 is input 0 of the call
     static const weft_place weft_fresh0[] = {{1, 0}};       // buffer 1 is new tensor 0
     static const weft_segment weft_segments[] = {{0, 1, 1, 1, weft_inputs, weft_fresh0}};
     const weft_program weft_own = {weft_steps, weft_segments, weft_constants, 1, 0, 0};

   A step is a kernel, the function that passes it its operands, which buffers those are, how many
   rows of them there are, and operands in each. Rows run in order, or with a grain on several
   threads, each of which takes so many rows at least. All names here begin with weft_, so that a
   kernel may have any other. */
#ifndef WEFT_MAIN_H
#define WEFT_MAIN_H

#define WEFT_EXPORT __attribute__((visibility("default")))
#define WEFT_LOCAL __attribute__((visibility("hidden")))

typedef void (*weft_kernel)(void);

/* An operand of a kernel: a buffer, from so many bytes on. */
typedef struct {
    int buffer;
    long long start;
} weft_operand;

typedef void weft_apply(weft_kernel run, void **b, const weft_operand *operand);

typedef struct {
    weft_kernel run;
    weft_apply *apply;
    const weft_operand *operand;
    int rows, arity, grain;
} weft_step;

/* Which of some tensors a buffer is. */
typedef struct {
    int buffer;
    int position;
} weft_place;

/* Steps `first` to `stop`, excluded, and the tensors that they are the first to read. */
typedef struct {
    int first, stop, given, made;
    const weft_place *inputs, *fresh;
} weft_segment;

/* All of a program: `constants` are the inputs that once steps read; `has_faults` says whether a
   kernel may have one. `arena` of a program for any size puts temporaries at `base`, unless that
   is NULL, and gives the bytes that it takes. */
typedef struct {
    const weft_step *steps;
    const weft_segment *segments;
    const int *constants;
    int constant_count, has_faults;
    long long (*arena)(void **b, char *base, const long long *sizes);
} weft_program;

/* Run steps: 0, or 4 * the first step with a fault + the fault. */
WEFT_LOCAL int weft_run_steps(const weft_program *p, int first, int stop, void **b, int threads);

/* ---- calls from Python, in weft_main.c */

extern WEFT_LOCAL const weft_program weft_own;

/* Tensors come as arrays of Python objects: reading their addresses here costs some 5 ns each,
   where tensor.data_ptr() in Python costs 100. `fresh` are those that are new in this call. */
WEFT_LOCAL int weft_put(int segment, void **b, void **inputs, void **fresh);
WEFT_LOCAL int weft_run_own(int segment, void **b, int threads);

/* What Python calls of segment `n`: one puts addresses, and tells whether an input is elsewhere
   than in the last call of these; one runs the steps; one does both. */
#define WEFT_SEGMENT(n)                                                                            \
    WEFT_EXPORT int weft_place##n(void **b, void **inputs, void **fresh, int threads) {            \
        (void)threads;                                                                             \
        return weft_put(n, b, inputs, fresh);                                                      \
    }                                                                                              \
    WEFT_EXPORT int weft_placed##n(void **b, void **inputs, void **fresh, int threads) {           \
        (void)inputs, (void)fresh;                                                                 \
        return weft_run_own(n, b, threads);                                                        \
    }                                                                                              \
    WEFT_EXPORT int weft_segment##n(void **b, void **inputs, void **fresh, int threads) {          \
        weft_put(n, b, inputs, fresh);                                                             \
        return weft_run_own(n, b, threads);                                                        \
    }

#endif
