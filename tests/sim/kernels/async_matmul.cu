// c = a @ b as in matmul.cu, 16x16 of c by a block, the next tiles copied while these are used.
#include "weft_cuda.cuh"

__device__ __forceinline__ void fetch(f32 (&tile_a)[16][16], f32 (&tile_b)[16][16], const f32 *a,
                                      const f32 *b, i32 k, i32 size) {
    i32 i = threadIdx.x / 4, j = threadIdx.x % 4 * 4;
    cp_async_16(&tile_a[i][j], a + (blockIdx.y * 16 + i) * size + k + j);
    cp_async_16(&tile_b[i][j], b + (k + i) * size + blockIdx.x * 16 + j);
    cp_async_commit();
}

extern "C" __global__ void async_matmul(const f32 *a, const f32 *b, f32 *c, i32 size) {
    __shared__ __align__(16) f32 tile_a[2][16][16];
    __shared__ __align__(16) f32 tile_b[2][16][16];
    i32 i = threadIdx.x / 4, j = threadIdx.x % 4 * 4;
    f32x4 acc = {};
    fetch(tile_a[0], tile_b[0], a, b, 0, size);
    for (i32 k = 0, stage = 0; k < size; k += 16, stage ^= 1) {
        if (k + 16 < size) {
            fetch(tile_a[stage ^ 1], tile_b[stage ^ 1], a, b, k + 16, size);
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        for (i32 kk = 0; kk < 16; kk++) {
            const f32x4 v = load<f32x4>(&tile_b[stage][kk][j]);
            for (i32 n = 0; n < 4; n++) acc[n] += tile_a[stage][i][kk] * v[n];
        }
        __syncthreads();
    }
    store(c + (blockIdx.y * 16 + i) * size + blockIdx.x * 16 + j, acc);
}
