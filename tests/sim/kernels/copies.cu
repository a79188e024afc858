// y = x, read in three ways.
#include "weft_cuda.cuh"

extern "C" __global__ void coalesced(const f32 *x, f32 *y) {
    i32 i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

extern "C" __global__ void strided(const f32 *x, f32 *y) {
    y[threadIdx.x] = x[threadIdx.x * 32];
}

extern "C" __global__ void by_four(const f32 *x, f32 *y) {
    i32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    *reinterpret_cast<float4 *>(y + i) = *reinterpret_cast<const float4 *>(x + i);
}

extern "C" __global__ void from_byte_four(const f32 *x, f32 *y) {
    i32 i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i + 1];
}
