/* Finds NVIDIA's driver, once for the process. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "weft_cuda.h"

#ifndef WEFT_LIBCUDA
#define WEFT_LIBCUDA "libcuda.so.1"
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static weft_driver driver;
static char missing[256]; /* why there is none */

static void find(void) {
    void *library = dlopen(WEFT_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(missing, sizeof missing, "there is no NVIDIA driver here: %s", dlerror());
        return;
    }
    void *found = NULL;
#define WEFT_FIND(field, symbol, types)                                                            \
    found = dlsym(library, #symbol);                                                               \
    memcpy(&driver.field, &found, sizeof found);                                                   \
    if (!found && !*missing)                                                                       \
        snprintf(missing, sizeof missing, "the NVIDIA driver is too old: it has no " #symbol);
    WEFT_DRIVER(WEFT_FIND)
#undef WEFT_FIND
    int status = *missing ? 0 : driver.cuInit(0);
    if (status) snprintf(missing, sizeof missing, "the NVIDIA driver does not start: %d", status);
}

const weft_driver *weft_find_driver(char *error, size_t room) {
    pthread_once(&once, find);
    if (*missing) snprintf(error, room, "%s", missing);
    return *missing ? NULL : &driver;
}
