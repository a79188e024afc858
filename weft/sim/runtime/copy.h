// copy.h: asynchronous copies: cp.async, mbarriers, the copy engine.
//
// A copy is done as late as the rules allow: cp.async when its group is waited for, the copy
// engine's when no thread can go on without it. Until then its destination is marked as arriving
// (and, for a store of the copy engine, its source as leaving), so that who does not wait is found.
#pragma once

#include "sync.h"

static void mark(const Piece &p, bool arriving, bool value) {
    uintptr_t address = arriving ? p.to : p.from;
    Region *r = find(address, p.bytes + p.zeros);
    if (!r || !r->cells) return;
    Cell *last = r->cell(address + p.bytes + p.zeros - 1);
    for (Cell *c = r->cell(address); c <= last; c++) {
        if (arriving) c->write.arriving = value;
        else c->write.leaving = value;
    }
}

static void move_bytes(const Piece &p) {
    if (p.bytes) memcpy((void *)p.to, (void *)p.from, p.bytes);
    memset((void *)(p.to + p.bytes), 0, p.zeros);
}

// ---- cp.async

static void copy_by_thread(void *to, const void *from, u32 size, u32 bytes, void *pc) {
    uintptr_t source = (uintptr_t)from, target = (uintptr_t)to;
    if (bytes > size) report(USAGE, pc, nullptr, -1, "bytes", bytes), bytes = size;
    if (bytes) touch_part(source, size, bytes, READ, pc, true);
    touch(target, size, WRITE, pc);
    Piece p = {target, source, bytes, size - bytes, 0};
    mark(p, true, true);
    self->group.push_back(p);
}

extern "C" {
void weft_cp_async_4(void *to, const void *from, u32 n) { copy_by_thread(to, from, 4, n, CALLER); }
void weft_cp_async_8(void *to, const void *from, u32 n) { copy_by_thread(to, from, 8, n, CALLER); }
void weft_cp_async_16(void *to, const void *from, u32 n) {
    copy_by_thread(to, from, 16, n, CALLER);
}

void weft_cp_async_commit() {
    self->groups.push_back(self->group);
    self->group.clear();
}

void weft_cp_async_wait(u32 pending) {
    while (self->groups.size() > pending) {
        for (const Piece &p : self->groups[0]) {
            move_bytes(p);
            mark(p, true, false);
        }
        self->groups.erase(self->groups.begin());
    }
}
}

// ---- mbarrier

struct Mbarrier {
    uintptr_t address;
    u32 expected, arrived, phase;
    i64 bytes;  // expected and not there yet
    Clock clock, ended;  // of all arrivals, and of those up to the last end of a phase
    Threads waiting;
    const Thread *by;  // who initialised it, in which line, and whether the copy engine knows
    void *pc;
    bool fenced;
};
static std::vector<Mbarrier> mbarriers;  // of the block

static Mbarrier *mbarrier_at(void *address, void *pc) {
    touch((uintptr_t)address, 8, ATOMIC, pc, false);
    for (Mbarrier &m : mbarriers)
        if (m.address == (uintptr_t)address) return &m;
    report(USAGE, pc, nullptr, -1, "mbarrier without mbarrier_init", (uintptr_t)address);
    abandon();
}

static void try_end_phase(Mbarrier &m) {
    if (m.arrived < m.expected || m.bytes != 0) return;
    m.phase++;
    m.arrived = 0;
    now++;
    m.ended = m.clock;
    for (Thread *t : m.waiting) acquire(*t, m.ended);
    wake(m.waiting);
    m.waiting.clear();
}

static void arrive(void *address, u32 bytes, void *pc) {
    Mbarrier &m = *mbarrier_at(address, pc);
    release(*self, m.clock);
    now++;
    if (m.arrived++ == m.expected) report(USAGE, pc, nullptr, -1, "arrival", m.arrived);
    m.bytes += bytes;
    try_end_phase(m);
}

