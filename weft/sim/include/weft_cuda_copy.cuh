// weft_cuda_copy.cuh: the simulator's side of runtime/gpu/weft_cuda_copy.cuh.
#pragma once

extern "C" {
void weft_cp_async_4(void *to, const void *from, u32 bytes);
void weft_cp_async_8(void *to, const void *from, u32 bytes);
void weft_cp_async_16(void *to, const void *from, u32 bytes);
void weft_cp_async_commit();
void weft_cp_async_wait(u32 pending);
void weft_mbarrier_init(void *barrier, u32 arrivals);
void weft_mbarrier_init_fence();
void weft_mbarrier_arrive(void *barrier);
void weft_mbarrier_expect(void *barrier, u32 bytes);
void weft_mbarrier_expect_more(void *barrier, u32 bytes);
void weft_mbarrier_wait(void *barrier, u32 parity);
void weft_fence_proxy_async();
void weft_tma_load(void *to, const TensorMap *map, void *barrier, u32 rank, i32 x, i32 y, i32 z);
void weft_tma_store(const TensorMap *map, const void *from, u32 rank, i32 x, i32 y, i32 z);
void weft_tma_store_commit();
void weft_tma_store_wait(u32 pending);
void weft_bulk_load(void *to, const void *from, u32 bytes, void *barrier);
}

// ---- cp.async

WEFT_FN void cp_async_4(void *shared, const void *global, u32 bytes = 4) {
    weft_cp_async_4(shared, global, bytes);
}
WEFT_FN void cp_async_8(void *shared, const void *global, u32 bytes = 8) {
    weft_cp_async_8(shared, global, bytes);
}
WEFT_FN void cp_async_16(void *shared, const void *global, u32 bytes = 16) {
    weft_cp_async_16(shared, global, bytes);
}
WEFT_FN void cp_async_commit() { weft_cp_async_commit(); }
template <int PENDING> WEFT_FN void cp_async_wait() { weft_cp_async_wait(PENDING); }

// ---- mbarrier

WEFT_FN void mbarrier_init(u64 *barrier, u32 arrivals) { weft_mbarrier_init(barrier, arrivals); }
WEFT_FN void mbarrier_init_fence() { weft_mbarrier_init_fence(); }
WEFT_FN void mbarrier_arrive(u64 *barrier) { weft_mbarrier_arrive(barrier); }
WEFT_FN void mbarrier_expect(u64 *barrier, u32 bytes) { weft_mbarrier_expect(barrier, bytes); }
WEFT_FN void mbarrier_expect_more(u64 *barrier, u32 bytes) {
    weft_mbarrier_expect_more(barrier, bytes);
}
WEFT_FN void mbarrier_wait(u64 *barrier, u32 parity) { weft_mbarrier_wait(barrier, parity); }
WEFT_FN void fence_proxy_async() { weft_fence_proxy_async(); }

// ---- the copy engine

WEFT_FN void tma_load_1d(void *shared, const TensorMap &map, u64 *barrier, i32 x) {
    weft_tma_load(shared, &map, barrier, 1, x, 0, 0);
}
WEFT_FN void tma_load_2d(void *shared, const TensorMap &map, u64 *barrier, i32 x, i32 y) {
    weft_tma_load(shared, &map, barrier, 2, x, y, 0);
}
WEFT_FN void tma_load_3d(void *shared, const TensorMap &map, u64 *barrier, i32 x, i32 y, i32 z) {
    weft_tma_load(shared, &map, barrier, 3, x, y, z);
}
WEFT_FN void tma_store_1d(const TensorMap &map, const void *shared, i32 x) {
    weft_tma_store(&map, shared, 1, x, 0, 0);
}
WEFT_FN void tma_store_2d(const TensorMap &map, const void *shared, i32 x, i32 y) {
    weft_tma_store(&map, shared, 2, x, y, 0);
}
WEFT_FN void tma_store_3d(const TensorMap &map, const void *shared, i32 x, i32 y, i32 z) {
    weft_tma_store(&map, shared, 3, x, y, z);
}
WEFT_FN void tma_store_commit() { weft_tma_store_commit(); }
template <int PENDING> WEFT_FN void tma_store_wait() { weft_tma_store_wait(PENDING); }
WEFT_FN void bulk_load(void *shared, const void *global, u32 bytes, u64 *barrier) {
    weft_bulk_load(shared, global, bytes, barrier);
}
