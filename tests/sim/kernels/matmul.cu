// c = a @ b for square matrices: 32x32 of c by a block of 8x8 threads, 4x4 by each.
#include "weft_cuda.cuh"

extern "C" __global__ void matmul(const f32 *a, const f32 *b, f32 *c, i32 size) {
    __shared__ f32 tile_a[16][36], tile_b[16][32];
    i32 thread = threadIdx.y * 8 + threadIdx.x;
    i32 row = blockIdx.y * 32, column = blockIdx.x * 32;
    f32 acc[4][4] = {};
    for (i32 k = 0; k < size; k += 16) {
        for (i32 i = thread; i < 128; i += 64) {
            const f32x4 v = load<f32x4>(a + (row + i / 4) * size + k + i % 4 * 4);
            for (i32 j = 0; j < 4; j++) tile_a[i % 4 * 4 + j][i / 4] = v[j];
            const f32x4 w = load<f32x4>(b + (k + i / 8) * size + column + i % 8 * 4);
            store(&tile_b[i / 8][i % 8 * 4], w);
        }
        __syncthreads();
#pragma unroll
        for (i32 kk = 0; kk < 16; kk++) {
            const f32x4 u = load<f32x4>(&tile_a[kk][threadIdx.y * 4]);
            const f32x4 v = load<f32x4>(&tile_b[kk][threadIdx.x * 4]);
            for (i32 i = 0; i < 4; i++)
                for (i32 j = 0; j < 4; j++) acc[i][j] += u[i] * v[j];
        }
        __syncthreads();
    }
    for (i32 i = 0; i < 4; i++) {
        f32x4 v;
        for (i32 j = 0; j < 4; j++) v[j] = acc[i][j];
        store(c + (row + threadIdx.y * 4 + i) * size + column + threadIdx.x * 4, v);
    }
}
