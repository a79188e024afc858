// weft_vector.h: vectors of L lanes for emitted C, on any machine with GCC or clang vector types.
//
//     #define WEFT_LANES 16
//     #include "weft_vector.h"                  // again with another WEFT_LANES for another width
//     store_f32x16(y, maximum_f32x16(load_f32x16(x), splat_f32x16(0)));
//
// A name is op_dtype followed by x16, or by nothing for one lane: add_f32x16, add_f32.
// dtypes   f32 f64 i8 i16 i32 i64 u8 bool; in memory f16 bf16 f8e4m3fn f8e5m2: a load gives an f32.
// masks    boolx16 (one lane: boolx1) is an i32x16 of 0 or -1; in memory a bool is a byte, 0 or 1.
// chunks   GCC splits arithmetic on vectors wider than a register, but takes their compares and
//          shuffles apart lane by lane. So those loop over register-sized chunks.
//
// Compile with -Wno-psabi (vectors wider than a register have no settled ABI; here all is inlined)
// and without -ffast-math. There is no <immintrin.h>: parsing it alone takes GCC 0.1 s.

#include <stdint.h>
#include <string.h>

#ifndef WEFT_VECTOR_H
#define WEFT_VECTOR_H

#define WEFT_FN static inline __attribute__((always_inline, unused))
#define WEFT_UNROLL _Pragma("GCC unroll 64")

// ---- types: f32x4 is a register value, f32x4u the same bytes anywhere in memory

typedef float f32;
typedef double f64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef uint16_t f16;   // storage only
typedef uint16_t bf16;  // storage only
typedef uint8_t f8e4m3fn;
typedef uint8_t f8e5m2;

#define WEFT_VECTOR_TYPE(d, L)                                                                     \
    typedef d d##x##L __attribute__((vector_size(sizeof(d) * L)));                                 \
    typedef d d##x##L##u __attribute__((vector_size(sizeof(d) * L), aligned(sizeof(d)), may_alias));
#define WEFT_SCALAR_TYPE(d, L)                                                                     \
    typedef d d##x##L;                                                                             \
    typedef d d##x##L##u __attribute__((may_alias));
#define WEFT_TYPES(TYPE, L)                                                                        \
    TYPE(f32, L) TYPE(f64, L) TYPE(i8, L) TYPE(i16, L) TYPE(i32, L) TYPE(i64, L)                   \
    TYPE(u8, L) TYPE(u16, L) TYPE(u32, L) TYPE(u64, L)                                             \
    typedef i32x##L boolx##L;
WEFT_TYPES(WEFT_SCALAR_TYPE, 1)
WEFT_TYPES(WEFT_VECTOR_TYPE, 2)
WEFT_TYPES(WEFT_VECTOR_TYPE, 4)
WEFT_TYPES(WEFT_VECTOR_TYPE, 8)
WEFT_TYPES(WEFT_VECTOR_TYPE, 16)
WEFT_TYPES(WEFT_VECTOR_TYPE, 32)
WEFT_TYPES(WEFT_VECTOR_TYPE, 64)

// ---- the machine: bytes of a register, and how many lanes of 1, 2, 4 and 8 bytes fill one

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define WEFT_AVX512 1
#define WEFT_REGISTER 64
#define WEFT_FULL_1 64
#define WEFT_FULL_2 32
#define WEFT_FULL_4 16
#define WEFT_FULL_8 8
#elif defined(__AVX2__)
#define WEFT_REGISTER 32
#define WEFT_FULL_1 32
#define WEFT_FULL_2 16
#define WEFT_FULL_4 8
#define WEFT_FULL_8 4
#else
#define WEFT_REGISTER 16
#define WEFT_FULL_1 16
#define WEFT_FULL_2 8
#define WEFT_FULL_4 4
#define WEFT_FULL_8 2
#endif

// ---- what vector syntax cannot say, for each type that fits a register
// lesser(a, b) is a < b ? a : b, greater(a, b) is a > b ? a : b: both give b if either is NaN.

#define WEFT_PER_LANE(name, T, d, L, expr)                                                         \
    WEFT_FN T weft_##name##_##T(T v) {                                                             \
        union { T v; d lane[L]; } u = {v};                                                         \
        WEFT_UNROLL for (int i = 0; i < L; i++) { d x = u.lane[i]; u.lane[i] = (expr); }           \
        return u.v;                                                                                \
    }
#define WEFT_PER_LANE_2(name, T, d, L, expr)                                                       \
    WEFT_FN T weft_##name##_##T(T v, T w) {                                                        \
        union { T v; d lane[L]; } u = {v}, s = {w};                                                \
        WEFT_UNROLL for (int i = 0; i < L; i++) {                                                  \
            d x = u.lane[i], y = s.lane[i];                                                        \
            u.lane[i] = (expr);                                                                    \
        }                                                                                          \
        return u.v;                                                                                \
    }
