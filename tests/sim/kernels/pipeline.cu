// y = 3 x by a producer warp, which starts loads, and three consumer warps; two stages (sm_90).
#include "weft_cuda.cuh"

extern "C" __global__ void pipeline(const f32 *x, f32 *y, i32 steps) {
#if __CUDA_ARCH__ >= 900
    f32 *tile = (f32 *)dynamic_shared();
    u64 *full = (u64 *)(tile + 2 * 384), *empty = full + 2;
    if (threadIdx.x == 0) {
        for (i32 s = 0; s < 2; s++) {
            mbarrier_init(full + s, 1);
            mbarrier_init(empty + s, 96);
        }
        mbarrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= 96) {
        if (threadIdx.x == 96)
            for (i32 i = 0; i < steps; i++) {
                mbarrier_wait(empty + i % 2, 1 - i / 2 % 2);
                mbarrier_expect(full + i % 2, 1536);
                bulk_load(tile + i % 2 * 384, x + i * 384, 1536, full + i % 2);
            }
    } else {
        for (i32 i = 0; i < steps; i++) {
            mbarrier_wait(full + i % 2, i / 2 % 2);
            f32x4 v = load<f32x4>(tile + i % 2 * 384 + threadIdx.x * 4);
            mbarrier_arrive(empty + i % 2);
            for (i32 j = 0; j < 4; j++) v[j] *= 3.0f;
            store(y + i * 384 + threadIdx.x * 4, v);
        }
    }
#endif
}
