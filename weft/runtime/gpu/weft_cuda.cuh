// weft_cuda.cuh: the instructions of NVIDIA GPUs that CUDA C++ has no words for, as functions.
//
//     #include "weft_cuda.cuh"
//     extern "C" __global__ void k(const f32 *x, f32 *y) { ... cp_async_16(tile, x); ... }
//
// Inline PTX stands in these files and nowhere else. weft/sim/include has the same functions in
// C++, so a kernel's text runs unchanged on the CPU; a test compares the declarations. What comes
// before shared_address is in weft_hip.cuh as well.
#pragma once

#define WEFT_FN __device__ __forceinline__

#include "weft_gpu.cuh"

// ---- 16-bit floats

WEFT_FN f32 cast_f16_f32(f16 x) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

WEFT_FN f32 cast_bf16_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

WEFT_FN f16 cast_f32_f16(f32 x) {
    f16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

WEFT_FN bf16 cast_f32_bf16(f32 x) {
    bf16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// ---- arithmetic that C has no words for

WEFT_FN f32 maximum_f32(f32 a, f32 b) {  // NaN wins
    f32 c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

WEFT_FN f32 minimum_f32(f32 a, f32 b) {
    f32 c;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}

// Truncated, and the nearest integer there is where the value is too large; NaN is 0.
WEFT_FN i32 cast_f32_i32(f32 x) { return (i32)x; }
WEFT_FN i64 cast_f32_i64(f32 x) { return (i64)x; }
WEFT_FN i32 cast_f64_i32(f64 x) { return (i32)x; }
WEFT_FN i64 cast_f64_i64(f64 x) { return (i64)x; }

// Faults of the program: 1, an index out of range; 2, an integer divided by zero. The launcher
// reads and clears the variable.
extern "C" __device__ i32 weft_fault;
__device__ i32 weft_fault;
WEFT_FN void weft_set_fault(i32 fault) { *(volatile i32 *)&weft_fault = fault; }

// ---- warps

template <class T> WEFT_FN T shuffle_xor(T value, i32 lanes) {
    return __shfl_xor_sync(0xffffffff, value, lanes);
}
template <class T> WEFT_FN T shuffle_up(T value, i32 by) {
    return __shfl_up_sync(0xffffffff, value, by);
}
template <class T> WEFT_FN T shuffle_down(T value, i32 by) {
    return __shfl_down_sync(0xffffffff, value, by);
}
template <class T> WEFT_FN T shuffle_from(T value, i32 lane) {
    return __shfl_sync(0xffffffff, value, lane);
}
WEFT_FN u64 warp_ballot(bool vote) { return __ballot_sync(0xffffffff, vote); }
WEFT_FN void warp_sync() { __syncwarp(); }

// ---- shared memory

// The block's dynamic shared memory; the launch says how many bytes.
WEFT_FN u8 *dynamic_shared() {
    extern __shared__ __align__(1024) u8 weft_dynamic_shared[];
    return weft_dynamic_shared;
}

// A generic pointer as an address inside shared memory.
WEFT_FN u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// ---- barriers of a part of the block: id 1 to 15, and how many threads take part (whole warps)

WEFT_FN void barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

WEFT_FN void barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

typedef f64 wide;
#include "weft_gpu_math.cuh"
#include "weft_cuda_copy.cuh"
#include "weft_cuda_mma.cuh"
#include "weft_cuda_wgmma.cuh"
