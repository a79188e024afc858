// weft_cuda.cuh: the simulator's side of runtime/gpu/weft_cuda.cuh: the same functions in C++.
#pragma once

#include "weft_base.cuh"

extern "C" {
u32 weft_shared_address(const void *pointer);
void weft_barrier_sync(int id, int threads);
void weft_barrier_arrive(int id, int threads);
}

WEFT_FN u32 shared_address(const void *pointer) { return weft_shared_address(pointer); }

// ---- barriers of a part of the block

WEFT_FN void barrier_sync(int id, int threads) { weft_barrier_sync(id, threads); }
WEFT_FN void barrier_arrive(int id, int threads) { weft_barrier_arrive(id, threads); }

#include "weft_cuda_copy.cuh"
#include "weft_cuda_mma.cuh"
#include "weft_cuda_wgmma.cuh"
