/* Opens and closes a model for NVIDIA's GPUs, and keeps its state. */
#include <stdio.h>
#include <stdlib.h>

#include "weft_cuda.h"

/* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_..., CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, and
   the bytes of it that no kernel has to ask for; bytes between tensors. */
enum { MAJOR = 75, MINOR = 76, MOST_SHARED = 8, PLAIN_SHARED = 48 << 10, APART = 256 };
enum { NO_TIMING = 2 }; /* of an event */

int weft_cuda_failed(const weft_driver *cuda, int status, const char *what, const char *of,
                     char *error, size_t room) {
    const char *name = NULL;
    cuda->cuGetErrorName(status, &name);
    snprintf(error, room, "CUDA cannot %s%s: %s", what, of, name ? name : "an unknown error");
    return 1;
}

static int failed(const weft_model *m, int status, const char *what, const char *of, char *error,
                  size_t room) {
    return status && weft_cuda_failed(m->cuda, status, what, of, error, room);
}

const char *weft_isa(const weft_model *model) { return model->target->name; }

/* ---- state */

int weft_fetch_weight(const weft_model *m, int number, void *stream, char *error, size_t room) {
    const weft_weight *w = weft_weights + number;
    if (!m->written[number] || !w->bytes) return 0;
    weft_address from = (weft_address)(uintptr_t)m->weights[number];
    int status =
        m->cuda->cuMemcpyDtoHAsync(m->own.map.at[number], from, (size_t)w->bytes, stream);
    return failed(m, status, "copy from the device ", w->name, error, room);
}

int weft_save(const weft_model *m, const char *path, char *error, size_t room) {
    void *last;
    if (failed(m, m->cuda->cuCtxPushCurrent(m->context), "use the context", "", error, room))
        return 1;
    int wrong = failed(m, m->cuda->cuCtxSynchronize(), "finish runs", "", error, room);
    for (int n = 0; n < weft_weight_count && !wrong; n++)
        wrong = weft_fetch_weight(m, n, NULL, error, room);
    wrong = wrong ||
            failed(m, m->cuda->cuStreamSynchronize(NULL), "copy the weights", "", error, room);
    m->cuda->cuCtxPopCurrent(&last);
    return wrong || weft_write_weights(&m->own.map, path, error, room);
}

/* ---- instances */

static int choose(weft_model *m, int device, char *error, size_t room) {
    int major = 0, minor = 0;
    char name[100] = "";
    if (failed(m, m->cuda->cuDeviceGet(&m->device, device), "find the device", "", error, room) ||
        failed(m, m->cuda->cuDeviceGetAttribute(&major, MAJOR, m->device), "tell what the device is",
               "", error, room) ||
        failed(m, m->cuda->cuDeviceGetAttribute(&minor, MINOR, m->device), "tell what the device is",
               "", error, room))
        return 1;
    size_t n = (size_t)snprintf(error, room, "kernels for");
    for (int i = 0; i < weft_target_count; i++) {
        const weft_target *t = weft_targets + i;
        if (major == t->major && (t->only ? minor == t->minor : minor >= t->minor))
            return m->target = t, 0;
        if (n < room) n += (size_t)snprintf(error + n, room - n, " %s", t->name);
    }
    m->cuda->cuDeviceGetName(name, sizeof name - 1, m->device);
    if (n < room)
        snprintf(error + n, room - n, " do not run on device %d: %s, of compute capability %d.%d",
                 device, name, major, minor);
    return 1;
}

static int load(weft_model *m, char *error, size_t room) {
    for (int i = 0; i < m->target->kernels; i++) {
        const weft_cubin *k = m->target->kernel + i;
        weft_loaded *to = m->kernels + i;
        size_t bytes;
        if (failed(m, m->cuda->cuModuleLoadData(&to->module, k->image), "load ", k->name, error,
                   room) ||
            failed(m, m->cuda->cuModuleGetFunction(&to->function, to->module, k->name), "find ",
                   k->name, error, room))
            return 1;
        if (k->shared > PLAIN_SHARED &&
            failed(m, m->cuda->cuFuncSetAttribute(to->function, MOST_SHARED, k->shared),
                   "give shared memory to ", k->name, error, room))
            return 1;
        if (k->checked &&
            failed(m, m->cuda->cuModuleGetGlobal(&to->fault, &bytes, to->module, "\167eft_fault"),
                   "find the faults of ", k->name, error, room))
            return 1;
    }
    return 0;
}

