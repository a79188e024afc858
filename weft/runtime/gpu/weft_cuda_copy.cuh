// weft_cuda_copy.cuh: asynchronous copies and the barriers that they complete on.
//
//     cp_async_16(&tile[i], x + i);  cp_async_commit();  ...  cp_async_wait<0>();  __syncthreads();
//     mbarrier_expect(&full, 4096);  tma_load_2d(tile, map, &full, column, row);
//     mbarrier_wait(&full, 0);
#pragma once

// ---- cp.async (sm_80): each thread copies, in groups; the rest past `bytes` is set to zero

WEFT_FN void cp_async_4(void *shared, const void *global, u32 bytes = 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes) : "memory");
}

WEFT_FN void cp_async_8(void *shared, const void *global, u32 bytes = 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes) : "memory");
}

WEFT_FN void cp_async_16(void *shared, const void *global, u32 bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
                 "l"(global), "r"(bytes) : "memory");
}

WEFT_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Wait until at most PENDING of this thread's newest groups are under way.
template <int PENDING> WEFT_FN void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#if __CUDA_ARCH__ >= 900

// ---- mbarrier (sm_90): a phase ends when all threads have arrived, and all expected bytes

WEFT_FN void mbarrier_init(u64 *barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals) : "memory");
}

// After mbarrier_init, before the barrier is first used by the copy engine.
WEFT_FN void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

WEFT_FN void mbarrier_arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

// Arrive, and expect that many more bytes in this phase.
WEFT_FN void mbarrier_expect(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::
                 "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Expect that many more bytes in this phase, with no arrival.
WEFT_FN void mbarrier_expect_more(u64 *barrier, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::
                 "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Wait for the end of the phase of that parity: 0 for the first one, then 1, 0, 1 ...
WEFT_FN void mbarrier_wait(u64 *barrier, u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "AGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN;\n"
                 "}" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

// Ordinary writes to shared memory of this thread, made visible to the copy engine and to wgmma;
// a barrier must follow before another thread starts them.
WEFT_FN void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- the copy engine (TMA, sm_90): one thread starts the copy of a box

WEFT_FN void tma_load_1d(void *shared, const TensorMap &map, u64 *barrier, i32 x) {
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3}], [%2];" ::"r"(shared_address(shared)), "l"(&map),
                 "r"(shared_address(barrier)), "r"(x) : "memory");
}

WEFT_FN void tma_load_2d(void *shared, const TensorMap &map, u64 *barrier, i32 x, i32 y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(shared)), "l"(&map),
                 "r"(shared_address(barrier)), "r"(x), "r"(y) : "memory");
}

WEFT_FN void tma_load_3d(void *shared, const TensorMap &map, u64 *barrier, i32 x, i32 y, i32 z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(shared)), "l"(&map),
                 "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z) : "memory");
}

WEFT_FN void tma_store_1d(const TensorMap &map, const void *shared, i32 x) {
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%2}], [%1];" ::
                 "l"(&map), "r"(shared_address(shared)), "r"(x) : "memory");
}

WEFT_FN void tma_store_2d(const TensorMap &map, const void *shared, i32 x, i32 y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::
                 "l"(&map), "r"(shared_address(shared)), "r"(x), "r"(y) : "memory");
}

WEFT_FN void tma_store_3d(const TensorMap &map, const void *shared, i32 x, i32 y, i32 z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group"
                 " [%0, {%2, %3, %4}], [%1];" ::"l"(&map), "r"(shared_address(shared)), "r"(x),
                 "r"(y), "r"(z) : "memory");
}

WEFT_FN void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Wait until at most PENDING of this thread's newest groups still read shared memory.
template <int PENDING> WEFT_FN void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Bytes in a row, with no map: addresses and size are multiples of 16.
WEFT_FN void bulk_load(void *shared, const void *global, u32 bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)), "l"(global), "r"(bytes),
                 "r"(shared_address(barrier)) : "memory");
}

#endif
