// fibers.h: the threads of a block as fibers: run one, switch back, leave a thread for good.
//
//     resume(t);      // from the scheduler: until t waits or ends
//     wait(AT_WARP);  // from a thread: until somebody makes it READY
#pragma once

#include "state.h"

static const size_t STACK = 128 << 10, PAGE = 4096;
static uintptr_t stacks;  // below each stack a page that faults
static size_t stacks_size;
static void **kernel_arguments;

extern "C" {
Index weft_thread_index, weft_block_index, weft_block_dim, weft_grid_dim;
int weft_warp_size;
}

struct Kernel {  // weft_kernel of include/cuda_language.h
    const char *name;
    u32 count;
    const u32 *bytes;
    void (*call)(void **args);
};
extern "C" const Kernel weft_kernels[];  // behind the kernels' text
static const Kernel *kernel;

static void park() {
    if (!_setjmp(self->context)) _longjmp(scheduler, 1);
}

static void fiber() {
    park();
    for (;;) {  // once a block
        if (!_setjmp(self->base)) kernel->call(kernel_arguments);
        self->state = ENDED;
        park();
    }
}

static void make_fibers() {
    threads.resize(launch.threads);
    stacks_size = launch.threads * STACK;
    stacks = (uintptr_t)reserve(stacks_size);
    for (u32 i = 0; i < launch.threads; i++) {
        uintptr_t stack = stacks + i * STACK;
        mprotect((void *)stack, PAGE, PROT_NONE);
        Thread &t = threads[i];
        getcontext(&t.start);
        t.start.uc_stack.ss_sp = (void *)(stack + PAGE);
        t.start.uc_stack.ss_size = STACK - PAGE;
        makecontext(&t.start, fiber, 0);
        self = &t;
        if (!_setjmp(scheduler)) setcontext(&t.start);
    }
    self = nullptr;
}

static void resume(Thread &t) {
    self = &t;
    t.accesses = 0;
    weft_thread_index = t.at;
    if (!_setjmp(scheduler)) _longjmp(t.context, 1);
    self = nullptr;
}

static void wait(State state) {
    self->state = state;
    park();
}

static std::vector<u64> abandoned_lanes;  // per warp

// What follows in this thread would read or write no memory of the kernel: it ends here.
[[noreturn]] static void abandon() {
    self->abandoned = true;
    abandoned_threads++;
    abandoned_lanes[self->warp] |= (u64)1 << self->lane;
    _longjmp(self->base, 1);
}
