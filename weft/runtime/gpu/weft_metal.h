// weft_metal.h: the prelude of Metal kernels: types, and what is not as in CUDA.
//
//     #include "weft_metal.h"
//     [[kernel]] void k(device const f32 *x [[buffer(0)]], ...) { ... y[i] = exp_f32(x[i]); ... }
//
// Metal 2.2 or newer (64-bit integers), compiled without fast math: NaN and infinities count. There
// is no f64.
#pragma once

#include <metal_stdlib>
#pragma METAL fp contract(off)  // what is to be one fma says so

#define WEFT_FN static inline

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef float f32;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e4m3fn { u8 bits; };
struct f8e5m2 { u8 bits; };

#define WEFT_F64(text)
#define WEFT_VECTOR(T, n) struct alignas(n * sizeof(T)) T##x##n { T at[n]; };
#include "weft_gpu_vectors.h"

using namespace metal;

// ---- 16-bit floats

WEFT_FN f32 cast_f16_f32(f16 x) { return (f32)as_type<half>(x.bits); }
WEFT_FN f32 cast_bf16_f32(bf16 x) { return as_type<f32>((u32)x.bits << 16); }
WEFT_FN f16 cast_f32_f16(f32 x) { return {as_type<u16>((half)x)}; }

WEFT_FN bf16 cast_f32_bf16(f32 x) {
    u32 bits = as_type<u32>(x);
    if (x != x) return {(u16)(bits >> 16 | 0x40)};
    return {(u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// ---- functions of C's library that Metal has not; weft_c has these and Metal's own

namespace weft_c {
using namespace metal;

// Kahan: the rounding of exp(x) and of the logarithm cancel.
WEFT_FN f32 expm1(f32 x) {
    f32 u = exp(x);
    if (u == 1) return x;
    return u == 0 || isinf(u) ? u - 1 : (u - 1) * x / log(u);
}

WEFT_FN f32 log1p(f32 x) {
    f32 u = 1 + x;
    if (u == 1) return x;
    return u == 0 || isinf(u) ? log(u) : log(u) * x / (u - 1);
}

// Juffa's published polynomials, as in weft_math.h.
WEFT_FN f32 erf(f32 x) {
    f32 a = fabs(x), t = a < 4 ? a : a == a ? 4 : a, z = t * t;
    if (a < 0.927734375f) {
        f32 q = fma(z, -5.96761703e-4f, 4.99119423e-3f);
        q = fma(q, z, -2.67681349e-2f);
        q = fma(q, z, 1.12819925e-1f);
        q = fma(q, z, -3.76125336e-1f);
        q = fma(q, z, 1.28379166e-1f);
        return copysign(fma(q, a, a), x);
    }
    f32 u = fma(t, -1.72853470e-5f, 3.83197126e-4f);
    u = fma(u, z, fma(t, -3.88396438e-3f, 2.42546219e-2f));
    u = fma(u, t, -1.06777877e-1f);
    u = fma(u, t, -6.34846687e-1f);
    u = fma(u, t, -1.28717512e-1f);
    return copysign(1 - exp(fma(u, t, -t)), x);
}

WEFT_FN f32 erfc(f32 x) {
    f32 a = fabs(x);
    a = a > 10.0546875f ? 10.0546875f : a;
    f32 q = (a - 2) / (a + 2), s = a * a;
    f32 p = fma(q, -4.01139259e-4f, -1.23075210e-3f);
    p = fma(p, q, 1.31355342e-3f);
    p = fma(p, q, 8.63227434e-3f);
    p = fma(p, q, -8.05991981e-3f);
    p = fma(p, q, -5.42046614e-2f);
    p = fma(p, q, 1.64055392e-1f);
    p = fma(p, q, -1.66031361e-1f);
    p = fma(p, q, -9.27639827e-2f);
    p = fma(p, q, 2.76978403e-1f);
    f32 e = exp(-s), y = (e + e * fma(-a, a, s)) * ((1 + p) / fma(2, a, 1));
    return x < 0 ? 2 - y : y;
}

// lgamma(2 + z) for |z| <= 1/2: (1 - gamma) z + sum over k > 1 of (-1)^k (zeta(k) - 1) / k z^k.
WEFT_FN f32 lgamma_near_2(f32 z) {
    f32 q = fma(z, -4.49262367e-5f, 9.94575094e-5f);
    q = fma(q, z, -2.23154755e-4f);
    q = fma(q, z, 5.09669539e-4f);
    q = fma(q, z, -1.19275390e-3f);
    q = fma(q, z, 2.89051025e-3f);
    q = fma(q, z, -7.38555100e-3f);
    q = fma(q, z, 2.05808077e-2f);
    q = fma(q, z, -6.73523024e-2f);
    q = fma(q, z, 3.22467029e-1f);
    return fma(q, z, 4.22784328e-1f) * z;
}

// Stirling's series; or lgamma(x + 1) = lgamma(x) + log(x), by steps that lose no digit of x.
WEFT_FN f32 lgamma_above_0(f32 x) {
    if (x < 0.5f) return lgamma_near_2(x) - log1p(x) - log(x);
    if (x < 1.5f) return lgamma_near_2(x - 1) - log(x);
    if (x >= 8) {
        f32 r = 1 / x, z = r * r;
        f32 series = fma(fma(z, 7.93650794e-4f, -2.77777778e-3f), z, 8.33333333e-2f) * r;
        return isinf(x) ? x : fma(x - 0.5f, log(x), -x) + (0.918938533f + series);
    }
    f32 product = 1;
    for (; x > 2.5f; product *= x) x -= 1;
    return lgamma_near_2(x - 2) + log(product);
}

// lgamma(x) + lgamma(1 - x) = log(pi / |sin(pi x)|)
WEFT_FN f32 lgamma(f32 x) {
    if (!(x <= 0)) return lgamma_above_0(x);
    f32 from_whole = fabs(x - rint(x));
    if (isinf(x) || from_whole == 0) return INFINITY;
    return log(3.14159265f / sin(3.14159265f * from_whole)) - lgamma_above_0(1 - x);
}
}  // namespace weft_c

// ---- arithmetic

WEFT_FN f32 maximum_f32(f32 a, f32 b) { return a != a || a > b ? a : b; }  // NaN wins
WEFT_FN f32 minimum_f32(f32 a, f32 b) { return a != a || a < b ? a : b; }

// Truncated, and the nearest integer there is where the value is too large; NaN is 0.
WEFT_FN i32 cast_f32_i32(f32 x) {
    if (x != x) return 0;
    return x < -0x1p31f ? -0x7fffffff - 1 : x >= 0x1p31f ? 0x7fffffff : (i32)x;
}
WEFT_FN i64 cast_f32_i64(f32 x) {
    if (x != x) return 0;
    return x < -0x1p63f ? -0x7fffffffffffffff - 1 : x >= 0x1p63f ? 0x7fffffffffffffff : (i64)x;
}

// ---- checks: a kernel with one has the parameter weft_fault

#define WEFT_CHECKED(name) weft_##name
#define WEFT_FAULTS device atomic_int *weft_fault,
#define weft_set_fault(fault) atomic_store_explicit(weft_fault, fault, memory_order_relaxed)

#define WEFT_FLOATS(ROW) ROW(f32, )
#define WEFT_OF_C(op, d, f)                                                                        \
    WEFT_FN d op##_##d(d a) { return weft_c::op(a); }
#define WEFT_W(op) weft_c::op
typedef f32 wide;
#include "weft_gpu_math.cuh"
#include "weft_gpu_checks.h"
