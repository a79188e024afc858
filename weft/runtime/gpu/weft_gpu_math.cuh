// weft_gpu_math.cuh: the scalar functions of weft/scalar/ops.py for GPU kernels.
//
//     y[i] = mul_f32(exp_f32(x[i]), select_f32(lt_f32(x[i], 0.0f), 2.0f, 3.0f));
//
// A name is op_dtype, as on the CPU (runtime/weft_vector.h, one lane). f16 and bf16 are f32 in
// registers. Integers wrap, and a division by zero gives 0. Shared by every language and the
// simulator, so it is what C, C++ and OpenCL C have in common. A prelude includes it last, and
// says before what is otherwise in its language:
//
//     WEFT_F64(text)       the text; nothing, where there is no f64
//     WEFT_FLOATS(ROW)     the float types, with the ending of C's functions of them
//     WEFT_OF_C(op, d, f)  an op of one float that C's library has
//     WEFT_CHECKED(name)   a checked function, where kernels are told by a parameter (WEFT_FAULTS)
//                          where faults go, because there are no variables of a device
#pragma once

#ifndef WEFT_FLOATS
#define WEFT_FLOATS(ROW) ROW(f32, f) WEFT_F64(ROW(f64, ))
#endif
#ifndef WEFT_CHECKED
#define WEFT_CHECKED(name) name
#define WEFT_FAULTS
#endif
#define WEFT_INTEGERS(ROW)                                                                         \
    ROW(i8, u8) ROW(i16, u16) ROW(i32, u32) ROW(i64, u64) ROW(u8, u8) ROW(u16, u16)                \
    ROW(u32, u32) ROW(u64, u64)

// ---- of every type

#define WEFT_COMPARE(d, T)                                                                         \
    WEFT_FN bool eq_##d(T a, T b) { return a == b; }                                               \
    WEFT_FN bool ne_##d(T a, T b) { return a != b; }                                               \
    WEFT_FN bool lt_##d(T a, T b) { return a < b; }                                                \
    WEFT_FN bool le_##d(T a, T b) { return a <= b; }                                               \
    WEFT_FN bool gt_##d(T a, T b) { return a > b; }                                                \
    WEFT_FN bool ge_##d(T a, T b) { return a >= b; }                                               \
    WEFT_FN T select_##d(bool c, T a, T b) { return c ? a : b; }                                   \
    WEFT_FN T splat_##d(T a) { return a; }
#define WEFT_LOGIC(d, T)                                                                           \
    WEFT_FN T and_##d(T a, T b) { return a & b; }                                                  \
    WEFT_FN T or_##d(T a, T b) { return a | b; }                                                   \
    WEFT_FN T xor_##d(T a, T b) { return a ^ b; }
#define WEFT_LARGER(d)                                                                             \
    WEFT_FN d maximum_##d(d a, d b) { return a < b ? b : a; }                                      \
    WEFT_FN d minimum_##d(d a, d b) { return b < a ? b : a; }

WEFT_COMPARE(bool, bool)
WEFT_LOGIC(bool, bool)
WEFT_LARGER(bool)
WEFT_FN bool not_bool(bool a) { return !a; }

// ---- integers: u is the unsigned type of that size, in which they wrap

