// weft_base.cuh: the simulator's side of what runtime/gpu/ has for every GPU: weft_hip.cuh, and the
// beginning of weft_cuda.cuh.
//
// A test compares the declarations. What each does is written in ../runtime.
#pragma once

#include "cuda_language.h"
#include "weft_gpu.cuh"

extern "C" {
f32 weft_f16_value(u16 bits);
u16 weft_f16_bits(f32 value);
u16 weft_bf16_bits(f32 value);
void weft_check_failed(int fault);
extern u8 weft_dynamic_shared[];
}

// ---- 16-bit floats

WEFT_FN f32 cast_f16_f32(f16 x) { return weft_f16_value(x.bits); }
WEFT_FN f32 cast_bf16_f32(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
WEFT_FN f16 cast_f32_f16(f32 x) { return {weft_f16_bits(x)}; }
WEFT_FN bf16 cast_f32_bf16(f32 x) { return {weft_bf16_bits(x)}; }

// ---- arithmetic that C has no words for

WEFT_FN f32 maximum_f32(f32 a, f32 b) { return a != a || a > b ? a : b; }
WEFT_FN f32 minimum_f32(f32 a, f32 b) { return a != a || a < b ? a : b; }

WEFT_FN i32 cast_f32_i32(f32 x) { return weft_saturated_int(x); }
WEFT_FN i64 cast_f32_i64(f32 x) { return weft_saturated_long(x); }
WEFT_FN i32 cast_f64_i32(f64 x) { return weft_saturated_int(x); }
WEFT_FN i64 cast_f64_i64(f64 x) { return weft_saturated_long(x); }

WEFT_FN void weft_set_fault(i32 fault) { weft_check_failed(fault); }

// ---- warps

template <class T> WEFT_FN T shuffle_xor(T value, i32 lanes) { return __shfl_xor(value, lanes); }
template <class T> WEFT_FN T shuffle_up(T value, i32 by) { return __shfl_up(value, by); }
template <class T> WEFT_FN T shuffle_down(T value, i32 by) { return __shfl_down(value, by); }
template <class T> WEFT_FN T shuffle_from(T value, i32 lane) { return __shfl(value, lane); }
WEFT_FN u64 warp_ballot(bool vote) { return __ballot(vote); }
WEFT_FN void warp_sync() { weft_syncwarp(~0ull); }

// ---- shared memory

WEFT_FN u8 *dynamic_shared() { return weft_dynamic_shared; }

typedef f64 wide;
#include "weft_gpu_math.cuh"
