// cuda_language.h: what CUDA C++ has and C++ lacks, for a kernel's text built by g++.
//
// Qualifiers, built-in variables and vector types, barriers, shuffles, atomics and math. The work
// is done by ../runtime, which sees each access through -fsanitize=thread. All functions here are
// inlined, so that the return address of a call is a line of the kernel.
#pragma once

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // the plain C header: <cmath> takes long to parse
#include <math.h>

#define WEFT_FN inline __attribute__((always_inline, unused))

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __restrict__ __restrict

// Arrays in shared memory are static, each behind a gap that nobody may touch. build.py finds both
// among the symbols, by the names of the gaps.
#define WEFT_JOIN(a, b) a##b
#define WEFT_NAME(a, b) WEFT_JOIN(a, b)
#define WEFT_SHARED static __attribute__((used))
#define __shared__ WEFT_SHARED char WEFT_NAME(weft_gap_, __COUNTER__)[256]; WEFT_SHARED

// ---- built-in variables: const, so that reading one is no access to memory that a kernel makes

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };
extern const uint3 threadIdx __asm__("weft_thread_index");
extern const uint3 blockIdx __asm__("weft_block_index");
extern const dim3 blockDim __asm__("weft_block_dim");
extern const dim3 gridDim __asm__("weft_grid_dim");
extern const int warpSize __asm__("weft_warp_size");

#define WEFT_VECTORS(name, type)                                                                   \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                       \
    struct alignas(sizeof(type) > 4 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; };         \
    WEFT_FN name##2 make_##name##2(type x, type y) { return {x, y}; }                              \
    WEFT_FN name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
WEFT_VECTORS(float, float)
WEFT_VECTORS(int, int)
WEFT_VECTORS(uint, unsigned)
WEFT_VECTORS(double, double)

// ---- barriers and fences

extern "C" {
void weft_syncthreads();
void weft_syncwarp(unsigned long long mask);
void weft_threadfence();
unsigned long long weft_shuffle(unsigned long long mask, unsigned long long value, int lane);
unsigned long long weft_ballot(unsigned long long mask, int vote);
unsigned long long weft_active_lanes();
int weft_lane();
}

WEFT_FN void __syncthreads() { weft_syncthreads(); }
WEFT_FN void __syncwarp(unsigned mask = 0xffffffff) { weft_syncwarp(mask); }
WEFT_FN void __threadfence() { weft_threadfence(); }
WEFT_FN void __threadfence_block() { __atomic_signal_fence(5); }

// ---- operations of a warp

template <class T>
WEFT_FN T weft_shuffle_value(unsigned long long mask, T value, int lane) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = weft_shuffle(mask, bits, lane);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

// A lane outside its group of `width` lanes keeps its own value.
WEFT_FN int weft_in_group(int lane, int width) {
    int self = weft_lane();
    return lane / width == self / width && lane >= 0 ? lane : self;
}

template <class T> WEFT_FN T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return weft_shuffle_value(mask, value, weft_lane() / width * width + lane % width);
}
template <class T> WEFT_FN T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
    return weft_shuffle_value(mask, value, weft_in_group(weft_lane() ^ other, width));
}
template <class T> WEFT_FN T __shfl_down_sync(unsigned mask, T value, int by, int width = 32) {
    return weft_shuffle_value(mask, value, weft_in_group(weft_lane() + by, width));
}
template <class T> WEFT_FN T __shfl_up_sync(unsigned mask, T value, int by, int width = 32) {
    return weft_shuffle_value(mask, value, weft_in_group(weft_lane() - by, width));
}

WEFT_FN unsigned __ballot_sync(unsigned mask, int vote) { return weft_ballot(mask, vote); }
WEFT_FN int __any_sync(unsigned mask, int vote) { return weft_ballot(mask, vote) != 0; }
WEFT_FN int __all_sync(unsigned mask, int vote) { return weft_ballot(mask, !vote) == 0; }
WEFT_FN unsigned __activemask() { return weft_active_lanes(); }

// Of HIP, with no mask and warps of up to 64.
template <class T> WEFT_FN T __shfl(T value, int lane, int width = warpSize) {
    return weft_shuffle_value(~0ull, value, weft_lane() / width * width + lane % width);
}
template <class T> WEFT_FN T __shfl_xor(T value, int other, int width = warpSize) {
    return weft_shuffle_value(~0ull, value, weft_in_group(weft_lane() ^ other, width));
}
template <class T> WEFT_FN T __shfl_down(T value, int by, int width = warpSize) {
    return weft_shuffle_value(~0ull, value, weft_in_group(weft_lane() + by, width));
}
template <class T> WEFT_FN T __shfl_up(T value, int by, int width = warpSize) {
    return weft_shuffle_value(~0ull, value, weft_in_group(weft_lane() - by, width));
}
WEFT_FN unsigned long long __ballot(int vote) { return weft_ballot(~0ull, vote); }

// ---- atomics

template <class T> T weft_atomic(int op, T *address, T value, T compare);  // ops: runtime/sync.h
#define WEFT_ATOMIC(name, op)                                                                      \
    template <class T> WEFT_FN T name(T *address, decltype(T()) value) {                           \
        return weft_atomic(op, address, value, value);                                             \
    }