#define WEFT_INTEGER(d, u)                                                                         \
    WEFT_COMPARE(d, d)                                                                             \
    WEFT_LOGIC(d, d)                                                                               \
    WEFT_LARGER(d)                                                                                 \
    WEFT_FN d not_##d(d a) { return ~a; }                                                          \
    WEFT_FN d add_##d(d a, d b) { return (u)a + (u)b; }                                            \
    WEFT_FN d sub_##d(d a, d b) { return (u)a - (u)b; }                                            \
    WEFT_FN d mul_##d(d a, d b) { return (u64)a * (u64)b; }                                        \
    WEFT_FN d neg_##d(d a) { return (u)0 - (u)a; }                                                 \
    WEFT_FN d abs_##d(d a) { return a < (d)0 ? neg_##d(a) : a; }                                   \
    WEFT_FN d div_##d(d a, d b) {                                                                  \
        return b == 0 ? (d)0 : (d)-1 < 0 && b == (d)-1 ? neg_##d(a) : (d)(a / b);                  \
    }                                                                                              \
    WEFT_FN d fmod_##d(d a, d b) { return b == 0 ? (d)0 : sub_##d(a, mul_##d(div_##d(a, b), b)); } \
    WEFT_FN d floormod_##d(d a, d b) {                                                             \
        d r = fmod_##d(a, b);                                                                      \
        return r != 0 && (d)(r ^ b) < 0 ? (d)(r + b) : r;                                          \
    }                                                                                              \
    WEFT_FN d floordiv_##d(d a, d b) {                                                             \
        d q = div_##d(a, b), r = fmod_##d(a, b);                                                   \
        return r != 0 && (d)(r ^ b) < 0 ? (d)(q - 1) : q;                                          \
    }                                                                                              \
    WEFT_FN d shl_##d(d a, d b) {                                                                  \
        return (u64)(i64)b < 8 * sizeof(d) ? (d)((u64)a << b) : (d)0;                              \
    }                                                                                              \
    WEFT_FN d shr_##d(d a, d b) {                                                                  \
        return (u64)(i64)b < 8 * sizeof(d) ? (d)(a >> b) : a < (d)0 ? (d)-1 : (d)0;                \
    }                                                                                              \
    WEFT_FN d pow_##d(d a, d b) {                                                                  \
        d result = 1;                                                                              \
        for (; b > 0; b = b >> 1, a = mul_##d(a, a))                                               \
            if (b & 1) result = mul_##d(result, a);                                                \
        return result;                                                                             \
    }                                                                                              \
    WEFT_FN d WEFT_CHECKED(checked_divisor_##d)(WEFT_FAULTS d b) {                                 \
        if (b == 0) weft_set_fault(2);                                                             \
        return b == 0 ? (d)1 : b;                                                                  \
    }
WEFT_INTEGERS(WEFT_INTEGER)

// Words of four bytes, the first one lowest; the sum of the products of bytes without a sign, of x,
// and with one, of y.
#define WEFT_PACK_BYTES(d)                                                                         \
    WEFT_FN i32 pack_bytes_##d(d a, d b, d c, d e) {                                               \
        return (i32)((u32)(u8)a | (u32)(u8)b << 8 | (u32)(u8)c << 16 | (u32)(u8)e << 24);          \
    }
WEFT_PACK_BYTES(i8)
WEFT_PACK_BYTES(u8)
WEFT_FN i32 dot_bytes_i32(i32 x, i32 y) {
    i32 sum = 0;
    for (int n = 0; n < 32; n += 8) sum += (i32)(u8)(x >> n) * (i32)(i8)(y >> n);
    return sum;
}
WEFT_FN i32 dot_turned_i32(i32 x, i32 y) { return dot_bytes_i32(y, x); }

// The first two words of Philox4x32-10 (Salmon et al. 2011).
WEFT_FN i64 philox_i64(i64 seed, i64 counter) {
    u32 c0 = (u32)(u64)counter, c1 = (u32)((u64)counter >> 32), c2 = 0, c3 = 0;
    u32 k0 = (u32)(u64)seed, k1 = (u32)((u64)seed >> 32);
    for (int round = 0; round < 10; round++) {
        u64 first = (u64)c0 * 0xD2511F53u, second = (u64)c2 * 0xCD9E8D57u;
        c0 = (u32)(second >> 32) ^ c1 ^ k0;
        c1 = (u32)second;
        c2 = (u32)(first >> 32) ^ c3 ^ k1;
        c3 = (u32)first;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (i64)((u64)c0 | (u64)c1 << 32);
}

WEFT_FN i64 WEFT_CHECKED(checked_index_i64)(WEFT_FAULTS i64 i, i64 n) {
    bool inside = (u64)i < (u64)n;
    if (!inside) weft_set_fault(1);
    return inside ? i : 0;
}

// ---- floats: f is the ending of C's names. Nothing is contracted but what fma says.

#ifndef WEFT_FUSED
#define WEFT_FUSED(f, a, b, c) fma##f(a, b, c)
#endif
#define WEFT_FLOAT(d, f)                                                                           \
    WEFT_COMPARE(d, d)                                                                             \
    WEFT_FN d add_##d(d a, d b) { return a + b; }                                                  \
    WEFT_FN d sub_##d(d a, d b) { return a - b; }                                                  \
    WEFT_FN d mul_##d(d a, d b) { return a * b; }                                                  \
    WEFT_FN d div_##d(d a, d b) { return a / b; }                                                  \
    WEFT_FN d neg_##d(d a) { return -a; }                                                          \
    WEFT_FN d abs_##d(d a) { return fabs##f(a); }                                                  \
    WEFT_FN d fma_##d(d a, d b, d c) { return WEFT_FUSED(f, a, b, c); }                            \
    WEFT_FN d fmod_##d(d a, d b) { return fmod##f(a, b); }                                         \
    WEFT_FN d floormod_##d(d a, d b) {                                                             \
        d r = fmod##f(a, b);                                                                       \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                           \
    }                                                                                              \
    WEFT_FN d pow_##d(d a, d b) { return pow##f(a, b); }                                           \
    WEFT_FN d atan2_##d(d a, d b) { return atan2##f(a, b); }                                       \
    WEFT_FN d sigmoid_##d(d a) { return 1 / (1 + exp##f(-a)); }                                    \
    WEFT_FN d round_##d(d a) { return rint##f(a); }
