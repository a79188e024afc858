// Sums of all of x by atomics, and by the last block to finish (sum[1] counts blocks).
#include "weft_cuda.cuh"

extern "C" __global__ void atomic_sum(const f32 *x, f32 *sum, i32 count) {
    __shared__ f32 part;
    if (threadIdx.x == 0) part = 0.0f;
    __syncthreads();
    i32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(&part, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(sum, part);
}

extern "C" __global__ void last_block_sum(const f32 *x, f32 *parts, u32 *done, f32 *sum) {
    __shared__ u32 before;
    f32 v = x[blockIdx.x * 32 + threadIdx.x];
    for (i32 lane = 16; lane; lane /= 2) v += __shfl_down_sync(0xffffffff, v, lane);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = v;
        __threadfence();
        before = atomicAdd(done, 1);
        __threadfence();
    }
    __syncthreads();
    if (before == gridDim.x - 1) {
        f32 total = threadIdx.x < gridDim.x ? parts[threadIdx.x] : 0.0f;
        for (i32 lane = 16; lane; lane /= 2) total += __shfl_down_sync(0xffffffff, total, lane);
        if (threadIdx.x == 0) *sum = total;
    }
}
