// Squares of 32x32 through shared memory; blocks of 32x8 threads.
#include "weft_cuda.cuh"

extern "C" __global__ void transpose(const f32 *x, f32 *y, i32 rows, i32 columns) {
    __shared__ f32 tile[32][33];
    i32 column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.x;
    for (i32 i = threadIdx.y; i < 32; i += 8)
        tile[i][threadIdx.x] = x[(blockIdx.y * 32 + i) * columns + column];
    __syncthreads();
    for (i32 i = threadIdx.y; i < 32; i += 8)
        y[(blockIdx.x * 32 + i) * rows + row] = tile[threadIdx.x][i];
}
