// weft_gpu.cuh: types of emitted GPU kernels, the same on a device and in the simulator.
//
//     #include "weft_cuda.cuh"                       // brings this file in
//     const f32x4 v = load<f32x4>(x + i);            // one 16-byte access
//     y[i] = cast_f32_bf16(v[0] + cast_bf16_f32(b[i]));
//
// No CUDA header is needed: NVRTC's wheel has none. 16-bit floats are storage; arithmetic is f32.
#pragma once

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e4m3fn { u8 bits; };
struct f8e5m2 { u8 bits; };

// N values that one instruction loads or stores: aligned to all their bytes, at most 16.
template <class T, int N> struct alignas(sizeof(T) * N) vec {
    T at[N];
    WEFT_FN T &operator[](int i) { return at[i]; }
    WEFT_FN const T &operator[](int i) const { return at[i]; }
};

#define WEFT_F64(text) text
#define WEFT_VECTOR(T, n) typedef vec<T, n> T##x##n;
#include "weft_gpu_vectors.h"

// One access of a whole vector; the address must be a multiple of its size.
template <class V> WEFT_FN V load(const void *address) { return *(const V *)address; }
template <class V> WEFT_FN void store(void *address, const V &value) { *(V *)address = value; }

// Combines a value with what is at the address, in any order with other threads.
#define WEFT_COMBINE(name, function, T, U) \
    WEFT_FN void name(T *address, T value) { function((U *)address, (U)value); }
WEFT_COMBINE(atomic_add, atomicAdd, i32, i32)
WEFT_COMBINE(atomic_add, atomicAdd, i64, u64)
WEFT_COMBINE(atomic_add, atomicAdd, f32, f32)
WEFT_COMBINE(atomic_add, atomicAdd, f64, f64)
WEFT_COMBINE(atomic_maximum, atomicMax, i32, i32)
WEFT_COMBINE(atomic_maximum, atomicMax, i64, i64)
WEFT_COMBINE(atomic_minimum, atomicMin, i32, i32)
WEFT_COMBINE(atomic_minimum, atomicMin, i64, i64)

// A box of a tensor in global memory, for the copy engine: what cuTensorMapEncodeTiled fills in.
// Kernels take it by value: `const __grid_constant__ TensorMap map`.
struct alignas(64) TensorMap { u64 words[16]; };

// How the copy engine permutes 16-byte pieces of a row in shared memory, so that columns are read
// without bank conflicts: piece p of a row is found at swizzle<128>(byte offset from a multiple of
// 1024 bytes), and so on for 64 (512) and 32 (256). With a SIZE, offsets count such elements.
template <int BYTES, int SIZE = 1> WEFT_FN u32 swizzle(u32 offset) {
    return offset ^ ((offset >> 3) & ((BYTES - 16) / SIZE));
}