static int upload(weft_model *m, char *error, size_t room) {
    size_t total = APART;
    for (int i = 0; i < weft_weight_count; i++)
        total += ((size_t)weft_weights[i].bytes + APART) / APART * APART;
    if (failed(m, m->cuda->cuMemAlloc(&m->memory, total), "allocate ", "the weights", error, room))
        return 1;
    weft_address at = m->memory;
    for (int i = 0; i < weft_weight_count; i++) {
        const weft_weight *w = weft_weights + i;
        m->weights[i] = (void *)(uintptr_t)at;
        if (w->bytes &&
            failed(m, m->cuda->cuMemcpyHtoDAsync(at, m->own.map.at[i], (size_t)w->bytes, NULL),
                   "copy to the device ", w->name, error, room))
            return 1;
        at += ((size_t)w->bytes + APART) / APART * APART;
    }
    return failed(m, m->cuda->cuStreamSynchronize(NULL), "copy the weights", "", error, room);
}

static void note_written(weft_model *m) {
    for (int i = 0; i < weft_signature_count; i++) {
        const weft_code *c = m->target->code[i];
        for (int k = 0; k < c->bindings; k++) {
            const weft_binding *b = c->binding + k;
            if (b->written && b->memory == weft_memory_of_weight) m->written[b->of] = 1;
        }
        m->stateful |= weft_declared[i].keeps_state;
    }
}

static int prepare(weft_model *m, int device, char *error, size_t room) {
    if (choose(m, device, error, room)) return 1;
    snprintf(error, room, "memory is short");
    m->kernels = calloc((size_t)m->target->kernels + 1, sizeof *m->kernels);
    m->weights = calloc((size_t)weft_weight_count + 1, sizeof *m->weights);
    m->written = calloc((size_t)weft_weight_count + 1, 1);
    if (!m->kernels || !m->weights || !m->written) return 1;
    note_written(m);
    void *last;
    if (failed(m, m->cuda->cuDevicePrimaryCtxRetain(&m->context, m->device), "make a context", "",
               error, room) ||
        failed(m, m->cuda->cuCtxPushCurrent(m->context), "use the context", "", error, room))
        return 1;
    int wrong = load(m, error, room) || upload(m, error, room);
    if (!wrong && m->stateful)
        wrong = failed(m, m->cuda->cuEventCreate(&m->last, NO_TIMING), "make an event", "", error,
                       room);
    m->cuda->cuCtxPopCurrent(&last);
    return wrong;
}

weft_model *weft_open_on(int device, const char *weights, char *error, size_t room) {
    const weft_driver *cuda = weft_find_driver(error, room);
    weft_model *m = cuda ? weft_begin(sizeof *m, weights, error, room) : NULL;
    if (!m) return NULL;
    m->cuda = cuda;
    pthread_mutex_init(&m->checks, NULL);
    if (!prepare(m, device, error, room)) {
        if (room) *error = 0;
        return m;
    }
    weft_close(m);
    return NULL;
}

weft_model *weft_open(const char *weights, char *error, size_t room) {
    return weft_open_on(0, weights, error, room);
}

void weft_close(weft_model *m) {
    if (!m) return;
    void *last;
    int inside = m->context && !m->cuda->cuCtxPushCurrent(m->context);
    for (int i = 0; i < weft_signature_count; i++)
        for (void *f; (f = weft_take_frame(&m->own, i));) weft_free_frame(m->cuda, f);
    for (int i = 0; m->kernels && i < m->target->kernels; i++)
        if (m->kernels[i].module) m->cuda->cuModuleUnload(m->kernels[i].module);
    if (m->memory) m->cuda->cuMemFree(m->memory);
    if (m->last) m->cuda->cuEventDestroy(m->last);
    if (inside) m->cuda->cuCtxPopCurrent(&last);
    if (m->context) m->cuda->cuDevicePrimaryCtxRelease(m->device);
    free(m->kernels);
    free(m->weights);
    free(m->written);
    pthread_mutex_destroy(&m->checks);
    weft_end(&m->own);
}
