/* The thread pool and scratch memory behind weft.h: one library, loaded once per process.

     weft_runtime_table(parallel, thread_num, num_threads, in_parallel)   // torch's OpenMP
     weft_runtime_table(NULL, NULL, NULL, NULL)                           // the pool below

   With torch's OpenMP the threads are the ones torch itself runs on, so nothing is oversubscribed. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "weft.h"

typedef struct {
    int64_t chunks, count;
    weft_body body;
    void *args;
} region;

/* Chunk i of n: the first count % n chunks are one longer. */
static void run_chunk(const region *r, int64_t chunk, int worker) {
    int64_t size = r->count / r->chunks, longer = r->count % r->chunks;
    int64_t begin = chunk * size + (chunk < longer ? chunk : longer);
    r->body(r->args, begin, begin + size + (chunk < longer), worker);
}

/* The share of one worker of a team, which may be smaller than the one asked for. */
static void run_share(const region *r, int worker, int team) {
    for (int64_t chunk = worker; chunk < r->chunks; chunk += team) run_chunk(r, chunk, worker);
}

/* ---- torch's OpenMP ---- */

static void (*omp_parallel)(void (*)(void *), void *, unsigned, unsigned);
static int (*omp_thread)(void);
static int (*omp_team)(void);
static int (*omp_nested)(void);

static void omp_share(void *shared) { run_share(shared, omp_thread(), omp_team()); }

/* The team always has `threads` members, even when fewer chunks exist, as in torch: libgomp ends
   and recreates threads whenever the size of the team changes. */
static void parallel_omp(int threads, int64_t chunks, int64_t count, weft_body body, void *args) {
    region r = {chunks, count, body, args};
    if (omp_nested())
        body(args, 0, count, 0);
    else
        omp_parallel(omp_share, &r, (unsigned)threads, 0);
}

/* ---- our own pool, for a torch without OpenMP ---- */

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
static const region *current;
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
        if (b.worker < team_size) run_share(current, b.worker, team_size);
        atomic_fetch_sub_explicit(&pending, 1, memory_order_release);
    }
    return NULL;
}

/* Start threads up to `wanted`; fewer when the system refuses. Called with region_lock held. */
static void grow_pool(int wanted) {
    while (workers < wanted && workers + 1 < MAX_WORKERS) {
        pthread_t thread;
        birth *b = malloc(sizeof *b);
        if (!b) return;
        *b = (birth){workers + 1, atomic_load(&generation)};
        if (pthread_create(&thread, NULL, worker_main, b)) {
            free(b);
            return;
        }
        pthread_detach(thread);
        workers++;
    }
}

static void parallel_pool(int threads, int64_t chunks, int64_t count, weft_body body, void *args) {
    region r = {chunks, count, body, args};
    if (inside || pthread_mutex_trylock(&region_lock)) { /* nested, or another caller has the pool */
        body(args, 0, count, 0);
        return;
    }
    grow_pool(threads - 1);
    current = &r;
    team_size = threads < workers + 1 ? threads : workers + 1;
    atomic_store(&pending, workers);
    pthread_mutex_lock(&sleep_lock);
    atomic_fetch_add(&generation, 1);
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&sleep_lock);
    inside = 1;
    run_share(&r, 0, team_size);
    inside = 0;
    for (int spin = 0; atomic_load_explicit(&pending, memory_order_acquire); spin++)
        if (spin < SPINS)
            pause_cpu();
        else
            sched_yield();
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

static void free_scratch(void *memory) { free(memory); }

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

WEFT_EXPORT const weft_table *weft_runtime_table(void *parallel, void *thread_num,
                                                 void *num_threads, void *in_parallel) {
    static weft_table table;
    omp_parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))parallel;
    omp_thread = (int (*)(void))thread_num;
    omp_team = (int (*)(void))num_threads;
    omp_nested = (int (*)(void))in_parallel;
    pthread_key_create(&scratch_key, free_scratch);
    if (!parallel) pthread_atfork(NULL, NULL, reset_pool);
    table.parallel = parallel ? parallel_omp : parallel_pool;
    table.scratch = thread_scratch;
    table.now = now;
    return &table;
}
