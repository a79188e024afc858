/* A driver that prints what it is asked to do: libcuda.so.1 for test_cuda.py. Its module has one
   kernel, "k", of an address, an int, a float and a text, and a fault, 2. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#pragma GCC visibility push(default)

enum { OK = 0, NOT_FOUND = 500 };
static int fault = 2;

/* Every line is out before Python, which has a buffer of its own, writes the next one. */
int cuInit(unsigned flags) { return setvbuf(stdout, NULL, _IOLBF, BUFSIZ), flags; }
int cuDeviceGet(int *device, int n) { return *device = n, OK; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &fault, device; }
static void *context_now;
int cuCtxGetCurrent(void **context) { return *context = context_now, OK; }
int cuCtxPushCurrent(void *context) { return context_now = context, context ? OK : 1; }
int cuCtxPopCurrent(void **context) { return *context = context_now, context_now = 0, OK; }
int cuModuleLoadData(void **module, const char *image) {
    printf("load %.3s\n", image + 1);
    return *module = &fault, OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return *function = module, strcmp(name, "k") ? NOT_FOUND : OK;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    return printf("attribute %d %d\n", attribute, value), function ? OK : 1;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **p) {
    printf("launch %u %u %u, %u %u %u, %u on %p: ", gx, gy, gz, bx, by, bz, shared, stream);
    printf("%lx %d %g %s\n", *(long *)p[0], *(int *)p[1], *(float *)p[2], (char *)p[3]);
    return !function ? 1 : by == 2048 ? 1 : OK;
}
int cuFuncGetName(const char **name, void *function) { return *name = "k", function ? OK : 1; }
int cuStreamCreate(void **stream, unsigned flags) {
    return printf("stream of kind %u\n", flags), *stream = (void *)99, OK;
}
int cuStreamSynchronize(void *stream) { return printf("wait for %p\n", stream), OK; }
int cuStreamBeginCapture(void *stream, int mode) {
    return printf("record %p, mode %d\n", stream, mode), OK;
}
int cuStreamEndCapture(void *stream, void **graph) { return *graph = &fault, stream ? OK : 1; }
int cuGraphInstantiateWithFlags(void **runnable, void *graph, uint64_t flags) {
    return *runnable = graph, printf("graph, %lu\n", flags), OK;
}
int cuGraphDestroy(void *graph) { return printf("recording gone\n"), graph ? OK : 1; }
int cuGraphLaunch(void *graph, void *stream) { return printf("replay on %p\n", stream), OK; }
int cuGraphExecDestroy(void *graph) { return printf("graph gone\n"), graph ? OK : 1; }
int cuModuleGetGlobal(uint64_t *address, size_t *bytes, void *module, const char *name) {
    *address = (uint64_t)module;
    *bytes = sizeof fault;
    return strcmp(name, "weft_fault") ? NOT_FOUND : OK;
}
int cuMemcpyDtoH(void *to, uint64_t from, size_t n) { return memcpy(to, (void *)from, n), OK; }
int cuMemsetD32(uint64_t at, unsigned value, size_t n) { return *(unsigned *)at = value * n, OK; }
int cuTensorMapEncodeTiled(char *map, int type, unsigned rank, void *address, const uint64_t *size,
                           const uint64_t *stride, const uint32_t *box, const uint32_t *step,
                           int interleave, int swizzle, int promotion, int fill) {
    printf("map of type %d, rank %u at %p: %lu %lu by %lu, box %u %u, step %u %u, ", type, rank,
           address, size[0], size[1], stride[0], box[0], box[1], step[0], step[1]);
    printf("%d %d %d %d\n", interleave, swizzle, promotion, fill);
    return memset(map, 7, 128), OK;
}

int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        int *status) {
    *function = dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY), name);
    if (status) *status = *function == 0;
    return *function ? OK : NOT_FOUND;
}
