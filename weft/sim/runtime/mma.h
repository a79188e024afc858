// mma.h: ldmatrix and mma.sync, by the layout of fragments in runtime/gpu/weft_cuda_mma.cuh.
#pragma once

#include "copy.h"

static f32 from_bits(u32 bits) {
    f32 x;
    memcpy(&x, &bits, 4);
    return x;
}

static f32 f16_value(u16 h) {
    u32 sign = (u32)(h >> 15) << 31, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31) return from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    return (sign ? -1.0f : 1.0f) * mantissa / 16777216.0f;
}

static u16 f16_bits(f32 x) {  // to nearest, ties to even
    u32 u;
    memcpy(&u, &x, 4);
    u32 sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7e00;
    if (magnitude >= 0x477ff000) return sign | 0x7c00;
    if (magnitude < 0x38800000) {  // below the smallest normal number: count units of 2^-24
        f32 units = from_bits(magnitude) * 16777216.0f;
        return sign | (u32)__builtin_rintf(units);
    }
    u32 rounded = (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return sign | (rounded - (112 << 10));
}

static f32 bf16_value(u16 b) { return from_bits((u32)b << 16); }

static u16 bf16_bits(f32 x) {
    u32 u;
    memcpy(&u, &x, 4);
    if (x != x) return u >> 16 | 0x40;
    return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

extern "C" {
f32 weft_f16_value(u16 h) { return f16_value(h); }
u16 weft_f16_bits(f32 x) { return f16_bits(x); }
u16 weft_bf16_bits(f32 x) { return bf16_bits(x); }
}

// ---- ldmatrix: lane l of every eight gives a row of 16 bytes

template <int N, bool TRANSPOSED> static void load_matrices(const Threads &some) {
    for (Thread *t : some)
        for (int i = 0; i < N; i++) {
            int row = t->lane / 4, column = t->lane % 4 * 2;
            auto at = [&](int r, int c) { return ((const u16 *)some[i * 8 + r]->given)[c]; };
            u16 low = TRANSPOSED ? at(column, row) : at(row, column);
            u16 high = TRANSPOSED ? at(column + 1, row) : at(row, column + 1);
            ((u32 *)t->taken)[i] = low | (u32)high << 16;
        }
}

template <int N, bool TRANSPOSED> static void ldmatrix(u32 *r, const void *row, void *pc) {
    if (self->lane < 8 * N) touch((uintptr_t)row, 16, READ, pc);
    meet_in_warp(all_lanes(self->warp), row, r, load_matrices<N, TRANSPOSED>, false, pc);
}

extern "C" {
void weft_ldmatrix_x1(u32 *r, const void *row) { ldmatrix<1, false>(r, row, CALLER); }
void weft_ldmatrix_x2(u32 *r, const void *row) { ldmatrix<2, false>(r, row, CALLER); }
void weft_ldmatrix_x4(u32 *r, const void *row) { ldmatrix<4, false>(r, row, CALLER); }
void weft_ldmatrix_x2_trans(u32 *r, const void *row) { ldmatrix<2, true>(r, row, CALLER); }
void weft_ldmatrix_x4_trans(u32 *r, const void *row) { ldmatrix<4, true>(r, row, CALLER); }
}

// ---- mma: a lane gives its fragments of a and b, and d to add to

struct Fragments {
    const u32 *a, *b;
};

static void multiply(const Threads &some, const f32 (&a)[16][16], const f32 (&b)[16][8],
                     int depth) {
    for (Thread *t : some)
        for (int i = 0; i < 4; i++) {
            int row = t->lane / 4 + i / 2 * 8, column = t->lane % 4 * 2 + i % 2;
            f32 sum = 0;
            for (int k = 0; k < depth; k++) sum += a[row][k] * b[k][column];
            ((f32 *)t->taken)[i] += sum;
        }
}

template <f32 (*VALUE)(u16)> static void multiply_halves(const Threads &some) {
    f32 a[16][16], b[16][8];
    for (Thread *t : some) {
        const Fragments &f = *(const Fragments *)t->given;
        int g = t->lane / 4, c = t->lane % 4 * 2;
        for (int i = 0; i < 4; i++)
            for (int half = 0; half < 2; half++)
                a[g + i % 2 * 8][c + i / 2 * 8 + half] = VALUE(f.a[i] >> 16 * half);
        for (int i = 0; i < 2; i++)
            for (int half = 0; half < 2; half++)
                b[c + i * 8 + half][g] = VALUE(f.b[i] >> 16 * half);
    }
    multiply(some, a, b, 16);
}

static void multiply_tf32(const Threads &some) {
    f32 a[16][16], b[16][8];
    const u32 kept = 0xffffe000;  // the hardware ignores the rest
    for (Thread *t : some) {
        const Fragments &f = *(const Fragments *)t->given;
        int g = t->lane / 4, k = t->lane % 4;
        for (int i = 0; i < 4; i++) a[g + i % 2 * 8][k + i / 2 * 4] = from_bits(f.a[i] & kept);
        for (int i = 0; i < 2; i++) b[k + i * 4][g] = from_bits(f.b[i] & kept);
    }
    multiply(some, a, b, 8);
}

static void mma(f32 *d, const u32 *a, const u32 *b, Combine combine, void *pc) {
    Fragments f = {a, b};
    meet_in_warp(all_lanes(self->warp), &f, d, combine, false, pc);
}

extern "C" {
void weft_mma_f16(f32 *d, const u32 *a, const u32 *b) {
    mma(d, a, b, multiply_halves<f16_value>, CALLER);
}
void weft_mma_bf16(f32 *d, const u32 *a, const u32 *b) {
    mma(d, a, b, multiply_halves<bf16_value>, CALLER);
}
void weft_mma_tf32(f32 *d, const u32 *a, const u32 *b) { mma(d, a, b, multiply_tf32, CALLER); }
}
