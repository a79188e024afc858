/* Opens, runs and closes a model for CPUs: its tables are those of weft_cpu.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft_cpu.h"
#include "weft_pool.h"

/* Addresses of all buffers of a signature, and the memory of its temporaries: of one run. */
typedef struct {
    weft_frame frame;
    void *arena;
    size_t bytes;
    int64_t *draws; /* random numbers, which a run begins with */
    void *b[];
} frame;

struct weft_model {
    weft_instance own;
    const weft_target *target;
    void ***kept; /* by signature, what its first steps have made */
};

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static int instances; /* of all models of this library: the last one ends the threads */

const char *weft_isa(const weft_model *model) { return model->target->name; }

static void *aligned(size_t bytes) {
    void *memory = NULL;
    size_t most = (bytes + WEFT_ALIGNMENT) / WEFT_ALIGNMENT * WEFT_ALIGNMENT;
    return posix_memalign(&memory, WEFT_ALIGNMENT, most) ? NULL : memory;
}

/* ---- frames */

static frame *new_frame(const weft_model *m, int number) {
    const weft_code *c = m->target->code[number];
    frame *f = calloc(1, sizeof *f + 8 * (size_t)(c->buffers + c->draws + 1));
    if (!f) return NULL;
    f->draws = (int64_t *)(f->b + c->buffers);
    if (c->draws_at >= 0) f->b[c->draws_at] = f->draws;
    if (!c->program->arena) {
        f->arena = aligned((size_t)c->arena);
        if (!f->arena) {
            free(f);
            return NULL;
        }
        for (int i = 0; i < c->buffers; i++)
            if (c->offset[i] >= 0) f->b[i] = (char *)f->arena + c->offset[i];
    }
    for (int i = 0; i < c->bindings; i++)
        if (c->binding[i].memory == weft_memory_of_weight)
            f->b[c->binding[i].buffer] = m->own.map.at[c->binding[i].of];
    for (int i = 0; i < c->kept_count; i++) f->b[c->kept[i].buffer] = m->kept[number][i];
    if (c->numbers_at >= 0) f->b[c->numbers_at] = (void *)(uintptr_t)c->numbers;
    return f;
}

static void free_frame(frame *f) {
    free(f->arena);
    free(f);
}

/* ---- a run */

static int place_temporaries(const weft_code *c, frame *f, int64_t *sizes) {
    if (!c->program->arena) return 1;
    size_t bytes = (size_t)c->program->arena(f->b, NULL, (const long long *)sizes);
    if (bytes > f->bytes) {
        free(f->arena);
        f->arena = aligned(bytes);
        f->bytes = f->arena ? bytes : 0;
    }
    if (f->arena || !bytes) c->program->arena(f->b, f->arena, (const long long *)sizes);
    if (c->sizes_at >= 0) f->b[c->sizes_at] = sizes;
    return f->arena || !bytes;
}

int weft_save(const weft_model *m, const char *path, char *error, size_t room) {
    return weft_write_weights(&m->own.map, path, error, room);
}

static int run_in(const weft_model *m, int number, frame *f, const weft_array *inputs,
                  const weft_array *outputs, int threads, char *error, size_t room) {
    const weft_code *c = m->target->code[number];
    for (int i = 0; i < c->bindings; i++) {
        const weft_binding *at = c->binding + i;
        if (at->memory == weft_memory_of_input) f->b[at->buffer] = inputs[at->of].data;
        if (at->memory == weft_memory_own) f->b[at->buffer] = outputs[at->of].data;
    }
    if (threads <= 0) threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int fault = weft_run_steps(c->program, c->once, c->steps, f->b, threads);
    if (!fault) return 0;
    return weft_tell_fault(fault % 4, c->origin[fault / 4], error, room);
}

int weft_run(weft_model *m, int number, const weft_array *inputs, weft_array *outputs, int threads,
             char *error, size_t room) {
    int64_t *own, *sizes;
    const int64_t *at = weft_find_extents(number, inputs, &own, &sizes, error, room);
    const weft_signature *s = weft_signature_of(number);
    int result = !at || !weft_all_fit(s, at, inputs, outputs, error, room);
    frame *f = result ? NULL : weft_take_frame(&m->own, number);
    if (!f && !result) f = new_frame(m, number);
    if (f && place_temporaries(m->target->code[number], f, sizes)) {
        int draws = m->target->code[number]->draws;
        if (draws) weft_take_seeds(&m->own, draws, f->draws);
        result = run_in(m, number, f, inputs, outputs, threads, error, room);
        if (!result) weft_find_parts(s, m->own.map.at, inputs, outputs);
    } else if (!result) {
        snprintf(error, room, "memory is short");
        result = 1;
    }
    if (f) weft_give_frame(&m->own, number, f);
    free(own);
    return result;
}

/* ---- instances */

/* Run the steps of a signature that weights alone decide. */
static int prepare(weft_model *m, int number, char *error, size_t room) {
    const weft_code *c = m->target->code[number];
    m->kept[number] = calloc((size_t)c->kept_count + 1, sizeof(void *));
    if (!m->kept[number]) return 1;
    for (int i = 0; i < c->kept_count; i++)
        if (!(m->kept[number][i] = aligned((size_t)c->kept[i].bytes))) return 1;
    if (!c->once) return 0;
    frame *f = new_frame(m, number);
    if (!f) return 1;
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int fault = weft_run_steps(c->program, 0, c->once, f->b, threads);
    weft_give_frame(&m->own, number, f);
    if (fault) snprintf(error, room, "the weights make an index that is out of range");
    return fault;
}

static const weft_target *choose(char *error, size_t room) {
    size_t n = (size_t)snprintf(error, room, "this machine has none of the instruction sets");
    for (int i = 0; i < weft_target_count; i++) {
        if (weft_targets[i].runs()) return weft_targets + i;
        if (n < room) n += (size_t)snprintf(error + n, room - n, " %s", weft_targets[i].name);
    }
    return NULL;
}

weft_model *weft_open(const char *weights, char *error, size_t room) {
    const weft_target *target = choose(error, room);
    weft_model *m = target ? weft_begin(sizeof *m, weights, error, room) : NULL;
    if (!m) return NULL;
    m->target = target;
    pthread_mutex_lock(&count_lock);
    if (!instances++) weft_shared = weft_pool_table();
    pthread_mutex_unlock(&count_lock);
    snprintf(error, room, "memory is short");
    m->kept = calloc((size_t)weft_signature_count, sizeof *m->kept);
    int failed = !m->kept;
    for (int i = 0; i < weft_signature_count && !failed; i++) failed = prepare(m, i, error, room);
    if (!failed) {
        if (room) *error = 0;
        return m;
    }
    weft_close(m);
    return NULL;
}

void weft_close(weft_model *m) {
    if (!m) return;
    for (int i = 0; i < weft_signature_count; i++) {
        for (frame *f; (f = weft_take_frame(&m->own, i));) free_frame(f);
        void **kept = m->kept ? m->kept[i] : NULL;
        for (int k = 0; kept && k < m->target->code[i]->kept_count; k++) free(kept[k]);
        free(kept);
    }
    free(m->kept);
    pthread_mutex_lock(&count_lock);
    if (!--instances) weft_pool_stop();
    pthread_mutex_unlock(&count_lock);
    weft_end(&m->own);
}
