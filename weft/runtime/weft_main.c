/* What Python calls of a program (weft_main.h). */
#include "weft_main.h"

#include "weft.h"

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

int weft_put(int segment, void **b, void **inputs, void **fresh) {
    const weft_segment *s = weft_own.segments + segment;
    put(b, fresh, s->fresh, s->made);
    return put(b, inputs, s->inputs, s->given);
}

int weft_run_own(int segment, void **b, int threads) {
    const weft_segment *s = weft_own.segments + segment;
    return weft_run_steps(&weft_own, s->first, s->stop, b, threads);
}

/* Run one step alone. */
WEFT_EXPORT int weft_one(int step, void **b, int threads) {
    return weft_run_steps(&weft_own, step, step + 1, b, threads);
}

/* Run one step alone and return its microseconds. */
WEFT_EXPORT double weft_time(int step, void **b, int threads) {
    double start = weft_shared->now();
    weft_run_steps(&weft_own, step, step + 1, b, threads);
    return weft_shared->now() - start;
}

/* Place the arena of a program for any size. */
WEFT_EXPORT long long weft_arena(void **b, char *base, const long long *sizes) {
    return weft_own.arena(b, base, sizes);
}

/* A hash of where the inputs of the once steps lie. */
WEFT_EXPORT uint64_t weft_stamp(void **b) {
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < weft_own.constant_count; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)b[weft_own.constants[i]]) * 1099511628211u;
    return hash;
}