#ifndef WEFT_OF_C
#define WEFT_OF_C(op, d, f)                                                                        \
    WEFT_FN d op##_##d(d a) { return op##f(a); }
#endif
#define WEFT_FLOAT_OF_C(d, f)                                                                      \
    WEFT_OF_C(sqrt, d, f) WEFT_OF_C(rsqrt, d, f) WEFT_OF_C(floor, d, f) WEFT_OF_C(ceil, d, f)      \
    WEFT_OF_C(trunc, d, f) WEFT_OF_C(exp, d, f) WEFT_OF_C(exp2, d, f) WEFT_OF_C(expm1, d, f)       \
    WEFT_OF_C(log, d, f) WEFT_OF_C(log2, d, f) WEFT_OF_C(log10, d, f) WEFT_OF_C(log1p, d, f)       \
    WEFT_OF_C(tanh, d, f) WEFT_OF_C(erf, d, f) WEFT_OF_C(erfc, d, f) WEFT_OF_C(lgamma, d, f)       \
    WEFT_OF_C(sin, d, f) WEFT_OF_C(cos, d, f) WEFT_OF_C(tan, d, f) WEFT_OF_C(asin, d, f)           \
    WEFT_OF_C(acos, d, f) WEFT_OF_C(atan, d, f) WEFT_OF_C(sinh, d, f) WEFT_OF_C(cosh, d, f)        \
    WEFT_OF_C(asinh, d, f) WEFT_OF_C(acosh, d, f) WEFT_OF_C(atanh, d, f)
WEFT_FLOATS(WEFT_FLOAT)
WEFT_FLOATS(WEFT_FLOAT_OF_C)

// maximum and minimum of f32 are instructions; NaN wins in both.
WEFT_F64(WEFT_FN f64 maximum_f64(f64 a, f64 b) { return a != a || a > b ? a : b; })
WEFT_F64(WEFT_FN f64 minimum_f64(f64 a, f64 b) { return a != a || a < b ? a : b; })

#define WEFT_BITS(name, d, other)                                                                  \
    WEFT_FN other name##_##d(d a) {                                                                \
        union { d from; other to; } both;                                                          \
        both.from = a;                                                                             \
        return both.to;                                                                            \
    }
WEFT_BITS(bits, f32, i32)
WEFT_BITS(float_of, i32, f32)
WEFT_F64(WEFT_BITS(bits, f64, i64))
WEFT_F64(WEFT_BITS(float_of, i64, f64))

// ---- floats of 8 bits, as in runtime/weft_vector.h. E and M are their bits of exponent and mantissa,
// `top` the largest size but NaN's, which is the one above it or, where infinity is, three above.

#define WEFT_FLOAT_8(d, E, M, top)                                                                 \
    WEFT_FN f32 cast_##d##_f32(d x) {                                                              \
        i32 size = x.bits & 0x7f, bias = (128 - (1 << (E - 1))) << 23;                             \
        i32 bits = (size << (23 - M)) + bias;                                                      \
        f32 least = float_of_i32(bias + (1 << 23));                                                \
        if (size < 1 << M) bits = bits_f32(float_of_i32(bits + (1 << 23)) - least);                \
        if (size > top) bits = 0x7fc00000 | size << (23 - M);                                      \
        if (E == 5 && size == top) bits = 0x7f800000;                                              \
        return float_of_i32(bits | (i32)((u32)(x.bits & 0x80) << 24));                             \
    }                                                                                              \
    WEFT_FN d cast_f32_##d(f32 x) {                                                                \
        i32 a = bits_f32(x) & 0x7fffffff, bias = (128 - (1 << (E - 1))) << 23;                     \
        i32 one = bias + ((24 - M) << 23), up = (1 << (22 - M)) - 1;                               \
        i32 near = (a - bias + up + (a >> (23 - M) & 1)) >> (23 - M);                              \
        if (a < bias + (1 << 23)) near = bits_f32(float_of_i32(a) + float_of_i32(one)) - one;      \
        near = a > 0x7f800000 ? 0x7f : near > top ? top : near;                                    \
        d y = {(u8)(near | (bits_f32(x) < 0 ? 0x80 : 0))};                                         \
        return y;                                                                                  \
    }                                                                                              \
    WEFT_FN f32 round_##d##_f32(f32 x) { return cast_##d##_f32(cast_f32_##d(x)); }