#define WEFT_LANE_OPS(T, d, L, f)                                                                  \
    WEFT_PER_LANE(sqrt, T, d, L, __builtin_sqrt##f(x))                                             \
    WEFT_PER_LANE(round, T, d, L, __builtin_rint##f(x))                                            \
    WEFT_PER_LANE(floor, T, d, L, __builtin_floor##f(x))                                           \
    WEFT_PER_LANE(ceil, T, d, L, __builtin_ceil##f(x))                                             \
    WEFT_PER_LANE(trunc, T, d, L, __builtin_trunc##f(x))                                           \
    WEFT_PER_LANE_2(lesser, T, d, L, x < y ? x : y)                                                \
    WEFT_PER_LANE_2(greater, T, d, L, x > y ? x : y)

#define WEFT_REGISTER_OP(name, T, expr) WEFT_FN T weft_##name##_##T(T v) { return (T)(expr); }
#define WEFT_REGISTER_OP_2(name, T, expr)                                                          \
    WEFT_FN T weft_##name##_##T(T v, T w) { return (T)(expr); }
#define WEFT_REGISTER_OPS(T, SQRT, ROUND, LESSER, GREATER)                                         \
    WEFT_REGISTER_OP(sqrt, T, SQRT)                                                                \
    WEFT_REGISTER_OP(round, T, ROUND(8)) WEFT_REGISTER_OP(floor, T, ROUND(9))                      \
    WEFT_REGISTER_OP(ceil, T, ROUND(10)) WEFT_REGISTER_OP(trunc, T, ROUND(11))                     \
    WEFT_REGISTER_OP_2(lesser, T, LESSER) WEFT_REGISTER_OP_2(greater, T, GREATER)

WEFT_LANE_OPS(f32x1, f32, 1, f)
WEFT_LANE_OPS(f64x1, f64, 1, )
WEFT_LANE_OPS(f32x2, f32, 2, f)
#if defined(__SSE4_1__) && !defined(__clang__)
#define WEFT_ROUND(mode) __builtin_ia32_roundps(v, mode)
WEFT_REGISTER_OPS(f32x4, __builtin_ia32_sqrtps(v), WEFT_ROUND, __builtin_ia32_minps(v, w),
                  __builtin_ia32_maxps(v, w))
#undef WEFT_ROUND
#define WEFT_ROUND(mode) __builtin_ia32_roundpd(v, mode)
WEFT_REGISTER_OPS(f64x2, __builtin_ia32_sqrtpd(v), WEFT_ROUND, __builtin_ia32_minpd(v, w),
                  __builtin_ia32_maxpd(v, w))
#undef WEFT_ROUND
#else
WEFT_LANE_OPS(f32x4, f32, 4, f)
WEFT_LANE_OPS(f64x2, f64, 2, )
#endif
#if defined(__AVX2__) && !defined(__clang__)
#define WEFT_ROUND(mode) __builtin_ia32_roundps256(v, mode)
WEFT_REGISTER_OPS(f32x8, __builtin_ia32_sqrtps256(v), WEFT_ROUND, __builtin_ia32_minps256(v, w),
                  __builtin_ia32_maxps256(v, w))
#undef WEFT_ROUND
#define WEFT_ROUND(mode) __builtin_ia32_roundpd256(v, mode)
WEFT_REGISTER_OPS(f64x4, __builtin_ia32_sqrtpd256(v), WEFT_ROUND, __builtin_ia32_minpd256(v, w),
                  __builtin_ia32_maxpd256(v, w))
#undef WEFT_ROUND
#else
WEFT_LANE_OPS(f32x8, f32, 8, f)
WEFT_LANE_OPS(f64x4, f64, 4, )
#endif
#if defined(WEFT_AVX512) && !defined(__clang__)
#define WEFT_ROUND(mode) __builtin_ia32_rndscaleps_mask(v, mode, v, -1, 4)
WEFT_REGISTER_OPS(f32x16, __builtin_ia32_sqrtps512_mask(v, v, -1, 4), WEFT_ROUND,
                  __builtin_ia32_minps512_mask(v, w, v, -1, 4),
                  __builtin_ia32_maxps512_mask(v, w, v, -1, 4))
#undef WEFT_ROUND
#define WEFT_ROUND(mode) __builtin_ia32_rndscalepd_mask(v, mode, v, -1, 4)
WEFT_REGISTER_OPS(f64x8, __builtin_ia32_sqrtpd512_mask(v, v, -1, 4), WEFT_ROUND,
                  __builtin_ia32_minpd512_mask(v, w, v, -1, 4),
                  __builtin_ia32_maxpd512_mask(v, w, v, -1, 4))
#undef WEFT_ROUND
#else
WEFT_LANE_OPS(f32x16, f32, 16, f)
WEFT_LANE_OPS(f64x8, f64, 8, )
#endif

// ---- the product of the low words of 64-bit lanes, as 64 bits

#define WEFT_WORDS_OP(T, W)                                                                        \
    WEFT_FN T weft_words_##T(T v, T w) { return (T)(((W)v & 0xffffffffu) * ((W)w & 0xffffffffu)); }
#define WEFT_WORDS_BY(T, expr)                                                                     \
    WEFT_FN T weft_words_##T(T v, T w) { return (T)(expr); }
WEFT_WORDS_OP(i64x1, u64x1)
#if defined(__SSE4_1__) && !defined(__clang__)
WEFT_WORDS_BY(i64x2, __builtin_ia32_pmuludq128((i32x4)v, (i32x4)w))
#else
WEFT_WORDS_OP(i64x2, u64x2)
#endif
#if defined(__AVX2__) && !defined(__clang__)
WEFT_WORDS_BY(i64x4, __builtin_ia32_pmuludq256((i32x8)v, (i32x8)w))
#else
WEFT_WORDS_OP(i64x4, u64x4)
#endif
#if defined(WEFT_AVX512) && !defined(__clang__)
typedef long long weft_long8 __attribute__((vector_size(64)));
WEFT_WORDS_BY(i64x8,
              __builtin_ia32_pmuludq512_mask((i32x16)v, (i32x16)w, (weft_long8){}, -1))
#else
WEFT_WORDS_OP(i64x8, u64x8)
#endif

// ---- whether a lane is negative

#define WEFT_ANY_NEGATIVE(T, expr) WEFT_FN i32 weft_any_negative_##T(T v) { return (expr); }
WEFT_ANY_NEGATIVE(i64x1, v < 0)
WEFT_ANY_NEGATIVE(i64x2, (v[0] | v[1]) < 0)
#if defined(__AVX2__) && !defined(__clang__)
WEFT_ANY_NEGATIVE(i64x4, __builtin_ia32_movmskpd256((f64x4)v))
#else
WEFT_ANY_NEGATIVE(i64x4, ((v[0] | v[1]) | (v[2] | v[3])) < 0)
#endif
#if defined(WEFT_AVX512) && !defined(__clang__)
WEFT_ANY_NEGATIVE(i64x8, __builtin_ia32_cvtq2mask512((weft_long8)v))
#else
WEFT_ANY_NEGATIVE(i64x8, (((v[0] | v[1]) | (v[2] | v[3])) | ((v[4] | v[5]) | (v[6] | v[7]))) < 0)
#endif

// ---- x y + z, rounded once where the machine has an instruction for it, else twice. The compiler
// contracts nothing by itself: it would in some places and not in others.

#define WEFT_FMA(T, expr) WEFT_FN T weft_fma_##T(T x, T y, T z) { return (T)(expr); }
#ifndef __FP_FAST_FMAF
#define WEFT_FMA_LANES(T, d, L, f) WEFT_FMA(T, x * y + z)
#else
#define WEFT_FMA_LANES(T, d, L, f)                                                                 \
    WEFT_FN T weft_fma_##T(T x, T y, T z) {                                                        \
        union { T v; d lane[L]; } a = {x}, b = {y}, c = {z};                                       \
        WEFT_UNROLL for (int i = 0; i < L; i++)                                                    \
            c.lane[i] = __builtin_fma##f(a.lane[i], b.lane[i], c.lane[i]);                         \
        return c.v;                                                                                \
    }
#endif
WEFT_FMA_LANES(f32x1, f32, 1, f)
WEFT_FMA_LANES(f64x1, f64, 1, )
WEFT_FMA_LANES(f32x2, f32, 2, f)
#if defined(__clang__) && defined(__FP_FAST_FMAF) && __has_builtin(__builtin_elementwise_fma)
WEFT_FMA(f32x4, __builtin_elementwise_fma(x, y, z))
WEFT_FMA(f64x2, __builtin_elementwise_fma(x, y, z))
WEFT_FMA(f32x8, __builtin_elementwise_fma(x, y, z))
WEFT_FMA(f64x4, __builtin_elementwise_fma(x, y, z))
WEFT_FMA(f32x16, __builtin_elementwise_fma(x, y, z))
WEFT_FMA(f64x8, __builtin_elementwise_fma(x, y, z))
#else
#if defined(__FMA__) && !defined(__clang__)
WEFT_FMA(f32x4, __builtin_ia32_vfmaddps(x, y, z))
WEFT_FMA(f64x2, __builtin_ia32_vfmaddpd(x, y, z))
WEFT_FMA(f32x8, __builtin_ia32_vfmaddps256(x, y, z))
WEFT_FMA(f64x4, __builtin_ia32_vfmaddpd256(x, y, z))
#elif defined(__ARM_FEATURE_FMA) && defined(__aarch64__) && !defined(__clang__)
WEFT_FMA(f32x4, __builtin_aarch64_fmav4sf(x, y, z))
WEFT_FMA(f64x2, __builtin_aarch64_fmav2df(x, y, z))
WEFT_FMA_LANES(f32x8, f32, 8, f)
WEFT_FMA_LANES(f64x4, f64, 4, )
#else
WEFT_FMA_LANES(f32x4, f32, 4, f)
WEFT_FMA_LANES(f64x2, f64, 2, )
WEFT_FMA_LANES(f32x8, f32, 8, f)
WEFT_FMA_LANES(f64x4, f64, 4, )
#endif
#if defined(WEFT_AVX512) && !defined(__clang__)
WEFT_FMA(f32x16, __builtin_ia32_vfmaddps512_mask(x, y, z, -1, 4))
WEFT_FMA(f64x8, __builtin_ia32_vfmaddpd512_mask(x, y, z, -1, 4))
#else
WEFT_FMA_LANES(f32x16, f32, 16, f)
WEFT_FMA_LANES(f64x8, f64, 8, )
#endif
#endif

// ---- the first n of a register's lanes in memory, counted in words of 4 bytes or in bytes

#if defined(WEFT_AVX512) && !defined(__clang__)
#define WEFT_WORDS 16
#define WEFT_BYTES 64
typedef f32x16 weft_words;
WEFT_FN u16 weft_word_mask(i64 n) { return n >= 16 ? 0xffff : n > 0 ? (1u << n) - 1 : 0; }
WEFT_FN u64 weft_byte_mask(i64 n) { return n >= 64 ? -1ull : n > 0 ? (1ull << n) - 1 : 0; }
WEFT_FN weft_words weft_load_words(const void *p, i64 n) {
    return __builtin_ia32_loadups512_mask((const float *)p, (f32x16){}, weft_word_mask(n));
}
WEFT_FN void weft_store_words(void *p, weft_words v, i64 n) {
    __builtin_ia32_storeups512_mask((float *)p, v, weft_word_mask(n));
}
typedef char weft_bytes __attribute__((vector_size(64)));
WEFT_FN weft_bytes weft_load_bytes(const void *p, i64 n) {
    return __builtin_ia32_loaddquqi512_mask((const char *)p, (weft_bytes){}, weft_byte_mask(n));
}
WEFT_FN void weft_store_bytes(void *p, weft_bytes v, i64 n) {
    __builtin_ia32_storedquqi512_mask((char *)p, v, weft_byte_mask(n));
}
#elif defined(__AVX2__) && !defined(__clang__)
#define WEFT_WORDS 8
typedef f32x8 weft_words;
WEFT_FN i32x8 weft_word_mask(i64 n) {
    return (i32x8){0, 1, 2, 3, 4, 5, 6, 7} < (i32)(n > 8 ? 8 : n < 0 ? 0 : n);
}
WEFT_FN weft_words weft_load_words(const void *p, i64 n) {
    return __builtin_ia32_maskloadps256((const f32x8 *)p, weft_word_mask(n));
}
WEFT_FN void weft_store_words(void *p, weft_words v, i64 n) {
    __builtin_ia32_maskstoreps256((f32x8 *)p, weft_word_mask(n), v);
}
#endif

#define WEFT_CLAMP(n) ((size_t)((n) < 0 ? 0 : (n) > L ? L : (n)))
#define WEFT_LOAD_COPY(d)                                                                          \
    WEFT_LANEWISE(d) r = {SPLAT(d, 0)};                                                            \
    memcpy(&r, p, WEFT_CLAMP(n) * sizeof(d));                                                      \
    return r.v;
#define WEFT_STORE_COPY(d)                                                                         \
    WEFT_LANEWISE(d) r = {v};                                                                      \
    memcpy(p, &r, WEFT_CLAMP(n) * sizeof(d));
// unit is words or bytes, per the units in one register
#define WEFT_UNITS(d, unit)                                                                        \
    union {                                                                                        \
        V(d) v;                                                                                    \
        weft_##unit part[(sizeof(V(d)) + sizeof(weft_##unit) - 1) / sizeof(weft_##unit)];          \
    }
#define WEFT_LOAD_UNITS(d, unit, per, n)                                                           \
    WEFT_UNITS(d, unit) r;                                                                         \
    WEFT_UNROLL for (u32 c = 0; c < sizeof r / sizeof(weft_##unit); c++)                           \
        r.part[c] = weft_load_##unit((const char *)p + c * sizeof(weft_##unit), (n) - per * c);    \
    return r.v;
// A literal number of lanes takes plain stores, with AVX-512 up to half a register: masked ones
// are slow on some machines.
#define WEFT_STORE_UNITS(d, unit, per, n)                                                          \
    WEFT_UNITS(d, unit) r = {v};                                                                   \
    if (__builtin_constant_p(n) && (n) > 0 && (n) <= (per > 8 ? per / 2 : per)) {                  \
        memcpy(p, &r, (n) * (sizeof(weft_##unit) / per));                                          \
        return;                                                                                    \
    }                                                                                              \
    WEFT_UNROLL for (u32 c = 0; c < sizeof r / sizeof(weft_##unit); c++)                           \
        weft_store_##unit((char *)p + c * sizeof(weft_##unit), r.part[c], (n) - per * c);

// Streaming stores bypass the caches; weft_fence() orders them before what follows.
#if defined(__x86_64__) && !defined(__clang__)
WEFT_FN void weft_fence(void) { __builtin_ia32_sfence(); }
#if WEFT_REGISTER == 64
typedef f32x16 weft_stream;
#define WEFT_STREAM(p, v) __builtin_ia32_movntps512((float *)(p), v)
#elif WEFT_REGISTER == 32
typedef f32x8 weft_stream;
#define WEFT_STREAM(p, v) __builtin_ia32_movntps256((float *)(p), v)
#else
typedef f32x4 weft_stream;
#define WEFT_STREAM(p, v) __builtin_ia32_movntps((float *)(p), v)
#endif
#define WEFT_STREAM_STORE(d)                                                                       \
    if (sizeof v % sizeof(weft_stream) == 0 && (uintptr_t)p % sizeof(weft_stream) == 0) {          \
        union { V(d) v; weft_stream part[(sizeof v + 63) / sizeof(weft_stream)]; } u = {v};        \
        const u32 parts = sizeof v / sizeof(weft_stream);                                          \
        WEFT_UNROLL for (u32 c = 0; c < parts; c++)                                                \
            WEFT_STREAM((char *)p + c * sizeof(weft_stream), u.part[c]);                           \
        return;                                                                                    \
    }                                                                                              \
    if (sizeof v == 16 && (uintptr_t)p % 16 == 0) {                                                \
        union { V(d) v; f32x4 word; } u = {v};                                                     \
        __builtin_ia32_movntps((float *)p, u.word);                                                \
        return;                                                                                    \
    }
#else
WEFT_FN void weft_fence(void) { __sync_synchronize(); }
#define WEFT_STREAM_STORE(d)
#endif
#ifdef WEFT_IN_PLACE // what is stored over has just been read, so that its line is in the cache
#undef WEFT_STREAM_STORE
#define WEFT_STREAM_STORE(d)
#endif

// ---- f16 in hardware

#if defined(__F16C__) && !defined(__clang__)
WEFT_FN f32x4 weft_widen_f16x4(i16x4 a) {
    union { i16x4 half; i16x8 whole; } u = {a};
    return __builtin_ia32_vcvtph2ps(u.whole);
}
WEFT_FN i16x4 weft_narrow_f16x4(f32x4 a) {
    union { i16x8 whole; i16x4 half; } u = {__builtin_ia32_vcvtps2ph(a, 0)};
    return u.half;
}
WEFT_FN f32x8 weft_widen_f16x8(i16x8 a) { return __builtin_ia32_vcvtph2ps256(a); }
WEFT_FN i16x8 weft_narrow_f16x8(f32x8 a) { return __builtin_ia32_vcvtps2ph256(a, 0); }
#ifdef WEFT_AVX512
WEFT_FN f32x16 weft_widen_f16x16(i16x16 a) {
    return __builtin_ia32_vcvtph2ps512_mask(a, (f32x16){}, -1, 4);
}
WEFT_FN i16x16 weft_narrow_f16x16(f32x16 a) {
    return __builtin_ia32_vcvtps2ph512_mask(a, 0, (i16x16){}, -1);
}
#endif
#endif

// ---- scalar bodies of what runs lane by lane

WEFT_FN f64 weft_floormod_f64(f64 a, f64 b) {
    f64 r = __builtin_fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
// As torch.floor_divide: from the exact remainder, so 1 // 0.1 is 9.
#define WEFT_FLOORDIV(d, f)                                                                        \
    WEFT_FN d weft_floordiv_##d(d a, d b) {                                                        \
        if (b == 0) return a / b;                                                                  \
        d r = __builtin_fmod##f(a, b), q = (a - r) / b;                                            \
        if (r != 0 && (r < 0) != (b < 0)) q -= 1;                                                  \
        if (q == 0) return __builtin_copysign##f(0, a / b);                                        \
        d whole = __builtin_floor##f(q);                                                           \
        return q - whole > (d)0.5 ? whole + 1 : whole;                                             \
    }
WEFT_FLOORDIV(f32, f)
WEFT_FLOORDIV(f64, )

#define WEFT_IOTA_2 0, 1
#define WEFT_IOTA_4 WEFT_IOTA_2, 2, 3
#define WEFT_IOTA_8 WEFT_IOTA_4, 4, 5, 6, 7
#define WEFT_IOTA_16 WEFT_IOTA_8, 8, 9, 10, 11, 12, 13, 14, 15
#define WEFT_IOTA_32 WEFT_IOTA_16, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
#define WEFT_IOTA_64                                                                               \
    WEFT_IOTA_32, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51,  \
        52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63

#define WEFT_JOIN_(a, b) a##b
#define WEFT_JOIN(a, b) WEFT_JOIN_(a, b)

// ---- one row per function. V(d) is the vector type, F(op, d) the name, L the lanes, C_size the
// lanes of a chunk; `bits` is the signed integer as wide as d.

#define WEFT_LANEWISE(d) union { V(d) v; d lane[L]; }
#define WEFT_CHUNK(d, size) WEFT_JOIN(d##x, C_##size)
#define WEFT_CHUNKED(d, size) union { V(d) v; WEFT_CHUNK(d, size) chunk[L / C_##size]; }
#define WEFT_EACH_LANE WEFT_UNROLL for (int i = 0; i < L; i++)
#define WEFT_EACH_CHUNK(size) WEFT_UNROLL for (int c = 0; c < L / C_##size; c++)

// load_where in one instruction for the width that fills a register with 4-byte lanes.
#ifndef WEFT_LOAD_WHERE
#if defined(WEFT_AVX512) && !defined(__clang__)
#define WEFT_LOAD_WHERE(d, size)                                                                   \
    if (size == 4 && L == 16) {                                                                    \
        union { V(bool) v; i32x16 word; } k = {m};                                                 \
        union { V(d) v; f32x16 word; } r = {other};                                                \
        r.word = __builtin_ia32_loadups512_mask((const float *)p, r.word,                          \
                                                __builtin_ia32_cvtd2mask512(k.word));              \
        return r.v;                                                                                \
    }
#elif defined(__AVX2__) && !defined(__clang__)
#define WEFT_LOAD_WHERE(d, size)                                                                   \
    if (size == 4 && L == 8) {                                                                     \
        union { V(bool) v; i32x8 word; } k = {m};                                                  \
        union { V(d) v; i32x8 word; f32x8 real; } r = {other}, loaded;                             \
        loaded.real = __builtin_ia32_maskloadps256((const f32x8 *)p, k.word);                      \
        r.word = (loaded.word & k.word) | (r.word & ~k.word);                                      \
        return r.v;                                                                                \
    }
#else
#define WEFT_LOAD_WHERE(d, size)
#endif
#endif

// A gather of places in 32 bits, in one instruction.
#ifndef WEFT_GATHER_NEAR
#if defined(WEFT_AVX512) && !defined(__clang__)
#define WEFT_GATHER_NEAR(d, size)                                                                  \
    if (size == 4 && L == 16) {                                                                    \
        union { V(i32) v; i32x16 word; } places = {index};                                         \
        union { V(d) v; f32x16 word; } r;                                                          \
        r.word = __builtin_ia32_gathersiv16sf((f32x16){}, p, places.word, -1, 4);                  \
        return r.v;                                                                                \
    }
#else
#define WEFT_GATHER_NEAR(d, size)
#endif
#endif

// Every second element: of p[0 .. L) the even ones, of p[L - 1 .. 2 L - 1) the odd ones.
#define WEFT_PAIRS_4 0, 2, 5, 7
#define WEFT_PAIRS_8 0, 2, 4, 6, 9, 11, 13, 15
#define WEFT_PAIRS_16 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
// The lanes of a mask where those elements are, and lane 0 of nothing between them.
#define WEFT_SPREAD_8 0, 8, 1, 8, 2, 8, 3, 8
#define WEFT_SPREAD_16 0, 16, 1, 16, 2, 16, 3, 16, 4, 16, 5, 16, 6, 16, 7, 16
#define WEFT_SPREAD_REST_8 8, 4, 8, 5, 8, 6, 8, 7
#define WEFT_SPREAD_REST_16 16, 8, 16, 9, 16, 10, 16, 11, 16, 12, 16, 13, 16, 14, 16, 15
#define WEFT_SPREAD(m, lanes) __builtin_shufflevector(m, (V(bool)){}, lanes)
#define WEFT_PAIRS(d, first, second)                                                               \
    return __builtin_shufflevector(first, second, WEFT_JOIN(WEFT_PAIRS_, WEFT_LANES));
#define WEFT_PAIRS_LOAD(d)                                                                         \
    if (stride == 2) WEFT_PAIRS(d, F(load, d)(p), F(load, d)(p + L - 1))
#define WEFT_PAIRS_WHERE(d)                                                                        \
    if (stride == 2) {                                                                             \
        V(bool) one = WEFT_SPREAD(m, WEFT_JOIN(WEFT_SPREAD_, WEFT_LANES));                         \
        V(bool) two = WEFT_SPREAD(m, WEFT_JOIN(WEFT_SPREAD_REST_, WEFT_LANES));                    \
        WEFT_PAIRS(d, F(load_where, d)(p, one, other), F(load_where, d)(p + L - 1, two, other))    \
    }
#define WEFT_PAIRS_N(d)                                                                            \
    if (stride == 2) {                                                                             \
        V(bool) m = (V(bool)){WEFT_JOIN(WEFT_IOTA_, WEFT_LANES)} < (i32)(n < L ? n : L);           \
        return F(gather_stride_where, d)(p, stride, m, (V(d)){});                                  \
    }

// Elements downwards, from the last of L in memory on.
#define WEFT_REVERSE_2 1, 0
#define WEFT_REVERSE_4 3, 2, WEFT_REVERSE_2
#define WEFT_REVERSE_8 7, 6, 5, 4, WEFT_REVERSE_4
#define WEFT_REVERSE_16 15, 14, 13, 12, 11, 10, 9, 8, WEFT_REVERSE_8
#define WEFT_REVERSE_32                                                                            \
    31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, WEFT_REVERSE_16
#define WEFT_REVERSE_64                                                                            \
    63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41,    \
        40, 39, 38, 37, 36, 35, 34, 33, 32, WEFT_REVERSE_32
#define WEFT_REVERSED(d, size, loaded)                                                             \
    if (stride == -1) {                                                                            \
        WEFT_CHUNKED(d, size) x = {loaded}, r;                                                     \
        const int last = L / C_##size - 1;                                                         \
        WEFT_EACH_CHUNK(size)                                                                      \
        r.chunk[c] = __builtin_shufflevector(x.chunk[last - c], x.chunk[last - c],                 \
                                             WEFT_JOIN(WEFT_REVERSE_, C_##size));                  \
        return r.v;                                                                                \
    }

// One address that the lanes count from: gcc would choose an induction variable for each of them,
// which takes it seconds where a loop holds many.
#define WEFT_OPAQUE(p) __asm__("" : "+r"(p))

// The lanes of an index, in memory: loads of single lanes take less than moves out of a register.
// Stores of 64 bytes do not pass on to loads of 8, so none has more than 32.
#define WEFT_PLACES(d, few, at, index)                                                             \
    union { V(d) v; d lane[L]; WEFT_JOIN(d##x, few) part[L / few]; } at, given = {index};          \
    WEFT_UNROLL for (int c = 0; c < L / few; c++)                                                  \
        if (L == 1) at.v = index;                                                                  \
        else *(volatile WEFT_JOIN(d##x, few) *)&at.part[c] = given.part[c]

// A vector in one of 16 registers: gcc tuned for Zen would load it again for each of its products.
#define WEFT_KEEP(v) __asm__("" : "+x"(v));

// Lanes of v, each of which a lane of `at` names, modulo their number.
#if !defined(__clang__)
#define WEFT_PERMUTE(d, bits)                                                                      \
    if (sizeof v <= WEFT_REGISTER) return __builtin_shuffle(v, CONVERT(at, V(bits)));              \
    WEFT_PERMUTE_LANES(d)
#else
#define WEFT_PERMUTE(d, bits) WEFT_PERMUTE_LANES(d)
#endif
#define WEFT_PERMUTE_LANES(d)                                                                      \
    WEFT_LANEWISE(d) from = {v}, r;                                                                \
    union { V(i32) v; i32 lane[L]; } k = {at & (L - 1)};                                           \
    WEFT_EACH_LANE r.lane[i] = from.lane[k.lane[i]];                                               \
    return r.v;

#define WEFT_MEMORY(d, size, bits)                                                                 \
    WEFT_FN V(d) F(splat, d)(d x) { return SPLAT(d, x); }                                          \
    WEFT_FN V(d) F(load, d)(const d *p) { return *(const WEFT_JOIN(V(d), u) *)p; }                 \
    WEFT_FN V(d) F(kept, d)(V(d) v) { KEEP_##size(v) return v; }                                   \
    WEFT_FN V(d) F(load_ahead, d)(const d *p, i64 n) {                                             \
        __builtin_prefetch(p + n, 0, 2);                                                           \
        return F(load, d)(p);                                                                      \
    }                                                                                              \
    WEFT_FN void F(store, d)(d *p, V(d) v) { *(WEFT_JOIN(V(d), u) *)p = v; }                       \
    WEFT_FN V(d) F(load_n, d)(const d *p, i64 n) { LOAD_N_##size(d) }                              \
    WEFT_FN void F(store_n, d)(d *p, V(d) v, i64 n) { STORE_N_##size(d) }                          \
    WEFT_FN void F(stream, d)(d *p, V(d) v) { STREAM(d) F(store, d)(p, v); }                       \
    WEFT_FN void F(stream_if, d)(boolx1 past, d *p, V(d) v) {                                      \
        past ? F(stream, d)(p, v) : F(store, d)(p, v);                                             \
    }                                                                                              \
    WEFT_FN V(d) F(gather, d)(const d *p, V(i64) index) {                                          \
        WEFT_LANEWISE(d) r;                                                                        \
        WEFT_PLACES(i64, C_32, at, index);                                                         \
        WEFT_EACH_LANE r.lane[i] = p[at.lane[i]];                                                  \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN V(d) F(gather_near, d)(const d *p, V(i32) index) {                                     \
        WEFT_GATHER_NEAR(d, size)                                                                  \
        WEFT_LANEWISE(d) r;                                                                        \
        WEFT_PLACES(i32, C_32, at, index);                                                         \
        WEFT_EACH_LANE r.lane[i] = p[at.lane[i]];                                                  \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN V(d) F(gather_ahead, d)(const d *p, V(i64) index, i64 n) {                             \
        __builtin_prefetch(p + LANE(index, 0) + n, 0, 2);                                          \
        return F(gather, d)(p, index);                                                             \
    }                                                                                              \
    WEFT_FN V(d) F(gather_n, d)(const d *p, V(i64) index, i64 n) {                                 \
        WEFT_LANEWISE(d) r = {SPLAT(d, 0)};                                                        \
        WEFT_PLACES(i64, C_32, at, index);                                                         \
        for (int i = 0; i < L && i < n; i++) r.lane[i] = p[at.lane[i]];                            \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN V(d) F(permute, d)(V(d) v, V(i32) at) { (void)at; PERMUTE(d, bits) }                   \
    WEFT_FN void F(scatter, d)(d *p, V(i64) index, V(d) v) {                                       \
        WEFT_PLACES(i64, C_32, at, index);                                                         \
        WEFT_EACH_LANE p[at.lane[i]] = LANE(v, i);                                                 \
    }                                                                                              \
    WEFT_FN void F(scatter_n, d)(d *p, V(i64) index, V(d) v, i64 n) {                              \
        WEFT_PLACES(i64, C_32, at, index);                                                         \
        for (int i = 0; i < L && i < n; i++) p[at.lane[i]] = LANE(v, i);                           \
    }                                                                                              \
    WEFT_FN V(d) F(load_where, d)(const d *p, V(bool) m, V(d) other) {                             \
        WEFT_LOAD_WHERE(d, size)                                                                   \
        WEFT_LANEWISE(d) r = {other};                                                              \
        WEFT_EACH_LANE if (LANE(m, i)) r.lane[i] = p[i];                                           \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN V(d) F(gather_where, d)(const d *p, V(i64) index, V(bool) m, V(d) other) {             \
        WEFT_LANEWISE(d) r = {other};                                                              \
        WEFT_PLACES(i64, C_32, at, index);                                                         \
        WEFT_EACH_LANE if (LANE(m, i)) r.lane[i] = p[at.lane[i]];                                  \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN V(d) F(gather_stride, d)(const d *p, i64 stride) {                                     \
        PAIRS_LOAD_##size(d)                                                                       \
        REVERSED(d, size, F(load, d)(p - (L - 1)))                                                 \
        WEFT_LANEWISE(d) r;                                                                        \
        WEFT_OPAQUE(p);                                                                            \
        WEFT_EACH_LANE r.lane[i] = p[i * stride];                                                  \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN V(d) F(gather_stride_where, d)(const d *p, i64 stride, V(bool) m, V(d) other) {        \
        PAIRS_WHERE_##size(d)                                                                      \
        WEFT_LANEWISE(d) r = {other};                                                              \
        WEFT_EACH_LANE if (LANE(m, i)) r.lane[i] = p[i * stride];                                  \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN V(d) F(gather_stride_n, d)(const d *p, i64 stride, i64 n) {                            \
        PAIRS_N_##size(d)                                                                          \
        REVERSED(d, size, F(load_where, d)(p - (L - 1), LAST(n), SPLAT(d, 0)))                     \
        WEFT_LANEWISE(d) r = {SPLAT(d, 0)};                                                        \
        for (int i = 0; i < L && i < n; i++) r.lane[i] = p[i * stride];                            \
        return r.v;                                                                                \
    }                                                                                              \
    WEFT_FN void F(scatter_stride, d)(d *p, i64 stride, V(d) v) {                                  \
        WEFT_OPAQUE(p);                                                                            \
        WEFT_EACH_LANE p[i * stride] = LANE(v, i);                                                 \
    }                                                                                              \
    WEFT_FN void F(scatter_stride_n, d)(d *p, i64 stride, V(d) v, i64 n) {                         \
        for (int i = 0; i < L && i < n; i++) p[i * stride] = LANE(v, i);                           \
    }

// A dtype that is one thing in memory (raw) and another in registers (reg).
#define WEFT_STORED(d, stored, raw, reg)                                                           \
    WEFT_FN reg F(load, d)(const stored *p) { return F(widen, d)(F(load, raw)((const raw *)p)); }  \
    WEFT_FN reg F(load_ahead, d)(const stored *p, i64 n) {                                         \
        return F(widen, d)(F(load_ahead, raw)((const raw *)p, n));                                 \
    }                                                                                              \
    WEFT_FN reg F(load_n, d)(const stored *p, i64 n) {                                             \
        return F(widen, d)(F(load_n, raw)((const raw *)p, n));                                     \
    }                                                                                              \
    WEFT_FN void F(store, d)(stored *p, reg v) { F(store, raw)((raw *)p, F(narrow, d)(v)); }       \
    WEFT_FN void F(store_n, d)(stored *p, reg v, i64 n) {                                          \
        F(store_n, raw)((raw *)p, F(narrow, d)(v), n);                                             \
    }                                                                                              \
    WEFT_FN void F(stream, d)(stored *p, reg v) { F(stream, raw)((raw *)p, F(narrow, d)(v)); }     \
    WEFT_FN void F(stream_if, d)(boolx1 past, stored *p, reg v) {                                  \
        F(stream_if, raw)(past, (raw *)p, F(narrow, d)(v));                                        \
    }                                                                                              \
    WEFT_FN reg F(gather, d)(const stored *p, V(i64) index) {                                      \
        return F(widen, d)(F(gather, raw)((const raw *)p, index));                                 \
    }                                                                                              \
    WEFT_FN reg F(gather_near, d)(const stored *p, V(i32) index) {                                 \
        return F(widen, d)(F(gather_near, raw)((const raw *)p, index));                            \
    }                                                                                              \
    WEFT_FN reg F(gather_ahead, d)(const stored *p, V(i64) index, i64 n) {                         \
        return F(widen, d)(F(gather_ahead, raw)((const raw *)p, index, n));                        \
    }                                                                                              \
    WEFT_FN reg F(gather_n, d)(const stored *p, V(i64) index, i64 n) {                             \
        return F(widen, d)(F(gather_n, raw)((const raw *)p, index, n));                            \
    }                                                                                              \
    WEFT_FN void F(scatter, d)(stored *p, V(i64) index, reg v) {                                   \
        F(scatter, raw)((raw *)p, index, F(narrow, d)(v));                                         \
    }                                                                                              \
    WEFT_FN void F(scatter_n, d)(stored *p, V(i64) index, reg v, i64 n) {                          \
        F(scatter_n, raw)((raw *)p, index, F(narrow, d)(v), n);                                    \
    }                                                                                              \
    WEFT_FN reg F(load_where, d)(const stored *p, V(bool) m, reg other) {                          \
        return F(widen, d)(F(load_where, raw)((const raw *)p, m, F(narrow, d)(other)));            \
    }                                                                                              \
    WEFT_FN reg F(gather_where, d)(const stored *p, V(i64) index, V(bool) m, reg other) {          \
        return F(widen, d)(F(gather_where, raw)((const raw *)p, index, m, F(narrow, d)(other)));   \
    }                                                                                              \
    WEFT_FN reg F(gather_stride, d)(const stored *p, i64 stride) {                                 \
        return F(widen, d)(F(gather_stride, raw)((const raw *)p, stride));                         \
    }                                                                                              \
    WEFT_FN reg F(gather_stride_where, d)(const stored *p, i64 stride, V(bool) m, reg other) {     \
        return F(widen, d)(                                                                        \
            F(gather_stride_where, raw)((const raw *)p, stride, m, F(narrow, d)(other)));          \
    }                                                                                              \
    WEFT_FN reg F(gather_stride_n, d)(const stored *p, i64 stride, i64 n) {                        \
        return F(widen, d)(F(gather_stride_n, raw)((const raw *)p, stride, n));                    \
    }                                                                                              \
    WEFT_FN void F(scatter_stride, d)(stored *p, i64 stride, reg v) {                              \
        F(scatter_stride, raw)((raw *)p, stride, F(narrow, d)(v));                                 \
    }                                                                                              \
    WEFT_FN void F(scatter_stride_n, d)(stored *p, i64 stride, reg v, i64 n) {                     \
        F(scatter_stride_n, raw)((raw *)p, stride, F(narrow, d)(v), n);                            \
    }

#define WEFT_COMPARE(op, symbol, d, size, bits)                                                    \
    WEFT_FN BOOL F(op, d)(V(d) a, V(d) b) {                                                        \
        WEFT_CHUNKED(d, size) x = {a}, y = {b};                                                    \
        WEFT_CHUNKED(bits, size) m;                                                                \
        WEFT_EACH_CHUNK(size) m.chunk[c] = MASK(x.chunk[c] symbol y.chunk[c]);                     \
        return CONVERT(m.v, BOOL);                                                                 \
    }
#define WEFT_COMPARES(d, size, bits)                                                               \
    WEFT_COMPARE(eq, ==, d, size, bits) WEFT_COMPARE(ne, !=, d, size, bits)                        \
    WEFT_COMPARE(lt, <, d, size, bits) WEFT_COMPARE(le, <=, d, size, bits)                         \
    WEFT_COMPARE(gt, >, d, size, bits) WEFT_COMPARE(ge, >=, d, size, bits)                         \
    WEFT_FN V(d) F(select, d)(BOOL m, V(d) a, V(d) b) { return CHOOSE(d, bits, m, a, b); }

#define WEFT_ARITHMETIC(d, size, bits)                                                             \
    WEFT_FN V(d) F(add, d)(V(d) a, V(d) b) { return a + b; }                                       \
    WEFT_FN V(d) F(sub, d)(V(d) a, V(d) b) { return a - b; }                                       \
    WEFT_FN V(d) F(mul, d)(V(d) a, V(d) b) { return a * b; }                                       \
    WEFT_FN V(d) F(neg, d)(V(d) a) { return -a; }
// For floats greater(b, a) keeps a NaN in a, and one in b is put back off the path through a: so
// r = maximum(r, x) in a loop waits for one or two instructions only.
#define WEFT_FLOAT_MAX(d, size, bits, a, b)                                                        \
    PICK(d, size, bits, b != b, b, (WEFT_JOIN(weft_greater_##d##x, C_##size)(b, a)))
#define WEFT_FLOAT_MIN(d, size, bits, a, b)                                                        \
    PICK(d, size, bits, b != b, b, (WEFT_JOIN(weft_lesser_##d##x, C_##size)(b, a)))
#define WEFT_MAX(d, size, bits, a, b) PICK(d, size, bits, a > b, a, b)
#define WEFT_MIN(d, size, bits, a, b) PICK(d, size, bits, a < b, a, b)
#define WEFT_BY_CHUNK_2(op, OP, d, size, bits)                                                     \
    WEFT_FN V(d) F(op, d)(V(d) a, V(d) b) {                                                        \
        WEFT_CHUNKED(d, size) x = {a}, y = {b};                                                    \
        WEFT_EACH_CHUNK(size) x.chunk[c] = OP(d, size, bits, x.chunk[c], y.chunk[c]);              \
        return x.v;                                                                                \
    }
#define WEFT_EXTREMES(d, size, bits, MAX, MIN)                                                     \
    WEFT_BY_CHUNK_2(maximum, MAX, d, size, bits)                                                   \
    WEFT_BY_CHUNK_2(minimum, MIN, d, size, bits)

// A fold halves the live lanes each step: lane i takes lane i ^ h.
#define WEFT_ADD(d, size, bits, a, b) (a + b)
#define WEFT_MUL(d, size, bits, a, b) (a * b)
#define WEFT_AND(d, size, bits, a, b) (a & b)
#define WEFT_OR(d, size, bits, a, b) (a | b)
#define WEFT_STEP(OP, d, size, bits, ...)                                                          \
    s = __builtin_shufflevector(r, r, __VA_ARGS__);                                                \
    r = OP(d, size, bits, r, s);
#define WEFT_FOLD_2(...) WEFT_STEP(__VA_ARGS__, 1, 0)
#define WEFT_FOLD_4(...) WEFT_STEP(__VA_ARGS__, 2, 3, 0, 1) WEFT_STEP(__VA_ARGS__, 1, 0, 3, 2)
#define WEFT_FOLD_8(...)                                                                           \
    WEFT_STEP(__VA_ARGS__, 4, 5, 6, 7, 0, 1, 2, 3)                                                 \
    WEFT_STEP(__VA_ARGS__, 2, 3, 0, 1, 6, 7, 4, 5)                                                 \
    WEFT_STEP(__VA_ARGS__, 1, 0, 3, 2, 5, 4, 7, 6)
#define WEFT_FOLD_16(...)                                                                          \
    WEFT_STEP(__VA_ARGS__, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)                   \
    WEFT_STEP(__VA_ARGS__, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)                   \
    WEFT_STEP(__VA_ARGS__, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)                   \
    WEFT_STEP(__VA_ARGS__, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#define WEFT_FOLD(OP, d, size, bits)                                                               \
    WEFT_CHUNKED(d, size) x = {v};                                                                 \
    WEFT_CHUNK(d, size) r = x.chunk[0], s;                                                         \
    WEFT_UNROLL for (int c = 1; c < L / C_##size; c++) {                                           \
        s = x.chunk[c];                                                                            \
        r = OP(d, size, bits, r, s);                                                               \
    }                                                                                              \
    WEFT_JOIN(WEFT_FOLD_, C_##size)(OP, d, size, bits) return r[0];
#define WEFT_FOLDS(d, size, bits, MAX, MIN)                                                        \
    WEFT_FN d F(fold_add, d)(V(d) v) { FOLD(WEFT_ADD, d, size, bits) }                             \
    WEFT_FN d F(fold_mul, d)(V(d) v) { FOLD(WEFT_MUL, d, size, bits) }                             \
    WEFT_FN d F(fold_max, d)(V(d) v) { FOLD(MAX, d, size, bits) }                                  \
    WEFT_FN d F(fold_min, d)(V(d) v) { FOLD(MIN, d, size, bits) }     
// Narrow integers fold by lanes: torch sums them in i64, so this is no hot path.
#define WEFT_NARROW_FOLD(op, d, expr)                                                              \
    WEFT_FN d F(op, d)(V(d) v) {                                                                   \
        d r = LANE(v, 0);                                                                          \
        for (int i = 1; i < L; i++) { d s = LANE(v, i); r = (expr); }                              \
        return r;                                                                                  \
    }
#define WEFT_NARROW_FOLDS(d)                                                                       \
    WEFT_NARROW_FOLD(fold_add, d, r + s) WEFT_NARROW_FOLD(fold_mul, d, r * s)                      \
    WEFT_NARROW_FOLD(fold_max, d, r > s ? r : s) WEFT_NARROW_FOLD(fold_min, d, r < s ? r : s)

#define WEFT_MAP_CHUNKS(op, d, size)                                                               \
    WEFT_FN V(d) F(op, d)(V(d) a) {                                                                \
        WEFT_CHUNKED(d, size) r = {a};                                                             \
        WEFT_EACH_CHUNK(size) r.chunk[c] = WEFT_JOIN(weft_##op##_##d##x, C_##size)(r.chunk[c]);    \
        return r.v;                                                                                \
    }
#define WEFT_MAP_CHUNKS_2(op, d, size)                                                             \
    WEFT_FN V(d) F(op, d)(V(d) a, V(d) b) {                                                        \
        WEFT_CHUNKED(d, size) r = {a}, s = {b};                                                    \
        WEFT_EACH_CHUNK(size)                                                                      \
        r.chunk[c] = WEFT_JOIN(weft_##op##_##d##x, C_##size)(r.chunk[c], s.chunk[c]);              \
        return r.v;                                                                                \
    }
// Not unrolled, so that a rare function costs one call site and not L of them.
#define WEFT_MAP_LANES(op, d, function)                                                            \
    static inline V(d) F(op, d)(V(d) a) {                                                          \
        WEFT_LANEWISE(d) r = {a};                                                                  \
        _Pragma("GCC unroll 1") for (int i = 0; i < L; i++) r.lane[i] = function(r.lane[i]);       \
        return r.v;                                                                                \
    }
#define WEFT_MAP_LANES_2(op, d, function)                                                          \
    static inline V(d) F(op, d)(V(d) a, V(d) b) {                                                  \
        WEFT_LANEWISE(d) r = {a}, s = {b};                                                         \
        _Pragma("GCC unroll 1") for (int i = 0; i < L; i++)                                        \
            r.lane[i] = function(r.lane[i], s.lane[i]);                                            \
        return r.v;                                                                                \
    }
#define WEFT_FLOATS(d, size, bits, f)                                                              \
    WEFT_FN V(d) F(abs, d)(V(d) a) {                                                               \
        return AS(d, AS(bits, a) & (bits)~((u64)1 << (8 * size - 1)));                             \
    }                                                                                              \
    WEFT_FN V(d) F(copysign, d)(V(d) a, V(d) sign) {                                               \
        V(bits) top = SPLAT(bits, (bits)((u64)1 << (8 * size - 1)));                               \
        return AS(d, (AS(bits, a) & ~top) | (AS(bits, sign) & top));                               \
    }                                                                                              \
    WEFT_FN V(d) F(div, d)(V(d) a, V(d) b) { return a / b; }                                       \
    WEFT_FN V(d) F(fma, d)(V(d) a, V(d) b, V(d) sum) {                                             \
        WEFT_CHUNKED(d, size) x = {a}, y = {b}, z = {sum};                                         \
        WEFT_EACH_CHUNK(size)                                                                      \
        z.chunk[c] = WEFT_JOIN(weft_fma_##d##x, C_##size)(x.chunk[c], y.chunk[c], z.chunk[c]);     \
        return z.v;                                                                                \
    }                                                                                              \
    WEFT_MAP_CHUNKS(sqrt, d, size) WEFT_MAP_CHUNKS(round, d, size)                                 \
    WEFT_MAP_CHUNKS(floor, d, size) WEFT_MAP_CHUNKS(ceil, d, size) WEFT_MAP_CHUNKS(trunc, d, size) \
    WEFT_MAP_CHUNKS_2(lesser, d, size) WEFT_MAP_CHUNKS_2(greater, d, size)                         \
    WEFT_FN V(d) F(rsqrt, d)(V(d) a) { return 1 / F(sqrt, d)(a); }                                 \
    WEFT_MAP_LANES_2(floordiv, d, weft_floordiv_##d)

// Division by zero gives some number. `real` holds every quotient closely enough to truncate.
#define WEFT_DIVIDE(d, real)                                                                       \
    WEFT_FN V(d) F(div, d)(V(d) a, V(d) b) {                                                       \
        return F(cast_##real, d)(F(cast_##d, real)(a) / F(cast_##d, real)(b));                     \
    }
WEFT_FN i64 weft_div_i64(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? (i64)-(u64)a : a / b; }
#define WEFT_INTEGERS(d, size, bits)                                                               \
    WEFT_FN V(d) F(abs, d)(V(d) a) { return F(select, d)(F(lt, d)(a, SPLAT(d, 0)), -a, a); }       \
    WEFT_FN V(d) F(and, d)(V(d) a, V(d) b) { return a & b; }                                       \
    WEFT_FN V(d) F(or, d)(V(d) a, V(d) b) { return a | b; }                                        \
    WEFT_FN V(d) F(xor, d)(V(d) a, V(d) b) { return a ^ b; }                                       \
    WEFT_FN V(d) F(not, d)(V(d) a) { return ~a; }                                                  \
    WEFT_FN BOOL F(bad_shift, d)(V(d) b) {                                                         \
        return F(lt, d)(b, SPLAT(d, 0)) | F(ge, d)(b, SPLAT(d, 8 * size));                         \
    }                                                                                              \
    WEFT_FN V(d) F(shl, d)(V(d) a, V(d) b) {                                                       \
        return F(select, d)(F(bad_shift, d)(b), SPLAT(d, 0), a << (b & (8 * size - 1)));           \
    }                                                                                              \
    WEFT_FN V(d) F(shr, d)(V(d) a, V(d) b) {                                                       \
        V(d) empty = F(select, d)(F(lt, d)(a, SPLAT(d, 0)), SPLAT(d, -1), SPLAT(d, 0));            \
        return F(select, d)(F(bad_shift, d)(b), empty, a >> (b & (8 * size - 1)));                 \
    }                                                                                              \
    WEFT_FN V(d) F(floormod, d)(V(d) a, V(d) b) {                                                  \
        V(d) r = a - F(div, d)(a, b) * b, zero = SPLAT(d, 0);                                      \
        return F(select, d)(F(ne, d)(r, zero) & F(lt, d)(r ^ b, zero), r + b, r);                  \
    }                                                                                              \
    WEFT_FN V(d) F(fmod, d)(V(d) a, V(d) b) { return a - F(div, d)(a, b) * b; }                    \
    WEFT_FN V(d) F(floordiv, d)(V(d) a, V(d) b) {                                                  \
        V(d) q = F(div, d)(a, b), r = a - q * b, zero = SPLAT(d, 0);                               \
        return F(select, d)(F(ne, d)(r, zero) & F(lt, d)(r ^ b, zero), q - 1, q);                  \
    }

// Bytes in a register: those in memory gcc 12 widens lane by lane.
#if defined(__x86_64__) && !defined(__clang__)
#define WEFT_HELD(v)                                                                               \
    ({                                                                                             \
        __typeof__(v) weft_held = (v);                                                             \
        if (sizeof weft_held[0] == 1 && sizeof weft_held >= 8 && sizeof weft_held <= WEFT_REGISTER) \
            WEFT_KEEP(weft_held)                                                                   \
        weft_held;                                                                                 \
    })
#else
#define WEFT_HELD(v) (v)
#endif

// Through `via` where the machine has no direct conversion. A float out of range gives anything.
#define WEFT_CAST(from, via, to)                                                                   \
    WEFT_FN V(to) F(cast_##from, to)(V(from) a) { return CONVERT(CONVERT(HELD(a), V(via)), V(to)); }
#define WEFT_CASTS(from, narrow, f32_via, f64_via)                                                 \
    WEFT_CAST(from, f32_via, f32) WEFT_CAST(from, f64_via, f64)                                    \
    WEFT_CAST(from, narrow, i8) WEFT_CAST(from, narrow, i16) WEFT_CAST(from, narrow, u8)           \
    WEFT_CAST(from, from, i32) WEFT_CAST(from, from, i64)                                          \
    WEFT_FN BOOL F(cast_##from, bool)(V(from) a) { return F(ne, from)(a, SPLAT(from, 0)); }        \
    WEFT_FN V(from) F(cast_bool, from)(BOOL m) { return CONVERT(m & 1, V(from)); }

#define WEFT_EACH_DTYPE(M)                                                                         \
    M(f32, 4, i32) M(f64, 8, i64) M(i8, 1, i8) M(i16, 2, i16) M(i32, 4, i32) M(i64, 8, i64)        \
    M(u8, 1, i8)
#define WEFT_EACH_INTEGER(M) M(i8, 1, i8) M(i16, 2, i16) M(i32, 4, i32) M(i64, 8, i64) M(u8, 1, i8)

#endif  // WEFT_VECTOR_H

#ifdef WEFT_LANES

#pragma push_macro("bool")
#undef bool
#define L WEFT_LANES
#define V(d) WEFT_JOIN(d##x, WEFT_LANES)
#define BOOL V(bool)

#if WEFT_LANES * 8 <= WEFT_REGISTER || WEFT_LANES == 1
#define C_8 WEFT_LANES
#else
#define C_8 WEFT_FULL_8
#endif
#if WEFT_LANES < 4
#define C_32 WEFT_LANES
#else
#define C_32 4
#endif
#if WEFT_LANES * 4 <= WEFT_REGISTER
#define C_4 WEFT_LANES
#else
#define C_4 WEFT_FULL_4
#endif
#if WEFT_LANES * 2 <= WEFT_REGISTER
#define C_2 WEFT_LANES
#else
#define C_2 WEFT_FULL_2
#endif
#if WEFT_LANES <= WEFT_REGISTER
#define C_1 WEFT_LANES
#else
#define C_1 WEFT_FULL_1
#endif

// Where one lane is spelled otherwise than many: AS is a bit cast, MASK makes a compare 0 or -1,
// WIDE takes a vector or a literal.
#if WEFT_LANES == 1
#define F(op, d) op##_##d
#define SPLAT(d, x) ((d)(x))
#define WIDE(d, x) ((d)(x))
#define LANE(v, i) (v)
#define CONVERT(v, T) ((T)(v))
#define HELD(v) (v)
#define AS(d, x) ({ union { __typeof__(x) from; d to; } weft_as = {x}; weft_as.to; })
#define MASK(x) (-(x))
#define CHOOSE(d, bits, m, a, b) ((m) ? (a) : (b))
#define PICK(d, size, bits, m, a, b) ((m) ? (a) : (b))
#define FOLD(OP, d, size, bits) return v;
#define LOAD_N(d) return n > 0 ? *p : 0;
#define STORE_N(d) if (n > 0) *p = v;
#define STREAM(d)
#else
#define F(op, d) WEFT_JOIN(op##_##d##x, WEFT_LANES)
#define SPLAT(d, x) ((d)(x) - (V(d)){})
#define WIDE(d, x) ((x) - (V(d)){})
#define LANE(v, i) (v)[i]
#define CONVERT(v, T) __builtin_convertvector(v, T)
#define HELD(v) WEFT_HELD(v)
#define AS(d, x) ((V(d))(x))
#define MASK(x) (x)
#define CHOOSE(d, bits, m, a, b)                                                                   \
    ((V(d))(((V(bits))(a) & CONVERT(m, V(bits))) | ((V(bits))(b) & ~CONVERT(m, V(bits)))))
#define PICK(d, size, bits, m, a, b)                                                               \
    ((WEFT_CHUNK(d, size))(((WEFT_CHUNK(bits, size))(a) & (m)) |                                   \
                           ((WEFT_CHUNK(bits, size))(b) & ~(m))))
#define FOLD(OP, d, size, bits) WEFT_FOLD(OP, d, size, bits)
#define STREAM(d) WEFT_STREAM_STORE(d)
#endif
// x y + z of vectors and literals
#define FMA(d, x, y, z) F(fma, d)(WIDE(d, x), WIDE(d, y), WIDE(d, z))

#if WEFT_LANES == 1
#define LOAD_N_1 LOAD_N
#define LOAD_N_2 LOAD_N
#define LOAD_N_4 LOAD_N
#define LOAD_N_8 LOAD_N
#define STORE_N_1 STORE_N
#define STORE_N_2 STORE_N
#define STORE_N_4 STORE_N
#define STORE_N_8 STORE_N
#else
#ifdef WEFT_BYTES
#define LOAD_N_1(d) WEFT_LOAD_UNITS(d, bytes, WEFT_BYTES, n)
#define LOAD_N_2(d) WEFT_LOAD_UNITS(d, bytes, WEFT_BYTES, 2 * n)
#define STORE_N_1(d) WEFT_STORE_UNITS(d, bytes, WEFT_BYTES, n)
#define STORE_N_2(d) WEFT_STORE_UNITS(d, bytes, WEFT_BYTES, 2 * n)
#else
#define LOAD_N_1 WEFT_LOAD_COPY
#define LOAD_N_2 WEFT_LOAD_COPY
#define STORE_N_1 WEFT_STORE_COPY
#define STORE_N_2 WEFT_STORE_COPY
#endif
#ifdef WEFT_WORDS
#define LOAD_N_4(d) WEFT_LOAD_UNITS(d, words, WEFT_WORDS, n)
#define LOAD_N_8(d) WEFT_LOAD_UNITS(d, words, WEFT_WORDS, 2 * n)
#define STORE_N_4(d) WEFT_STORE_UNITS(d, words, WEFT_WORDS, n)
#define STORE_N_8(d) WEFT_STORE_UNITS(d, words, WEFT_WORDS, 2 * n)
#else
#define LOAD_N_4 WEFT_LOAD_COPY
#define LOAD_N_8 WEFT_LOAD_COPY
#define STORE_N_4 WEFT_STORE_COPY
#define STORE_N_8 WEFT_STORE_COPY
#endif
#endif

#define KEEP_1(v)
#define KEEP_2(v)
#if WEFT_LANES == WEFT_FULL_4 && WEFT_REGISTER < 64 && defined(__SSE2__)
#define KEEP_4 WEFT_KEEP
#else
#define KEEP_4(v)
#endif
#if WEFT_LANES == WEFT_FULL_8 && WEFT_REGISTER < 64 && defined(__SSE2__)
#define KEEP_8 WEFT_KEEP
#else
#define KEEP_8(v)
#endif

#if WEFT_LANES == 1
#define REVERSED(d, size, loaded)
#define PERMUTE(d, bits) return v;
#else
#define REVERSED WEFT_REVERSED
#define PERMUTE WEFT_PERMUTE
#endif
// A mask of the last n lanes.
#define LAST(n) ((V(bool)){WEFT_JOIN(WEFT_IOTA_, WEFT_LANES)} >= (i32)(n < L ? L - n : 0))
#if WEFT_LANES == WEFT_FULL_4
#define PAIRS_LOAD_4 WEFT_PAIRS_LOAD
#else
#define PAIRS_LOAD_4(d)
#endif
#if WEFT_LANES == WEFT_FULL_4 && defined(WEFT_WORDS)
#define PAIRS_WHERE_4 WEFT_PAIRS_WHERE
#define PAIRS_N_4 WEFT_PAIRS_N
#else
#define PAIRS_WHERE_4(d)
#define PAIRS_N_4(d)
#endif
#define PAIRS_LOAD_1(d)
#define PAIRS_LOAD_2(d)
#define PAIRS_LOAD_8(d)
#define PAIRS_WHERE_1(d)
#define PAIRS_WHERE_2(d)
#define PAIRS_WHERE_8(d)
#define PAIRS_N_1(d)
#define PAIRS_N_2(d)
#define PAIRS_N_8(d)

WEFT_EACH_DTYPE(WEFT_MEMORY)
WEFT_EACH_DTYPE(WEFT_COMPARES)
WEFT_EACH_DTYPE(WEFT_ARITHMETIC)
WEFT_EXTREMES(f32, 4, i32, WEFT_FLOAT_MAX, WEFT_FLOAT_MIN)
WEFT_EXTREMES(f64, 8, i64, WEFT_FLOAT_MAX, WEFT_FLOAT_MIN)
WEFT_EXTREMES(i8, 1, i8, WEFT_MAX, WEFT_MIN)
WEFT_EXTREMES(i16, 2, i16, WEFT_MAX, WEFT_MIN)
WEFT_EXTREMES(i32, 4, i32, WEFT_MAX, WEFT_MIN)
WEFT_EXTREMES(i64, 8, i64, WEFT_MAX, WEFT_MIN)
WEFT_EXTREMES(u8, 1, i8, WEFT_MAX, WEFT_MIN)
WEFT_FOLDS(f32, 4, i32, WEFT_FLOAT_MAX, WEFT_FLOAT_MIN)
WEFT_FOLDS(f64, 8, i64, WEFT_FLOAT_MAX, WEFT_FLOAT_MIN)
WEFT_FOLDS(i32, 4, i32, WEFT_MAX, WEFT_MIN)
WEFT_FOLDS(i64, 8, i64, WEFT_MAX, WEFT_MIN)
WEFT_NARROW_FOLDS(i8)
WEFT_NARROW_FOLDS(i16)
WEFT_NARROW_FOLDS(u8)
WEFT_CASTS(f32, i32, f32, f32)
WEFT_CASTS(f64, i32, f64, f64)
WEFT_CASTS(i8, i8, i32, i32)
WEFT_CASTS(i16, i16, i32, i32)
WEFT_CASTS(i32, i32, i32, i32)
WEFT_CASTS(i64, i64, i64, i64)
WEFT_CASTS(u8, u8, i32, i32)
WEFT_FLOATS(f32, 4, i32, f)
WEFT_FLOATS(f64, 8, i64, )
WEFT_MAP_CHUNKS_2(words, i64, 8)
WEFT_MAP_LANES_2(fmod, f64, __builtin_fmod)
WEFT_MAP_LANES_2(floormod, f64, weft_floormod_f64)
// Exact, as fmodf: in f64 a quotient below 2^29 times b is, and so is what is left of a. Where the
// quotient was rounded up, that has the other sign.
static inline V(f32) F(fmod, f32)(V(f32) a, V(f32) b) {
    V(f64) x = CONVERT(a, V(f64)), y = CONVERT(b, V(f64)), q = F(trunc, f64)(x / y);
    V(f64) left = x - q * y, more = left + F(copysign, f64)(y, x);
    left = F(select, f64)(F(lt, f64)(left * x, SPLAT(f64, 0)), more, left);
    BOOL near = F(lt, f64)(F(abs, f64)(q), SPLAT(f64, 0x1p29));
    near &= F(lt, f64)(F(abs, f64)(y), SPLAT(f64, __builtin_inf()));
    WEFT_LANEWISE(f32) r = {F(copysign, f32)(CONVERT(left, V(f32)), a)}, s = {a}, t = {b};
    if (F(fold_max, i32)(CONVERT(near, V(i32))) == 0) {
        _Pragma("GCC unroll 1") for (int i = 0; i < L; i++)
            r.lane[i] = __builtin_fmodf(s.lane[i], t.lane[i]);
    }
    return r.v;
}
static inline V(f32) F(floormod, f32)(V(f32) a, V(f32) b) {
    V(f32) r = F(fmod, f32)(a, b), zero = SPLAT(f32, 0);
    BOOL other = F(ne, f32)(r, zero) & (F(lt, f32)(r, zero) ^ F(lt, f32)(b, zero));
    return F(select, f32)(other, r + b, r);
}
WEFT_DIVIDE(i8, f32)
WEFT_DIVIDE(i16, f32)
WEFT_DIVIDE(u8, f32)
WEFT_DIVIDE(i32, f64)
WEFT_MAP_LANES_2(div, i64, weft_div_i64)
WEFT_EACH_INTEGER(WEFT_INTEGERS)

WEFT_FN V(i32) F(iota, i32)(i32 base) {
    WEFT_LANEWISE(i32) r;
    WEFT_EACH_LANE r.lane[i] = i;
    return r.v + base;
}
WEFT_FN V(i64) F(iota, i64)(i64 base) {
    WEFT_LANEWISE(i64) r;
    WEFT_EACH_LANE r.lane[i] = i;
    return r.v + base;
}

// ---- bool

WEFT_FN BOOL F(splat, bool)(i32 x) { return SPLAT(i32, -(x != 0)); }
WEFT_FN BOOL F(widen, bool)(V(u8) byte) { return F(ne, u8)(byte, SPLAT(u8, 0)); }
WEFT_FN V(u8) F(narrow, bool)(BOOL m) { return CONVERT(m & 1, V(u8)); }
WEFT_STORED(bool, u8, u8, BOOL)
WEFT_FN BOOL F(select, bool)(BOOL m, BOOL a, BOOL b) { return (a & m) | (b & ~m); }
WEFT_FN BOOL F(and, bool)(BOOL a, BOOL b) { return a & b; }
WEFT_FN BOOL F(or, bool)(BOOL a, BOOL b) { return a | b; }
WEFT_FN BOOL F(xor, bool)(BOOL a, BOOL b) { return a ^ b; }
WEFT_FN BOOL F(not, bool)(BOOL a) { return ~a; }
WEFT_FN BOOL F(eq, bool)(BOOL a, BOOL b) { return ~(a ^ b); }
WEFT_FN BOOL F(ne, bool)(BOOL a, BOOL b) { return a ^ b; }
WEFT_FN BOOL F(lt, bool)(BOOL a, BOOL b) { return ~a & b; }
WEFT_FN BOOL F(le, bool)(BOOL a, BOOL b) { return ~a | b; }
WEFT_FN BOOL F(gt, bool)(BOOL a, BOOL b) { return a & ~b; }
WEFT_FN BOOL F(ge, bool)(BOOL a, BOOL b) { return a | ~b; }
WEFT_FN BOOL F(maximum, bool)(BOOL a, BOOL b) { return a | b; }
WEFT_FN BOOL F(minimum, bool)(BOOL a, BOOL b) { return a & b; }
WEFT_FN BOOL F(cast_bool, bool)(BOOL m) { return m; }
WEFT_FN i32 F(fold_and, bool)(BOOL v) { FOLD(WEFT_AND, i32, 4, i32) }
WEFT_FN i32 F(fold_or, bool)(BOOL v) { FOLD(WEFT_OR, i32, 4, i32) }

WEFT_FN i32 F(any_negative, i64)(V(i64) v) {
    WEFT_CHUNKED(i64, 8) x = {v};
    WEFT_CHUNK(i64, 8) all = x.chunk[0];
    WEFT_EACH_CHUNK(8) all |= x.chunk[c];
    return WEFT_JOIN(weft_any_negative_i64x, C_8)(all);
}

// ---- bf16: the upper half of an f32. By integers, since vcvtneps2bf16 flushes subnormals.

#if defined(__AVX512F__) && WEFT_LANES == 16 && !defined(__clang__)
WEFT_FN V(i32) F(long, i16)(V(i16) a) {  // gcc 12 makes CONVERT of it two halves, joined
    return __builtin_ia32_pmovsxwd512_mask(a, SPLAT(i32, 0), -1);
}
#else
WEFT_FN V(i32) F(long, i16)(V(i16) a) { return CONVERT(a, V(i32)); }
#endif
WEFT_FN V(f32) F(widen, bf16)(V(i16) a) { return AS(f32, F(long, i16)(a) << 16); }
WEFT_FN V(i32) F(nearest, bf16)(V(f32) x) {  // in the upper halves
    V(u32) a = AS(u32, x), nearest_even = a + 0x7fff + ((a >> 16) & 1), quiet_nan = a | 0x400000;
    return F(select, i32)(F(ne, f32)(x, x), AS(i32, quiet_nan), AS(i32, nearest_even));
}
WEFT_FN V(i16) F(narrow, bf16)(V(f32) x) {
    return CONVERT(AS(u32, F(nearest, bf16)(x)) >> 16, V(i16));
}

// ---- f16: in hardware where F16C is there and the chunk has 4, 8 or 16 lanes

#if defined(__F16C__) && WEFT_LANES >= 4 && !defined(__clang__)
WEFT_FN V(f32) F(widen, f16)(V(i16) a) {
    union { V(i16) v; WEFT_JOIN(i16x, C_4) chunk[L / C_4]; } x = {a};
    WEFT_CHUNKED(f32, 4) r;
    WEFT_EACH_CHUNK(4) r.chunk[c] = WEFT_JOIN(weft_widen_f16x, C_4)(x.chunk[c]);
    return r.v;
}
WEFT_FN V(i16) F(narrow, f16)(V(f32) a) {
    union { V(i16) v; WEFT_JOIN(i16x, C_4) chunk[L / C_4]; } r;
    WEFT_CHUNKED(f32, 4) x = {a};
    WEFT_EACH_CHUNK(4) r.chunk[c] = WEFT_JOIN(weft_narrow_f16x, C_4)(x.chunk[c]);
    return r.v;
}
#else
// The exponent is rebased by adding; a subnormal is normalised by a float subtraction.
WEFT_FN V(f32) F(widen, f16)(V(i16) a) {
    V(i32) h = CONVERT(a, V(i32)), sign = (h & 0x8000) << 16, exponent = h & 0x7c00;
    V(i32) normal = ((h & 0x7fff) << 13) + (112 << 23);
    V(i32) special = normal + (112 << 23);
    V(i32) subnormal = AS(i32, AS(f32, normal + (1 << 23)) - 0x1p-14f);
    V(i32) r = F(select, i32)(F(eq, i32)(exponent, SPLAT(i32, 0)), subnormal, normal);
    r = F(select, i32)(F(eq, i32)(exponent, SPLAT(i32, 0x7c00)), special, r);
    return AS(f32, r | sign);
}
WEFT_FN V(i16) F(narrow, f16)(V(f32) x) {
    V(i32) a = AS(i32, x), sign = AS(i32, (AS(u32, a) >> 16) & 0x8000);
    a &= 0x7fffffff;
    V(i32) normal = (a - (112 << 23) + 0xfff + ((a >> 13) & 1)) >> 13;
    V(i32) subnormal = AS(i32, AS(f32, a) + 0.5f) - (126 << 23);
    V(i32) special = F(select, i32)(F(gt, i32)(a, SPLAT(i32, 0x7f800000)), SPLAT(i32, 0x7e00),
                                    SPLAT(i32, 0x7c00));
    V(i32) r = F(select, i32)(F(lt, i32)(a, SPLAT(i32, 113 << 23)), subnormal, normal);
    r = F(select, i32)(F(ge, i32)(a, SPLAT(i32, 143 << 23)), special, r);
    return CONVERT(r | sign, V(i16));
}
#endif

// ---- floats of 8 bits, to the bit as torch has them: what f8e4m3fn cannot hold saturates, also
// infinity. An f8e5m2 is the upper half of an f16.

WEFT_FN V(f32) F(widen, f8e4m3fn)(V(i8) a) {
    V(i32) h = CONVERT(a, V(i32)), sign = (h & 0x80) << 24, size = h & 0x7f;
    V(i32) normal = (size << 20) + (120 << 23);
    V(i32) subnormal = AS(i32, AS(f32, normal + (1 << 23)) - 0x1p-6f);
    V(i32) r = F(select, i32)(F(lt, i32)(size, SPLAT(i32, 8)), subnormal, normal);
    r = F(select, i32)(F(eq, i32)(size, SPLAT(i32, 0x7f)), SPLAT(i32, 0x7ff00000), r);
    return AS(f32, r | sign);
}
WEFT_FN V(i8) F(narrow, f8e4m3fn)(V(f32) x) {
    V(i32) a = AS(i32, x), sign = AS(i32, (AS(u32, a) >> 24) & 0x80);
    a &= 0x7fffffff;
    V(i32) normal = (a - (120 << 23) + 0x7ffff + ((a >> 20) & 1)) >> 20;
    V(i32) subnormal = AS(i32, AS(f32, a) + 0x1p14f) - (141 << 23);
    V(i32) r = F(select, i32)(F(lt, i32)(a, SPLAT(i32, 121 << 23)), subnormal, normal);
    r = F(minimum, i32)(r, SPLAT(i32, 0x7e));
    r = F(select, i32)(F(gt, i32)(a, SPLAT(i32, 0x7f800000)), SPLAT(i32, 0x7f), r);
    return CONVERT(r | sign, V(i8));
}
WEFT_FN V(f32) F(widen, f8e5m2)(V(i8) a) {
    return F(widen, f16)(CONVERT(a, V(i16)) << 8);
}
WEFT_FN V(i8) F(narrow, f8e5m2)(V(f32) x) {
    V(i32) a = AS(i32, x), sign = AS(i32, (AS(u32, a) >> 24) & 0x80);
    a &= 0x7fffffff;
    V(i32) normal = (a - (112 << 23) + 0xfffff + ((a >> 21) & 1)) >> 21;
    V(i32) subnormal = AS(i32, AS(f32, a) + 0x1p7f) - (134 << 23);
    V(i32) r = F(select, i32)(F(lt, i32)(a, SPLAT(i32, 113 << 23)), subnormal, normal);
    r = F(minimum, i32)(r, SPLAT(i32, 0x7c));
    r = F(select, i32)(F(gt, i32)(a, SPLAT(i32, 0x7f800000)), SPLAT(i32, 0x7f), r);
    return CONVERT(r | sign, V(i8));
}
#define WEFT_FLOAT_8(d)                                                                            \
    WEFT_STORED(d, d, i8, V(f32))                                                                  \
    WEFT_FN V(f32) F(round_##d, f32)(V(f32) x) { return F(widen, d)(F(narrow, d)(x)); }
WEFT_FLOAT_8(f8e4m3fn)
WEFT_FLOAT_8(f8e5m2)

WEFT_STORED(f16, f16, i16, V(f32))
WEFT_STORED(bf16, bf16, i16, V(f32))
WEFT_FN V(f32) F(round_f16, f32)(V(f32) x) { return F(widen, f16)(F(narrow, f16)(x)); }
WEFT_FN V(f32) F(round_bf16, f32)(V(f32) x) { return AS(f32, F(nearest, bf16)(x) & -0x10000); }

// ---- words of two bf16, the first in the lower half; what a register holds of them is f32s

WEFT_FN V(i32) F(pack_bf16, f32)(V(f32) a, V(f32) b) {
    return AS(i32, AS(u32, a) >> 16) | (AS(i32, b) & -0x10000);
}
WEFT_FN V(f32) F(dot_bf16, i32)(V(i32) a, V(i32) b) {
    return AS(f32, a << 16) * AS(f32, b << 16) + AS(f32, a & -0x10000) * AS(f32, b & -0x10000);
}
// sum + dot(a, b). The instruction takes subnormals for 0; spelt as text since the types of the
// builtin change from one compiler to the next.
WEFT_FN V(f32) F(add_dot_bf16, i32)(V(f32) sum, V(i32) a, V(i32) b) {
#if defined(__AVX512BF16__) && (WEFT_LANES == 16 || (WEFT_LANES <= 8 && WEFT_LANES >= 4))
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
    return sum;
#else
    return sum + F(dot_bf16, i32)(a, b);
#endif
}


// ---- words of four bytes, the first one lowest

#define WEFT_PACK_BYTES(d)                                                                         \
    WEFT_FN V(i32) F(pack_bytes, d)(V(d) a, V(d) b, V(d) c, V(d) e) {                              \
        V(i32) low = (CONVERT(a, V(i32)) & 255) | (CONVERT(b, V(i32)) & 255) << 8;                 \
        V(i32) high = (CONVERT(c, V(i32)) & 255) | (CONVERT(e, V(i32)) & 255) << 8;                \
        return low | high << 16;                                                                   \
    }
WEFT_PACK_BYTES(i8)
WEFT_PACK_BYTES(u8)
// sum + dot(x, y): bytes of x have no sign, those of y one. The instruction does not saturate.
WEFT_FN V(i32) F(add_dot_bytes, i32)(V(i32) sum, V(i32) x, V(i32) y) {
#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && WEFT_LANES >= 4 && WEFT_LANES <= 16
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "vm"(y));
#else
    WEFT_UNROLL for (i32 i = 0; i < 32; i += 8)
        sum += (AS(i32, AS(u32, x) >> i) & 255) * (AS(i32, AS(u32, y) << (24 - i)) >> 24);
#endif
    return sum;
}
WEFT_FN V(i32) F(dot_bytes, i32)(V(i32) x, V(i32) y) {
    return F(add_dot_bytes, i32)(SPLAT(i32, 0), x, y);
}
WEFT_FN V(i32) F(dot_turned, i32)(V(i32) x, V(i32) y) { return F(dot_bytes, i32)(y, x); }
WEFT_FN V(i32) F(add_dot_turned, i32)(V(i32) sum, V(i32) x, V(i32) y) {
    return F(add_dot_bytes, i32)(sum, y, x);
}

#ifndef WEFT_KEEP_TEMPLATE
#define WEFT_END_TEMPLATE
#endif
#endif  // WEFT_LANES

#ifdef WEFT_END_TEMPLATE
#pragma pop_macro("bool")
#undef L
#undef V
#undef BOOL
#undef F
#undef C_1
#undef C_2
#undef C_4
#undef C_8
#undef C_32
#undef SPLAT
#undef WIDE
#undef FMA
#undef LANE
#undef CONVERT
#undef HELD
#undef AS
#undef MASK
#undef CHOOSE
#undef PICK
#undef FOLD
#undef LOAD_N
#undef STORE_N
#undef LOAD_N_1
#undef LOAD_N_2
#undef LOAD_N_4
#undef LOAD_N_8
#undef STORE_N_1
#undef STORE_N_2
#undef STORE_N_4
#undef STORE_N_8
#undef KEEP_1
#undef KEEP_2
#undef KEEP_4
#undef KEEP_8
#undef REVERSED
#undef PERMUTE
#undef LAST
#undef PAIRS_LOAD_1
#undef PAIRS_LOAD_2
#undef PAIRS_LOAD_4
#undef PAIRS_LOAD_8
#undef PAIRS_WHERE_1
#undef PAIRS_WHERE_2
#undef PAIRS_WHERE_4
#undef PAIRS_WHERE_8
#undef PAIRS_N_1
#undef PAIRS_N_2
#undef PAIRS_N_4
#undef PAIRS_N_8
#undef STREAM
#undef WEFT_LANES
#undef WEFT_END_TEMPLATE
#endif
