// What this machine can do at most: multiply-adds and bytes copied per second, on N threads.
//
//     limits_fma(2, 0)          GFLOP/s in float32; limits_fma(2, 1) in bf16, 0 where there is none
//     limits_dot_i8(2)          G products and sums per second of u8 x i8; 0 where there is none
//     limits_read(2, 1 << 30)   GB/s of reading that much, by several streams on each thread
//     limits_copy(2, 1 << 28)   GB/s, bytes read and bytes written, of a copy that moves 256 MB
//     limits_nothing()          what calling C costs
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define MOST_THREADS 1024
#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define CHAINS 12  // independent sums: more than latency times units, and all in 16 registers
#define STEPS 1000000L

typedef float vector __attribute__((vector_size(BYTES)));
// Written out: products and sums are not contracted (see the flags in runtime/).
#if defined(__AVX512F__)
#define FMA(x, y, z) ((vector)_mm512_fmadd_ps((__m512)(x), (__m512)(y), (__m512)(z)))
#elif defined(__FMA__)
#define FMA(x, y, z) ((vector)_mm256_fmadd_ps((__m256)(x), (__m256)(y), (__m256)(z)))
#elif defined(__aarch64__)
#define FMA(x, y, z) ((vector)vfmaq_f32((float32x4_t)(z), (float32x4_t)(x), (float32x4_t)(y)))
#else
#define FMA(x, y, z) ((x) * (y) + (z))
#endif
typedef struct {
    atomic_int *ready;
    int threads;
    double (*work)(void *);
    void *argument;
    double done;
} worker;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *start(void *argument) {
    worker *w = argument;
    atomic_fetch_add(w->ready, 1);
    while (atomic_load(w->ready) < w->threads) {}
    w->done = w->work(w->argument);
    return NULL;
}

// All work done by the threads, over the time from their common start to the last one's end.
static double rate(int threads, double (*work)(void *), void *arguments, size_t size) {
    static worker workers[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    atomic_int ready = 0;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker){&ready, threads, work, (char *)arguments + i * size, 0};
        if (i > 0) pthread_create(&ids[i], NULL, start, &workers[i]);
    }
    while (atomic_load(&ready) < threads - 1) {}
    const double began = now();
    start(&workers[0]);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    const double seconds = now() - began;
    double done = 0;
    for (int i = 0; i < threads; i++) done += workers[i].done;
    return done / seconds * 1e-9;
}

static double fma_f32(void *unused) {
    vector sums[CHAINS];
    vector a = {0}, b = {0};
    (void)unused;
    a += 0.999999f;
    b += 1e-6f;
    for (int c = 0; c < CHAINS; c++) sums[c] = b * (float)c;
    for (long i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sums[c] = FMA(sums[c], a, b);
    }
    for (int c = 0; c < CHAINS; c++) __asm__ volatile("" ::"m"(sums[c]));
    return 2.0 * STEPS * CHAINS * (BYTES / 4);
}

#if defined(__AVX512BF16__)
static double fma_bf16(void *unused) {
    __m512 sums[CHAINS];
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
    (void)unused;
    for (int c = 0; c < CHAINS; c++) sums[c] = _mm512_set1_ps((float)c);
    for (long i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sums[c] = _mm512_dpbf16_ps(sums[c], a, a);
    }
    for (int c = 0; c < CHAINS; c++) __asm__ volatile("" ::"m"(sums[c]));
    return 2.0 * STEPS * CHAINS * 32;
}
#endif

EXPORT double limits_fma(int threads, int bf16) {
    if (!bf16) return rate(threads, fma_f32, NULL, 0);
#if defined(__AVX512BF16__)
    return rate(threads, fma_bf16, NULL, 0);
#else
    return 0;
#endif
}

#if defined(__AVX512VNNI__)
static double dot_i8(void *unused) {
    __m512i sums[CHAINS];
    const __m512i a = _mm512_set1_epi8(3);
    (void)unused;
    for (int c = 0; c < CHAINS; c++) sums[c] = _mm512_set1_epi32(c);
    for (long i = 0; i < STEPS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) sums[c] = _mm512_dpbusd_epi32(sums[c], sums[c], a);
    }
    for (int c = 0; c < CHAINS; c++) __asm__ volatile("" ::"m"(sums[c]));
    return 2.0 * STEPS * CHAINS * 64;
}
#endif