extern "C" {
void weft_mbarrier_init(void *address, u32 arrivals) {
    touch((uintptr_t)address, 8, WRITE, CALLER, false);
    for (Mbarrier &m : mbarriers)
        if (m.address == (uintptr_t)address) m.address = 0;
    mbarriers.push_back(
        {(uintptr_t)address, arrivals, 0, 0, 0, {}, {}, {}, self, CALLER, false});
}

void weft_mbarrier_arrive(void *address) { arrive(address, 0, CALLER); }
void weft_mbarrier_expect(void *address, u32 bytes) { arrive(address, bytes, CALLER); }

void weft_mbarrier_expect_more(void *address, u32 bytes) {
    mbarrier_at(address, CALLER)->bytes += bytes;
}

void weft_mbarrier_wait(void *address, u32 parity) {
    Mbarrier &m = *mbarrier_at(address, CALLER);
    if ((m.phase & 1) != (parity & 1)) return acquire(*self, m.ended);
    self->pc = CALLER;
    m.waiting.push_back(self);
    wait(AT_MBARRIER);
}

void weft_mbarrier_init_fence() {
    for (Mbarrier &m : mbarriers) m.fenced = m.fenced || m.by == self;
}

void weft_fence_proxy_async() {
    self->fenced = ++now;
    weft_mbarrier_init_fence();
}
}

// ---- the copy engine

struct TensorMap {  // what Python fills in for a CUtensorMap; sizes in elements, innermost first
    u64 base;
    u32 size[3], box[3];
    u64 stride[3];  // in bytes
    u32 rank, element, swizzle, unused;
    u64 rest[7];
};
static_assert(sizeof(TensorMap) == 128, "as large as a CUtensorMap");

struct Load {
    std::vector<Piece> pieces;
    uintptr_t barrier;
    u32 bytes;
    Site *site;
};
static std::vector<Load> loads;  // under way, oldest first

static u32 swizzled(u32 offset, u32 bytes) { return offset ^ ((offset >> 3) & (bytes - 16)); }

// The 16-byte pieces of a box: where each lies in shared and in global memory (0: outside).
template <class Visit>
static void each_piece(const TensorMap &m, uintptr_t shared, const i32 (&at)[3], Visit visit) {
    u32 row = m.box[0] * m.element, offset = 0;
    for (u32 z = 0; z < m.box[2]; z++)
        for (u32 y = 0; y < m.box[1]; y++)
            for (u32 i = 0; i < row; i += 16, offset += 16) {
                i64 x = at[0] + (i64)(i / m.element), left = ((i64)m.size[0] - x) * m.element;
                i64 row_y = at[1] + (i64)y, row_z = at[2] + (i64)z;
                bool inside = x >= 0 && left > 0 && row_y >= 0 && row_y < m.size[1] &&
                              row_z >= 0 && row_z < m.size[2];
                u32 bytes = inside ? std::min<i64>(left, 16) : 0;
                uintptr_t from = m.base + x * m.element + row_y * m.stride[1] + row_z * m.stride[2];
                uintptr_t to = shared + offset;
                if (m.swizzle) to = (to & ~1023ull) | swizzled(to & 1023, m.swizzle);
                visit(to, from, bytes);
            }
}

static bool usable(const TensorMap &m, uintptr_t shared, u32 rank, void *pc) {
    const char *wrong = m.rank != rank ? "rank" : shared % 128 ? "alignment" : nullptr;
    if (wrong) report(USAGE, pc, nullptr, -1, wrong, shared % 128);
    return !wrong;
}

static void start_load(Load &load, void *barrier, void *pc) {
    Mbarrier &m = *mbarrier_at(barrier, pc);
    if (!m.fenced) report(PROXY, pc, m.pc, m.by->index, "an mbarrier");
    Site &from = site_at(pc, READ, GLOBAL, 16);
    load.site = &site_at(pc, WRITE, SHARED, 16);
    load.barrier = (uintptr_t)barrier;
    for (Piece &p : load.pieces) {
        Region *r = locate(p.to, p.bytes + p.zeros, pc);
        if (!r) return;
        check(*r, p.to, p.bytes + p.zeros, WRITE, *load.site, *self);
        mark(p, true, true);
        load.bytes += p.bytes + p.zeros;
        Region *source = p.bytes ? locate(p.from, p.bytes, pc) : nullptr;
        if (source) check(*source, p.from, p.bytes, READ, from, *self);
        else p.zeros += p.bytes, p.bytes = 0;
    }
    count_pieces(from, load.pieces);
    loads.push_back(load);
}

