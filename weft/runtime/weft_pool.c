/* A pool of threads, and scratch memory for each of them: for a torch without OpenMP, and for
   programs without torch. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "weft_pool.h"

#define MAX_WORKERS 1024
#define SPINS 4000

#if defined(__x86_64__) || defined(__i386__)
#define pause_cpu() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define pause_cpu() __asm__ volatile("yield")
#else
#define pause_cpu() ((void)0)
#endif

static pthread_mutex_t region_lock = PTHREAD_MUTEX_INITIALIZER; /* one region at a time */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static const weft_region *current; /* NULL: the threads are to end */
static pthread_t threads[MAX_WORKERS];
static int team_size, workers; /* workers: threads started, the caller not counted */
static atomic_ulong generation;
static atomic_int pending;
static _Thread_local int inside;

static void await_generation(unsigned long seen) {
    for (int spin = 0; spin < SPINS; spin++) {
        if (atomic_load_explicit(&generation, memory_order_acquire) != seen) return;
        pause_cpu();
    }
    pthread_mutex_lock(&sleep_lock);
    while (atomic_load(&generation) == seen) pthread_cond_wait(&wake, &sleep_lock);
    pthread_mutex_unlock(&sleep_lock);
}

typedef struct {
    int worker;
    unsigned long seen;
} birth;

static void *worker_main(void *given) {
    birth b = *(birth *)given;
    free(given);
    inside = 1;
    for (;; b.seen++) {
        await_generation(b.seen);
        if (!current) return NULL;
        if (b.worker < team_size) weft_run_share(current, b.worker, team_size);
        atomic_fetch_sub_explicit(&pending, 1, memory_order_release);
    }
}

/* Start threads up to `wanted`; fewer when the system refuses. Called with region_lock held. */
static void grow_pool(int wanted) {
    while (workers < wanted && workers + 1 < MAX_WORKERS) {
        birth *b = malloc(sizeof *b);
        if (!b) return;
        *b = (birth){workers + 1, atomic_load(&generation)};
        if (pthread_create(threads + workers, NULL, worker_main, b)) {
            free(b);
            return;
        }
        workers++;
    }
}

/* Have the threads take what `current` is now. */
static void wake_all(void) {
    pthread_mutex_lock(&sleep_lock);
    atomic_fetch_add(&generation, 1);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&sleep_lock);
}

static void parallel_pool(int team, int64_t chunks, int64_t count, weft_body body, void *args) {
    weft_region r = {chunks, count, body, args};
    if (inside || pthread_mutex_trylock(&region_lock)) { /* nested, or another caller has the pool */
        body(args, 0, count, 0);
        return;
    }
    grow_pool(team - 1);
    current = &r;
    team_size = team < workers + 1 ? team : workers + 1;
    atomic_store(&pending, workers);
    wake_all();
    inside = 1;
    weft_run_share(&r, 0, team_size);
    inside = 0;
    for (int spin = 0; atomic_load_explicit(&pending, memory_order_acquire); spin++)
        if (spin < SPINS)
            pause_cpu();
        else
            sched_yield();
    pthread_mutex_unlock(&region_lock);
}

/* End all threads, so that the library can be unloaded. */
void weft_pool_stop(void) {
    pthread_mutex_lock(&region_lock);
    current = NULL;
    wake_all();
    for (; workers; workers--) pthread_join(threads[workers - 1], NULL);
    pthread_mutex_unlock(&region_lock);
}

/* Threads do not survive a fork: the child starts a pool of its own when it needs one. */
static void reset_pool(void) {
    pthread_mutex_init(&region_lock, NULL);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&wake, NULL);
    workers = 0;
}

/* ---- scratch ---- */

typedef struct {
    void *memory;
    size_t bytes;
} scratch_block;

static pthread_key_t scratch_key;
static _Thread_local scratch_block scratch;

static void free_scratch(void *memory) {
    free(memory);
    scratch = (scratch_block){0};
}

static void *grow_scratch(size_t bytes) {
    void *memory = NULL;
    bytes = (bytes + 4095) / 4096 * 4096;
    if (posix_memalign(&memory, 4096, bytes)) abort(); /* as far out of memory as it gets */
    free(scratch.memory);
    scratch = (scratch_block){memory, bytes};
    pthread_setspecific(scratch_key, memory); /* freed when the thread ends */
    return memory;
}

static void *thread_scratch(size_t bytes) {
    return bytes <= scratch.bytes && scratch.memory ? scratch.memory : grow_scratch(bytes);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

/* ---- the table programs are bound to ---- */

static pthread_once_t opened = PTHREAD_ONCE_INIT;
static int has_key;

static void open_pool(void) {
    has_key = !pthread_key_create(&scratch_key, free_scratch);
    pthread_atfork(NULL, NULL, reset_pool);
}

/* A thread that ends after the library is unloaded must not call into it. */
__attribute__((destructor)) static void close_pool(void) {
    if (has_key) pthread_key_delete(scratch_key);
    free(scratch.memory);
    scratch = (scratch_block){0};
}

const weft_table *weft_pool_table(void) {
    static const weft_table table = {parallel_pool, thread_scratch, now};
    pthread_once(&opened, open_pool);
    return &table;
}
