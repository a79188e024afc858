// y = 2 x by boxes of 32x32: three stages of loads by the copy engine, a store by it (sm_90).
#include "weft_cuda.cuh"

extern "C" __global__ void
tma_scale(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap y, i32 boxes) {
    __shared__ __align__(1024) f32 tile[3][32][32];
    __shared__ __align__(8) u64 full[3];
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        for (i32 s = 0; s < 3; s++) mbarrier_init(&full[s], 1);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (i32 s = 0; s < 3 && s < boxes; s++) {
            mbarrier_expect(&full[s], 4096);
            tma_load_2d(tile[s], x, &full[s], s * 32, blockIdx.x * 32);
        }
    for (i32 box = 0; box < boxes; box++) {
        i32 s = box % 3;
        mbarrier_wait(&full[s], box / 3 % 2);
        for (i32 i = threadIdx.x; i < 1024; i += 128) {
            f32 &at = tile[s][0][swizzle<128>(i * 4) / 4];
            at = 2.0f * at;
        }
        fence_proxy_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            tma_store_2d(y, tile[s], box * 32, blockIdx.x * 32);
            tma_store_commit();
            if (box + 3 < boxes) {
                tma_store_wait<0>();
                mbarrier_expect(&full[s], 4096);
                tma_load_2d(tile[s], x, &full[s], (box + 3) * 32, blockIdx.x * 32);
            }
        }
    }
    if (threadIdx.x == 0) tma_store_wait<0>();
#endif
}
