/* A driver without a device: memory of the device is of malloc, every address, stream, context and
   size is checked, and a launch is handed to `fake_run`, if that is set. What is wrong is printed,
   and ends the process.

     gcc -shared -fPIC fake_cuda.c -o libcuda.so.1 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) fprintf(stderr, "fake driver: %s, line %d\n", #what, __LINE__), abort();      \
    } while (0)

typedef uint64_t address;
enum { OK = 0, INVALID = 1, SHORT = 2, NOT_FOUND = 500, MOST = 1024, STREAM = 77 };

typedef struct module {
    const char *image;
    size_t bytes;
    int *fault;
    char name[200];
    int shared;
} module;

/* Of a launch of a kernel of that cubin: 0, or the number of a fault that it met. */
int (*fake_run)(const char *name, const char *image, unsigned grid, unsigned block, unsigned shared,
                void **params);
int fake_major = 9, fake_minor = 0, fake_capturing, fake_waits, fake_launches, fake_fails_at = -1;
int fake_refuses_waits;
long long fake_live, fake_room = 1ll << 32; /* things that are to be freed; bytes that there are */

static struct {
    address at;
    size_t bytes;
} memory[MOST];
static _Thread_local int pushed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int context;

static void live(int more) { __atomic_add_fetch(&fake_live, more, __ATOMIC_SEQ_CST); }

static void inside(address at, size_t bytes) {
    int found = 0;
    CHECK(pushed == 1);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST; i++)
        found |= memory[i].at && at >= memory[i].at && at + bytes <= memory[i].at + memory[i].bytes;
    pthread_mutex_unlock(&lock);
    CHECK(found);
}

int cuInit(unsigned flags) { return (int)flags; }
int cuGetErrorName(int status, const char **name) {
    *name = status == SHORT ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
    return OK;
}
int cuDeviceGet(int *device, int n) { return *device = n, n > 1 ? INVALID : OK; }
int cuDeviceGetName(char *name, int room, int device) {
    return snprintf(name, (size_t)room, "Fake %d", device), OK;
}
int cuDeviceGetAttribute(int *value, int which, int device) {
    CHECK((which == 75 || which == 76) && device >= 0);
    return *value = which == 75 ? fake_major : fake_minor, OK;
}
int cuDevicePrimaryCtxRetain(void **c, int device) {
    return live(1), *c = &context, device < 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return live(-1), device < 0; }
int cuCtxPushCurrent_v2(void *c) {
    CHECK(c == &context && !pushed);
    return pushed++, OK;
}
int cuCtxPopCurrent_v2(void **c) {
    CHECK(pushed == 1);
    return *c = &context, pushed--, OK;
}
int cuCtxSynchronize(void) { return pushed != 1; }
int cuMemAlloc_v2(address *at, size_t bytes) {
    CHECK(pushed == 1 && bytes > 0);
    if ((long long)bytes > fake_room) return SHORT;
    void *made = NULL;
    CHECK(!posix_memalign(&made, 256, bytes));
    memset(made, 0xA5, bytes); /* nobody counts on zeros */
    *at = (address)(uintptr_t)made;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < MOST && memory[i].at) i++;
    CHECK(i < MOST);
    memory[i].at = *at;
    memory[i].bytes = bytes;
    pthread_mutex_unlock(&lock);
    return live(1), OK;
}
int cuMemFree_v2(address at) {
    CHECK(pushed == 1);
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < MOST && memory[i].at != at) i++;
    CHECK(i < MOST);
    memory[i].at = 0;
    pthread_mutex_unlock(&lock);
    free((void *)(uintptr_t)at);
    return live(-1), OK;
}
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    CHECK(!stream || *(int *)stream == STREAM);
    inside(to, bytes);
    return memcpy((void *)(uintptr_t)to, from, bytes), OK;
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    CHECK(!stream || *(int *)stream == STREAM);
    inside(from, bytes);
    return memcpy(to, (void *)(uintptr_t)from, bytes), OK;
}
int cuMemsetD32Async(address at, unsigned value, size_t count, void *stream) {
    CHECK((!stream || *(int *)stream == STREAM) && at % 4 == 0);
    inside(at, 4 * count);
    for (size_t i = 0; i < count; i++) ((unsigned *)(uintptr_t)at)[i] = value;
    return OK;
}

/* ---- streams and events */

