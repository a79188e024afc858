// A block of 128 threads for each row.
#include "weft_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128)
softmax(const f32 *__restrict__ x, f32 *__restrict__ y, i32 columns) {
    __shared__ f32 part[4];
    const f32 *row = x + blockIdx.x * columns;
    f32 most = -1e30f;
    for (i32 i = threadIdx.x; i < columns; i += 128) most = fmaxf(most, row[i]);
    for (i32 lane = 16; lane; lane /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, lane));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    most = fmaxf(fmaxf(part[0], part[1]), fmaxf(part[2], part[3]));
    __syncthreads();
    f32 sum = 0.0f;
    for (i32 i = threadIdx.x; i < columns; i += 128) sum += __expf(row[i] - most);
    for (i32 lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(0xffffffff, sum, lane);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = part[0] + part[1] + part[2] + part[3];
    for (i32 i = threadIdx.x; i < columns; i += 128)
        y[blockIdx.x * columns + i] = __expf(row[i] - most) / sum;
}
