/* Runs a model on NVIDIA's GPUs: its tables are those of weft_cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_cuda.h"

/* Flags of streams and events, and what a tensor map is: not interleaved, 128 bytes at a time to
   L2, zeros outside. */
enum { NON_BLOCKING = 1, NO_TIMING = 2, PROMOTION = 2, MAP = 128 };
enum { APART = 256, VECTOR = 16 }; /* bytes between tensors, and that kernels read at once */

/* Addresses of all buffers of a signature, and its memory on the device: of one run at a time.
   `done` stands behind what was last enqueued, where another stream waits for it. */
typedef struct {
    weft_frame frame;
    void *stream, *done;
    int pending;
    weft_address arena, staged;
    size_t arena_bytes, staged_bytes;
    int64_t *draws;
    long long *grid;
    void **operands;
    weft_address *map_at, *tensors; /* what maps are of; inputs, then outputs */
    char *maps;
    void *b[];
} frame;

/* What a call is about, and where an error goes. */
typedef struct {
    weft_model *m;
    const weft_signature *s;
    const weft_code *c;
    const int64_t *extents;
    int64_t *sizes;
    char *error;
    size_t room;
} call;

static int failed(const call *r, int status, const char *what, const char *of) {
    return status && weft_cuda_failed(r->m->cuda, status, what, of, r->error, r->room);
}

/* ---- frames */

void weft_free_frame(const weft_driver *cuda, void *given) {
    frame *f = given;
    if (f->pending) cuda->cuEventSynchronize(f->done);
    if (f->arena) cuda->cuMemFree(f->arena);
    if (f->staged) cuda->cuMemFree(f->staged);
    if (f->done) cuda->cuEventDestroy(f->done);
    if (f->stream) cuda->cuStreamDestroy(f->stream);
    free(f->maps);
    free(f);
}

static frame *new_frame(const call *r) {
    const weft_code *c = r->c;
    size_t tensors = (size_t)(r->s->inputs + r->s->outputs), maps = (size_t)c->maps;
    size_t words = (size_t)(c->buffers + c->draws + c->steps + c->operands) + maps + tensors;
    frame *f = calloc(1, sizeof *f + 8 * words);
    void *encoded = NULL;
    if (!f || posix_memalign(&encoded, 64, MAP * (maps + 1))) {
        snprintf(r->error, r->room, "memory is short");
        free(f);
        return NULL;
    }
    f->maps = encoded;
    f->draws = (int64_t *)(f->b + c->buffers);
    f->grid = (long long *)(f->draws + c->draws);
    f->operands = (void **)(f->grid + c->steps);
    f->map_at = (weft_address *)(f->operands + c->operands);
    f->tensors = f->map_at + maps;
    const weft_driver *cuda = r->m->cuda;
    if (failed(r, cuda->cuStreamCreate(&f->stream, NON_BLOCKING), "make a stream", "") ||
        failed(r, cuda->cuEventCreate(&f->done, NO_TIMING), "make an event", "")) {
        weft_free_frame(cuda, f);
        return NULL;
    }
    for (int i = 0; i < c->bindings; i++)
        if (c->binding[i].memory == weft_memory_of_weight)
            f->b[c->binding[i].buffer] = r->m->weights[c->binding[i].of];
    return f;
}

/* Memory on the device of at least so many bytes, in place of what there is. */
static int grow(const call *r, weft_address *at, size_t *has, size_t bytes) {
    if (bytes <= *has) return 0;
    if (*at) r->m->cuda->cuMemFree(*at); /* which waits for what uses it */
    *has = *at = 0;
    char size[40];
    snprintf(size, sizeof size, "%zu bytes", bytes);
    if (failed(r, r->m->cuda->cuMemAlloc(at, bytes), "allocate ", size)) return 1;
    *has = bytes;
    return 0;
}

static int place_temporaries(const call *r, frame *f) {
    const weft_code *c = r->c;
    const long long *sizes = (const long long *)r->sizes;
    size_t bytes = (size_t)(c->place ? c->place(f->b, NULL, sizes) : c->arena);
    if (grow(r, &f->arena, &f->arena_bytes, bytes)) return 1;
    char *base = (char *)(uintptr_t)f->arena;
    if (c->place && base) c->place(f->b, base, sizes);
    for (int i = 0; i < c->buffers && !c->place; i++)
        if (c->offset[i] >= 0) f->b[i] = base + c->offset[i];
    for (int i = 0; i < r->s->sizes; i++) f->b[c->size_at[i]] = (void *)(uintptr_t)r->sizes[i];
    if (c->fill)
        c->fill(sizes, f->grid);
    else
        memcpy(f->grid, c->grid, sizeof *f->grid * (size_t)c->steps);
    return 0;
}

