// counts.h: what the accesses of a warp cost: memory sectors and shared memory wavefronts.
//
// The n-th execution of an instruction by the lanes of a warp, counted from the last place where
// they met, is one request. Global memory moves sectors of 32 bytes; shared memory has 32 banks of
// 4 bytes, each of which serves one word at a time (a wavefront). 8-byte accesses go by half warps,
// 16-byte ones by quarters; loads by twice as many lanes where these come in pairs that read the
// same address, all (t, t ^ 1) or all (t, t ^ 2), as NVIDIA says of its devices since 7.0.
#pragma once

#include "memory.h"

static const u32 SECTOR = 32, BANKS = 32;
static std::vector<std::vector<Site *>> dirty;  // per warp: sites with open requests

static u32 divide_up(u64 a, u64 b) { return (a + b - 1) / b; }

static u32 distinct(u64 *begin, u64 *end) {
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
    return std::unique(begin, end) - begin;
}

static u32 sectors(const Request &q, u32 bytes, u32 lanes) {
    u64 touched[128];
    u32 n = 0;
    for (u32 i = 0; i < lanes; i++)
        if (q.lanes >> i & 1) {
            touched[n++] = q.address[i] / SECTOR;
            touched[n++] = (q.address[i] + bytes - 1) / SECTOR;
        }
    return distinct(touched, touched + n);
}

// Wavefronts of lanes [from, to): the most words that any one bank has to serve.
static u32 wavefronts(const Request &q, u32 bytes, u32 from, u32 to) {
    u64 words[64];
    u32 n = 0, served[BANKS] = {}, most = 0;
    for (u32 i = from; i < to; i++)
        if (q.lanes >> i & 1)
            for (u64 a = q.address[i]; a < q.address[i] + bytes; a += 4) words[n++] = a / 4;
    n = distinct(words, words + n);
    for (u32 i = 0; i < n; i++) most = std::max(most, ++served[words[i] % BANKS]);
    return most;
}

static bool in_pairs(const Request &q, u32 apart) {
    for (u32 i = 0; i < launch.lanes; i++) {
        u32 other = i ^ apart;
        bool both = (q.lanes >> i & 1) && (q.lanes >> other & 1);
        if (both && q.address[i] != q.address[other]) return false;
    }
    return true;
}

static void count(Site &site, const Request &q) {
    u64 addresses[64];
    u32 n = 0;
    for (u32 i = 0; i < launch.lanes; i++)
        if (q.lanes >> i & 1) addresses[n++] = q.address[i];
    u32 bytes = distinct(addresses, addresses + n) * site.size;
    site.requests++;
    if (site.space == GLOBAL) {
        site.transactions += sectors(q, site.size, launch.lanes);
        site.ideal += divide_up(bytes, SECTOR);
    } else {
        u32 part = site.size <= 4 ? 32 : site.size == 8 ? 16 : 8;
        if (part < 32 && site.kind == READ && (in_pairs(q, 1) || in_pairs(q, 2))) part *= 2;
        for (u32 i = 0; i < launch.lanes; i += part) {
            u32 most = wavefronts(q, site.size, i, i + part);
            site.transactions += most;
            site.ideal += most > 0;
        }
    }
}

// A request of the copy engine: pieces of at most 16 bytes in global memory.
static void count_pieces(Site &site, const std::vector<Piece> &pieces) {
    std::vector<u64> touched;
    u64 bytes = 0;
    for (const Piece &p : pieces) {
        uintptr_t begin = site.kind == READ ? p.from : p.to;
        for (u64 s = begin / SECTOR; p.bytes && s <= (begin + p.bytes - 1) / SECTOR; s++)
            touched.push_back(s);
        bytes += p.bytes;
    }
    site.requests++;
    site.transactions += distinct(touched.data(), touched.data() + touched.size());
    site.ideal += divide_up(bytes, SECTOR);
}

static u64 all_lanes(u32 warp) {
    u32 n = std::min(launch.lanes, launch.threads - warp * launch.lanes);
    return n == 64 ? ~(u64)0 : ((u64)1 << n) - 1;
}

static void add_to_request(Site &site, uintptr_t address) {
    if (site.warps.empty()) site.warps.resize(launch.warps);
    Queue &queue = site.warps[self->warp];
    if (!queue.listed) {
        queue.listed = true;
        dirty[self->warp].push_back(&site);
    }
    u32 at = queue.made[self->lane]++ - queue.first;
    if (at == queue.open.size()) queue.open.push_back({0, {}});
    Request &q = queue.open[at];
    q.lanes |= (u64)1 << self->lane;
    q.address[self->lane] = address;
    if (q.lanes != all_lanes(self->warp)) return;
    count(site, q);
    q.lanes = 0;
    if (++queue.complete < queue.open.size()) return;
    queue.first += queue.complete;
    queue.complete = 0;
    queue.open.clear();
}

// The lanes of the warp have met: what is open is complete.
static void close_requests(u32 warp) {
    for (Site *site : dirty[warp]) {
        Queue &queue = site->warps[warp];
        for (const Request &q : queue.open)
            if (q.lanes) count(*site, q);
        queue.open.clear();
        queue.first = queue.complete = 0;
        memset(queue.made, 0, sizeof queue.made);
        queue.listed = false;
    }
    dirty[warp].clear();
}
