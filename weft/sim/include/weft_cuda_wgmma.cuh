// weft_cuda_wgmma.cuh: the simulator's side of runtime/gpu/weft_cuda_wgmma.cuh.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

extern "C" {
void weft_wgmma_fence();
void weft_wgmma(f32 *d, u64 a, u64 b, int columns, int a_by_rows, int b_by_rows, int is_bf16);
void weft_wgmma_commit();
void weft_wgmma_wait(u32 pending);
}

template <int SWIZZLE> WEFT_FN u64 wgmma_descriptor(const void *tile, u32 leading, u32 stride) {
    const u64 mode = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;
    u64 start = (shared_address(tile) & 0x3ffff) >> 4;
    return start | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | mode << 62;
}

WEFT_FN void wgmma_fence() { weft_wgmma_fence(); }
WEFT_FN void wgmma_commit() { weft_wgmma_commit(); }
template <int PENDING> WEFT_FN void wgmma_wait() { weft_wgmma_wait(PENDING); }

template <int N, bool A_BY_ROWS, bool B_BY_ROWS>
WEFT_FN void wgmma_bf16(f32 (&d)[N / 2], u64 a, u64 b) {
    weft_wgmma(d, a, b, N, A_BY_ROWS, B_BY_ROWS, 1);
}
template <int N, bool A_BY_ROWS, bool B_BY_ROWS>
WEFT_FN void wgmma_f16(f32 (&d)[N / 2], u64 a, u64 b) {
    weft_wgmma(d, a, b, N, A_BY_ROWS, B_BY_ROWS, 0);
}

template <int COUNT> WEFT_FN void registers_claim() {}
template <int COUNT> WEFT_FN void registers_release() {}

#endif
