/* What an exported model is made of: the tables of its own C file, which weft_model.c runs. */
#ifndef WEFT_PARTS_H
#define WEFT_PARTS_H

#include "weft.h"
#include "weft_main.h"
#include "weft_model.h"

/* A tensor of the weights file: its dtype by the name that safetensors has for it, its shape in
   JSON. */
typedef struct {
    const char *name, *dtype, *shape;
    long long bytes;
    int item_bytes;
} weft_weight;

/* What a buffer of a program is at the start of a run: an input, a weight, or an output. */
typedef struct {
    int buffer;
    weft_memory memory;
    int of;
} weft_binding;

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

/* Of a signature beside what is public. `extents` are shape and strides of each input, then of
   each output; `fill` computes them where sizes decide. `refuse` says which condition on sizes,
   if any, does not hold. */
typedef struct {
    int extent_count;
    const int64_t *extents;
    void (*fill)(const int64_t *sizes, int64_t *extents);
    const char *(*refuse)(const int64_t *sizes);
} weft_extents;

extern WEFT_LOCAL const weft_weight weft_weights[];
extern WEFT_LOCAL const weft_target weft_targets[];
extern WEFT_LOCAL const weft_signature weft_declared[];
extern WEFT_LOCAL const weft_extents weft_extents_of[];
extern WEFT_LOCAL const int weft_weight_count, weft_target_count, weft_signature_count;

/* A safetensors file, mapped: `at` has where each weight of weft_weights is. Pages that are
   written to become the map's own. 0, or why not in `error`. */
typedef struct {
    char *base;
    size_t bytes;
    void **at;
} weft_map;

/* What torch draws random numbers from on a CPU: the Mersenne Twister of Matsumoto and Nishimura,
   1998, MT19937. */
typedef struct {
    uint32_t words[624];
    int next;
} weft_generator;

WEFT_LOCAL void weft_seed_generator(weft_generator *g, uint64_t seed);
WEFT_LOCAL int64_t weft_draw(weft_generator *g); /* any but the largest */

/* Sizes and extents of a call: in `own`, which the caller frees, unless they are constant. */
WEFT_LOCAL const int64_t *weft_find_extents(int number, const weft_array *inputs, int64_t **own,
                                            int64_t **sizes, char *error, size_t room);
WEFT_LOCAL int weft_all_fit(const weft_signature *s, const int64_t *at, const weft_array *inputs,
                            const weft_array *outputs, char *error, size_t room);

WEFT_LOCAL int weft_map_weights(weft_map *map, const char *path, char *error, size_t room);
WEFT_LOCAL int weft_write_weights(const weft_map *map, const char *path, char *error, size_t room);
WEFT_LOCAL void weft_unmap_weights(weft_map *map);

#endif
