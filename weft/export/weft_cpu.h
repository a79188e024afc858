/* The tables of a model for CPUs, which weft_model.c runs. */
#ifndef WEFT_CPU_H
#define WEFT_CPU_H

#include "weft.h"
#include "weft_main.h"
#include "weft_parts.h"

typedef struct {
    int buffer;
    long long bytes;
} weft_held;

/* A signature's program for one instruction set. Buffers in the arena lie at `offset`, others have
   -1 there; `kept` are made by the first `once` steps, when an instance is opened. */
typedef struct {
    const weft_program *program;
    int buffers, once, steps, bindings, kept_count;
    int sizes_at, numbers_at, draws_at, draws; /* -1: takes none */
    const weft_binding *binding;
    const weft_held *kept;
    const long long *offset, *numbers;
    long long arena;
    const char *const *origin; /* by step: the torch line of what may have a fault */
} weft_code;

/* The codes of all signatures for an instruction set, best sets first; `runs` is whether this
   machine has it. */
typedef struct {
    const char *name;
    int (*runs)(void);
    const weft_code *const *code;
} weft_target;

extern WEFT_LOCAL const weft_target weft_targets[];
extern WEFT_LOCAL const int weft_target_count;

#endif
