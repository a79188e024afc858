// Small kernels, one for each thing that the larger ones do not use.
#include "weft_cuda.cuh"

// Two warps fill, two read, and the fillers do not wait.
extern "C" __global__ void named_barriers(const f32 *x, f32 *y) {
    __shared__ f32 tile[64];
    if (threadIdx.x < 64) {
        tile[threadIdx.x] = x[threadIdx.x];
        barrier_arrive(1, 128);
    } else {
        barrier_sync(1, 128);
        y[threadIdx.x - 64] = tile[127 - threadIdx.x];
    }
}

// Halves of a warp meet apart.
extern "C" __global__ void half_warps(const f32 *x, f32 *y) {
    __shared__ f32 tile[32];
    i32 lane = threadIdx.x;
    tile[lane] = x[lane];
    if (lane < 16) {
        __syncwarp(0x0000ffff);
        y[lane] = tile[15 - lane];
    } else {
        __syncwarp(0xffff0000);
        y[lane] = tile[47 - lane];
    }
}

extern "C" __global__ void shuffles(const i32 *x, i32 *y) {
    i32 i = threadIdx.x, v = x[i];
    y[i] = __shfl_sync(0xffffffff, v, 5);
    y[32 + i] = __shfl_sync(0xffffffff, v, i + 1, 8);
    y[64 + i] = __shfl_up_sync(0xffffffff, v, 3);
    y[96 + i] = __shfl_down_sync(0xffffffff, v, 3, 16);
    y[128 + i] = __shfl_xor_sync(0xffffffff, (i64)v << 33, 7) >> 33;
    y[160 + i] = __ballot_sync(0xffffffff, v > 0);
    y[192 + i] = __any_sync(0xffffffff, v == 3) + 2 * __all_sync(0xffffffff, v > -100);
}

extern "C" __global__ void atomics(const i32 *x, i32 *y, u64 *wide, f64 *real) {
    i32 v = x[threadIdx.x];
    atomicMax(y, v);
    atomicMin(y + 1, v);
    atomicAnd(y + 2, v);
    atomicOr(y + 3, v);
    atomicXor(y + 4, v);
    for (i32 seen = 0, old = -1; seen != old;) {  // a sum, by compare and swap
        old = seen;
        seen = atomicCAS(y + 5, old, old + v);
    }
    atomicAdd(wide, (u64)v);
    atomicAdd(real, 0.5);
}

// d = a @ b for a 16x16 and b 16x8, b given by rows, or (tf32) a 16x8 and b 8x8.
extern "C" __global__ void mma_f16(const f16 *a, const f16 *b, f32 *d) {
    __shared__ __align__(16) f16 tile_a[16][16];
    __shared__ __align__(16) f16 tile_b[16][8];
    i32 lane = threadIdx.x;
    store(&tile_a[lane / 2][lane % 2 * 8], load<f16x8>(a + lane * 8));
    store(&tile_b[lane / 2][lane % 2 * 4], load<f16x4>(b + lane * 4));
    __syncwarp();
    u32 u[4], v[2];
    f32 acc[4] = {};
    ldmatrix_x4(u, &tile_a[lane % 16][lane / 16 * 8]);
    ldmatrix_x2_trans(v, &tile_b[lane % 16][0]);
    mma_m16n8k16_f16(acc, u, v);
    for (i32 i = 0; i < 4; i++) d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = acc[i];
}

extern "C" __global__ void mma_tf32(const f32 *a, const f32 *b, f32 *d) {
    i32 row = threadIdx.x / 4, k = threadIdx.x % 4;
    u32 u[4], v[2];
    f32 acc[4] = {};
    for (i32 i = 0; i < 4; i++) u[i] = cast_f32_tf32(a[(row + i % 2 * 8) * 8 + k + i / 2 * 4]);
    for (i32 i = 0; i < 2; i++) v[i] = cast_f32_tf32(b[(k + i * 4) * 8 + row]);
    mma_m16n8k8_tf32(acc, u, v);
    for (i32 i = 0; i < 4; i++) d[(row + i / 2 * 8) * 8 + k * 2 + i % 2] = acc[i];
}

// y = x through matrices: four of them transposed, and one as it is.
extern "C" __global__ void matrices(const u16 *x, u32 *y) {
    __shared__ __align__(16) u16 tile[32][8];
    store(&tile[threadIdx.x][0], load<vec<u16, 8>>(x + threadIdx.x * 8));
    __syncwarp();
    u32 four[4], one[1];
    ldmatrix_x4_trans(four, &tile[threadIdx.x][0]);
    ldmatrix_x1(one, &tile[threadIdx.x % 8][0]);
    for (i32 i = 0; i < 4; i++) y[i * 32 + threadIdx.x] = four[i];
    y[128 + threadIdx.x] = one[0];
}

// Rows of 8 of which the last are not all there: what is missing comes as zeros.
extern "C" __global__ void zero_fill(const f32 *x, f32 *y, i32 count) {
    __shared__ __align__(16) f32 tile[8][8];
    i32 i = threadIdx.x, left = max(0, min(8, count - 8 * i));
    cp_async_4(&tile[i][0], x + i * 8, left > 0 ? 4 : 0);
    cp_async_4(&tile[i][1], x + i * 8 + 1, left > 1 ? 4 : 0);
    cp_async_8(&tile[i][2], x + i * 8 + 2, 4 * max(0, min(2, left - 2)));
    cp_async_16(&tile[i][4], x + i * 8 + 4, 4 * max(0, min(4, left - 4)));
    cp_async_commit();
    cp_async_wait<0>();
    for (i32 j = 0; j < 8; j++) y[i * 8 + j] = tile[i][j];
}
