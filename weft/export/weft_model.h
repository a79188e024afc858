/* A model compiled by weft: kernels in C or for GPUs, weights in a safetensors file, no Python and no torch.

     char error[512];
     weft_model *m = weft_open("weights.safetensors", error, sizeof error);
     weft_array in[] = {{x, NULL, NULL}}, out[] = {{y, NULL, NULL}};
     if (!m || weft_run(m, 0, in, out, 4, error, sizeof error)) puts(error);
     weft_close(m);

   Any number of models, of any number of instances each, run in one process, and several threads
   may run one instance at a time, unless it writes to its weights (weft_signature.keeps_state). */
#ifndef weft_model_h
#define weft_model_h

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct weft_model weft_model;

/* Whose memory a tensor is: an output may be a part of an input, of another output, or of a
   weight, from `offset` elements on. Then the caller gives no memory for it. */
typedef enum {
    weft_memory_own,
    weft_memory_of_input,
    weft_memory_of_output,
    weft_memory_of_weight
} weft_memory;

typedef struct {
    const char *name;
    const char *dtype; /* f16 bf16 f32 f64 i8 i16 i32 i64 u8 bool (a byte, 0 or 1) */
    int item_bytes, rank;
    const int64_t *shape, *strides; /* in elements; -1 where sizes decide: see weft_shape */
    const char *extents;            /* the shape as text, such as "[s0, 64]" */
    int written; /* an input that a run stores into, which no other tensor of the call overlaps */
    weft_memory memory;
    int of; /* the number of that input, output or weight */
    int64_t offset;
} weft_tensor;

/* A size that calls decide: that dimension of that input. */
typedef struct {
    const char *name;
    int64_t low, high, divisor; /* it is a multiple of `divisor` */
    int input, dimension;
} weft_size;

/* The tensors of a call, in order, for one set of dtypes and shapes. */
typedef struct {
    const char *name;
    int inputs, outputs, sizes;
    const weft_tensor *input, *output;
    const weft_size *size;
    int keeps_state; /* a run writes to the instance's copy of its weights */
    int draws;       /* how many seeds of random numbers a run takes from the generator */
} weft_signature;

/* Memory of a tensor. NULL for shape, where no size is free, and for strides: as declared. */
typedef struct {
    void *data;
    const int64_t *shape, *strides;
} weft_array;

int weft_signatures(void);
const weft_signature *weft_signature_of(int number); /* NULL for none of that number */

/* An instance, with the weights of that file mapped; NULL, and why in `error`. */
weft_model *weft_open(const char *weights, char *error, size_t room);

/* The instruction set that was chosen for this machine, such as "avx2", or the GPU's "sm_90a". */
const char *weft_isa(const weft_model *model);

/* Shape and strides that an output has for these inputs. 0, or why not in `error`. */
int weft_shape(int signature, const weft_array *inputs, int output, int64_t *shape,
               int64_t *strides, char *error, size_t room);

/* Run on so many threads (0: one for each processor). Outputs that lie in memory of their own are
   written where they say, which no other tensor of the call overlaps; of the others it sets `data`.
   0; 1 for a call that does not fit; 2 for a fault of the program, such as an index out of range,
   with the line of the torch program. */
int weft_run(weft_model *model, int signature, const weft_array *inputs, weft_array *outputs,
             int threads, char *error, size_t room);

/* Set the generator of random numbers as torch.manual_seed(seed) sets torch's for a CPU: runs from
   here on give what those of weft.compile give from there on. An instance begins with seed 0. */
void weft_seed(weft_model *model, uint64_t seed);

/* Write the weights as the instance has them, in the form that weft_open reads, to a new file or
   over another; no run may write to them meanwhile. 0, or why not in `error`. */
int weft_save(const weft_model *model, const char *path, char *error, size_t room);

/* DEVICE */
/* Nothing of it may run any more. */
void weft_close(weft_model *model);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
