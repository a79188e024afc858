// state.h: what the simulator knows: threads of the block, regions of memory, sites, faults.
//
// One block runs at a time; its threads are fibers of one OS thread, switched at barriers. The
// kernel is compiled with -fsanitize=thread, whose hooks (hooks.h) tell of each access to memory.
//
// Time is a counter that each synchronisation advances. An access is stamped with it, so "a
// happened before b" is a comparison of stamps (order.h).
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#define CALLER __builtin_return_address(0)

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;
typedef float f32;

struct Index {
    u32 x, y, z;
};

// ---- memory

enum Kind : u8 { READ, WRITE, ATOMIC };
enum Space : u8 { GLOBAL, SHARED, OTHER };

// Who touched a byte last, when, and in which line. A stamp older than the block is of another one.
struct Access {
    u32 stamp;
    u16 thread;
    u16 site : 13, atomic : 1, arriving : 1, leaving : 1;  // arriving, leaving: a copy is under way
};

struct Cell {  // of as many bytes as the kernel's smallest access
    Access write, read[2];  // the last plain write, and the last two others
};

static u32 grain;  // log2 of the bytes of a cell

struct Region {
    uintptr_t begin, end;
    Space space;
    std::string name;
    Cell *cells;

    Cell *cell(uintptr_t address) const { return cells + ((address - begin) >> grain); }
};

// ---- sites: an instruction of the kernel that touches memory, and what its requests cost

struct Request {  // the addresses that the lanes of a warp give one instruction at one time
    u64 lanes;
    uintptr_t address[64];
};

struct Queue {  // requests of one warp that not all lanes have made yet
    u32 first = 0, complete = 0;  // number of open[0], and how many of open are counted already
    std::vector<Request> open;
    u32 made[64] = {};  // by each lane
    bool listed = false;
};

struct Site {
    void *pc;
    Kind kind;
    Space space;
    u32 size;
    u32 number;
    u64 requests, transactions, ideal;
    std::vector<Queue> warps;
};

// ---- threads

enum State : u8 { READY, AT_BARRIER, AT_WARP, AT_MBARRIER, ENDED };

struct Piece {  // bytes on their way, or zeros where there is no source
    uintptr_t to, from;
    u32 bytes, zeros;
    u32 site;
};

typedef std::vector<Piece> Group;
typedef std::vector<u32> Clock;  // for each thread, and the copy engine: all before is known

struct Thread {
    jmp_buf context, base;
    ucontext_t start;
    State state;
    bool abandoned, published;  // ended by a fault; past a __threadfence
    u16 index, warp, lane;
    Index at;
    u32 floor, warp_floor;  // accesses of all threads, of this warp, known to be done before
    u32 fenced;             // own writes before it are visible to the copy engine
    Clock known;            // of single threads; empty when floor and warp_floor say it all
    void *pc;               // of its last access, or where it waits
    u64 mask;               // of an operation of the warp, with what the lane gives and takes
    const void *given;
    void *taken;
    u64 accesses;                     // since it was resumed
    Group group, store;               // cp.async, stores of the copy engine: since the last commit
    std::vector<Group> groups, stores;  // committed
};

// ---- faults

struct Fault {
    const char *kind;
    void *pc, *other;  // the lines
    std::string where;
    i64 offset;
    Index block;
    i32 thread, other_thread;
    u64 count;
};

// The kinds, compared by address.
static const char OUT_OF_BOUNDS[] = "out of bounds";
static const char MISALIGNED[] = "misaligned";
static const char RACE[] = "race";
static const char UNWRITTEN[] = "unwritten";
static const char ASYNC[] = "async";
static const char PROXY[] = "proxy";
static const char DIVERGENCE[] = "divergence";
static const char HANG[] = "hang";
static const char USAGE[] = "usage";
static const char CRASH[] = "crash";
static const char CHECK[] = "check";

struct Launch {
    Index grid, block;
    u32 threads, warps, lanes;  // of a block; of a warp
    u64 sample;                 // how many blocks to run; 0: all
};

static Launch launch;
static Index block_index;
static u32 now = 1, block_start = 1;
static std::vector<Thread> threads;
static Thread *self;  // the one that runs
static jmp_buf scheduler;
static std::vector<Region *> regions;
static std::vector<Site *> sites;
static std::vector<Fault> faults;

[[noreturn]] static void give_up(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(2);
}

static void *reserve(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) give_up("not enough memory");
    return p;
}

static u32 abandoned_threads;  // of the block
static const size_t MOST_FAULTS = 1000;

// Each fault once per pair of lines. What follows from a thread that has left is none.
static void report(const char *kind, void *pc, void *other = nullptr, i32 other_thread = -1,
                   const std::string &where = "", i64 offset = 0) {
    if (abandoned_threads && kind != OUT_OF_BOUNDS && kind != MISALIGNED) return;
    for (Fault &f : faults)
        if (f.kind == kind && f.pc == pc && f.other == other && f.where == where) {
            f.count++;
            return;
        }
    if (faults.size() == MOST_FAULTS) return;
    i32 thread = self ? self->index : -1;
    faults.push_back({kind, pc, other, where, offset, block_index, thread, other_thread, 1});
}