WEFT_FLOAT_8(f8e4m3fn, 4, 3, 0x7e)
WEFT_FLOAT_8(f8e5m2, 5, 2, 0x7c)

WEFT_FN f32 round_f16_f32(f32 a) { return cast_f16_f32(cast_f32_f16(a)); }
WEFT_FN f32 round_bf16_f32(f32 a) { return cast_bf16_f32(cast_f32_bf16(a)); }

// ---- special functions

#ifndef WEFT_W
#define WEFT_W(op) op
#endif
#define WEFT_W_FN WEFT_FN
#include "weft_special.h"
#define WEFT_SPECIAL_OF_1(name)                                                                    \
    WEFT_FN f32 name##_f32(f32 a) { return (f32)weft_##name((wide)a); }                            \
    WEFT_F64(WEFT_FN f64 name##_f64(f64 a) { return weft_##name(a); })
#define WEFT_SPECIAL_OF_2(name)                                                                    \
    WEFT_FN f32 name##_f32(f32 a, f32 b) { return (f32)weft_##name((wide)a, (wide)b); }            \
    WEFT_F64(WEFT_FN f64 name##_f64(f64 a, f64 b) { return weft_##name(a, b); })
WEFT_SPECIAL_1(WEFT_SPECIAL_OF_1)
WEFT_SPECIAL_2(WEFT_SPECIAL_OF_2)

// ---- casts: a float is truncated to i64 (cast_f32_i64 is the prelude's), then wraps

#define WEFT_CAST(from, to)                                                                        \
    WEFT_FN to cast_##from##_##to(from a) { return (to)a; }
#define WEFT_CAST_TO_NUMBERS(from, unused)                                                         \
    WEFT_CAST(from, i8) WEFT_CAST(from, i16) WEFT_CAST(from, i32) WEFT_CAST(from, i64)             \
    WEFT_CAST(from, u8) WEFT_CAST(from, u16) WEFT_CAST(from, u32) WEFT_CAST(from, u64)             \
    WEFT_CAST(from, f32) WEFT_F64(WEFT_CAST(from, f64))                                            \
    WEFT_FN bool cast_##from##_bool(from a) { return a != 0; }
#define WEFT_CAST_TRUNCATED(from, via, to)                                                         \
    WEFT_FN to cast_##from##_##to(from a) { return (to)cast_##from##_##via(a); }
#define WEFT_CAST_FLOAT(from, unused)                                                              \
    WEFT_CAST_TRUNCATED(from, i32, i8) WEFT_CAST_TRUNCATED(from, i32, i16)                         \
    WEFT_CAST_TRUNCATED(from, i32, u8) WEFT_CAST_TRUNCATED(from, i32, u16)                         \
    WEFT_CAST_TRUNCATED(from, i64, u32) WEFT_CAST_TRUNCATED(from, i64, u64)                        \
    WEFT_CAST(from, f32) WEFT_F64(WEFT_CAST(from, f64))                                            \
    WEFT_FN bool cast_##from##_bool(from a) { return a != 0; }
WEFT_INTEGERS(WEFT_CAST_TO_NUMBERS)
WEFT_CAST_TO_NUMBERS(bool, )
WEFT_FLOATS(WEFT_CAST_FLOAT)

// ---- memory whose elements are something else in a register; macros, for pointers to any memory

#define load_bool(p) (*(p) != 0)
#define store_bool(p, value) (*(p) = (value))
#define load_f16(p) cast_f16_f32(*(p))
#define store_f16(p, value) (*(p) = cast_f32_f16(value))
#define load_f8e4m3fn(p) cast_f8e4m3fn_f32(*(p))
#define store_f8e4m3fn(p, value) (*(p) = cast_f32_f8e4m3fn(value))
#define load_f8e5m2(p) cast_f8e5m2_f32(*(p))
#define store_f8e5m2(p, value) (*(p) = cast_f32_f8e5m2(value))
#define load_bf16(p) cast_bf16_f32(*(p))
#define store_bf16(p, value) (*(p) = cast_f32_bf16(value))
