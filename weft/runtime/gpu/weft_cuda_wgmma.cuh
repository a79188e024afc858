// weft_cuda_wgmma.cuh: the matrix units of sm_90a, which a warpgroup (four warps) shares.
//
//     u64 a = wgmma_descriptor<128>(tile_a, 0, 1024), b = wgmma_descriptor<128>(tile_b, 0, 1024);
//     wgmma_fence();
//     for (i32 k = 0; k < 4; k++) wgmma_bf16<64, false, false>(d, a + 2 * k, b + 2 * k);  // 32 bytes
//     wgmma_commit();
//     wgmma_wait<0>();                                      // d holds nothing before this
//
// d += a * b, with a of 64x16 and b of 16xN in shared memory. Thread t holds of d the row
// t / 32 * 16 + t % 32 / 4 (+ 8 where i / 2 is odd), column i / 4 * 8 + t % 4 * 2 + i % 2.
#pragma once

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Where a tile lies, with what swizzle (0, 32, 64 or 128 bytes). By k: rows of a (columns of b)
// have k contiguous, one swizzle long; `stride` bytes from eight rows to the next; `leading` bytes
// between halves of 8 k, with no swizzle. By rows (of a, columns of b): these are contiguous, one
// swizzle long; `stride` bytes from eight k to the next, `leading` from one swizzle of them to the
// next.
template <int SWIZZLE> WEFT_FN u64 wgmma_descriptor(const void *tile, u32 leading, u32 stride) {
    const u64 mode = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : SWIZZLE == 32 ? 3 : 0;
    u64 start = (shared_address(tile) & 0x3ffff) >> 4;
    return start | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | mode << 62;
}

// Before the first wgmma, and whenever other code has written d since.
WEFT_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WEFT_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Wait until at most PENDING of the newest groups are under way.
template <int PENDING> WEFT_FN void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// An instruction names all its registers: eight of d at a time, as text and as operands.
#define WEFT_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WEFT_R1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define WEFT_R2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define WEFT_R3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define WEFT_R4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define WEFT_R5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define WEFT_R6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define WEFT_R7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define WEFT_R8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define WEFT_R9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define WEFT_R10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define WEFT_R11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define WEFT_R12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define WEFT_R13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define WEFT_R14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define WEFT_R15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define WEFT_D(i)                                                                                  \
    "+f"(d[8 * i]), "+f"(d[8 * i + 1]), "+f"(d[8 * i + 2]), "+f"(d[8 * i + 3]),                    \
        "+f"(d[8 * i + 4]), "+f"(d[8 * i + 5]), "+f"(d[8 * i + 6]), "+f"(d[8 * i + 7])
#define WEFT_R_16 WEFT_R0
#define WEFT_D_16 WEFT_D(0)
#define WEFT_R_32 WEFT_R_16 ", " WEFT_R1
#define WEFT_D_32 WEFT_D_16, WEFT_D(1)
#define WEFT_R_64 WEFT_R_32 ", " WEFT_R2 ", " WEFT_R3
#define WEFT_D_64 WEFT_D_32, WEFT_D(2), WEFT_D(3)
#define WEFT_R_128                                                                                 \
    WEFT_R_64 ", "                                                                                 \
    WEFT_R4 ", " WEFT_R5 ", " WEFT_R6 ", " WEFT_R7
#define WEFT_D_128                                                                                 \
    WEFT_D_64,                                                                                     \
    WEFT_D(4), WEFT_D(5), WEFT_D(6), WEFT_D(7)
#define WEFT_R_256                                                                                 \
    WEFT_R_128 ", "                                                                                \
    WEFT_R8 ", " WEFT_R9 ", " WEFT_R10 ", " WEFT_R11 ", "                                          \
    WEFT_R12 ", " WEFT_R13 ", " WEFT_R14 ", " WEFT_R15
#define WEFT_D_256                                                                                 \
    WEFT_D_128,                                                                                    \
    WEFT_D(8), WEFT_D(9), WEFT_D(10), WEFT_D(11),                                                  \
    WEFT_D(12), WEFT_D(13), WEFT_D(14), WEFT_D(15)

#define WEFT_WGMMA(size, type, a_at, b_at, a_rows_at, b_rows_at)                                   \
    if constexpr (N == size)                                                                       \
    asm volatile("{\n.reg .pred yes;\nsetp.eq.u32 yes, 0, 0;\n"                                    \
                 "wgmma.mma_async.sync.aligned.m64n" #size "k16.f32." type "." type " {"           \
                 WEFT_R_##size "}, %" #a_at ", %" #b_at ", yes, 1, 1, %" #a_rows_at                \
                 ", %" #b_rows_at ";\n}"                                                           \
                 : WEFT_D_##size                                                                   \
                 : "l"(a), "l"(b), "n"((int)A_BY_ROWS), "n"((int)B_BY_ROWS) : "memory")
#define WEFT_WGMMA_SIZES(type)                                                                     \
    WEFT_WGMMA(16, type, 8, 9, 10, 11);                                                            \
    WEFT_WGMMA(32, type, 16, 17, 18, 19);                                                          \
    WEFT_WGMMA(64, type, 32, 33, 34, 35);                                                          \
    WEFT_WGMMA(128, type, 64, 65, 66, 67);                                                         \
    WEFT_WGMMA(256, type, 128, 129, 130, 131);                                                     \
    static_assert(N == 16 || N == 32 || N == 64 || N == 128 || N == 256, "not spelled here")

template <int N, bool A_BY_ROWS, bool B_BY_ROWS>
WEFT_FN void wgmma_bf16(f32 (&d)[N / 2], u64 a, u64 b) {
    WEFT_WGMMA_SIZES("bf16");
}

template <int N, bool A_BY_ROWS, bool B_BY_ROWS>
WEFT_FN void wgmma_f16(f32 (&d)[N / 2], u64 a, u64 b) {
    WEFT_WGMMA_SIZES("f16");
}

// Registers per thread of this warpgroup from here on: a multiple of 8 from 24 to 240.
template <int COUNT> WEFT_FN void registers_claim() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> WEFT_FN void registers_release() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
