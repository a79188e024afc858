// order.h: which accesses are known to be done, by stamps.
//
// A thread knows: its own accesses; all with a stamp below `floor` (a barrier of the block); those
// of its warp below `warp_floor` (__syncwarp); those of thread u below known[u] (mbarriers and
// named barriers, which hand clocks on). Shuffles order nothing, as on the hardware.
#pragma once

#include "state.h"

struct Range {  // of stamps of an earlier block, handed on by an atomic
    u32 from, to;
    i32 thread;  // -1: all
};
static std::vector<Range> acquired;

static bool was_acquired(const Access &a) {
    for (const Range &r : acquired)
        if (r.from <= a.stamp && a.stamp < r.to && (r.thread < 0 || r.thread == a.thread))
            return true;
    return false;
}

static bool happened_before(const Access &a, const Thread &t, Space space) {
    if (a.stamp < block_start) return a.stamp == 0 || space == SHARED || was_acquired(a);
    if (a.thread == t.index || a.stamp < t.floor) return true;
    if (a.stamp < t.warp_floor && a.thread < launch.threads && threads[a.thread].warp == t.warp)
        return true;
    return !t.known.empty() && a.stamp < t.known[a.thread];
}

static void raise_to(Clock &clock, const Clock &other) {
    if (clock.empty()) clock.resize(launch.threads + 1);
    for (size_t i = 0; i < other.size(); i++) clock[i] = std::max(clock[i], other[i]);
}

// What a thread hands on when it releases now: all it knows, and all it did.
static void release(const Thread &t, Clock &clock) {
    raise_to(clock, t.known);
    for (u32 u = 0; u <= launch.threads; u++) {
        bool same_warp = u < launch.threads && threads[u].warp == t.warp;
        clock[u] = std::max({clock[u], t.floor, same_warp ? t.warp_floor : 0});
    }
    clock[t.index] = now + 1;
}

static void acquire(Thread &t, const Clock &clock) { raise_to(t.known, clock); }

// These threads meet: each then knows what any of them knew or did.
static void meet(const std::vector<Thread *> &some) {
    bool plain = std::all_of(some.begin(), some.end(), [](Thread *t) { return t->known.empty(); });
    bool warp = some.size() == launch.lanes && some[0]->warp == some.back()->warp;
    if (some.size() == launch.threads) {
        now++;
        for (Thread *t : some) t->floor = now, t->known.clear();
    } else if (warp && plain) {
        now++;
        for (Thread *t : some) t->warp_floor = now;
    } else {
        Clock joined;
        for (Thread *t : some) release(*t, joined);
        for (Thread *t : some) acquire(*t, joined);
        now++;
    }
}
