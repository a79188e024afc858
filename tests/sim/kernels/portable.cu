// Sums of rows, by a warp of any size each: the text is HIP's as well (see test_hip.py).
#include "weft_cuda.cuh"

extern "C" __global__ void row_sums(const f32 *x, const bf16 *scale, f32 *y, i32 columns) {
    __shared__ f32 first[64];
    f32 sum = 0.0f;
    for (i32 i = threadIdx.x; i < columns; i += blockDim.x)
        sum = add_f32(sum, mul_f32(x[blockIdx.x * columns + i], cast_bf16_f32(scale[i])));
    for (i32 lane = blockDim.x / 2; lane; lane /= 2) sum += shuffle_xor(sum, lane);
    first[threadIdx.x] = sum;
    warp_sync();
    if (threadIdx.x == 0) y[blockIdx.x] = maximum_f32(first[blockDim.x - 1], 0.0f);
}
