// weft_math.h: elementary functions on vectors of L lanes, on top of weft_vector.h.
//
//     #define WEFT_LANES 16
//     #include "weft_math.h"                    // includes weft_vector.h for the same lanes
//     store_f32x16(y, exp_f32x16(load_f32x16(x)));
//
// One body serves every width. Within 2 ulp, subnormals included: f32 exp exp2 expm1 log log1p tanh
// sigmoid erf sin cos lgamma, and most of weft_math_f64.h. A few functions call libm lane by lane.
// Special functions are in gpu/weft_special.h.
//
// Sources. Own minimax fits: f32 erf by tables, exp, exp2, expm1, log1p, tanh, atan, asin, sinh,
// lgamma, erfinv, i0e, i1e.
// Juffa's published polynomials: f32 erf without a table, sin, cos.

#define WEFT_KEEP_TEMPLATE
#include "weft_vector.h"
#undef WEFT_KEEP_TEMPLATE

#ifndef WEFT_MATH_H
#define WEFT_MATH_H
#include "weft.h"

// scale(p, n) is p 2^n for a whole n and |p| < 2, rounded once; hardware has it in AVX-512 only.
// Where that is surely 0 nothing underflows: microcode would take 20 times as long (exp(-inf)).
#define WEFT_SCALE_F32_ZERO -150.5f
#define WEFT_SCALE_F64_ZERO -1075.5
#define WEFT_WHOLE (0x1.8p23f + 254)
#if defined(WEFT_AVX512) && !defined(__clang__)
#define WEFT_SCALE(T, s, zero, ...)  /* 5: not less than */                                        \
    WEFT_REGISTER_OP_2(scale, T,                                                                   \
                       __builtin_ia32_scalef##s##_mask(                                            \
                           v, w, (T){},                                                            \
                           __builtin_ia32_cmp##s##_mask(w, (T){} + zero, 5, -1 __VA_ARGS__)        \
                               __VA_ARGS__))
WEFT_SCALE(f32x16, ps512, WEFT_SCALE_F32_ZERO, , 4)  // 4: rounds as usual
WEFT_SCALE(f32x8, ps256, WEFT_SCALE_F32_ZERO)
WEFT_SCALE(f32x4, ps128, WEFT_SCALE_F32_ZERO)
WEFT_SCALE(f64x8, pd512, WEFT_SCALE_F64_ZERO, , 4)
WEFT_SCALE(f64x4, pd256, WEFT_SCALE_F64_ZERO)
WEFT_SCALE(f64x2, pd128, WEFT_SCALE_F64_ZERO)
#undef WEFT_SCALE
#endif

// Special functions are of V(f64): what weft_special.h asks for.
#define WEFT_W_FN static inline __attribute__((unused))
#define WEFT_W(op) WEFT_W_##op
#define WEFT_W_fma(x, y, z) FMA(f64, x, y, z)
#define WEFT_W_fabs F(abs, f64)
#define WEFT_W_rint F(round, f64)
#define WEFT_W_floor F(floor, f64)
#define WEFT_W_copysign F(copysign, f64)
#define WEFT_W_sqrt F(sqrt, f64)
#define WEFT_W_exp F(exp, f64)
#define WEFT_W_expm1 F(expm1, f64)
#define WEFT_W_log F(log, f64)
#define WEFT_W_sin F(sin, f64)
#define WEFT_W_cos F(cos, f64)
#define WEFT_W_tan F(tan, f64)
#define WEFT_W_acos F(acos, f64)
#define WEFT_W_pow __builtin_pow  // of one lane
#define WEFT_S(name) F(weft_##name, f64)
#define WEFT_WIDE(x) WIDE(f64, x)
#define WEFT_INFINITE SPLAT(f64, __builtin_inf())
#define WEFT_UNDEFINED SPLAT(f64, __builtin_nan(""))
#define WEFT_LT(a, b) F(lt, f64)(WIDE(f64, a), WIDE(f64, b))
#define WEFT_LE(a, b) F(le, f64)(WIDE(f64, a), WIDE(f64, b))
#define WEFT_EQ(a, b) F(eq, f64)(WIDE(f64, a), WIDE(f64, b))
#define WEFT_NOT(c) (~(c))
#define WEFT_PICK(c, a, b) F(select, f64)(c, a, b)
#define WEFT_LOST(a, s) F(lost_of_square, f64)(a, s)
#define WEFT_IF_ANY(c, a, b)                                                                       \
    ({                                                                                             \
        BOOL weft_c = c;                                                                           \
        V(f64) weft_y = {};                                                                        \
        if (WEFT_ANY(~weft_c)) weft_y = b;                                                         \
        if (WEFT_ANY(weft_c)) weft_y = F(select, f64)(weft_c, a, weft_y);                          \
        weft_y;                                                                                    \
    })
#define WEFT_SPECIAL_F64_1(name)                                                                   \
    static inline V(f64) F(name, f64)(V(f64) x) { return WEFT_S(name)(x); }
#define WEFT_SPECIAL_F32_1(name)                                                                   \
    static inline V(f32) F(name, f32)(V(f32) x) {                                                  \
        return CONVERT(WEFT_S(name)(CONVERT(x, V(f64))), V(f32));                                  \
    }
#define WEFT_SPECIAL_BOTH_2(name)                                                                  \
    static inline V(f64) F(name, f64)(V(f64) x, V(f64) y) { return WEFT_S(name)(x, y); }           \
    static inline V(f32) F(name, f32)(V(f32) x, V(f32) y) {                                        \
        return CONVERT(WEFT_S(name)(CONVERT(x, V(f64)), CONVERT(y, V(f64))), V(f32));              \
    }
#define WEFT_ALONE_OF_2(name)                                                                      \
    static inline f32 weft_##name##_f32(f32 x, f32 y) { return (f32)weft_##name##_f64(x, y); }
