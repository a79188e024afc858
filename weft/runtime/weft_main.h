/* A program's steps as data, in a C file of its own that has no code. weft_main.c runs them, and
   weft_apply1 and the like (runtime/native.py) depend on a number alone: all programs share these
   objects, so that the C compiler has little to do for one more.

     #include "weft_main.h"
     void relu(void);
     static const weft_operand weft_operands[] = {{0, 0}, {1, 0}};
     const weft_step weft_steps[] = {{relu, weft_apply2, weft_operands, 1, 2, 0}};
     const int weft_has_faults = 0;                          // whether a kernel may have a fault
     const int weft_constants[] = {0}, weft_constant_count = 1;   // inputs that once steps read
     static const weft_place weft_inputs[] = {{0, 0}};       // buffer 0 is input 0 of the call
     static const weft_place weft_fresh0[] = {{1, 0}};       // buffer 1 is new tensor 0
     const weft_segment weft_segments[] = {{0, 1, 1, 1, weft_inputs, weft_fresh0}};

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

extern WEFT_LOCAL const weft_step weft_steps[];
extern WEFT_LOCAL const weft_segment weft_segments[];
extern WEFT_LOCAL const int weft_has_faults;
extern WEFT_LOCAL const int weft_constants[], weft_constant_count;

/* Tensors come as arrays of Python objects: reading their addresses here costs some 5 ns each,
   where tensor.data_ptr() in Python costs 100. `fresh` are those that are new in this call. */
WEFT_LOCAL int weft_put(const weft_segment *s, void **b, void **inputs, void **fresh);
WEFT_LOCAL int weft_run(int first, int stop, void **b, int threads);

/* What Python calls of segment `n`: one puts addresses, and tells whether an input is elsewhere
   than in the last call of these; one runs the steps; one does both. */
#define WEFT_SEGMENT(n)                                                                            \
    WEFT_EXPORT int weft_place##n(void **b, void **inputs, void **fresh, int threads) {            \
        (void)threads;                                                                             \
        return weft_put(weft_segments + n, b, inputs, fresh);                                      \
    }                                                                                              \
    WEFT_EXPORT int weft_placed##n(void **b, void **inputs, void **fresh, int threads) {           \
        (void)inputs, (void)fresh;                                                                 \
        return weft_run(weft_segments[n].first, weft_segments[n].stop, b, threads);                \
    }                                                                                              \
    WEFT_EXPORT int weft_segment##n(void **b, void **inputs, void **fresh, int threads) {          \
        weft_put(weft_segments + n, b, inputs, fresh);                                             \
        return weft_run(weft_segments[n].first, weft_segments[n].stop, b, threads);                \
    }

#endif
