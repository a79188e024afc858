// weft_cuda.cuh: the simulator's side of runtime/gpu/weft_cuda.cuh: the same functions in C++.
//
// A test compares the declarations of the two. What each does is written in ../runtime.
#pragma once

#include "cuda_language.h"
#include "weft_gpu.cuh"

extern "C" {
f32 weft_f16_value(u16 bits);
u16 weft_f16_bits(f32 value);
u16 weft_bf16_bits(f32 value);
u32 weft_shared_address(const void *pointer);
void weft_check_failed(int fault);
extern u8 weft_dynamic_shared[];
void weft_barrier_sync(int id, int threads);
void weft_barrier_arrive(int id, int threads);
}

// ---- 16-bit floats

WEFT_FN f32 cast_f16_f32(f16 x) { return weft_f16_value(x.bits); }
WEFT_FN f32 cast_bf16_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
WEFT_FN f16 cast_f32_f16(f32 x) { return {weft_f16_bits(x)}; }
WEFT_FN bf16 cast_f32_bf16(f32 x) { return {weft_bf16_bits(x)}; }

WEFT_FN u32 pack(f16 low, f16 high) { return low.bits | (u32)high.bits << 16; }
WEFT_FN u32 pack(bf16 low, bf16 high) { return low.bits | (u32)high.bits << 16; }

WEFT_FN u32 cast_f32_tf32(f32 x) { return (__float_as_uint(x) + 0x1000) & 0xffffe000; }

// ---- arithmetic that C has no words for

WEFT_FN f32 maximum_f32(f32 a, f32 b) { return a != a || a > b ? a : b; }
WEFT_FN f32 minimum_f32(f32 a, f32 b) { return a != a || a < b ? a : b; }

WEFT_FN i32 cast_f32_i32(f32 x) { return weft_saturated_int(x); }
WEFT_FN i64 cast_f32_i64(f32 x) { return weft_saturated_long(x); }
WEFT_FN i32 cast_f64_i32(f64 x) { return weft_saturated_int(x); }
WEFT_FN i64 cast_f64_i64(f64 x) { return weft_saturated_long(x); }

WEFT_FN void weft_set_fault(i32 fault) { weft_check_failed(fault); }

// ---- shared memory

WEFT_FN u8 *dynamic_shared() { return weft_dynamic_shared; }
WEFT_FN u32 shared_address(const void *pointer) { return weft_shared_address(pointer); }

// ---- barriers of a part of the block

WEFT_FN void barrier_sync(int id, int threads) { weft_barrier_sync(id, threads); }
WEFT_FN void barrier_arrive(int id, int threads) { weft_barrier_arrive(id, threads); }

#include "weft_gpu_math.cuh"
#include "weft_cuda_copy.cuh"
#include "weft_cuda_mma.cuh"
#include "weft_cuda_wgmma.cuh"
