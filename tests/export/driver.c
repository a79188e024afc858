/* Runs the model m on inputs from files, and writes its outputs to files.

     driver WEIGHTS FOLDER [THREADS [CALLERS]]   # reads FOLDER/in0 ..., writes FOLDER/out0 ...

   Each of the CALLERS is a thread with an instance of its own, which runs ten times; all have to
   give the same. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m.h"

static const char *weights, *folder;
static int threads = 1;

typedef struct {
    char error[512];
    m_array in[64], out[64];
    size_t bytes[64];
} caller;

static void *read_all(const char *what, int number) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%d", folder, what, number);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    void *data = malloc(bytes + 1);
    rewind(file);
    if (fread(data, 1, bytes, file) != bytes) exit(9);
    fclose(file);
    return data;
}

static void *call(void *given) {
    caller *c = given;
    m_model *m = m_open(weights, c->error, sizeof c->error);
    if (!m) return c;
    const m_signature *s = m_signature_of(0);
    for (int i = 0; i < s->inputs; i++) c->in[i].data = read_all("in", i);
    for (int i = 0; i < s->outputs; i++) {
        int64_t shape[16], strides[16], span = 1;
        if (m_shape(0, c->in, i, shape, strides, c->error, sizeof c->error)) return c;
        for (int d = 0; d < s->output[i].rank; d++) span += (shape[d] - 1) * strides[d];
        c->bytes[i] = (size_t)(span > 0 ? span : 0) * (size_t)s->output[i].item_bytes;
        if (s->output[i].memory == m_memory_own) c->out[i].data = calloc(c->bytes[i] + 1, 1);
    }
    for (int turn = 0; turn < 10 && !c->error[0]; turn++)
        if (m_run(m, 0, c->in, c->out, threads, c->error, sizeof c->error)) break;
    printf("%s\n", m_isa(m));
    m_close(m);
    return NULL;
}

static void write_all(int number, const void *data, size_t bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/out%d", folder, number);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes) exit(9);
    fclose(file);
}

int main(int count, char **arguments) {
    if (count < 3) return 9;
    weights = arguments[1];
    folder = arguments[2];
    threads = count > 3 ? atoi(arguments[3]) : 1;
    int callers = count > 4 ? atoi(arguments[4]) : 1, wrong = 0;
    caller *all = calloc((size_t)callers, sizeof *all);
    pthread_t *thread = calloc((size_t)callers, sizeof *thread);
    for (int i = 1; i < callers; i++) pthread_create(thread + i, NULL, call, all + i);
    call(all);
    for (int i = 1; i < callers; i++) pthread_join(thread[i], NULL);
    const m_signature *s = m_signature_of(0);
    for (int k = 0; k < callers && !wrong; k++) wrong = all[k].error[0] != 0;
    if (wrong) puts(all[0].error);
    for (int i = 0; i < s->outputs && !wrong; i++) {
        if (s->output[i].memory != m_memory_own) continue;
        write_all(i, all[0].out[i].data, all[0].bytes[i]);
        for (int k = 1; k < callers; k++)
            if (memcmp(all[0].out[i].data, all[k].out[i].data, all[0].bytes[i])) wrong = 2;
    }
    for (int k = 0; k < callers; k++)
        for (int i = 0; i < 64; i++) {
            free(all[k].in[i].data);
            if (i < s->outputs && s->output[i].memory == m_memory_own) free(all[k].out[i].data);
        }
    free(all);
    free(thread);
    return wrong;
}
