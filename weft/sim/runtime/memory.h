// memory.h: is an access allowed? Bounds, alignment, races, bytes nothing wrote, copies under way.
//
//     Region *region = find(address, bytes);            // null: no buffer is there
//     check(*region, address, bytes, WRITE, site);      // reports, and leaves its own mark
#pragma once

#include "fibers.h"
#include "order.h"

static const size_t GUARD = 64 << 20;  // around each buffer: no index error is that far off

static Region *find(uintptr_t address, u32 bytes) {
    for (Region *r : regions)
        if (address >= r->begin && address + bytes <= r->end) return r;
    return nullptr;
}

static Region *add_region(uintptr_t begin, size_t bytes, Space space, const std::string &name) {
    size_t cells = (bytes >> grain) + 1;
    Cell *shadow = space == OTHER ? nullptr : (Cell *)reserve(cells * sizeof(Cell));
    regions.push_back(new Region{begin, begin + bytes, space, name, shadow});
    return regions.back();
}

static void *add_buffer(const std::string &name, size_t bytes) {
    uintptr_t begin = (uintptr_t)reserve(bytes + 2 * GUARD) + GUARD;
    add_region(begin, bytes, GLOBAL, name);
    return (void *)begin;
}

extern "C" {
alignas(1024) u8 weft_dynamic_shared[256 << 10];
}
static std::vector<std::pair<uintptr_t, uintptr_t>> gaps;  // between static shared arrays

static bool is_shared(uintptr_t address) {
    for (auto &gap : gaps)
        if (gap.first <= address && address < gap.second) return true;
    return address - (uintptr_t)weft_dynamic_shared < sizeof weft_dynamic_shared;
}

// Addresses inside shared memory: static arrays, then the dynamic part.
static uintptr_t shared_begin() {
    uintptr_t least = 0;
    for (auto &gap : gaps) least = least ? std::min(least, gap.first) : gap.first;
    return least & ~(uintptr_t)1023;
}

static u32 dynamic_offset() {
    uintptr_t most = shared_begin();
    for (Region *r : regions)
        if (r->space == SHARED && r->begin != (uintptr_t)weft_dynamic_shared)
            most = std::max(most, r->end);
    return (most - shared_begin() + 1023) & ~1023;
}

static void *shared_pointer(u32 address) {
    u32 dynamic = dynamic_offset();
    return address < dynamic ? (void *)(shared_begin() + address)
                             : (void *)(weft_dynamic_shared + (address - dynamic));
}

extern "C" u32 weft_shared_address(const void *pointer) {
    uintptr_t address = (uintptr_t)pointer, dynamic = (uintptr_t)weft_dynamic_shared;
    if (address - dynamic >= sizeof weft_dynamic_shared) return address - shared_begin();
    return dynamic_offset() + (address - dynamic);
}

// The address is in no region: name the one it missed, if any is near. In the gaps around buffers
// it can be touched without harm, so that the thread goes on; elsewhere the thread ends here.
static void out_of_bounds(uintptr_t address, void *pc) {
    Region *missed = nullptr;
    u64 least = GUARD;
    for (Region *r : regions) {
        u64 away = address < r->begin ? r->begin - address : address - r->end;
        if (r->space != OTHER && away < least) missed = r, least = away;
    }
    report(OUT_OF_BOUNDS, pc, nullptr, -1, missed ? missed->name : "",
           missed ? (i64)(address - missed->begin) : (i64)address);
    bool near = missed && missed->space == GLOBAL && least < GUARD - PAGE;
    if (!near && !is_shared(address)) abandon();
}

static void race(const char *kind, const Access &earlier, Site &site, const Region &r, i64 offset) {
    report(kind, site.pc, sites[earlier.site]->pc, earlier.thread, r.name, offset);
}

// `by`: the thread that answers for the access (for a copy, the one that started it).
static void check_cell(Region &r, Cell &c, Kind kind, Site &site, const Thread &by, i64 offset) {
    const Access mine = {now, by.index, (u16)site.number, kind == ATOMIC, 0, 0};
    const Access w = c.write;
    bool current = w.stamp >= block_start;
    if (current && (w.arriving || (w.leaving && kind != READ)))
        race(ASYNC, w, site, r, offset);
    else if (r.space == SHARED && !current && kind != WRITE)
        report(UNWRITTEN, site.pc, nullptr, -1, r.name, offset);
    else if (!happened_before(w, by, r.space))
        race(w.thread == launch.threads ? ASYNC : RACE, w, site, r, offset);
    for (Access &read : c.read)  // and atomics, which conflict with plain reads
        if ((kind == WRITE || kind == ATOMIC != read.atomic) &&
            !happened_before(read, by, r.space))
            race(RACE, read, site, r, offset);
    if (kind == WRITE) {
        c.write = mine;
        c.read[0].stamp = c.read[1].stamp = 0;
    } else {
        Access &last = c.read[0];
        if (last.thread != mine.thread || last.atomic != mine.atomic || last.stamp < block_start)
            c.read[1] = last;
        last = mine;
    }
}

static void check(Region &r, uintptr_t address, u32 bytes, Kind kind, Site &site,
                  const Thread &by) {
    Cell *last = r.cell(address + bytes - 1);
    for (Cell *c = r.cell(address); c <= last; c++)
        check_cell(r, *c, kind, site, by, ((i64)(c - r.cells)) << grain);
}
