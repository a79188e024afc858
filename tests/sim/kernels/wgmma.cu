// c = a @ b for bf16, 64 rows of a by 64 columns of b, by a warpgroup of sm_90a. Tiles arrive by
// the copy engine in the 128-byte swizzle: rows of a are 64 k, and so are columns of b, of which
// the transpose is given.
#include "weft_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128)
wgmma_matmul(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, f32 *c,
             i32 columns, i32 depth) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(1024) bf16 tile_a[64][64];
    __shared__ __align__(1024) bf16 tile_b[64][64];
    __shared__ __align__(8) u64 full;
    i32 thread = threadIdx.x, row = blockIdx.y * 64, column = blockIdx.x * 64;
    if (thread == 0) {
        mbarrier_init(&full, 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    f32 d[32] = {};
    for (i32 k = 0; k < depth; k += 64) {
        if (thread == 0) {
            mbarrier_expect(&full, 2 * 8192);
            tma_load_2d(tile_a, a, &full, k, row);
            tma_load_2d(tile_b, b, &full, k, column);
        }
        mbarrier_wait(&full, k / 64 % 2);
        u64 at = wgmma_descriptor<128>(tile_a, 0, 1024);
        u64 by = wgmma_descriptor<128>(tile_b, 0, 1024);
        wgmma_fence();
        for (i32 i = 0; i < 4; i++) wgmma_bf16<64, false, false>(d, at + 2 * i, by + 2 * i);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
    }
    for (i32 i = 0; i < 32; i++) {
        i32 to = row + thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
        c[to * columns + column + i / 4 * 8 + thread % 4 * 2 + i % 2] = d[i];
    }
#endif
}

// c of 64x128 from f16 a of 64x32 (by k, 64-byte rows) and b of 32x128 by rows, written by threads.
extern "C" __global__ void __launch_bounds__(128)
wgmma_by_rows(const f16 *a, const f16 *b, f32 *c) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(1024) u8 tile_a[64 * 64];
    __shared__ __align__(1024) u8 tile_b[2 * 32 * 128];
    i32 thread = threadIdx.x;
    for (i32 i = thread; i < 256; i += 128)
        store(tile_a + swizzle<64>(i * 16), load<f16x8>(a + i * 8));
    for (i32 i = thread; i < 512; i += 128) {
        i32 k = i / 16, n = i % 16 * 8;  // the two halves of n lie 4096 bytes apart
        store(tile_b + n / 64 * 4096 + swizzle<128>(k * 128 + n % 64 * 2), load<f16x8>(b + i * 8));
    }
    fence_proxy_async();
    __syncthreads();
    f32 d[64] = {};
    wgmma_fence();
    for (i32 i = 0; i < 2; i++)
        wgmma_f16<128, false, true>(d, wgmma_descriptor<64>(tile_a, 0, 512) + 2 * i,
                             wgmma_descriptor<128>(tile_b, 4096, 1024) + 128 * i);
    wgmma_commit();
    wgmma_wait<0>();
    for (i32 i = 0; i < 64; i++) {
        i32 row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
        c[row * 128 + i / 4 * 8 + thread % 4 * 2 + i % 2] = d[i];
    }
#endif
}