#define WEFT_LANES_OF_2(name)                                                                      \
    WEFT_MAP_LANES_2(name, f32, weft_##name##_f32) WEFT_MAP_LANES_2(name, f64, weft_##name##_f64)

// erf near k w: coefficients of 1 to r^5, lane k for r = |x| - k w; with 8 lanes to r^7. Lane 0 is
// what it is beyond r itself, so that small results keep their digits. The table lookup is one
// instruction; the error is below 1.3 ulp.
#if WEFT_REGISTER == 64 && !defined(__clang__)
#define WEFT_ERF_TABLE 16
#define WEFT_ERF(name) name##x16
#define WEFT_ERF_WIDTH 0.25537109375f
#define WEFT_ERF_RATE 3.9158700f
static const f32x16 weft_erf_5 = {
    0.112170003f, 0.0797454268f, 0.00514061283f, -0.0545826368f, -0.0676758289f, -0.0434760116f,
    -0.0113035282f, 0.00833715405f, 0.0130130062f, 0.00978348218f, 0.00526423194f,
    0.00222885516f, 0.000771118677f, 0.000222474977f, 5.41919326e-05f, 1.12371099e-05f};
static const f32x16 weft_erf_4 = {
    0, 0.128217608f, 0.182331592f, 0.146212593f, 0.0626986325f, -0.0113221388f, -0.0458099283f,
    -0.0462226309f, -0.032089632f, -0.0160319675f, -0.00775703555f, -0.00337774307f,
    -0.000957682671f, -0.000640168611f, 0.000263489055f, 1.81221403e-05f};
static const f32x16 weft_erf_3 = {
    -0.376122236f, -0.306444317f, -0.138607591f, 0.0363453776f, 0.143987268f, 0.166538745f,
    0.132860944f, 0.0830266327f, 0.0425450914f, 0.0182769783f, 0.0066655376f, 0.00207996368f,
    0.000558301806f, 0.000129392603f, 2.59642857e-05f, 4.52048653e-06f};
static const f32x16 weft_erf_2 = {
    0, -0.269959152f, -0.443980128f, -0.480676234f, -0.406017691f, -0.282199025f, -0.165273383f,
    -0.0825968981f, -0.0354813524f, -0.0131859845f, -0.00423004897f, -0.00117202348f,
    -0.000285520102f, -5.38696258e-05f, -1.6458107e-05f, -2.27283886e-06f};
static const f32x16 weft_erf_1 = {
    0.128379166f, 1.05714083f, 0.869292796f, 0.627414882f, 0.39746514f, 0.221003309f,
    0.107858405f, 0.0462024175f, 0.0173712447f, 0.00573261315f, 0.00166046538f, 0.000422145851f,
    9.41999679e-05f, 1.84499186e-05f, 3.17171134e-06f, 4.78573156e-07f};
static const f32x16 weft_erf_0 = {
    0, 0.282012135f, 0.529889047f, 0.721390307f, 0.851428926f, 0.929042041f, 0.969757199f,
    0.98853004f, 0.996137679f, 0.998847365f, 0.999695539f, 0.999928892f, 0.999985337f,
    0.999997318f, 0.999999583f, 0.99999994f};
#elif WEFT_REGISTER == 32 && defined(__FMA__) && !defined(__clang__)
#define WEFT_ERF_TABLE 8
#define WEFT_ERF(name) name##x8
#define WEFT_ERF_WIDTH 0.5244140625f
#define WEFT_ERF_RATE 1.90689015f
static const f32x8 weft_erf_7 = {
    -0.02615417f, 0.0040690247f, 0.011953387f, -0.0054447455f, -0.0022269448f, 0.000654469f,
    0.00025125832f, 2.6040854e-05f};
static const f32x8 weft_erf_6 = {
    0, -0.049617108f, 0.006010817f, 0.018052612f, -0.002030068f, -0.005051413f, -0.0015717978f,
    0.0028188147f};
static const f32x8 weft_erf_5 = {
    0.11280721f, 0.00037092375f, -0.06700163f, -0.006976247f, 0.012766207f, 0.004258801f,
    0.0005210383f, 2.9948285e-05f};
static const f32x8 weft_erf_4 = {
    0, 0.18368046f, 0.05282991f, -0.04871987f, -0.028014015f, -0.0051867436f, -0.00037951747f,
    -0.0003186939f};
static const f32x8 weft_erf_3 = {
    -0.37612596f, -0.12856254f, 0.15024376f, 0.12503567f, 0.0360147f, 0.0049542175f, 0.00035468015f,
    1.3714235e-05f};
static const f32x8 weft_erf_2 = {
    0, -0.44946784f, -0.3939366f, -0.14938937f, -0.029057218f, -0.003063953f, -0.0001811583f,
    1.8476522e-06f};
static const f32x8 weft_erf_1 = {
    0.12837917f, 0.8570767f, 0.3755896f, 0.094959125f, 0.013851254f, 0.001165657f, 5.6595465e-05f,
    1.5853377e-06f};
static const f32x8 weft_erf_0 = {
    0, 0.5416906f, 0.86199653f, 0.97391206f, 0.99698824f, 0.99979126f, 0.9999914f, 0.99999976f};
#endif
#ifdef WEFT_ERF_TABLE
typedef WEFT_ERF(f32) weft_erf_lanes;
typedef WEFT_ERF(i32) weft_erf_bits;
#define WEFT_NEAR(c) __builtin_shuffle(weft_erf_##c, k)
#define WEFT_ALL(x) ((x) - (weft_erf_lanes){})
#define WEFT_TERM(c) q = WEFT_ERF(weft_fma_f32)(q, r, WEFT_NEAR(c));
WEFT_FN weft_erf_lanes WEFT_ERF(weft_erf_f32)(weft_erf_lanes x) {
    weft_erf_lanes a = (weft_erf_lanes)((weft_erf_bits)x & 0x7fffffff);
    a = WEFT_ERF(weft_lesser_f32)((weft_erf_lanes){} + 3.925f, a);
    weft_erf_lanes q = WEFT_ERF(weft_fma_f32)(a, WEFT_ALL(WEFT_ERF_RATE), WEFT_ALL(0x1.8p23f));
    weft_erf_bits k = (weft_erf_bits)q;
    weft_erf_lanes n = q - 0x1.8p23f;
    weft_erf_lanes r = WEFT_ERF(weft_fma_f32)(n, WEFT_ALL(-WEFT_ERF_WIDTH), a);
#if WEFT_ERF_TABLE == 8
    q = WEFT_NEAR(7);
    WEFT_TERM(6) WEFT_TERM(5)
#else
    q = WEFT_NEAR(5);
#endif
    WEFT_TERM(4) WEFT_TERM(3) WEFT_TERM(2) WEFT_TERM(1)
    weft_erf_bits first = (weft_erf_bits)WEFT_NEAR(0) | ((weft_erf_bits)a & (n == 0));
    q = WEFT_ERF(weft_fma_f32)(q, r, (weft_erf_lanes)first);
    return (weft_erf_lanes)((weft_erf_bits)q | ((weft_erf_bits)x & (i32)0x80000000));
}
#undef WEFT_NEAR
#undef WEFT_ALL
#undef WEFT_TERM
#endif

static __attribute__((noinline, cold, unused)) void weft_set_fault(int fault) {
    __atomic_store_n(weft_fault, fault, __ATOMIC_RELAXED);
}

// A lane with a fault goes on with a value that does no harm.
#define WEFT_OR_FAULT(d, bad, fault, x, safe)                                                      \
    BOOL faulty = bad;                                                                             \
    if (__builtin_expect(F(fold_or, bool)(faulty), 0)) {                                           \
        weft_set_fault(fault);                                                                     \
        return F(select, d)(faulty, SPLAT(d, safe), x);                                            \
    }                                                                                              \
    return x;
#define WEFT_CHECKED_DIVISOR(d, size, bits)                                                        \
    WEFT_FN V(d) F(checked_divisor, d)(V(d) x) {                                                   \
        WEFT_OR_FAULT(d, F(eq, d)(x, SPLAT(d, 0)), WEFT_DIVISION_BY_ZERO, x, 1)                    \
    }

// By squares, 1 where b is negative.
#define WEFT_INTEGER_POW(d, size, bits)                                                            \
    static inline V(d) F(pow, d)(V(d) a, V(d) b) {                                                 \
        V(d) r = SPLAT(d, 1), zero = SPLAT(d, 0);                                                  \
        b = F(maximum, d)(b, zero);                                                                \
        for (; F(fold_or, bool)(F(ne, d)(b, zero)); b = b >> 1, a = a * a)                         \
            r = F(select, d)(F(ne, d)(b & 1, zero), r * a, r);                                     \
        return r;                                                                                  \
    }

#define WEFT_LIBM(op, d, f) WEFT_MAP_LANES(op, d, __builtin_##op##f)

#endif  // WEFT_MATH_H

#ifdef WEFT_LANES

// ---- exp and its family: x = n ln 2 + r with |r| <= ln 2 / 2, e^x = 2^n e^r

// A whole n is passed on as t = n + WEFT_WHOLE, whose low bits hold n + 254; t - WEFT_WHOLE is n.
#if defined(WEFT_AVX512) && WEFT_LANES >= 4 && !defined(__clang__)
WEFT_MAP_CHUNKS_2(scale, f32, 4)
WEFT_FN V(f32) F(scale_by, f32)(V(f32) p, V(f32) t) { return F(scale, f32)(p, t - WEFT_WHOLE); }
WEFT_FN V(f32) F(scale_more, f32)(V(f32) m, V(f32) t) { return F(scale_by, f32)(m + 1, t); }
#else
// 2^n itself may overflow or be subnormal, its halves 2^h and 2^(n-h) are neither; 0 for n = -254.
WEFT_FN V(f32) F(halves, f32)(V(f32) t, V(f32) *high) {
    V(i32) h = AS(i32, t) >> 1;
    *high = AS(f32, (AS(i32, t) - h) << 23);
    return AS(f32, h << 23);
}
WEFT_FN V(f32) F(scale_by, f32)(V(f32) p, V(f32) t) {
    V(f32) high, low = F(halves, f32)(t, &high);
    return p * low * high;
}
// (1 + m) 2^n
WEFT_FN V(f32) F(scale_more, f32)(V(f32) m, V(f32) t) {
    V(f32) high, low = F(halves, f32)(t, &high);
    return FMA(f32, m, low, low) * high;
}
#endif

// The same for -127 < n < 128, in one step.
WEFT_FN V(f32) F(scale_near, f32)(V(f32) p, V(f32) t) {
#ifdef WEFT_AVX512
    return F(scale_by, f32)(p, t);
#else
    return p * AS(f32, AS(i32, t - 127) << 23);
#endif
}

WEFT_FN V(f32) F(exp_reduce, f32)(V(f32) x, V(f32) *t) {
    *t = FMA(f32, x, 1.44269504f, WEFT_WHOLE);  // to nearest, since |n| < 2^22
    V(f32) n = *t - WEFT_WHOLE;
    return FMA(f32, n, 2.12194440e-4f, FMA(f32, n, -0.693359375f, x));
}

// e^x as (1 + m) 2^n for |x| < 1e6.
WEFT_FN V(f32) F(exp_parts, f32)(V(f32) x, V(f32) *t) {
    V(f32) r = F(exp_reduce, f32)(x, t);
    V(f32) q = FMA(f32, r, 0.00139505998f, 0.00836895406f);
    q = FMA(f32, q, r, 0.041666206f);
    q = FMA(f32, q, r, 0.166665182f);
    q = FMA(f32, q, r, 0.5f);
    return FMA(f32, q * r, r, r);
}

// Below -176 the result is 0 without underflow, whose microcode would take 20 times as long.
WEFT_FN V(f32) F(exp, f32)(V(f32) x) {
    V(f32) t, m;
    x = F(lesser, f32)(SPLAT(f32, 89), F(greater, f32)(SPLAT(f32, -176), x));  // keeps NaN
    m = F(exp_parts, f32)(x, &t);
    return F(scale_more, f32)(m, t);
}

WEFT_FN V(f32) F(exp2, f32)(V(f32) x) {
    x = F(lesser, f32)(SPLAT(f32, 129), F(greater, f32)(SPLAT(f32, -254), x));
    V(f32) t = x + WEFT_WHOLE, r = x - (t - WEFT_WHOLE);
    V(f32) q = FMA(f32, r, 0.000154760433f, 0.00134004164f);
    q = FMA(f32, q, r, 0.00961800478f);
    q = FMA(f32, q, r, 0.0555032752f);
    q = FMA(f32, q, r, 0.240226507f);
    q = FMA(f32, q, r, 0.693147182f);
    return F(scale_by, f32)(FMA(f32, q, r, 1), t);
}

// 2^n (e^r - 1) + (2^n - 1), all at half size since 2^128 is no f32.
WEFT_FN V(f32) F(expm1, f32)(V(f32) x) {
    V(f32) t, a = F(lesser, f32)(SPLAT(f32, 89), F(greater, f32)(SPLAT(f32, -20), x));
    V(f32) r = F(exp_reduce, f32)(a, &t);
    V(f32) q = FMA(f32, r, 0.000199137052f, 0.00139411166f);
    q = FMA(f32, q, r, 0.00833327416f);
    q = FMA(f32, q, r, 0.041666355f);
    q = FMA(f32, q, r, 0.166666672f);
    q = FMA(f32, q, r, 0.5f);
    q = FMA(f32, q * r, r, r);
    V(f32) s = AS(f32, AS(i32, t - 128) << 23);
    V(f32) y = FMA(f32, q, s, s - 0.5f) * 2;
    return F(select, f32)(F(lt, f32)(F(abs, f32)(x), SPLAT(f32, 1e-10f)), x, y);
}

// e / (1 + e) or 1 / (1 + e) for e = e^-|x|, corrected for the rounding of 1 + e. Numerators are 2^64
// times as large, so that one step scales them: e alone may be subnormal.
WEFT_FN V(f32) F(sigmoid, f32)(V(f32) x) {
    V(f32) t, a = AS(f32, AS(i32, x) | (i32)0x80000000);
    V(f32) p = F(exp_parts, f32)(F(greater, f32)(SPLAT(f32, -105), a), &t) + 1;
    V(f32) large = p * AS(f32, AS(i32, t - 63) << 23), e = large * 0x1p-64f;
    V(f32) d = e + 1, lost = (1 - d) + e;
    V(f32) y = F(select, f32)(F(lt, f32)(x, SPLAT(f32, 0)), large, SPLAT(f32, 0x1p64f)) / d;
    return FMA(f32, -y, lost, y) * 0x1p-64f;
}

// (1 - e) / (1 + e) for e = e^-2|x|, both by halves, corrected for the rounding of d = (1 + e) / 2:
// 1 / d is 1 + y.
WEFT_FN V(f32) F(tanh, f32)(V(f32) x) {
    V(f32) t, a = AS(f32, AS(i32, x) | (i32)0x80000000) * 2;
    V(f32) m = F(exp_parts, f32)(F(greater, f32)(SPLAT(f32, -20), a), &t);
    V(f32) half = AS(f32, AS(i32, t - 128) << 23);  // 2^n / 2
    V(f32) one = half + 0.5f, d = FMA(f32, m, half, one), lost = FMA(f32, m, half, one - d);
    V(f32) y = FMA(f32, -m, half, 0.5f - half) / d;
    return F(copysign, f32)(FMA(f32, -FMA(f32, y, y, y), lost, y), x);
}

// s - a a for s = a a as it was rounded: by parts of 12 bits, whose products are exact.
WEFT_FN V(f32) F(lost_of_square, f32)(V(f32) a, V(f32) s) {
#ifdef __FP_FAST_FMAF
    return FMA(f32, -a, a, s);
#else
    V(f32) high = AS(f32, AS(i32, a) & -0x1000), low = a - high;
    return ((s - high * high) - 2 * high * low) - low * low;
#endif
}

// The same bits in any number of lanes: gradients compare values that they compute again.
#if defined(WEFT_ERF_TABLE) && WEFT_LANES >= WEFT_ERF_TABLE
WEFT_MAP_CHUNKS(erf, f32, 4)
#elif defined(WEFT_ERF_TABLE)
WEFT_FN V(f32) F(erf, f32)(V(f32) x) {
    union { weft_erf_lanes whole; V(f32) part[WEFT_ERF_TABLE / WEFT_LANES]; } r = {.part = {x}};
    r.whole = WEFT_ERF(weft_erf_f32)(r.whole);
    return r.part[0];
}
#else
WEFT_FN V(f32) F(erf, f32)(V(f32) x) {
    V(f32) t, a = F(abs, f32)(x), b = F(lesser, f32)(SPLAT(f32, 4), a), z = b * b;
    V(f32) u = FMA(f32, b, -1.72853470e-5f, 3.83197126e-4f);
    u = FMA(f32, u, z, FMA(f32, b, -3.88396438e-3f, 2.42546219e-2f));
    u = FMA(f32, u, b, -1.06777877e-1f);
    u = FMA(f32, u, b, -6.34846687e-1f);
    u = FMA(f32, u, b, -1.28717512e-1f);
    u = FMA(f32, u, b, -b);
    u = F(exp_parts, f32)(u, &t);
    V(f32) large = 1 - F(scale_near, f32)(u + 1, t);
    V(f32) q = FMA(f32, z, -5.96761703e-4f, 4.99119423e-3f);
    q = FMA(f32, q, z, -2.67681349e-2f);
    q = FMA(f32, q, z, 1.12819925e-1f);
    q = FMA(f32, q, z, -3.76125336e-1f);
    q = FMA(f32, q, z, 1.28379166e-1f);
    V(f32) small = FMA(f32, q, a, a);
    BOOL is_small = F(lt, f32)(a, SPLAT(f32, 0.927734375f));
    return F(copysign, f32)(F(select, f32)(is_small, small, large), x);
}
#endif

// e^(a a) erfc(a) (1 + 2 a) - 1 as a polynomial in (a - 2) / (a + 2), after Juffa.
static inline V(f32) F(erfc, f32)(V(f32) x) {
    V(f32) t, a = F(lesser, f32)(SPLAT(f32, 10.25f), F(abs, f32)(x)), s = a * a;
    V(f32) r = 1 / (a + 2), q = (a - 2) * r;
    q = FMA(f32, r, FMA(f32, q, -a, FMA(f32, q + 1, -2, a)), q);  // the quotient once more
    V(f32) p = FMA(f32, q, -0x1.a4a000p-12f, -0x1.42a260p-10f);
    p = FMA(f32, p, q, 0x1.585714p-10f);
    p = FMA(f32, p, q, 0x1.1adcc4p-07f);
    p = FMA(f32, p, q, -0x1.081b82p-07f);
    p = FMA(f32, p, q, -0x1.bc0b6ap-05f);
    p = FMA(f32, p, q, 0x1.4ffc46p-03f);
    p = FMA(f32, p, q, -0x1.540840p-03f);
    p = FMA(f32, p, q, -0x1.7bf616p-04f);
    p = FMA(f32, p, q, 0x1.1ba03ap-02f);
    r = 1 / FMA(f32, a, 2, 1);
    q = FMA(f32, p, r, r);
    r = FMA(f32, FMA(f32, FMA(f32, q, -a, 0.5f), 2, p - q), r, q);
    V(f32) e = F(exp_parts, f32)(-s, &t) + 1;
    e = F(scale_by, f32)(FMA(f32, e, F(lost_of_square, f32)(a, s), e) * r, t);
    return F(select, f32)(F(lt, f32)(x, SPLAT(f32, 0)), 2 - e, e);
}

static inline V(f32) F(cosh, f32)(V(f32) x) {
    V(f32) t, m = F(exp_parts, f32)(F(lesser, f32)(SPLAT(f32, 91), F(abs, f32)(x)), &t);
    V(f32) half = F(scale_more, f32)(m, t - 1);
    return half + 0.25f / half;
}

static inline V(f32) F(sinh, f32)(V(f32) x) {
    V(f32) t, a = F(abs, f32)(x), z = a * a;
    V(f32) m = F(exp_parts, f32)(F(lesser, f32)(SPLAT(f32, 91), a), &t);
    V(f32) half = F(scale_more, f32)(m, t - 1);
    V(f32) q = FMA(f32, z, 2.81695134e-06f, 0.000198361595f);
    q = FMA(f32, q, z, 0.0083333496f);
    q = FMA(f32, q, z, 0.166666672f);
    V(f32) small = FMA(f32, q * z, a, a);
    V(f32) r = F(select, f32)(F(lt, f32)(a, SPLAT(f32, 1)), small, half - 0.25f / half);
    return F(copysign, f32)(r, x);
}

// ---- log and its family: x = 2^k (1 + m) with 1 + m in [0.75, 1.5)

WEFT_FN V(f32) F(log1p_near, f32)(V(f32) m) {
    V(f32) q = FMA(f32, m, -0.0449157394f, 0.104497209f);
    q = FMA(f32, q, m, -0.131630987f);
    q = FMA(f32, q, m, 0.14482145f);
    q = FMA(f32, q, m, -0.166476965f);
    q = FMA(f32, q, m, 0.199905932f);
    q = FMA(f32, q, m, -0.250000566f);
    q = FMA(f32, q, m, 0.333334535f);
    q = FMA(f32, q, m, -0.5f);
    return FMA(f32, q * m, m, m);
}

// log(1 + m), and k, for x positive and finite; something for the rest, which log_special replaces.
WEFT_FN V(f32) F(log_parts, f32)(V(f32) x, V(f32) *k) {
    BOOL subnormal = F(lt, f32)(x, SPLAT(f32, 0x1p-126f));
    V(i32) a = AS(i32, F(select, f32)(subnormal, x * 0x1p23f, x));
    V(i32) e = (a - 0x3f400000) & (i32)0xff800000;
    *k = CONVERT((e >> 23) - (subnormal & 23), V(f32));
    return F(log1p_near, f32)(AS(f32, a - e) - 1);
}
WEFT_FN V(f32) F(log_special, f32)(V(f32) x, V(f32) y) {
    V(f32) zero = SPLAT(f32, 0), inf = SPLAT(f32, __builtin_inff());
    V(f32) nan = SPLAT(f32, __builtin_nanf(""));
    V(f32) other = F(select, f32)(F(lt, f32)(x, zero), nan, x);  // nan, or +inf or NaN itself
    other = F(select, f32)(F(eq, f32)(x, zero), -inf, other);
    return F(select, f32)(F(gt, f32)(x, zero) & F(lt, f32)(x, inf), y, other);
}

WEFT_FN V(f32) F(log, f32)(V(f32) x) {
    V(f32) k, y = F(log_parts, f32)(x, &k);
    return F(log_special, f32)(x, FMA(f32, k, 0.693147182f, y));
}
static inline V(f32) F(log2, f32)(V(f32) x) {
    V(f32) k, y = F(log_parts, f32)(x, &k);
    return F(log_special, f32)(x, FMA(f32, y, 1.44269504f, k));
}
static inline V(f32) F(log10, f32)(V(f32) x) {
    V(f32) k, y = F(log_parts, f32)(x, &k);
    y = FMA(f32, k, 4.60503898e-6f, y * 0.434294482f);
    return F(log_special, f32)(x, FMA(f32, k, 0.301025390625f, y));
}

// 1 + m = 2^-k (1 + x) without forming 1 + x: 2^-k x is exact, and so is 2^-k - 1 where it matters.
WEFT_FN V(f32) F(log1p, f32)(V(f32) x) {
    V(i32) e = (AS(i32, x + 1) - 0x3f400000) & (i32)0xff800000;
    V(f32) k = CONVERT(e >> 23, V(f32));
    V(f32) four = AS(f32, 0x40800000 - e);  // 4 2^-k
    V(f32) m = AS(f32, AS(i32, x) - e) + FMA(f32, four, 0.25f, -1);
    V(f32) y = F(copysign, f32)(FMA(f32, k, 0.693147182f, F(log1p_near, f32)(m)), x);
    V(f32) u = F(log_special, f32)(x + 1, x);
    return F(select, f32)(F(eq, f32)(u, x) & F(lt, f32)(x, SPLAT(f32, __builtin_inff())), y, u);
}

// ---- sin, cos, tan: x = j pi/2 + r by Cody and Waite for |x| <= 1e5; libm beyond

WEFT_FN V(f32) F(trig_reduce, f32)(V(f32) x, V(i32) *j) {
    V(f32) n = FMA(f32, x, 0.636619747f, 0x1.8p23f);
    *j = AS(i32, n);  // the low bits count quadrants
    n = n - 0x1.8p23f;
#ifdef __FP_FAST_FMAF
    x = FMA(f32, n, -0x1.921fb0p+00f, x);
    x = FMA(f32, n, -0x1.5110b4p-22f, x);
    return FMA(f32, n, -0x1.846988p-48f, x);
#else
    V(f64) a = CONVERT(x, V(f64)), b = CONVERT(n, V(f64));
    return CONVERT((a - b * 1.57079632673412561417) - b * 6.07710050650619224932e-11, V(f32));
#endif
}
WEFT_FN V(f32) F(sin_near, f32)(V(f32) r) {
    V(f32) z = r * r, q = FMA(f32, z, 2.86567956e-6f, -1.98559923e-4f);
    q = FMA(f32, q, z, 8.33338592e-3f);
    q = FMA(f32, q, z, -1.66666672e-1f);
    return FMA(f32, q * z, r, r);
}
WEFT_FN V(f32) F(cos_near, f32)(V(f32) r) {
    V(f32) z = r * r, q = FMA(f32, z, 2.44677067e-5f, -1.38877297e-3f);
    q = FMA(f32, q, z, 4.16666567e-2f);
    q = FMA(f32, q, z, -0.5f);
    return FMA(f32, q, z, 1);
}
// sin of quadrant j at r: the cosine in odd quadrants, negated in the upper half.
WEFT_FN V(f32) F(sin_quadrant, f32)(V(f32) r, V(i32) j) {
    V(f32) y = F(select, f32)(F(ne, i32)(j & 1, SPLAT(i32, 0)), F(cos_near, f32)(r),
                              F(sin_near, f32)(r));
    return AS(f32, AS(i32, y) ^ ((j & 2) << 30));
}

// Replaces the lanes of y whose x the reduction cannot serve, by libm.
#define WEFT_FAR(op, d, f, limit)                                                                  \
    static __attribute__((noinline, cold, unused)) void F(op##_far, d)(const d *x, d *y) {         \
        for (int i = 0; i < L; i++)                                                                \
            if (__builtin_fabs(x[i]) > limit) y[i] = __builtin_##op##f(x[i]);                      \
    }
#define WEFT_NEAR_OR_FAR(op, d, limit, x, y)                                                       \
    if (__builtin_expect(F(fold_or, bool)(F(gt, d)(F(abs, d)(x), SPLAT(d, limit))), 0)) {          \
        WEFT_LANEWISE(d) far_x = {x}, far_y = {y};                                                 \
        F(op##_far, d)(far_x.lane, far_y.lane);                                                    \
        return far_y.v;                                                                            \
    }                                                                                              \
    return y;

#define WEFT_F32_NEAR 1e5f
WEFT_FAR(sin, f32, f, WEFT_F32_NEAR)
WEFT_FAR(cos, f32, f, WEFT_F32_NEAR)
WEFT_FAR(tan, f32, f, WEFT_F32_NEAR)

WEFT_FN V(f32) F(sin, f32)(V(f32) x) {
    V(i32) j, sign = AS(i32, x) & (i32)0x80000000;  // by |x|, which keeps sin(-0) = -0
    V(f32) r = F(trig_reduce, f32)(F(abs, f32)(x), &j);
    V(f32) y = AS(f32, AS(i32, F(sin_quadrant, f32)(r, j)) ^ sign);
    WEFT_NEAR_OR_FAR(sin, f32, WEFT_F32_NEAR, x, y)
}
WEFT_FN V(f32) F(cos, f32)(V(f32) x) {
    V(i32) j;
    V(f32) r = F(trig_reduce, f32)(x, &j), y = F(sin_quadrant, f32)(r, j + 1);
    WEFT_NEAR_OR_FAR(cos, f32, WEFT_F32_NEAR, x, y)
}
static inline V(f32) F(tan, f32)(V(f32) x) {
    V(i32) j, sign = AS(i32, x) & (i32)0x80000000;
    V(f32) r = F(trig_reduce, f32)(F(abs, f32)(x), &j);
    V(f32) y = F(sin_quadrant, f32)(r, j) / F(sin_quadrant, f32)(r, j + 1);
    y = AS(f32, AS(i32, y) ^ sign);
    WEFT_NEAR_OR_FAR(tan, f32, WEFT_F32_NEAR, x, y)
}

// ---- inverse trigonometric

WEFT_FN V(f32) F(atan_near, f32)(V(f32) t) {  // |t| <= 1
    V(f32) z = t * t, q = FMA(f32, z, -0.00179359387f, 0.0109144812f);
    q = FMA(f32, q, z, -0.031177612f);
    q = FMA(f32, q, z, 0.0579573587f);
    q = FMA(f32, q, z, -0.0840343684f);
    q = FMA(f32, q, z, 0.109521814f);
    q = FMA(f32, q, z, -0.142642409f);
    q = FMA(f32, q, z, 0.199985489f);
    q = FMA(f32, q, z, -0.333332986f);
    return FMA(f32, q * z, t, t);
}
static inline V(f32) F(atan, f32)(V(f32) x) {
    V(f32) a = F(abs, f32)(x);
    BOOL inverted = F(gt, f32)(a, SPLAT(f32, 1));
    V(f32) p = F(atan_near, f32)(F(select, f32)(inverted, 1 / a, a));
    return F(copysign, f32)(F(select, f32)(inverted, 1.57079637f - p, p), x);
}
static inline V(f32) F(atan2, f32)(V(f32) y, V(f32) x) {
    V(f32) ay = F(abs, f32)(y), ax = F(abs, f32)(x), zero = SPLAT(f32, 0), one = SPLAT(f32, 1);
    BOOL swap = F(gt, f32)(ay, ax);
    V(f32) t = F(select, f32)(swap, ax, ay) / F(select, f32)(swap, ay, ax);
    V(f32) same = F(select, f32)(F(eq, f32)(ax, zero), zero, one);  // 0/0 and inf/inf
    V(f32) p = F(atan_near, f32)(F(select, f32)(F(eq, f32)(ax, ay), same, t));
    p = F(select, f32)(swap, 1.57079637f - p, p);
    p = F(select, f32)(F(lt, i32)(AS(i32, x), SPLAT(i32, 0)), 3.14159274f - p, p);
    p = F(select, f32)(F(ne, f32)(x, x), x, p);
    return F(copysign, f32)(p, y);
}

// asin of a = |x| where *far is false; else asin(sqrt((1 - a) / 2)), which is (pi/2 - asin a) / 2.
WEFT_FN V(f32) F(asin_parts, f32)(V(f32) a, BOOL *far) {
    *far = F(gt, f32)(a, SPLAT(f32, 0.5f));
    V(f32) z = F(select, f32)(*far, FMA(f32, a, -0.5f, 0.5f), a * a);
    V(f32) t = F(select, f32)(*far, F(sqrt, f32)(z), a);
    V(f32) q = FMA(f32, z, 0.0421662852f, 0.0241795257f);
    q = FMA(f32, q, z, 0.0454703756f);
    q = FMA(f32, q, z, 0.0749529749f);
    q = FMA(f32, q, z, 0.166667521f);
    return FMA(f32, q * z, t, t);
}
static inline V(f32) F(asin, f32)(V(f32) x) {
    BOOL far;
    V(f32) p = F(asin_parts, f32)(F(abs, f32)(x), &far);
    V(f32) upper = FMA(f32, p, -2, 1.57079637f) + -4.37113883e-8f;
    return F(copysign, f32)(F(select, f32)(far, upper, p), x);
}
static inline V(f32) F(acos, f32)(V(f32) x) {
    BOOL far, negative = F(lt, f32)(x, SPLAT(f32, 0));
    V(f32) p = F(asin_parts, f32)(F(abs, f32)(x), &far);
    V(f32) upper = F(select, f32)(negative, FMA(f32, p, -2, 3.14159274f) + -8.74227766e-8f, p * 2);
    V(f32) middle = (1.57079637f - F(select, f32)(negative, -p, p)) + -4.37113883e-8f;
    return F(select, f32)(far, upper, middle);
}

#include "weft_math_f64.h"

// ---- checks

WEFT_FN V(i64) F(checked_index, i64)(V(i64) i, V(i64) n) {
    if (__builtin_expect(!F(any_negative, i64)(i | (n - 1 - i)), 1)) return i;
    weft_set_fault(WEFT_INDEX_OUT_OF_RANGE);
    return F(select, i64)(F(lt, i64)(i, SPLAT(i64, 0)) | F(ge, i64)(i, n), SPLAT(i64, 0), i);
}
WEFT_EACH_INTEGER(WEFT_CHECKED_DIVISOR)

WEFT_FN V(i32) F(bits, f32)(V(f32) x) { return AS(i32, x); }
WEFT_FN V(i64) F(bits, f64)(V(f64) x) { return AS(i64, x); }
WEFT_FN V(f32) F(float_of, i32)(V(i32) x) { return AS(f32, x); }
WEFT_FN V(f64) F(float_of, i64)(V(i64) x) { return AS(f64, x); }

// ---- random bits: the first two words of Philox4x32-10 (Salmon et al. 2011). Lanes of 64 bits hold
// words of 32, of which products read the low half alone: what is above them does no harm.

WEFT_FN V(i64) F(philox, i64)(V(i64) seed, V(i64) counter) {
    V(u64) c0 = (V(u64))counter, c1 = c0 >> 32, c2 = c0 & 0, c3 = c2;
    V(u64) k0 = (V(u64))seed, k1 = k0 >> 32;
    WEFT_UNROLL for (int round = 0; round < 10; round++) {
        V(u64) first = (V(u64))F(words, i64)((V(i64))c0, SPLAT(i64, 0xD2511F53));
        V(u64) second = (V(u64))F(words, i64)((V(i64))c2, SPLAT(i64, 0xCD9E8D57));
        c0 = (second >> 32) ^ c1 ^ k0;
        c1 = second;
        c2 = (first >> 32) ^ c3 ^ k1;
        c3 = first;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (V(i64))((c0 & 0xffffffffu) | c1 << 32);
}

WEFT_EACH_INTEGER(WEFT_INTEGER_POW)

// ---- pow in f32 by powers of two in f64: |x|^y, then what IEEE says of signs, zeros and infinities

static inline V(f32) F(pow, f32)(V(f32) x, V(f32) y) {
    V(f32) a = F(abs, f32)(x), zero = SPLAT(f32, 0), one = SPLAT(f32, 1);
    V(f64) l = F(pow_log2, f64)(CONVERT(a, V(f64))) * CONVERT(y, V(f64));
    V(f32) r = CONVERT(F(pow_exp2, f64)(l), V(f32)), half = y * 0.5f;
    BOOL whole = F(eq, f32)(F(trunc, f32)(y), y);
    BOOL odd = whole & F(ne, f32)(F(trunc, f32)(half), half);
    V(f32) nan = SPLAT(f32, __builtin_nanf("")), inf = SPLAT(f32, __builtin_inff());
    r = F(select, f32)(F(lt, f32)(x, zero) & F(lt, f32)(a, inf) & ~whole, nan, r);
    r = F(select, f32)(odd, F(copysign, f32)(r, x), r);
    BOOL unit = F(eq, f32)(a, one) & F(eq, f32)(F(abs, f32)(y), inf);  // (-1)^inf
    return F(select, f32)(F(eq, f32)(y, zero) | F(eq, f32)(x, one) | unit, one, r);
}

// ---- lgamma in f32, by f64: a polynomial around 2, to where steps of 1 lead, Stirling's series
// from 4.5 on, and the reflection below 0. Lanes are told apart in f32, where that is cheap; their
// differences are exact there.

WEFT_FN V(f64) F(lgamma_log, f64)(V(f64) x) {  // of a normal number above 0
    V(u64) e = F(log_exponent, f64)(x);
    V(f64) f = AS(f64, AS(u64, x) - (e << 52) + (1024ull << 52)) - 1;
    return F(log_sum, f64)(F(log_float, f64)(e), f);
}
WEFT_FN V(f64) F(lgamma_near, f64)(V(f64) t) {  // of 2 + t, |t| <= 1/2
    V(f64) q = FMA(f64, t, 1.1987899414920579e-06, -2.554914527462414e-06);
    q = FMA(f64, q, t, 4.271453571823135e-06);
    q = FMA(f64, q, t, -9.220663323909058e-06);
    q = FMA(f64, q, t, 2.052955658697094e-05);
    q = FMA(f64, q, t, -4.4973510999689744e-05);
    q = FMA(f64, q, t, 9.94548626571654e-05);
    q = FMA(f64, q, t, -0.00022314915180241202);
    q = FMA(f64, q, t, 0.0005096696946223285);
    q = FMA(f64, q, t, -0.001192754271087742);
    q = FMA(f64, q, t, 0.002890510325409574);
    q = FMA(f64, q, t, -0.00738555101739438);
    q = FMA(f64, q, t, 0.020580808427848166);
    q = FMA(f64, q, t, -0.06735230105333267);
    q = FMA(f64, q, t, 0.3224670334241131);
    q = FMA(f64, q, t, 0.4227843350984674);
    return q * t;
}
WEFT_FN V(f64) F(lgamma_far, f64)(V(f64) a) {  // without (a - 1/2) log a, for a >= 4.5
    V(f64) r = 1 / a, z = r * r;
    V(f64) q = FMA(f64, z, 0.003306249502236156, -0.0017412409349170908);
    q = FMA(f64, q, z, 0.0008362963867721391);
    q = FMA(f64, q, z, -0.0005951480340308822);
    q = FMA(f64, q, z, 0.0007936500711296139);
    q = FMA(f64, q, z, -0.0027777777755760716);
    q = FMA(f64, q, z, 0.08333333333333223);
    return FMA(f64, q, r, 0.91893853320467274 - a);
}
// With steps to 2 + t the logarithm is of their product (1 + p) q, else of a.
WEFT_FN V(f64) F(lgamma_above, f64)(V(f32) a) {  // of a > 0
    V(f32) zero = SPLAT(f32, 0), one = SPLAT(f32, 1);
    BOOL tiny = F(lt, f32)(a, SPLAT(f32, 0.5f)), below = F(lt, f32)(a, SPLAT(f32, 1.5f));
    BOOL above = F(ge, f32)(a, SPLAT(f32, 2.5f)), top = F(ge, f32)(a, SPLAT(f32, 3.5f));
    BOOL far = F(ge, f32)(a, SPLAT(f32, 4.5f));
    V(f32) p = F(select, f32)(tiny, a, F(select, f32)(top & ~far, a - 3, zero));
    V(f32) q = F(select, f32)(below | far, a, F(select, f32)(above, a - 1, one));
    V(f32) t = F(select, f32)(above, F(select, f32)(top, a - 4, a - 3), a - 2);
    t = F(select, f32)(below, F(select, f32)(tiny, a, a - 1), t);
    V(f32) by = F(select, f32)(far, a, F(select, f32)(below, one * -0.5f, one * 1.5f));
    V(f64) log = F(lgamma_log, f64)((CONVERT(p, V(f64)) + 1) * CONVERT(q, V(f64)));
    V(f64) near = F(lgamma_near, f64)(CONVERT(F(select, f32)(far, zero, t), V(f64)));
    V(f64) rest = F(lgamma_far, f64)(CONVERT(F(select, f32)(far, a, one * 8), V(f64)));
    rest = FMA(f64, rest, CONVERT(F(select, f32)(far, one, zero), V(f64)), near);
    return FMA(f64, CONVERT(by, V(f64)) - 0.5, log, rest);
}
WEFT_FN V(f32) F(lgamma_below, f32)(V(f32) a, V(f64) y) {  // of -a, where y is that of a
    V(f32) f = a - F(trunc, f32)(a);
    V(f64) s = CONVERT(F(lesser, f32)(f, 1 - f), V(f64)), z = s * s;  // sin(pi s) is s times
    V(f64) q = FMA(f64, z, -2.113362735205297e-05, 0.0004659870158043378);
    q = FMA(f64, q, z, -0.0073703643265304155);
    q = FMA(f64, q, z, 0.08214587881631043);
    q = FMA(f64, q, z, -0.599264528825224);
    q = FMA(f64, q, z, 2.5501640398618677);
    q = FMA(f64, q, z, -5.1677127800497855);
    q = FMA(f64, q, z, 3.1415926535897927);
    y = 1.1447298858494002 - F(lgamma_log, f64)(q * s * CONVERT(a, V(f64))) - y;
    BOOL whole = F(eq, f32)(f, SPLAT(f32, 0));
    return F(select, f32)(whole, SPLAT(f32, __builtin_inff()), CONVERT(y, V(f32)));
}
static inline V(f32) F(lgamma, f32)(V(f32) x) {
    V(f32) a = F(abs, f32)(x), zero = SPLAT(f32, 0), inf = SPLAT(f32, __builtin_inff());
    V(f64) above = F(lgamma_above, f64)(a);
    V(f32) y = CONVERT(above, V(f32));
    BOOL negative = F(lt, f32)(x, zero);
    if (F(fold_or, bool)(negative))
        y = F(select, f32)(negative, F(lgamma_below, f32)(a, above), y);
    y = F(select, f32)(F(eq, f32)(a, zero), inf, y);
    return F(select, f32)(F(lt, f32)(a, inf), y, a);
}

// ---- special functions in f64, by which most of those of f32 are computed

#define wide V(f64)
#define weft_truth BOOL
#if WEFT_LANES == 1
#define WEFT_ONE_LANE
#define WEFT_ANY(c) (c)
#define WEFT_IF(c, a, b) ((c) ? (a) : (b))
#else
#define WEFT_ANY(c) F(any_negative, i64)(CONVERT(c, V(i64)))
#define WEFT_IF WEFT_IF_ANY
#endif
#include "gpu/weft_special.h"
WEFT_SPECIAL_1(WEFT_SPECIAL_F64_1)
WEFT_SPECIAL_WIDE_1(WEFT_SPECIAL_F32_1)
WEFT_SPECIAL_WIDE_2(WEFT_SPECIAL_BOTH_2)
#if WEFT_LANES == 1
WEFT_SPECIAL_ALONE_2(WEFT_ALONE_OF_2)
#define WEFT_HAS_ONE_LANE
#endif
#undef wide
#undef weft_truth
#undef WEFT_ONE_LANE
#undef WEFT_ANY
#undef WEFT_IF

// erfinv(x) / x by polynomials in w = -log(1 - x^2) below 5, in its root beyond.
WEFT_FN V(f32) F(erfinv_far, f32)(V(f32) w) {
    V(f32) s = F(sqrt, f32)(w) - 3, q = FMA(f32, s, 0.000125920866f, -0.000317017722f);
    q = FMA(f32, q, s, -7.20255630e-05f);
    q = FMA(f32, q, s, 0.00149392802f);
    q = FMA(f32, q, s, -0.00358938146f);
    q = FMA(f32, q, s, 0.00568381744f);
    q = FMA(f32, q, s, -0.00763893593f);
    q = FMA(f32, q, s, 0.00944562163f);
    q = FMA(f32, q, s, 1.00167501f);
    return FMA(f32, q, s, 2.83297682f);
}
static inline V(f32) F(erfinv, f32)(V(f32) x) {
    V(f32) k, a = F(abs, f32)(x), y = F(log_parts, f32)((1 - a) * (1 + a), &k);
    V(f32) w = FMA(f32, k, -0.693147182f, -y), t = w - 2.5f, one = SPLAT(f32, 1);
    V(f32) q = FMA(f32, t, -9.09434572e-09f, 4.59678979e-08f);
    q = FMA(f32, q, t, 3.55490101e-07f);
    q = FMA(f32, q, t, -4.35140873e-06f);
    q = FMA(f32, q, t, 5.89545652e-06f);
    q = FMA(f32, q, t, 0.000203605654f);
    q = FMA(f32, q, t, -0.00176172215f);
    q = FMA(f32, q, t, 0.000226918797f);
    q = FMA(f32, q, t, 0.246072978f);
    q = FMA(f32, q, w, 0.886226952f);
    BOOL far = F(gt, f32)(w, SPLAT(f32, 5));
    if (F(fold_or, bool)(far)) q = F(select, f32)(far, F(erfinv_far, f32)(w), q);
    V(f32) end = F(select, f32)(F(eq, f32)(a, one), SPLAT(f32, __builtin_inff()),
                                SPLAT(f32, __builtin_nanf("")));
    return x * F(select, f32)(F(lt, f32)(a, one), q, end);
}

// e^-x I0(x) and e^-x I1(x): to 8 by polynomials in z = x^2 / 4, of 30 bits, beyond it by such in
// t = 16 / x - 1, over sqrt(x).
WEFT_FN V(f64) F(i0_short, f64)(V(f64) z) {
    V(f64) q = FMA(f64, z, 1.42253962743355e-13, 5.2201644712974285e-12);
    q = FMA(f64, q, z, 6.599191931578968e-10);
    q = FMA(f64, q, z, 3.886511711614618e-08);
    q = FMA(f64, q, z, 1.932492246002306e-06);
    q = FMA(f64, q, z, 6.942960882296302e-05);
    q = FMA(f64, q, z, 0.0017361486509805371);
    q = FMA(f64, q, z, 0.027777725564105692);
    q = FMA(f64, q, z, 0.25000003458826653);
    q = FMA(f64, q, z, 0.999999991863067);
    return FMA(f64, q, z, 1.0000000002805882);
}
WEFT_FN V(f64) F(i1_short, f64)(V(f64) z) {
    V(f64) q = FMA(f64, z, 7.210127603784971e-13, 2.2967424794711352e-11);
    q = FMA(f64, q, z, 2.6506413151769807e-09);
    q = FMA(f64, q, z, 1.3591686681681555e-07);
    q = FMA(f64, q, z, 5.797996578827399e-06);
    q = FMA(f64, q, z, 0.0001735735298469603);
    q = FMA(f64, q, z, 0.003472292900965244);
    q = FMA(f64, q, z, 0.041666602836863645);
    q = FMA(f64, q, z, 0.2500000208604096);
    return FMA(f64, q, z, 0.49999999896905273);
}
WEFT_FN V(f32) F(i0e_far, f32)(V(f32) t) {
    V(f32) q = FMA(f32, t, 1.08941757e-07f, 3.62154569e-07f);
    q = FMA(f32, q, t, 1.47562006e-06f);
    q = FMA(f32, q, t, 1.11127799e-05f);
    q = FMA(f32, q, t, 0.000136217416f);
    q = FMA(f32, q, t, 0.00336055555f);
    return FMA(f32, q, t, 0.402176509f);
}
WEFT_FN V(f32) F(i1e_of_size_far, f32)(V(f32) t) {
    V(f32) q = FMA(f32, t, -1.23786137e-07f, -4.20463759e-07f);
    q = FMA(f32, q, t, -1.82403008e-06f);
    q = FMA(f32, q, t, -1.50046626e-05f);
    q = FMA(f32, q, t, -0.0002192378f);
    q = FMA(f32, q, t, -0.0097495812f);
    return FMA(f32, q, t, 0.389398459f);
}
#define WEFT_SCALED_I(name, near, times)                                                           \
    static inline V(f32) F(name, f32)(V(f32) x) {                                                  \
        V(f32) t, a = F(abs, f32)(x), b = F(lesser, f32)(SPLAT(f32, 8), a);                        \
        V(f64) wide = CONVERT(b, V(f64));                                                          \
        V(f32) y = CONVERT(F(near, f64)(wide * wide * 0.25) times, V(f32));                        \
        V(f32) e = F(exp_parts, f32)(-b, &t) + 1;                                                  \
        y = F(scale_near, f32)(y * e, t);                                                          \
        BOOL far = F(gt, f32)(a, SPLAT(f32, 8));                                                   \
        if (F(fold_or, bool)(far))                                                                 \
            y = F(select, f32)(far, F(name##_far, f32)(16 / a - 1) / F(sqrt, f32)(a), y);          \
        return F(select, f32)(F(eq, f32)(x, x), y, x);                                             \
    }
WEFT_SCALED_I(i0e, i0_short, )
WEFT_SCALED_I(i1e_of_size, i1_short, *wide)
#undef WEFT_SCALED_I
static inline V(f32) F(i1e, f32)(V(f32) x) {
    return F(copysign, f32)(F(i1e_of_size, f32)(x), x);
}

// ---- lane by lane

#ifdef WEFT_HAS_ONE_LANE  // as emitted files have, before others
WEFT_SPECIAL_ALONE_2(WEFT_LANES_OF_2)
#endif
WEFT_LIBM(asinh, f32, f) WEFT_LIBM(acosh, f32, f) WEFT_LIBM(atanh, f32, f)
WEFT_LIBM(erfc, f64, ) WEFT_LIBM(lgamma, f64, )
WEFT_MAP_LANES_2(atan2, f64, __builtin_atan2) WEFT_MAP_LANES_2(pow, f64, __builtin_pow)

#undef WEFT_FAR
#undef WEFT_NEAR_OR_FAR
#undef WEFT_LANES
#define WEFT_END_TEMPLATE
#include "weft_vector.h"
#endif  // WEFT_LANES
