/* What a call is given, against what its signature declares: shapes, strides, sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_parts.h"

int weft_signatures(void) { return weft_signature_count; }

const weft_signature *weft_signature_of(int number) {
    return number < 0 || number >= weft_signature_count ? NULL : weft_declared + number;
}

/* The extents of all tensors of a call, which sizes decide: what the inputs have. */
static int find_sizes(const weft_signature *s, const weft_extents *e, const weft_array *inputs,
                      int64_t *sizes, char *error, size_t room) {
    for (int i = 0; i < s->sizes; i++) {
        const weft_size *n = s->size + i;
        const char *name = s->input[n->input].name;
        if (!inputs[n->input].shape) {
            snprintf(error, room, "input %s needs a shape, which decides %s", name, n->name);
            return 1;
        }
        sizes[i] = inputs[n->input].shape[n->dimension];
        if (sizes[i] < n->low || sizes[i] > n->high || sizes[i] % n->divisor) {
            snprintf(error, room,
                     "dimension %d of input %s is %lld, and the model takes %lld to %lld, in steps "
                     "of %lld",
                     n->dimension, name, (long long)sizes[i], (long long)n->low,
                     (long long)n->high, (long long)n->divisor);
            return 1;
        }
    }
    const char *refused = e->refuse ? e->refuse(sizes) : NULL;
    if (refused) snprintf(error, room, "the model takes only sizes with %s", refused);
    return refused != NULL;
}

static void show(char *text, size_t room, int rank, const int64_t *shape) {
    size_t n = (size_t)snprintf(text, room, "[");
    for (int i = 0; i < rank && n < room; i++)
        n += (size_t)snprintf(text + n, room - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    if (n < room) snprintf(text + n, room - n, "]");
}

/* Whether memory is as a tensor is declared, and its extents are. */
static int fits(const weft_tensor *t, const char *what, const weft_array *a, const int64_t *shape,
                char *error, size_t room) {
    const int64_t *strides = shape + t->rank;
    int64_t count = 1, same = 1;
    for (int i = 0; i < t->rank; i++) {
        count *= shape[i];
        if (a->shape && a->shape[i] != shape[i]) same = 0;
    }
    if (!same) {
        char has[160], wants[160];
        show(has, sizeof has, t->rank, a->shape);
        show(wants, sizeof wants, t->rank, shape);
        snprintf(error, room, "%s %s has the shape %s, not %s", what, t->name, has, wants);
        return 0;
    }
    for (int i = 0; i < t->rank && a->strides; i++)
        if (shape[i] > 1 && count && a->strides[i] != strides[i]) {
            snprintf(error, room, "%s %s has a stride of %lld in dimension %d, not %lld", what,
                     t->name, (long long)a->strides[i], i, (long long)strides[i]);
            return 0;
        }
    if (count && (!a->data || (uintptr_t)a->data % (unsigned)t->item_bytes)) {
        snprintf(error, room, "%s %s has no memory, or not at a multiple of %d bytes", what,
                 t->name, t->item_bytes);
        return 0;
    }
    return 1;
}

const int64_t *weft_find_extents(int number, const weft_array *inputs, int64_t **own,
                                 int64_t **sizes, char *error, size_t room) {
    const weft_signature *s = weft_signature_of(number);
    *own = *sizes = NULL;
    if (!s || (!inputs && s->inputs)) {
        snprintf(error, room, "there is no signature %d, or no inputs for it", number);
        return NULL;
    }
    const weft_extents *e = weft_extents_of + number;
    if (!s->sizes) return e->extents;
    *own = malloc(sizeof **own * (size_t)(e->extent_count + s->sizes));
    if (!*own) {
        snprintf(error, room, "memory is short");
        return NULL;
    }
    *sizes = *own + e->extent_count;
    if (find_sizes(s, e, inputs, *sizes, error, room)) return NULL;
    e->fill(*sizes, *own);
    return *own;
}

int weft_shape(int signature, const weft_array *inputs, int output, int64_t *shape,
               int64_t *strides, char *error, size_t room) {
    int64_t *own, *sizes;
    const int64_t *at = weft_find_extents(signature, inputs, &own, &sizes, error, room);
    const weft_signature *s = weft_signature_of(signature);
    if (at && (output < 0 || output >= s->outputs)) {
        snprintf(error, room, "there is no output %d", output);
        at = NULL;
    }
    if (at) {
        for (int i = 0; i < s->inputs; i++) at += 2 * s->input[i].rank;
        for (int i = 0; i < output; i++) at += 2 * s->output[i].rank;
        size_t bytes = sizeof *at * (size_t)s->output[output].rank;
        memcpy(shape, at, bytes);
        memcpy(strides, at + s->output[output].rank, bytes);
    }
    free(own);
    return at == NULL;
}

int weft_all_fit(const weft_signature *s, const int64_t *at, const weft_array *inputs,
                 const weft_array *outputs, char *error, size_t room) {
    for (int i = 0; i < s->inputs; at += 2 * s->input[i++].rank)
        if (!fits(s->input + i, "input", inputs + i, at, error, room)) return 0;
    for (int i = 0; i < s->outputs; at += 2 * s->output[i++].rank)
        if (s->output[i].memory == weft_memory_own &&
            !fits(s->output + i, "output", outputs + i, at, error, room))
            return 0;
    return 1;
}

void weft_find_parts(const weft_signature *s, void *const *weights, const weft_array *inputs,
                     weft_array *outputs) {
    for (int i = 0; i < s->outputs; i++) {
        const weft_tensor *t = s->output + i;
        void *base = NULL;
        if (t->memory == weft_memory_own) continue;
        if (t->memory == weft_memory_of_input) base = inputs[t->of].data;
        if (t->memory == weft_memory_of_output) base = outputs[t->of].data;
        if (t->memory == weft_memory_of_weight) base = weights[t->of];
        outputs[i].data = (char *)base + t->offset * t->item_bytes;
    }
}

int weft_tell_fault(int fault, const char *origin, char *error, size_t room) {
    const char *what = fault == 1 ? "an index is out of range of the tensor it reads"
                                  : "an integer is divided by zero";
    snprintf(error, room, "%s, at %s", what, origin ? origin : "a step of which no line is known");
    return 2;
}
