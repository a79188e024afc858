// hooks.h: what -fsanitize=thread calls before each access, and what the other parts call.
//
// Locals live on the fibers' stacks and are skipped. Constants and __device__ variables are in the
// program itself, and only skipped.
#pragma once

#include "counts.h"

extern "C" {
extern char __executable_start, etext, data_start;
}
static const u64 PATIENCE = 1 << 24;  // accesses of a thread that others may have to wait for
static std::vector<u16> site_numbers;
static volatile bool out_of_time;

[[noreturn]] static void stop_launch();  // with what is known so far

static Site &site_at(void *pc, Kind kind, Space space, u32 size) {
    size_t at = ((char *)pc - &__executable_start) * 6 + kind * 2 + space;
    if (site_numbers.empty()) site_numbers.resize((&etext - &__executable_start + 1) * 6);
    u16 &number = site_numbers[at];
    if (!number) {
        number = sites.size();
        if (number >= 1 << 13) give_up("the kernel has too many memory instructions");
        sites.push_back(new Site{pc, kind, space, size, number, 0, 0, 0, {}});
    }
    return *sites[number];
}

// The region of an access that is in bounds, or null.
static Region *locate(uintptr_t address, u32 bytes, void *pc) {
    if (address - stacks < stacks_size) return nullptr;
    Region *r = find(address, bytes);
    if (!r) out_of_bounds(address, pc);
    return r && r->space != OTHER ? r : nullptr;
}

// Checks an access to the first `bytes` of a word, and counts it unless it is of a barrier object.
static void touch_part(uintptr_t address, u32 word, u32 bytes, Kind kind, void *pc, bool counts) {
    if (address - stacks < stacks_size) return;
    self->pc = pc;
    if (out_of_time) stop_launch();
    Region *r = locate(address, bytes, pc);
    if (!r) return;
    if (address & (word - 1)) {
        report(MISALIGNED, pc, nullptr, -1, r->name, address - r->begin);
        abandon();  // vector instructions of the host would fault as well
    }
    Site &site = site_at(pc, kind, r->space, word);
    check(*r, address, bytes, kind, site, *self);
    if (counts) add_to_request(site, address);
    if (++self->accesses % PATIENCE == 0) park();  // it may wait for what others write
}

static void touch(uintptr_t address, u32 bytes, Kind kind, void *pc, bool counts = true) {
    touch_part(address, bytes, bytes, kind, pc, counts);
}

// As the compiler of a device would: by the largest words that both ends allow.
static void touch_range(uintptr_t address, size_t bytes, Kind kind, void *pc) {
    u32 word = (address | bytes) & -(address | bytes) & 15;
    if (!word) word = 16;
    for (size_t i = 0; i < bytes; i += word) touch(address + i, word, kind, pc);
}

#define HOOK(name, bytes, kind)                                                                    \
    void __tsan_##name(void *a) { touch((uintptr_t)a, bytes, kind, CALLER); }

extern "C" {
HOOK(read1, 1, READ)
HOOK(read2, 2, READ)
HOOK(read4, 4, READ)
HOOK(read8, 8, READ)
HOOK(read16, 16, READ)
HOOK(write1, 1, WRITE)
HOOK(write2, 2, WRITE)
HOOK(write4, 4, WRITE)
HOOK(write8, 8, WRITE)
HOOK(write16, 16, WRITE)
HOOK(unaligned_read2, 2, READ)
HOOK(unaligned_read4, 4, READ)
HOOK(unaligned_read8, 8, READ)
HOOK(unaligned_read16, 16, READ)
HOOK(unaligned_write2, 2, WRITE)
HOOK(unaligned_write4, 4, WRITE)
HOOK(unaligned_write8, 8, WRITE)
HOOK(unaligned_write16, 16, WRITE)
void __tsan_read_range(void *a, size_t n) { touch_range((uintptr_t)a, n, READ, CALLER); }
void __tsan_write_range(void *a, size_t n) { touch_range((uintptr_t)a, n, WRITE, CALLER); }

void *weft_memcpy(void *to, const void *from, size_t n) {
    touch_range((uintptr_t)from, n, READ, CALLER);
    touch_range((uintptr_t)to, n, WRITE, CALLER);
    return memcpy(to, from, n);
}
void *weft_memset(void *to, int value, size_t n) {
    touch_range((uintptr_t)to, n, WRITE, CALLER);
    return memset(to, value, n);
}
void __tsan_vptr_update(void *, void *) {}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}