int cuStreamCreate(void **stream, unsigned flags) {
    CHECK(pushed == 1 && flags == 1);
    int *made = malloc(sizeof *made);
    return *made = STREAM, *stream = made, live(1), OK;
}
int cuStreamDestroy_v2(void *stream) {
    CHECK(*(int *)stream == STREAM);
    return free(stream), live(-1), OK;
}
int cuStreamSynchronize(void *stream) {
    CHECK(pushed == 1 && (!stream || *(int *)stream == STREAM));
    return OK;
}
int cuStreamIsCapturing(void *stream, int *capturing) {
    CHECK(pushed == 1 && (!stream || *(int *)stream == STREAM));
    return *capturing = fake_capturing, OK;
}
int cuEventCreate(void **event, unsigned flags) {
    CHECK(pushed == 1 && flags == 2);
    int *made = calloc(1, sizeof *made); /* whether it has been recorded */
    return *event = made, live(1), OK;
}
int cuEventRecord(void *event, void *stream) {
    CHECK(pushed == 1 && (!stream || *(int *)stream == STREAM));
    return *(int *)event = 1, OK;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    CHECK(pushed == 1 && *(int *)event == 1 && (!stream || *(int *)stream == STREAM));
    __atomic_add_fetch(&fake_waits, stream ? 1 : 1000, __ATOMIC_SEQ_CST);
    return fake_refuses_waits || flags;
}
int cuEventSynchronize(void *event) {
    CHECK(*(int *)event == 1);
    return OK;
}
int cuEventDestroy_v2(void *event) { return free(event), live(-1), OK; }

/* ---- kernels */

int cuModuleLoadData(void **made, const void *image) {
    const unsigned char *elf = image;
    CHECK(pushed == 1 && !memcmp(elf, "\177ELF\2", 5) && *(const uint16_t *)(elf + 18) == 190);
    module *m = calloc(1, sizeof *m);
    m->image = image; /* up to the end of its table of sections */
    m->bytes = *(const uint64_t *)(elf + 40) +
               (size_t)*(const uint16_t *)(elf + 58) * *(const uint16_t *)(elf + 60);
    m->shared = 48 << 10;
    return *made = m, live(1), OK;
}
int cuModuleUnload(void *given) {
    module *m = given;
    if (m->fault) cuMemFree_v2((address)(uintptr_t)m->fault);
    return free(m), live(-1), OK;
}
static int has(const module *m, const char *name) {
    return memmem(m->image, m->bytes, name, strlen(name) + 1) != NULL;
}
int cuModuleGetFunction(void **function, void *given, const char *name) {
    module *m = given;
    CHECK(pushed == 1 && strlen(name) < sizeof m->name);
    strcpy(m->name, name);
    return *function = m, has(m, name) ? OK : NOT_FOUND;
}
int cuModuleGetGlobal_v2(address *at, size_t *bytes, void *given, const char *name) {
    module *m = given;
    if (strcmp(name, "weft_fault") || !has(m, name)) return NOT_FOUND;
    CHECK(!m->fault && !cuMemAlloc_v2(at, 4));
    m->fault = (int *)(uintptr_t)*at;
    return *m->fault = 0, *bytes = 4, OK;
}
int cuFuncSetAttribute(void *function, int which, int value) {
    CHECK(which == 8 && value > 48 << 10 && value <= 227 << 10);
    return ((module *)function)->shared = value, OK;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned block, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
    module *m = function;
    CHECK(pushed == 1 && (!stream || *(int *)stream == STREAM) && !extra && params);
    CHECK(x >= 1 && y == 1 && z == 1 && block >= 1 && block <= 1024 && by == 1 && bz == 1);
    CHECK((int)shared <= m->shared);
    int launch = __atomic_fetch_add(&fake_launches, 1, __ATOMIC_SEQ_CST);
    if (launch == fake_fails_at) return INVALID;
    int fault = fake_run ? fake_run(m->name, m->image, x, block, shared, params) : 0;
    CHECK(!fault || m->fault);
    if (fault) *m->fault = fault;
    return OK;
}

/* A map begins with the address of its tensor, for `fake_run`. */
int cuTensorMapEncodeTiled(char *map, int type, unsigned rank, void *at, const uint64_t *sizes,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion, int fill) {
    static const int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    CHECK((uintptr_t)map % 64 == 0 && rank >= 1 && rank <= 5 && type >= 0 && type < 10);
    CHECK(!interleave && swizzle >= 0 && swizzle < 4 && promotion == 2 && !fill);
    CHECK((uintptr_t)at % 16 == 0 && box[0] * (unsigned)bytes[type] % 16 == 0);
    size_t last = sizes[0] * (size_t)bytes[type];
    for (unsigned d = 0; d < rank; d++) {
        CHECK(steps[d] == 1 && box[d] >= 1 && box[d] <= 256 && sizes[d] >= 1);
        if (d) CHECK(strides[d - 1] % 16 == 0);
        if (d) last += (sizes[d] - 1) * strides[d - 1];
    }
    inside((address)(uintptr_t)at, last);
    memset(map, 0, 128);
    return memcpy(map, &at, sizeof at), OK;
}
