// weft_hip.cuh: what weft_cuda.cuh has for every GPU, for AMD's, whose warps may have 64 lanes.
#pragma once

#include <hip/hip_runtime.h>

#pragma clang fp contract(off)  // what is to be one fma says so

#define WEFT_FN __device__ __forceinline__

#include "weft_gpu.cuh"

// ---- 16-bit floats

WEFT_FN f32 cast_f16_f32(f16 x) { return (f32)__builtin_bit_cast(_Float16, x.bits); }
WEFT_FN f32 cast_bf16_f32(bf16 x) { return __builtin_bit_cast(f32, (u32)x.bits << 16); }
WEFT_FN f16 cast_f32_f16(f32 x) { return {__builtin_bit_cast(u16, (_Float16)x)}; }

WEFT_FN bf16 cast_f32_bf16(f32 x) {
    u32 bits = __builtin_bit_cast(u32, x);
    if (x != x) return {(u16)(bits >> 16 | 0x40)};
    return {(u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// ---- arithmetic that C has no words for

WEFT_FN f32 maximum_f32(f32 a, f32 b) { return a != a || a > b ? a : b; }
WEFT_FN f32 minimum_f32(f32 a, f32 b) { return a != a || a < b ? a : b; }

WEFT_FN i32 cast_f32_i32(f32 x) { return (i32)x; }
WEFT_FN i64 cast_f32_i64(f32 x) { return (i64)x; }
WEFT_FN i32 cast_f64_i32(f64 x) { return (i32)x; }
WEFT_FN i64 cast_f64_i64(f64 x) { return (i64)x; }

extern "C" __device__ i32 weft_fault;
__device__ i32 weft_fault;
WEFT_FN void weft_set_fault(i32 fault) { *(volatile i32 *)&weft_fault = fault; }

// ---- warps

template <class T> WEFT_FN T shuffle_xor(T value, i32 lanes) { return __shfl_xor(value, lanes); }
template <class T> WEFT_FN T shuffle_up(T value, i32 by) { return __shfl_up(value, by); }
template <class T> WEFT_FN T shuffle_down(T value, i32 by) { return __shfl_down(value, by); }
template <class T> WEFT_FN T shuffle_from(T value, i32 lane) { return __shfl(value, lane); }
WEFT_FN u64 warp_ballot(bool vote) { return __ballot(vote); }

WEFT_FN void warp_sync() {  // lanes run in step; the compiler must not move memory accesses
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}

// ---- shared memory

WEFT_FN u8 *dynamic_shared() {
    extern __shared__ __align__(1024) u8 weft_dynamic_shared[];
    return weft_dynamic_shared;
}

typedef f64 wide;
#include "weft_gpu_math.cuh"
