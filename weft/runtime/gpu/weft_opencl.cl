// weft_opencl.cl: the prelude of OpenCL C 1.2 kernels: types, and what is not as in CUDA.
//
//     #include "weft_opencl.cl"
//     __kernel void k(__global const f32 *x, __global f32 *y) { ... y[i] = exp_f32(x[i]); ... }
//
// Nothing beyond OpenCL 1.2 is asked for; f64 where the device has it. No 16-bit arithmetic.
#pragma once

#pragma OPENCL FP_CONTRACT OFF  // what is to be one fma says so, where it is an instruction
#ifndef FP_FAST_FMAF
#define WEFT_FUSED(f, a, b, c) ((a) * (b) + (c))
#endif

#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define WEFT_F64(text) text
#else
#define WEFT_F64(text)
#endif

#define WEFT_FN static inline

typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef float f32;
WEFT_F64(typedef double f64;)

typedef struct { u16 bits; } f16;
typedef struct { u16 bits; } bf16;
typedef struct { u8 bits; } f8e4m3fn;
typedef struct { u8 bits; } f8e5m2;

#define WEFT_VECTOR(T, n) typedef struct { T at[n]; } __attribute__((aligned(n * sizeof(T)))) T##x##n;
#include "weft_gpu_vectors.h"

// ---- 16-bit floats

WEFT_FN f32 cast_f16_f32(f16 x) { return vload_half(0, (const half *)&x.bits); }
WEFT_FN f32 cast_bf16_f32(bf16 x) { return as_float((u32)x.bits << 16); }
WEFT_FN f16 cast_f32_f16(f32 x) {
    f16 y;
    vstore_half_rte(x, 0, (half *)&y.bits);
    return y;
}

WEFT_FN bf16 cast_f32_bf16(f32 x) {
    u32 bits = as_uint(x);
    bf16 y = {x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16};
    return y;
}

// ---- arithmetic

WEFT_FN f32 maximum_f32(f32 a, f32 b) { return a != a || a > b ? a : b; }  // NaN wins
WEFT_FN f32 minimum_f32(f32 a, f32 b) { return a != a || a < b ? a : b; }

WEFT_FN i32 cast_f32_i32(f32 x) { return convert_int_sat(x); }  // truncated; NaN is 0
WEFT_FN i64 cast_f32_i64(f32 x) { return convert_long_sat(x); }
WEFT_F64(WEFT_FN i32 cast_f64_i32(f64 x) { return convert_int_sat(x); })
WEFT_F64(WEFT_FN i64 cast_f64_i64(f64 x) { return convert_long_sat(x); })

// ---- checks: a kernel with one has the parameter weft_fault

#define WEFT_CHECKED(name) weft_##name
#define WEFT_FAULTS volatile __global i32 *weft_fault,
#define weft_set_fault(fault) atomic_xchg(weft_fault, fault)

#define WEFT_FLOATS(ROW) ROW(f32, ) WEFT_F64(ROW(f64, ))
#ifdef cl_khr_fp64
typedef f64 wide;
#else
typedef f32 wide;
#endif
#include "weft_gpu_math.cuh"
#include "weft_gpu_checks.h"