// Let the oldest load arrive; false when none is under way.
static bool finish_load() {
    if (loads.empty()) return false;
    Load load = loads[0];
    loads.erase(loads.begin());
    now++;
    for (const Piece &p : load.pieces) {
        move_bytes(p);
        mark(p, true, false);
        Region *r = find(p.to, p.bytes + p.zeros);
        for (Cell *c = r->cell(p.to); c <= r->cell(p.to + p.bytes + p.zeros - 1); c++)
            c->write = {now, (u16)launch.threads, (u16)load.site->number, 0, 0, 0};
    }
    for (Mbarrier &m : mbarriers)
        if (m.address == load.barrier) {
            if (m.clock.empty()) m.clock.resize(launch.threads + 1);
            m.clock[launch.threads] = now + 1;
            m.bytes -= load.bytes;
            try_end_phase(m);
        }
    return true;
}

static void tma_load(void *to, const TensorMap &m, void *barrier, const i32 (&at)[3], u32 rank,
                     void *pc) {
    if (!usable(m, (uintptr_t)to, rank, pc)) return;
    Load load = {};
    each_piece(m, (uintptr_t)to, at, [&](uintptr_t shared, uintptr_t global, u32 bytes) {
        load.pieces.push_back({shared, global, bytes, 16 - bytes, 0});
    });
    start_load(load, barrier, pc);
}

// Ordinary writes must be fenced before the copy engine (or wgmma) reads them.
static void check_fenced(Region &r, uintptr_t address, u32 bytes, Site &site) {
    check(r, address, bytes, READ, site, *self);
    for (Cell *c = r.cell(address); c <= r.cell(address + bytes - 1); c++) {
        const Access &w = c->write;
        if (w.stamp < block_start || w.thread == launch.threads) continue;
        if (threads[w.thread].fenced <= w.stamp)
            report(PROXY, site.pc, sites[w.site]->pc, w.thread, r.name, address - r.begin);
    }
}

static void tma_store(const TensorMap &m, const void *from, const i32 (&at)[3], u32 rank,
                      void *pc) {
    if (!usable(m, (uintptr_t)from, rank, pc)) return;
    Site &to = site_at(pc, WRITE, GLOBAL, 16);
    Group pieces;
    each_piece(m, (uintptr_t)from, at, [&](uintptr_t shared, uintptr_t global, u32 bytes) {
        Region *r = locate(shared, 16, pc);
        if (!r) return;
        check_fenced(*r, shared, 16, site_at(pc, READ, SHARED, 16));
        Region *target = bytes ? locate(global, bytes, pc) : nullptr;
        if (!target) return;
        check(*target, global, bytes, WRITE, to, *self);
        Piece p = {global, shared, bytes, 0, to.number};
        mark(p, false, true);
        pieces.push_back(p);
    });
    count_pieces(to, pieces);
    self->store.insert(self->store.end(), pieces.begin(), pieces.end());
}

extern "C" {
void weft_tma_load(void *to, const TensorMap *m, void *barrier, u32 rank, i32 x, i32 y, i32 z) {
    tma_load(to, *m, barrier, {x, y, z}, rank, CALLER);
}

void weft_tma_store(const TensorMap *m, const void *from, u32 rank, i32 x, i32 y, i32 z) {
    tma_store(*m, from, {x, y, z}, rank, CALLER);
}

void weft_bulk_load(void *to, const void *from, u32 bytes, void *barrier) {
    uintptr_t shared = (uintptr_t)to, global = (uintptr_t)from;
    if (shared % 16 || global % 16 || bytes % 16)
        return report(USAGE, CALLER, nullptr, -1, "alignment", shared % 16);
    Load load = {};
    load.pieces.push_back({shared, global, bytes, 0, 0});
    start_load(load, barrier, CALLER);
}

void weft_tma_store_commit() {
    self->stores.push_back(self->store);
    self->store.clear();
}

void weft_tma_store_wait(u32 pending) {
    while (self->stores.size() > pending) {
        for (const Piece &p : self->stores[0]) {
            move_bytes(p);
            mark(p, false, false);
        }
        self->stores.erase(self->stores.begin());
    }
}
}
