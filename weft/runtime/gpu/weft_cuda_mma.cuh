// weft_cuda_mma.cuh: the matrix units. d += a * b, for fragments spread over the lanes of a warp.
//
//     u32 a[4], b[2];  f32 d[4] = {};
//     ldmatrix_x4(a, &tile_a[lane % 16][lane / 16 * 8]);      // 16x16 of A, rows of 16 bytes
//     ldmatrix_x2(b, &tile_b[lane % 8][lane / 8 % 2 * 8]);    // 8x16 of B transposed
//     mma_m16n8k16_bf16(d, a, b);
//
// With g = lane / 4 and c = lane % 4 * 2, d holds (g, c), (g, c+1), (g+8, c), (g+8, c+1); a of
// m16n8k16 holds the pairs at (g, c), (g+8, c), (g, c+8), (g+8, c+8); b those at rows c and c+8 of
// column g. In m16n8k8 of tf32, with k = lane % 4: a (g, k), (g+8, k), (g, k+4), (g+8, k+4) and b
// rows k and k+4 of column g.
#pragma once

// Two values in a register, the first in the low half: an operand of mma.
WEFT_FN u32 pack(f16 low, f16 high) { return low.bits | (u32)high.bits << 16; }
WEFT_FN u32 pack(bf16 low, bf16 high) { return low.bits | (u32)high.bits << 16; }

// f32 with the 10 mantissa bits of tf32, ties away from zero.
WEFT_FN u32 cast_f32_tf32(f32 x) {
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

WEFT_FN void ldmatrix_x1(u32 (&r)[1], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0]) : "r"(shared_address(row)) : "memory");
}

WEFT_FN void ldmatrix_x2(u32 (&r)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
}

WEFT_FN void ldmatrix_x4(u32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row))
                 : "memory");
}

WEFT_FN void ldmatrix_x2_trans(u32 (&r)[2], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
}

WEFT_FN void ldmatrix_x4_trans(u32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row))
                 : "memory");
}

WEFT_FN void mma_m16n8k16_f16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3},"
                 " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

WEFT_FN void mma_m16n8k16_bf16(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3},"
                 " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

WEFT_FN void mma_m16n8k8_tf32(f32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3},"
                 " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#include "weft_cuda_fragments.cuh"