/* ---- tensors of a call: inputs, then outputs */

typedef struct {
    const weft_tensor *t;
    const weft_array *given;
    const int64_t *shape, *strides;
    size_t bytes;
    int own, whole; /* whether it is the call's, and its elements are all that it spans */
} operand;

static operand operand_of(const call *r, int i, const weft_array *inputs, weft_array *outputs,
                          const int64_t **at) {
    int k = i - r->s->inputs;
    const weft_tensor *t = k < 0 ? r->s->input + i : r->s->output + k;
    const int64_t *shape = *at, *strides = *at + t->rank;
    int64_t span = 1, count = 1;
    for (int d = 0; d < t->rank; d++) {
        span += (shape[d] - 1) * strides[d];
        count *= shape[d];
    }
    *at += 2 * t->rank;
    size_t bytes = count ? (size_t)(span * t->item_bytes) : 0;
    int own = k < 0 || t->memory == weft_memory_own;
    const weft_array *given = k < 0 ? inputs + i : outputs + k;
    return (operand){t, given, shape, strides, bytes, own, span == count};
}

/* Room on the device for all of them, and what inputs hold, from memory of the CPU. */
static int stage(const call *r, frame *f, const weft_array *inputs, weft_array *outputs) {
    int count = r->s->inputs + r->s->outputs;
    size_t total = 0;
    const int64_t *at = r->extents;
    for (int i = 0; i < count; i++) {
        operand o = operand_of(r, i, inputs, outputs, &at);
        f->tensors[i] = total;
        if (o.own) total += (o.bytes + APART) / APART * APART;
    }
    if (grow(r, &f->staged, &f->staged_bytes, total)) return 1;
    at = r->extents;
    for (int i = 0; i < count; i++) {
        operand o = operand_of(r, i, inputs, outputs, &at);
        f->tensors[i] += f->staged;
        if (i >= r->s->inputs || !o.bytes) continue;
        int status =
            r->m->cuda->cuMemcpyHtoDAsync(f->tensors[i], o.given->data, o.bytes, f->stream);
        if (failed(r, status, "copy to the device ", o.t->name)) return 1;
    }
    return 0;
}

/* Elements from memory of the same strides. */
static void copy(char *to, const char *from, const operand *o, int d) {
    int64_t item = o->t->item_bytes;
    if (d == o->t->rank) memcpy(to, from, (size_t)item);
    for (int64_t i = 0; d < o->t->rank && i < o->shape[d]; i++) {
        int64_t at = i * o->strides[d] * item;
        copy(to + at, from + at, o, d + 1);
    }
}

/* A tensor back to memory of the CPU; not what lies between its elements, which others may have. */
static int fetch(const call *r, const operand *o, weft_address from, void *stream) {
    const weft_driver *cuda = r->m->cuda;
    char *spanned = o->whole ? NULL : malloc(o->bytes);
    if (!spanned && !o->whole) {
        snprintf(r->error, r->room, "memory is short");
        return 1;
    }
    int status =
        cuda->cuMemcpyDtoHAsync(spanned ? spanned : o->given->data, from, o->bytes, stream);
    if (spanned && !status) status = cuda->cuStreamSynchronize(stream);
    if (spanned && !status) copy(o->given->data, spanned, o, 0);
    free(spanned);
    return failed(r, status, "copy from the device ", o->t->name);
}

/* What a run has written, back to memory of the CPU. */
static int unstage(const call *r, frame *f, const weft_array *inputs, weft_array *outputs) {
    const int64_t *at = r->extents;
    for (int i = 0; i < r->s->inputs + r->s->outputs; i++) {
        operand o = operand_of(r, i, inputs, outputs, &at);
        if (!o.own || !o.bytes || (i < r->s->inputs && !o.t->written)) continue;
        if (fetch(r, &o, f->tensors[i], f->stream)) return 1;
    }
    return 0;
}

/* Written weights that outputs are parts of. */
static int fetch_parts(const call *r, void *stream) {
    for (int i = 0; i < r->s->outputs; i++) {
        const weft_tensor *t = r->s->output + i;
        if (t->memory != weft_memory_of_weight) continue;
        if (weft_fetch_weight(r->m, t->of, stream, r->error, r->room)) return 1;
    }
    return 0;
}

/* ---- a run */

