/* What an instance is on every machine: weights, a generator, and the frames of its runs. */
#include <stdio.h>
#include <stdlib.h>

#include "weft_parts.h"

void *weft_begin(size_t bytes, const char *weights, char *error, size_t room) {
    weft_instance *m = calloc(1, bytes);
    weft_frame **idle = calloc((size_t)weft_signature_count, sizeof *idle);
    if (!m || !idle) {
        snprintf(error, room, "memory is short");
    } else if (!weft_map_weights(&m->map, weights, error, room)) {
        pthread_mutex_init(&m->lock, NULL);
        weft_seed_generator(&m->generator, 0);
        m->idle = idle;
        return m;
    }
    free(idle);
    free(m);
    return NULL;
}

void weft_end(weft_instance *m) {
    free(m->idle);
    weft_unmap_weights(&m->map);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void weft_seed(weft_model *model, uint64_t seed) {
    weft_instance *m = (weft_instance *)model;
    pthread_mutex_lock(&m->lock);
    weft_seed_generator(&m->generator, seed);
    pthread_mutex_unlock(&m->lock);
}

void weft_take_seeds(weft_instance *m, int count, int64_t *seeds) {
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < count; i++) seeds[i] = weft_draw(&m->generator);
    pthread_mutex_unlock(&m->lock);
}

void *weft_take_frame(weft_instance *m, int number) {
    pthread_mutex_lock(&m->lock);
    weft_frame *f = m->idle[number];
    if (f) m->idle[number] = f->next;
    pthread_mutex_unlock(&m->lock);
    return f;
}

void weft_give_frame(weft_instance *m, int number, void *frame) {
    weft_frame *f = frame;
    pthread_mutex_lock(&m->lock);
    f->next = m->idle[number];
    m->idle[number] = f;
    pthread_mutex_unlock(&m->lock);
}
