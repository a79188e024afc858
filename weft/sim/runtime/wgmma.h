// wgmma.h: the matrix units of sm_90a. Products are computed when they are waited for; until then
// d is NaN, and the tiles are marked as read.
//
// Descriptors and the layouts they stand for: runtime/gpu/weft_cuda_wgmma.cuh.
#pragma once

#include "mma.h"

struct Tile {  // a descriptor, taken apart
    u32 start, leading, stride, swizzle;
    bool by_rows, is_bf16;

    Tile(u64 bits, bool by_rows, bool is_bf16)
        : start((bits & 0x3fff) << 4), leading((bits >> 16 & 0x3fff) << 4),
          stride((bits >> 32 & 0x3fff) << 4), by_rows(by_rows), is_bf16(is_bf16) {
        const u32 bytes[] = {0, 128, 64, 32};
        swizzle = bytes[bits >> 62];
    }

    // Of row (of a, or column of b) r and depth k: the address inside shared memory.
    u32 at(u32 r, u32 k) const {
        u32 width = swizzle ? swizzle : 16, offset;
        if (!by_rows)
            offset = r % 8 * width + r / 8 * stride + k / 8 * (swizzle ? 16 : leading) + k % 8 * 2;
        else if (swizzle)
            offset = r * 2 % width + r * 2 / width * leading + k % 8 * width + k / 8 * stride;
        else
            offset = r % 8 * 2 + r / 8 * stride + k % 8 * 16 + k / 8 * leading;
        u32 address = start + offset;
        return swizzle ? (address & ~1023u) | swizzled(address & 1023, swizzle) : address;
    }

    f32 value(u32 r, u32 k) const {
        u16 bits = *(const u16 *)shared_pointer(at(r, k));
        return is_bf16 ? bf16_value(bits) : f16_value(bits);
    }
};

struct Product {
    f32 *d;
    std::vector<f32> before;  // of d, for the first product that adds to it
    Tile a, b;
    u32 columns;
    u32 row;  // of this warp's first value
    void *pc;
};

struct Products {  // of a thread
    std::vector<Product> open;
    std::vector<std::vector<Product>> groups;
    bool fenced;
};
static std::vector<Products> products;

// All that a warp reads of a tile, 16 bytes at a time.
static void mark_tile(const Tile &tile, u32 from, u32 to, void *pc, bool reads) {
    u32 step_r = tile.by_rows ? 8 : 1, step_k = tile.by_rows ? 1 : 8;
    for (u32 r = from; r < to; r += step_r)
        for (u32 k = 0; k < 16; k += step_k) {
            uintptr_t address = (uintptr_t)shared_pointer(tile.at(r, k));
            Piece p = {0, address, 16, 0, 0};
            if (reads) {
                Region *region = locate(address, 16, pc);
                if (region) check_fenced(*region, address, 16, site_at(pc, READ, SHARED, 16));
            }
            mark(p, false, reads);
        }
}

static void mark_tiles(const Product &p, void *pc, bool reads) {
    if (self->lane) return;  // one lane for its warp
    mark_tile(p.a, p.row, p.row + 16, pc, reads);
    mark_tile(p.b, 0, p.columns, pc, reads);
}

static void add(const Product &p) {
    if (!p.before.empty()) std::copy(p.before.begin(), p.before.end(), p.d);
    f32 a[2][16];
    for (u32 half = 0; half < 2; half++)
        for (u32 k = 0; k < 16; k++) a[half][k] = p.a.value(p.row + self->lane / 4 + 8 * half, k);
    for (u32 i = 0; i < p.columns / 2; i++) {
        u32 column = i / 4 * 8 + self->lane % 4 * 2 + i % 2;
        f32 sum = 0;
        for (u32 k = 0; k < 16; k++) sum += a[i / 2 % 2][k] * p.b.value(column, k);
        p.d[i] += sum;
    }
}

static bool is_pending(const Products &mine, const f32 *d) {
    for (const Product &p : mine.open)
        if (p.d == d) return true;
    for (auto &group : mine.groups)
        for (const Product &p : group)
            if (p.d == d) return true;
    return false;
}

extern "C" {
void weft_wgmma_fence() { products[self->index].fenced = true; }

void weft_wgmma(f32 *d, u64 a, u64 b, int columns, int a_by_rows, int b_by_rows, int is_bf16) {
    Products &mine = products[self->index];
    if (!mine.fenced) report(USAGE, CALLER, nullptr, -1, "wgmma without wgmma_fence", 0);
    meet_in_warp(all_lanes(self->warp), 0, 0, combine_nothing, false, CALLER);
    u32 row = self->warp % 4 * 16;
    Product p = {d, {}, Tile(a, a_by_rows, is_bf16), Tile(b, b_by_rows, is_bf16), (u32)columns, row,
                 CALLER};
    mark_tiles(p, CALLER, true);
    if (!is_pending(mine, d)) {
        p.before.assign(d, d + columns / 2);
        std::fill(d, d + columns / 2, __builtin_nanf(""));
    }
    mine.open.push_back(p);
}

void weft_wgmma_commit() {
    Products &mine = products[self->index];
    mine.groups.push_back(mine.open);
    mine.open.clear();
}

void weft_wgmma_wait(u32 pending) {
    Products &mine = products[self->index];
    mine.fenced = false;
    while (mine.groups.size() > pending) {
        for (const Product &p : mine.groups[0]) {
            add(p);
            mark_tiles(p, CALLER, false);
        }
        mine.groups.erase(mine.groups.begin());
    }
}
}