/* A seed to where it is read, if it is: by value, as the frame's numbers change. */
static int draw(const call *r, frame *f, const weft_step *x, int number, void *stream) {
    const weft_driver *cuda = r->m->cuda;
    if (!x->operands) return 0;
    weft_address to = (weft_address)(uintptr_t)f->b[r->c->operand[x->first]];
    unsigned low = (unsigned)f->draws[number];
    unsigned high = (unsigned)((uint64_t)f->draws[number] >> 32);
    return failed(r, cuda->cuMemsetD32Async(to, low, 1, stream), "store a seed", "") ||
           failed(r, cuda->cuMemsetD32Async(to + 4, high, 1, stream), "store a seed", "");
}

/* A tensor map, encoded again where its tensor lies elsewhere than in the last run. */
static int encode(const call *r, frame *f, int number) {
    static const uint32_t steps[5] = {1, 1, 1, 1, 1};
    const weft_box *x = r->c->map + number;
    void *at = f->b[x->buffer];
    if (f->map_at[number] == (weft_address)(uintptr_t)at) return 0;
    int status = r->m->cuda->cuTensorMapEncodeTiled(f->maps + MAP * number, x->type,
                                                    (uint32_t)x->rank, at, x->sizes, x->strides,
                                                    x->box, steps, 0, x->swizzle, PROMOTION, 0);
    if (failed(r, status, "describe a tensor", "")) return 1;
    f->map_at[number] = (weft_address)(uintptr_t)at;
    return 0;
}

static int launch(const call *r, frame *f, int step, void *stream) {
    const weft_step *x = r->c->step + step;
    const weft_cubin *k = r->m->target->kernel + x->kernel;
    if (f->grid[step] <= 0) return 0; /* of no elements */
    for (int i = 0; i < x->operands; i++) f->operands[i] = f->b + r->c->operand[x->first + i];
    for (int i = 0; i < x->maps; i++) {
        if (encode(r, f, x->first_map + i)) return 1;
        f->operands[x->operands + i] = f->maps + MAP * (x->first_map + i);
    }
    int status = r->m->cuda->cuLaunchKernel(r->m->kernels[x->kernel].function,
                                            (unsigned)f->grid[step], 1, 1, (unsigned)x->block, 1,
                                            1, (unsigned)k->shared, stream, f->operands, NULL);
    return failed(r, status, "launch ", k->name);
}

static void bind(const call *r, frame *f) {
    const weft_code *c = r->c;
    for (int i = 0; i < c->bindings; i++) {
        const weft_binding *b = c->binding + i;
        int at = b->memory == weft_memory_own ? r->s->inputs + b->of : b->of;
        if (b->memory != weft_memory_of_weight)
            f->b[b->buffer] = (void *)(uintptr_t)f->tensors[at];
    }
    if (c->draws) weft_take_seeds(&r->m->own, c->draws, f->draws);
}

static int enqueue(const call *r, frame *f, int first, int stop, void *stream) {
    for (int i = first, drawn = 0; i < stop; i++) {
        const weft_step *x = r->c->step + i;
        if (x->kernel >= 0 ? launch(r, f, i, stream) : draw(r, f, x, drawn++, stream)) return 1;
    }
    return 0;
}

/* Wait for a run, and tell of its first fault, which is forgotten. */
static int finish(const call *r, void *stream) {
    const weft_driver *cuda = r->m->cuda;
    if (failed(r, cuda->cuStreamSynchronize(stream), "finish the kernels of a call", "")) return 1;
    int found = 0, what = 0;
    const char *origin = NULL;
    for (int i = 0; i < r->c->steps && r->c->checked; i++) {
        const weft_step *x = r->c->step + i;
        weft_address at = x->kernel < 0 ? 0 : r->m->kernels[x->kernel].fault;
        if (!at || !x->origin) continue;
        if (failed(r, cuda->cuMemcpyDtoHAsync(&what, at, 4, stream), "read a fault", "") ||
            failed(r, cuda->cuStreamSynchronize(stream), "read a fault", ""))
            return 1;
        if (what && failed(r, cuda->cuMemsetD32Async(at, 0, 1, stream), "clear a fault", ""))
            return 1;
        if (what && !found) found = what, origin = x->origin;
    }
    return found ? weft_tell_fault(found, origin, r->error, r->room) : 0;
}

/* What a run is, up to its last kernel: where it may have a fault, it is waited for before anything
   is stored into inputs and weights, which stay as they are if it had one. */
static int run_steps(const call *r, frame *f, void *stream) {
    bind(r, f);
    if (enqueue(r, f, 0, r->c->stores, stream)) return 1;
    int result = r->c->checked ? finish(r, stream) : 0;
    return result ? result : enqueue(r, f, r->c->stores, r->c->steps, stream);
}

