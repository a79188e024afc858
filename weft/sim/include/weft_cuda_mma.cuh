// weft_cuda_mma.cuh: the simulator's side of runtime/gpu/weft_cuda_mma.cuh.
#pragma once

extern "C" {
void weft_ldmatrix_x1(u32 *r, const void *row);
void weft_ldmatrix_x2(u32 *r, const void *row);
void weft_ldmatrix_x4(u32 *r, const void *row);
void weft_ldmatrix_x2_trans(u32 *r, const void *row);
void weft_ldmatrix_x4_trans(u32 *r, const void *row);
void weft_mma_f16(f32 *d, const u32 *a, const u32 *b);
void weft_mma_bf16(f32 *d, const u32 *a, const u32 *b);
void weft_mma_tf32(f32 *d, const u32 *a, const u32 *b);
}

WEFT_FN u32 pack(f16 low, f16 high) { return low.bits | (u32)high.bits << 16; }
WEFT_FN u32 pack(bf16 low, bf16 high) { return low.bits | (u32)high.bits << 16; }

WEFT_FN u32 cast_f32_tf32(f32 x) { return (__float_as_uint(x) + 0x1000) & 0xffffe000; }

WEFT_FN void ldmatrix_x1(u32 (&r)[1], const void *row) { weft_ldmatrix_x1(r, row); }
WEFT_FN void ldmatrix_x2(u32 (&r)[2], const void *row) { weft_ldmatrix_x2(r, row); }
WEFT_FN void ldmatrix_x4(u32 (&r)[4], const void *row) { weft_ldmatrix_x4(r, row); }
WEFT_FN void ldmatrix_x2_trans(u32 (&r)[2], const void *row) { weft_ldmatrix_x2_trans(r, row); }
WEFT_FN void ldmatrix_x4_trans(u32 (&r)[4], const void *row) { weft_ldmatrix_x4_trans(r, row); }

WEFT_FN void mma_m16n8k16_f16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    weft_mma_f16(d, a, b);
}
WEFT_FN void mma_m16n8k16_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    weft_mma_bf16(d, a, b);
}
WEFT_FN void mma_m16n8k8_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    weft_mma_tf32(d, a, b);
}

#include "weft_cuda_fragments.cuh"
