// sync.h: barriers, operations of a warp, atomics.
//
// The last thread to arrive does the work for all and wakes them. When nobody can run and nothing
// is under way, simulator.cpp says who waits where, and lets them go so that the block can end.
#pragma once

#include "hooks.h"

typedef std::vector<Thread *> Threads;

static void wake(const Threads &some) {
    for (Thread *t : some) t->state = READY;
}

// Threads that meet from different lines: report.py keeps it if the lines differ.
static void same_place(const Threads &some) {
    for (Thread *t : some)
        if (t->pc != some[0]->pc) {
            report(DIVERGENCE, some[0]->pc, t->pc, t->index);
            return;
        }
}

// ---- barriers: of the block (0), and named ones of some warps

static const int BARRIERS = 16;
static Threads at_barrier[BARRIERS];
static u32 arrived_early[BARRIERS];  // by barrier_arrive, which does not wait
static Clock early_clock[BARRIERS];

static void open_barrier(int id) {
    Threads some;
    some.swap(at_barrier[id]);
    meet(some);
    if (arrived_early[id])
        for (Thread *t : some) acquire(*t, early_clock[id]);
    arrived_early[id] = 0;
    early_clock[id].clear();
    if (id == 0) same_place(some);
    if (some.size() == launch.threads)
        for (u32 w = 0; w < launch.warps; w++) close_requests(w);
    wake(some);
}

static bool try_open(int id, u32 expected) {
    if (at_barrier[id].size() + arrived_early[id] + abandoned_threads < expected) return false;
    open_barrier(id);
    return true;
}

static void arrive_and_wait(int id, u32 expected, void *pc) {
    self->pc = pc;
    at_barrier[id].push_back(self);
    if (!try_open(id, expected)) wait(AT_BARRIER);
}

extern "C" {
void weft_syncthreads() { arrive_and_wait(0, launch.threads, CALLER); }

void weft_barrier_sync(int id, int expected) { arrive_and_wait(id, expected, CALLER); }

void weft_barrier_arrive(int id, int expected) {
    release(*self, early_clock[id]);
    now++;
    arrived_early[id]++;
    try_open(id, expected);
}
}

// ---- operations of a warp: each lane gives a value and a place for the result

typedef void (*Combine)(const Threads &);

static void combine_nothing(const Threads &) {}

static std::vector<u32> waiting_in_warp;

static Threads waiting_lanes(u32 warp, u64 mask) {
    Threads some;
    some.reserve(launch.lanes);
    u32 first = warp * launch.lanes;
    for (u32 i = first; i < std::min(first + launch.lanes, launch.threads); i++)
        if (threads[i].state == AT_WARP && threads[i].mask == mask) some.push_back(&threads[i]);
    return some;
}

static void meet_in_warp(u64 mask, const void *given, void *taken, Combine combine, bool orders,
                         void *pc) {
    u64 lanes = all_lanes(self->warp), own = (u64)1 << self->lane;
    if (!(mask & own)) report(USAGE, pc, nullptr, -1, "mask", self->lane);
    mask = (mask & lanes) | own;
    self->pc = pc;
    self->mask = mask;
    self->given = given;
    self->taken = taken;
    self->state = AT_WARP;
    u32 expected = __builtin_popcountll(mask & ~abandoned_lanes[self->warp]);
    if (++waiting_in_warp[self->warp] < expected) return wait(AT_WARP);
    Threads some = waiting_lanes(self->warp, mask);
    if (some.size() < expected) return wait(AT_WARP);
    same_place(some);
    combine(some);
    if (orders) meet(some);
    if (mask == lanes) close_requests(self->warp);
    waiting_in_warp[self->warp] -= some.size();
    wake(some);
}

static void shuffle(const Threads &some) {  // a lane gives {value, lane it reads}
    const u64 *given[64] = {};
    for (Thread *t : some) given[t->lane] = (const u64 *)t->given;
    for (Thread *t : some) {
        const u64 *mine = given[t->lane], *from = mine[1] < 64 ? given[mine[1]] : nullptr;
        if (!from) report(USAGE, t->pc, nullptr, t->index, "source lane", mine[1]);
        *(u64 *)t->taken = from ? from[0] : mine[0];
    }
}

static void ballot(const Threads &some) {
    u64 votes = 0;
    for (Thread *t : some) votes |= (u64)(*(const int *)t->given != 0) << t->lane;
    for (Thread *t : some) *(u64 *)t->taken = votes;
}

extern "C" {
void weft_syncwarp(u64 mask) { meet_in_warp(mask, 0, 0, combine_nothing, true, CALLER); }

u64 weft_shuffle(u64 mask, u64 value, int lane) {
    u64 given[2] = {value, (u64)(i64)lane}, taken;
    meet_in_warp(mask, given, &taken, shuffle, false, CALLER);
    return taken;
}

u64 weft_ballot(u64 mask, int vote) {
    u64 taken;
    meet_in_warp(mask, &vote, &taken, ballot, false, CALLER);
    return taken;
}

u64 weft_active_lanes() { return all_lanes(self->warp); }
int weft_lane() { return self->lane; }
}

// ---- atomics: no other thread runs in between, so plain arithmetic does

// What a block did before __threadfence and an atomic, another block knows after an atomic on the
// same address and __threadfence.
static std::map<uintptr_t, std::vector<Range>> released;
static std::vector<Range> observed;

static void hand_on(uintptr_t address) {
    std::vector<Range> &ranges = released[address];
    observed.insert(observed.end(), ranges.begin(), ranges.end());
    if (!self->published) return;
    ranges.push_back({block_start, self->floor, -1});
    ranges.push_back({self->floor, ++now, self->index});
}

extern "C" void weft_threadfence() {
    self->published = true;
    acquired.insert(acquired.end(), observed.begin(), observed.end());
    observed.clear();
}

enum Atomic { ADD, MAX, MIN, AND, OR, XOR, EXCHANGE, CAS };

template <class T> T bits(int op, T a, T b) { return op == AND ? a & b : op == OR ? a | b : a ^ b; }
template <> float bits(int, float, float b) { return b; }
template <> double bits(int, double, double b) { return b; }

template <class T> T weft_atomic(int op, T *address, T value, T compare) {
    touch((uintptr_t)address, sizeof(T), ATOMIC, CALLER);
    hand_on((uintptr_t)address);
    T old = *address;
    *address = op == ADD        ? old + value
               : op == MAX      ? std::max(old, value)
               : op == MIN      ? std::min(old, value)
               : op == EXCHANGE ? value
               : op == CAS      ? (old == compare ? value : old)
                                : bits(op, old, value);
    return old;
}

template int weft_atomic(int, int *, int, int);
template unsigned weft_atomic(int, unsigned *, unsigned, unsigned);
template long long weft_atomic(int, long long *, long long, long long);
template unsigned long long weft_atomic(int, unsigned long long *, unsigned long long,
                                        unsigned long long);
template float weft_atomic(int, float *, float, float);
template double weft_atomic(int, double *, double, double);

extern "C" void weft_check_failed(int fault) {
    const char *what = fault == 1 ? "an index is out of range" : "division by zero";
    report(CHECK, CALLER, nullptr, -1, what);
}