WEFT_ATOMIC(atomicAdd, 0)
WEFT_ATOMIC(atomicMax, 1)
WEFT_ATOMIC(atomicMin, 2)
WEFT_ATOMIC(atomicAnd, 3)
WEFT_ATOMIC(atomicOr, 4)
WEFT_ATOMIC(atomicXor, 5)
WEFT_ATOMIC(atomicExch, 6)
template <class T>
WEFT_FN T atomicCAS(T *address, decltype(T()) compare, decltype(T()) value) {
    return weft_atomic(7, address, value, compare);
}

// ---- loads and stores with a cache hint

template <class T> WEFT_FN T __ldg(const T *address) { return *address; }
template <class T> WEFT_FN T __ldcs(const T *address) { return *address; }
template <class T> WEFT_FN T __ldcg(const T *address) { return *address; }
template <class T> WEFT_FN void __stcs(T *address, decltype(T()) value) { *address = value; }
template <class T> WEFT_FN void __stcg(T *address, decltype(T()) value) { *address = value; }

// ---- bytes: g++ would expand these itself, unseen

extern "C" {
void *weft_memcpy(void *to, const void *from, unsigned long bytes);
void *weft_memset(void *to, int value, unsigned long bytes);
}
#define memcpy weft_memcpy
#define memset weft_memset

// ---- math that C has not

WEFT_FN float rsqrtf(float x) { return 1.0f / sqrtf(x); }
WEFT_FN double rsqrt(double x) { return 1.0 / sqrt(x); }
#define __expf expf
#define __logf logf
#define __sinf sinf
#define __cosf cosf
#define __powf powf
WEFT_FN float __fdividef(float x, float y) { return x / y; }
WEFT_FN float __frcp_rn(float x) { return 1.0f / x; }
WEFT_FN float __fadd_rn(float x, float y) { return x + y; }
WEFT_FN float __fmul_rn(float x, float y) { return x * y; }
WEFT_FN float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
WEFT_FN float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

// As a device converts: the nearest integer that there is, and 0 for NaN.
WEFT_FN int weft_saturated_int(double x) {
    return x != x ? 0 : x < -0x1p31 ? -0x7fffffff - 1 : x >= 0x1p31 ? 0x7fffffff : (int)x;
}
WEFT_FN long long weft_saturated_long(double x) {
    const long long most = 0x7fffffffffffffff;
    return x != x ? 0 : x < -0x1p63 ? -most - 1 : x >= 0x1p63 ? most : (long long)x;
}
WEFT_FN int __float2int_rn(float x) { return weft_saturated_int(rintf(x)); }
WEFT_FN int __popc(unsigned x) { return __builtin_popcount(x); }
WEFT_FN int __clz(int x) { return x ? __builtin_clz(x) : 32; }
WEFT_FN int __ffs(int x) { return __builtin_ffs(x); }
WEFT_FN unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
WEFT_FN unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned __int128)x * y >> 64;
}
WEFT_FN unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
WEFT_FN int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
WEFT_FN float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
WEFT_FN float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
WEFT_FN double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }

#define WEFT_MIN_MAX(type)                                                                         \
    WEFT_FN type min(type x, type y) { return y < x ? y : x; }                                     \
    WEFT_FN type max(type x, type y) { return x < y ? y : x; }
WEFT_MIN_MAX(int)
WEFT_MIN_MAX(unsigned)
WEFT_MIN_MAX(long long)
WEFT_MIN_MAX(unsigned long long)
WEFT_MIN_MAX(float)
WEFT_MIN_MAX(double)

// ---- the launch: the simulator finds a kernel by name, and gives it pointers to its arguments

struct weft_kernel {
    const char *name;
    unsigned count;
    const unsigned *bytes;  // of each argument
    void (*call)(void **args);
};

template <unsigned... I> struct weft_indices {};

template <class... A> struct weft_signature {
    static constexpr unsigned bytes[] = {sizeof(A)..., 0};

    template <void (*KERNEL)(A...), unsigned... I>
    __attribute__((no_sanitize("thread"))) static void call(void **args, weft_indices<I...>) {
        KERNEL(*(A *)args[I]...);
    }
    template <void (*KERNEL)(A...)> static void call(void **args) {
        call<KERNEL>(args, weft_indices<__integer_pack(sizeof...(A))...>());
    }
    template <void (*KERNEL)(A...)> static constexpr weft_kernel entry(const char *name) {
        return {name, sizeof...(A), bytes, call<KERNEL>};
    }
};

template <class... A> weft_signature<A...> weft_signature_of(void (*)(A...));

// Behind the kernels' text: a table of them, and a gap behind the last shared array.
#define WEFT_KERNELS_BEGIN                                                                         \
    WEFT_SHARED char weft_gap_last[1024];                                                          \
    extern "C" {                                                                                   \
    extern const weft_kernel weft_kernels[];                                                       \
    const weft_kernel weft_kernels[] = {
#define WEFT_KERNEL(name) decltype(weft_signature_of(&name))::entry<&name>(#name),
#define WEFT_KERNELS_END                                                                           \
    {}                                                                                             \
    }                                                                                              \
    ;                                                                                              \
    }