static int run_in(const call *r, frame *f, const weft_array *inputs, weft_array *outputs,
                  int from_host, void *stream) {
    const weft_driver *cuda = r->m->cuda;
    int given = r->s->inputs, result = place_temporaries(r, f);
    for (int i = 0; i < given + r->s->outputs && !from_host; i++)
        f->tensors[i] = (weft_address)(uintptr_t)(i < given ? inputs[i].data
                                                            : outputs[i - given].data);
    if (!result && from_host) result = stage(r, f, inputs, outputs);
    if (!result) result = run_steps(r, f, stream);
    if (!result && from_host) {
        result = unstage(r, f, inputs, outputs) || fetch_parts(r, stream);
    } else if (!result) {
        f->pending = 1;
        result = failed(r, cuda->cuEventRecord(f->done, stream), "record an event", "");
    }
    if (!from_host && !result) return 0;
    int status = cuda->cuStreamSynchronize(stream); /* or else of what a failure left enqueued */
    return result ? result : failed(r, status, "finish the kernels of a call", "");
}

/* A run after the last one that took its frame, or where runs write weights after the last one. */
static int run_next(const call *r, frame *f, const weft_array *inputs, weft_array *outputs,
                    int from_host, void *stream) {
    weft_model *m = r->m;
    int pending = m->stateful ? m->pending : f->pending;
    void *last = m->stateful ? m->last : f->done;
    int status = pending ? m->cuda->cuStreamWaitEvent(stream, last, 0) : 0;
    if (failed(r, status, "wait for a run", "")) return 1;
    if (m->stateful) m->pending = 0;
    int result = run_in(r, f, inputs, outputs, from_host, stream);
    if (result || from_host || !m->stateful) return result;
    m->pending = 1;
    return failed(r, m->cuda->cuEventRecord(m->last, stream), "record an event", "");
}

static int can_run_on(const call *r, const weft_array *inputs, const weft_array *outputs,
                      void *stream) {
    int capturing = 0;
    if (failed(r, r->m->cuda->cuStreamIsCapturing(stream, &capturing), "use the stream", ""))
        return 0;
    if (capturing) {
        snprintf(r->error, r->room, "a run cannot be recorded: its memory is used by other runs");
        return 0;
    }
    for (int i = 0; i < r->s->inputs + r->s->outputs; i++) {
        int k = i - r->s->inputs;
        const weft_tensor *t = k < 0 ? r->s->input + i : r->s->output + k;
        const void *data = k < 0 ? inputs[i].data : outputs[k].data;
        if ((k >= 0 && t->memory != weft_memory_own) || (uintptr_t)data % VECTOR == 0) continue;
        snprintf(r->error, r->room, "%s %s does not lie at a multiple of %d bytes",
                 k < 0 ? "input" : "output", t->name, VECTOR);
        return 0;
    }
    return 1;
}

static int run(weft_model *m, int number, const weft_array *inputs, weft_array *outputs,
               int from_host, void *stream, char *error, size_t room) {
    int64_t *own;
    call r = {m, weft_signature_of(number), NULL, NULL, NULL, error, room};
    r.extents = weft_find_extents(number, inputs, &own, &r.sizes, error, room);
    int result = !r.extents || !weft_all_fit(r.s, r.extents, inputs, outputs, error, room);
    if (!result) {
        r.c = m->target->code[number];
        result = failed(&r, m->cuda->cuCtxPushCurrent(m->context), "use the context", "");
    }
    if (result) {
        free(own);
        return 1;
    }
    result = !from_host && !can_run_on(&r, inputs, outputs, stream);
    frame *f = result ? NULL : weft_take_frame(&m->own, number);
    if (!f && !result) f = new_frame(&r);
    if (f) {
        int alone = r.c->checked || m->stateful;
        if (alone) pthread_mutex_lock(&m->checks);
        result = run_next(&r, f, inputs, outputs, from_host, from_host ? f->stream : stream);
        if (alone) pthread_mutex_unlock(&m->checks);
        weft_give_frame(&m->own, number, f);
    }
    void *last;
    m->cuda->cuCtxPopCurrent(&last);
    if (f && !result) weft_find_parts(r.s, from_host ? m->own.map.at : m->weights, inputs, outputs);
    free(own);
    return f ? result : 1;
}

int weft_run(weft_model *m, int number, const weft_array *inputs, weft_array *outputs, int threads,
             char *error, size_t room) {
    (void)threads;
    return run(m, number, inputs, outputs, 1, NULL, error, room);
}

int weft_run_device(weft_model *m, int number, const weft_array *inputs, weft_array *outputs,
                    void *stream, char *error, size_t room) {
    return run(m, number, inputs, outputs, 0, stream, error, room);
}
