/* Runs the first signature of a model on zeros, and prints the first numbers of each output.

     make && ./example weights.safetensors */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_model.h"

/* SHAPES */

/* Zeroed memory for a tensor of that shape and these strides. */
static void *zeros(const weft_tensor *t, const int64_t *shape, const int64_t *strides) {
    int64_t span = 1;
    for (int d = 0; d < t->rank; d++) span += (shape[d] - 1) * strides[d];
    return calloc(span > 0 ? (size_t)span : 1, (size_t)t->item_bytes);
}

static void print(const weft_tensor *t, const void *data, const int64_t *shape) {
    const unsigned char *bytes = data;
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= shape[d];
    printf("%s %s%s =", t->name, t->dtype, t->extents);
    for (int i = 0; i < count && i < 4; i++)
        if (!strcmp(t->dtype, "f32"))
            printf(" %g", ((const float *)data)[i]);
        else if (!strcmp(t->dtype, "i64"))
            printf(" %lld", (long long)((const int64_t *)data)[i]);
        else
            for (int k = 0; k < t->item_bytes; k++)
                printf("%s%02x", k ? "" : " ", bytes[i * t->item_bytes + k]);
    puts("");
}

int main(int count, char **arguments) {
    char error[512];
    const char *weights = count > 1 ? arguments[1] : "weights.safetensors";
    weft_model *m = weft_open(weights, error, sizeof error);
    if (!m) return puts(error), 1;
    const weft_signature *s = weft_signature_of(0);
    weft_array *in = calloc((size_t)s->inputs + 1, sizeof *in);
    weft_array *out = calloc((size_t)s->outputs + 1, sizeof *out);
    for (int i = 0; i < s->inputs; i++) {
        in[i].shape = shapes[i];
        in[i].data = calloc(bytes_of[i], 1);
    }
    int wrong = 0, most = 1;
    for (int i = 0; i < s->outputs; i++) most = s->output[i].rank > most ? s->output[i].rank : most;
    int64_t *shape = calloc(2 * (size_t)most, sizeof *shape), *strides = shape + most;
    for (int i = 0; i < s->outputs && !wrong; i++) {
        wrong = weft_shape(0, in, i, shape, strides, error, sizeof error);
        int own = s->output[i].memory == weft_memory_own;
        if (!wrong && own) out[i].data = zeros(s->output + i, shape, strides);
    }
    wrong = wrong || weft_run(m, 0, in, out, 0, error, sizeof error);
    for (int i = 0; i < s->outputs && !wrong; i++) {
        weft_shape(0, in, i, shape, strides, error, sizeof error);
        print(s->output + i, out[i].data, shape);
    }
    if (wrong) puts(error);
    weft_close(m);
    return wrong;
}