EXPORT double limits_dot_i8(int threads) {
#if defined(__AVX512VNNI__)
    return rate(threads, dot_i8, NULL, 0);
#else
    return 0;
#endif
}

#define STREAMS 4  // one stream does not keep enough lines on their way
typedef long words __attribute__((vector_size(BYTES)));
typedef struct {
    const char *from;
    long bytes;
} region;

static double read_streams(void *argument) {
    const region *p = argument;
    const long part = p->bytes / STREAMS;
    words sums[STREAMS] = {0};
    for (long i = 0; i < part; i += BYTES) {
#pragma GCC unroll 4
        for (int s = 0; s < STREAMS; s++) sums[s] ^= *(const words *)(p->from + s * part + i);
    }
    for (int s = 0; s < STREAMS; s++) __asm__ volatile("" ::"m"(sums[s]));
    return (double)part * STREAMS;
}

EXPORT double limits_read(int threads, long bytes) {
    static region regions[MOST_THREADS];
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    const long part = bytes / threads / (STREAMS * 64) * (STREAMS * 64);
    char *from = aligned_alloc(4096, (part * threads + 4095) / 4096 * 4096);
    if (!from) return 0;
    memset(from, 1, part * threads);
    for (int i = 0; i < threads; i++) regions[i] = (region){from + i * part, part};
    double best = 0;
    for (int i = 0; i < 5; i++) {
        const double found = rate(threads, read_streams, regions, sizeof(region));
        if (found > best) best = found;
    }
    free(from);
    return best;
}

typedef struct {
    char *from, *to;
    long bytes, repeats;
    int stream;
} piece;

// Stores that go past the caches, where the ISA has them.
static void copy_streaming(char *restrict to, const char *restrict from, long bytes) {
#if defined(__AVX512F__)
    for (long i = 0; i < bytes; i += 64)
        _mm512_stream_si512((__m512i *)(to + i), _mm512_load_si512(from + i));
    _mm_sfence();
#elif defined(__AVX__)
    for (long i = 0; i < bytes; i += 32)
        _mm256_stream_si256((__m256i *)(to + i), _mm256_load_si256((const __m256i *)(from + i)));
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

static void copy_vectors(char *restrict to, const char *restrict from, long bytes) {
    for (long i = 0; i < bytes; i += 4 * BYTES) {
        const vector *f = (const vector *)(from + i);
        vector *t = (vector *)(to + i);
        const vector a = f[0], b = f[1], c = f[2], d = f[3];
        __asm__ volatile("" ::: "memory");  // or it becomes memcpy, which is tried as well
        t[0] = a, t[1] = b, t[2] = c, t[3] = d;
    }
}

static double copy(void *argument) {
    const piece *p = argument;
    for (long r = 0; r < p->repeats; r++) {
        if (p->stream == 0) memcpy(p->to, p->from, p->bytes);
        if (p->stream == 1) copy_vectors(p->to, p->from, p->bytes);
        if (p->stream == 2) copy_streaming(p->to, p->from, p->bytes);
        __asm__ volatile("" ::: "memory");
    }
    return 2.0 * p->bytes * p->repeats;
}

// The fastest of three ways to copy; each thread copies a part of its own.
EXPORT double limits_copy(int threads, long moved) {
    static piece pieces[MOST_THREADS];
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    const long part = (moved / 2 / threads + 255) / 256 * 256;
    const long most = 1L << 28;
    double best = 0;
    for (int i = 0; i < threads; i++) {
        char *from = aligned_alloc(256, part), *to = aligned_alloc(256, part);
        if (!from || !to) return 0;
        memset(from, 1, part);
        memset(to, 2, part);
        pieces[i] = (piece){from, to, part, most > moved ? most / moved : 1, 0};
    }
    for (int way = 0; way < 3; way++) {
        for (int i = 0; i < threads; i++) pieces[i].stream = way;
        const double found = rate(threads, copy, pieces, sizeof(piece));
        if (found > best) best = found;
    }
    for (int i = 0; i < threads; i++) free(pieces[i].from), free(pieces[i].to);
    return best;
}

EXPORT void limits_nothing(void) {}
