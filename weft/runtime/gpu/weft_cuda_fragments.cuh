// weft_cuda_fragments.cuh: fragments as vectors, for the device and for the simulator alike.
//
//     bf16x8 a = load_matrices<8, false>(row);     // ldmatrix: where a row of 8 elements starts
//     mma(d0, d1, d2, d3, a, join(b0, b1));        // m16n8k16 with each sum by itself
#pragma once

template <class T> WEFT_FN vec<T, 4> join(vec<T, 2> a, vec<T, 2> b) {
    return {{a[0], a[1], b[0], b[1]}};
}
template <class T>
WEFT_FN vec<T, 8> join(vec<T, 2> a, vec<T, 2> b, vec<T, 2> c, vec<T, 2> d) {
    return {{a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]}};
}

// Pairs of N / 2 matrices of 8 rows; ACROSS: of their columns.
template <bool ACROSS> WEFT_FN void ldmatrix(u32 (&r)[2], const void *row) {
    if (ACROSS) ldmatrix_x2_trans(r, row);
    else ldmatrix_x2(r, row);
}
template <bool ACROSS> WEFT_FN void ldmatrix(u32 (&r)[4], const void *row) {
    if (ACROSS) ldmatrix_x4_trans(r, row);
    else ldmatrix_x4(r, row);
}
template <int N, bool ACROSS, class T> WEFT_FN vec<T, N> load_matrices(const T *row) {
    u32 r[N / 2];
    ldmatrix<ACROSS>(r, row);
    vec<T, N> v;
    for (int i = 0; i < N; i++) v[i].bits = (u16)(i % 2 ? r[i / 2] >> 16 : r[i / 2]);
    return v;
}

#define WEFT_MMA(T)                                                                                \
    WEFT_FN void mma(f32 &d0, f32 &d1, f32 &d2, f32 &d3, T##x8 a, T##x4 b) {                       \
        const u32 left[4] = {pack(a[0], a[1]), pack(a[2], a[3]), pack(a[4], a[5]),                 \
                             pack(a[6], a[7])};                                                    \
        const u32 right[2] = {pack(b[0], b[1]), pack(b[2], b[3])};                                 \
        f32 d[4] = {d0, d1, d2, d3};                                                               \
        mma_m16n8k16_##T(d, left, right);                                                          \
        d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];                                                \
    }
WEFT_MMA(f16)
WEFT_MMA(bf16)
