/* What an exported model is made of, whatever it runs on: the tables of its own C file. */
#ifndef WEFT_PARTS_H
#define WEFT_PARTS_H

#include <pthread.h>

#include "weft_model.h"

#define WEFT_LOCAL __attribute__((visibility("hidden")))

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
    int of, written; /* whether a run stores into it */
} weft_binding;

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
extern WEFT_LOCAL const weft_signature weft_declared[];
extern WEFT_LOCAL const weft_extents weft_extents_of[];
extern WEFT_LOCAL const int weft_weight_count, weft_signature_count;

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

/* What a run has to itself begins with this one: addresses of buffers, and temporaries. */
typedef struct weft_frame {
    struct weft_frame *next;
} weft_frame;

/* What every weft_model begins with; `idle` are by signature the frames that no run uses. */
typedef struct {
    weft_map map;
    weft_generator generator;
    pthread_mutex_t lock;
    weft_frame **idle;
} weft_instance;

/* A model of so many bytes, all zero but for its instance; NULL, and why in `error`. */
WEFT_LOCAL void *weft_begin(size_t bytes, const char *weights, char *error, size_t room);
WEFT_LOCAL void weft_end(weft_instance *m);

/* The next seeds, which no other run takes a part of. */
WEFT_LOCAL void weft_take_seeds(weft_instance *m, int count, int64_t *seeds);
WEFT_LOCAL void *weft_take_frame(weft_instance *m, int number); /* or NULL */
WEFT_LOCAL void weft_give_frame(weft_instance *m, int number, void *frame);

/* Sizes and extents of a call: in `own`, which the caller frees, unless they are constant. */
WEFT_LOCAL const int64_t *weft_find_extents(int number, const weft_array *inputs, int64_t **own,
                                            int64_t **sizes, char *error, size_t room);
WEFT_LOCAL int weft_all_fit(const weft_signature *s, const int64_t *at, const weft_array *inputs,
                            const weft_array *outputs, char *error, size_t room);

/* Sets where outputs are that have no memory of their own. */
WEFT_LOCAL void weft_find_parts(const weft_signature *s, void *const *weights,
                                const weft_array *inputs, weft_array *outputs);

/* What a fault of a step is, with its torch line; 2. */
WEFT_LOCAL int weft_tell_fault(int fault, const char *origin, char *error, size_t room);

WEFT_LOCAL int weft_map_weights(weft_map *map, const char *path, char *error, size_t room);
WEFT_LOCAL int weft_write_weights(const weft_map *map, const char *path, char *error, size_t room);
WEFT_LOCAL void weft_unmap_weights(weft_map *map);

#endif
