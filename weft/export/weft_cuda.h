/* The tables of a model for NVIDIA's GPUs, which weft_cuda.c runs, and the functions of the driver
   that it calls: these are looked up in libcuda.so.1, so that nothing is linked. */
#ifndef WEFT_CUDA_H
#define WEFT_CUDA_H

#include "weft_parts.h"

typedef unsigned long long weft_address; /* on the device */

/* A kernel: a cubin that has it alone, and the dynamic shared memory of its blocks. */
typedef struct {
    const char *name;
    const void *image;
    int shared, checked; /* whether it may have a fault */
} weft_cubin;

/* A tensor map operand, in the terms of cuTensorMapEncodeTiled; innermost dimension first. */
typedef struct {
    int buffer, type, rank, swizzle;
    uint64_t sizes[5], strides[4];
    uint32_t box[5];
} weft_box;

/* A launch: `operands` buffers, from `first` on, and maps behind them. A step without kernel, -1,
   puts the next seed of random numbers into its operand. */
typedef struct {
    int kernel, first, operands, first_map, maps, block;
    const char *origin; /* the torch line of what may have a fault, or NULL */
} weft_step;

/* A signature's program for an architecture. Buffers in the arena lie at `offset`, others have -1
   there; steps from `stores` on store into inputs and weights. With sizes `place` puts them at
   `base`, unless that is 0, and gives the bytes that they take, and `fill` computes the grid of
   each step. Buffer `size_at[i]` is size i itself. */
typedef struct {
    int buffers, steps, stores, bindings, operands, maps, draws, checked;
    const weft_step *step;
    const int *operand;
    const weft_box *map;
    const weft_binding *binding;
    const long long *offset, *grid;
    long long arena;
    void (*fill)(const long long *sizes, long long *grid);
    long long (*place)(void **b, char *base, const long long *sizes);
    const int *size_at;
} weft_code;

/* The codes of all signatures for an architecture: for devices of that compute capability, or of
   a higher minor one, unless it is the `only` one. */
typedef struct {
    const char *name;
    int major, minor, only, kernels;
    const weft_cubin *kernel;
    const weft_code *const *code;
} weft_target;

extern WEFT_LOCAL const weft_target weft_targets[];
extern WEFT_LOCAL const int weft_target_count;

#define WEFT_DRIVER(F)                                                                             \
    F(cuInit, cuInit, (unsigned))                                                                  \
    F(cuGetErrorName, cuGetErrorName, (int, const char **))                                        \
    F(cuDeviceGet, cuDeviceGet, (int *, int))                                                      \
    F(cuDeviceGetName, cuDeviceGetName, (char *, int, int))                                        \
    F(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *, int, int))                               \
    F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (void **, int))                          \
    F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                              \
    F(cuCtxPushCurrent, cuCtxPushCurrent_v2, (void *))                                             \
    F(cuCtxPopCurrent, cuCtxPopCurrent_v2, (void **))                                              \
    F(cuCtxSynchronize, cuCtxSynchronize, (void))                                                  \
    F(cuMemAlloc, cuMemAlloc_v2, (weft_address *, size_t))                                         \
    F(cuMemFree, cuMemFree_v2, (weft_address))                                                     \
    F(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (weft_address, const void *, size_t, void *))       \
    F(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, weft_address, size_t, void *))             \
    F(cuMemsetD32Async, cuMemsetD32Async, (weft_address, unsigned, size_t, void *))                \
    F(cuStreamCreate, cuStreamCreate, (void **, unsigned))                                         \
    F(cuStreamDestroy, cuStreamDestroy_v2, (void *))                                               \
    F(cuStreamSynchronize, cuStreamSynchronize, (void *))                                          \
    F(cuStreamWaitEvent, cuStreamWaitEvent, (void *, void *, unsigned))                            \
    F(cuStreamIsCapturing, cuStreamIsCapturing, (void *, int *))                                   \
    F(cuEventCreate, cuEventCreate, (void **, unsigned))                                           \
    F(cuEventRecord, cuEventRecord, (void *, void *))                                              \
    F(cuEventSynchronize, cuEventSynchronize, (void *))                                            \
    F(cuEventDestroy, cuEventDestroy_v2, (void *))                                                 \
    F(cuModuleLoadData, cuModuleLoadData, (void **, const void *))                                 \
    F(cuModuleUnload, cuModuleUnload, (void *))                                                    \
    F(cuModuleGetFunction, cuModuleGetFunction, (void **, void *, const char *))                   \
    F(cuModuleGetGlobal, cuModuleGetGlobal_v2, (weft_address *, size_t *, void *, const char *))   \
    F(cuFuncSetAttribute, cuFuncSetAttribute, (void *, int, int))                                  \
    F(cuLaunchKernel, cuLaunchKernel,                                                              \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))                                                                          \
    F(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled,                                              \
      (void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *,        \
       const uint32_t *, int, int, int, int))

typedef struct {
#define WEFT_FIELD(field, symbol, types) int(*field) types;
    WEFT_DRIVER(WEFT_FIELD)
#undef WEFT_FIELD
} weft_driver;

/* ---- an instance */

typedef struct {
    void *module, *function;
    weft_address fault; /* 0 for a kernel without checks */
} weft_loaded;

struct weft_model {
    weft_instance own;
    const weft_driver *cuda;
    const weft_target *target;
    pthread_mutex_t checks; /* of a run that reads faults, which are the kernels' */
    /* Whether runs write weights: each then comes after the last one, on whatever stream, which
       `last` stands behind where that may not have ended. */
    int stateful, pending;
    void *last;
    int device;
    void *context;
    weft_loaded *kernels;
    weft_address memory;
    void **weights; /* where each is on the device */
    char *written;  /* whether runs write to it */
};

WEFT_LOCAL void weft_free_frame(const weft_driver *cuda, void *frame);

/* Enqueue the copy of a weight to memory of the CPU, if runs write to it. */
WEFT_LOCAL int weft_fetch_weight(const weft_model *m, int number, void *stream, char *error,
                                 size_t room);

/* Say what CUDA cannot do; 1. */
WEFT_LOCAL int weft_cuda_failed(const weft_driver *cuda, int status, const char *what,
                                const char *of, char *error, size_t room);

/* The driver, initialised; NULL, and why in `error`. */
WEFT_LOCAL const weft_driver *weft_find_driver(char *error, size_t room);

#endif
