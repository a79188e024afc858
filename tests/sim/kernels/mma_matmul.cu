// c = a @ b with bf16 on the matrix units: 32x16 of c by a block of two warps; b is 16 rows a step.
#include "weft_cuda.cuh"

extern "C" __global__ void mma_matmul(const bf16 *a, const bf16 *b, f32 *c, i32 size) {
    __shared__ __align__(16) bf16 tile_a[32][24];
    __shared__ __align__(16) bf16 tile_b[16][24];
    i32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    i32 row = blockIdx.y * 32, column = blockIdx.x * 16;
    f32 acc[2][4] = {};
    for (i32 k = 0; k < size; k += 16) {
        store(&tile_a[thread / 2][thread % 2 * 8],
              load<bf16x8>(a + (row + thread / 2) * size + k + thread % 2 * 8));
        if (thread < 32)
            store(&tile_b[thread / 2][thread % 2 * 8],
                  load<bf16x8>(b + (k + thread / 2) * size + column + thread % 2 * 8));
        __syncthreads();
        u32 u[4], v[2];
        ldmatrix_x4(u, &tile_a[warp * 16 + lane % 16][lane / 16 * 8]);
        for (i32 half = 0; half < 2; half++) {
            ldmatrix_x2_trans(v, &tile_b[lane % 16][half * 8]);
            mma_m16n8k16_bf16(acc[half], u, v);
        }
        __syncthreads();
    }
    for (i32 half = 0; half < 2; half++) {
        f32 *at = c + (row + warp * 16 + lane / 4) * size + column + half * 8 + lane % 4 * 2;
        store(at, f32x2{acc[half][0], acc[half][1]});
        store(at + 8 * size, f32x2{acc[half][2], acc[half][3]});
    }
}
