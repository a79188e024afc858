// simulator.cpp: runs one launch of a kernel that it is linked with.
//
//     ./kernel job data report.json
//
// The job is text, a line each:
//     kernel softmax           grid 4 1 1       block 256 1 1      warp 32      seconds 60
//     sample 16                run that many blocks; 0: all
//     grain 4                  bytes of the smallest access of the kernel's text
//     dynamic 4096             bytes of dynamic shared memory
//     shared tile 4242432 64   a static shared array: address, bytes
//     other table 4243000 64   a __device__ variable
//     gap g 4242000 256        what nobody may touch
//     buffer x 65536           global memory; the contents follow one another in `data`, each at a
//                              multiple of 256 bytes, and are written back there in the end
// and the arguments in order: `pointer 0` (a buffer), `value <hex>`, `map ...` (see read_map).
#include "wgmma.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

// ---- the job

struct Buffer {
    u8 *data;
    size_t bytes, offset;
};
static std::vector<Buffer> buffers;
static std::vector<std::vector<u8>> arguments;
static const char *report_path, *data_path;

template <class T> static void add_argument(const T &value) {
    arguments.emplace_back((const u8 *)&value, (const u8 *)(&value + 1));
}

static void read_map(std::istream &line) {
    TensorMap m = {};
    u32 buffer;
    line >> buffer >> m.rank >> m.element >> m.swizzle;
    m.base = (u64)buffers[buffer].data;
    for (int i = 0; i < 3; i++) line >> m.size[i] >> m.box[i] >> m.stride[i];
    add_argument(m);
}

static void read_value(std::istream &line) {
    std::string hex;
    line >> hex;
    arguments.emplace_back();
    for (size_t i = 0; i < hex.size(); i += 2)
        arguments.back().push_back(std::stoi(hex.substr(i, 2), nullptr, 16));
}

static void read_buffer(std::istream &line, size_t &offset) {
    std::string name;
    size_t bytes;
    line >> name >> bytes;
    buffers.push_back({(u8 *)add_buffer(name, bytes), bytes, offset});
    offset += (bytes + 255) / 256 * 256;
}

static void read_line(const std::string &text, size_t &offset) {
    std::istringstream line(text);
    std::string key, name;
    size_t at, bytes;
    line >> key;
    if (key == "kernel" && line >> name)
        for (kernel = weft_kernels; name != kernel->name;) kernel++;
    if (key == "grid") line >> launch.grid.x >> launch.grid.y >> launch.grid.z;
    if (key == "block") line >> launch.block.x >> launch.block.y >> launch.block.z;
    if (key == "warp") line >> launch.lanes;
    if (key == "sample") line >> launch.sample;
    if (key == "grain") line >> at, grain = __builtin_ctz(at);
    if (key == "seconds") line >> at, alarm(at);
    if (key == "buffer") read_buffer(line, offset);
    if (key == "value") read_value(line);
    if (key == "map") read_map(line);
    if (key == "pointer") line >> at, add_argument(buffers[at].data);
    if (key == "dynamic" && line >> bytes)
        add_region((uintptr_t)weft_dynamic_shared, bytes, SHARED, "dynamic_shared");
    if (key == "shared" && line >> name >> at >> bytes) add_region(at, bytes, SHARED, name);
    if (key == "other" && line >> name >> at >> bytes) add_region(at, bytes, OTHER, name);
    if (key == "gap" && line >> name >> at >> bytes) gaps.push_back({at, at + bytes});
}

static void move_data(bool in) {
    int file = open(data_path, in ? O_RDONLY : O_WRONLY);
    for (Buffer &b : buffers)
        for (size_t done = 0; done < b.bytes;) {
            ssize_t n = in ? pread(file, b.data + done, b.bytes - done, b.offset + done)
                           : pwrite(file, b.data + done, b.bytes - done, b.offset + done);
            if (n <= 0) give_up("cannot move the data");
            done += n;
        }
    close(file);
}

// ---- one block

static void begin_block() {
    block_start = ++now;
    for (Region *r : regions)  // so that what reads it unwritten gets NaN
        if (r->space == SHARED) memset((void *)r->begin, 0xff, r->end - r->begin);
    for (Thread &t : threads) {
        t.state = READY;
        t.abandoned = t.published = false;
        t.floor = t.warp_floor = block_start;
        t.fenced = 0;
        t.known.clear();
        t.group.clear(), t.groups.clear(), t.store.clear(), t.stores.clear();
    }
    abandoned_threads = 0;
    abandoned_lanes.assign(launch.warps, 0);
    waiting_in_warp.assign(launch.warps, 0);
    for (Threads &waiting : at_barrier) waiting.clear();
    products.assign(launch.threads, {});
    mbarriers.clear();
    loads.clear();
    acquired.clear();
    observed.clear();
}

static void end_thread(Thread &t) {
    self = &t;
    weft_wgmma_commit();
    weft_tma_store_commit();
    if (!t.abandoned) {  // it ends, and has not waited
        for (const auto &group : products[t.index].groups)
            if (!group.empty()) report(ASYNC, group[0].pc);
        for (const Group &group : t.stores)
            if (!group.empty()) report(ASYNC, sites[group[0].site]->pc);
    }
    weft_wgmma_wait(0);
    weft_tma_store_wait(0);
    if (t.abandoned) try_open(0, launch.threads);
    self = nullptr;
}

static Thread *first(bool (*is)(const Thread &)) {
    auto found = std::find_if(threads.begin(), threads.end(), is);
    return found == threads.end() ? nullptr : &*found;
}

// Threads wait at a barrier, or lanes for others of their warp: say who is not there, and let go.
static void release_waiting(Thread &t) {
    bool at_barriers = t.state == AT_BARRIER;
    Threads some;
    for (Thread &u : threads)
        if (u.state == t.state && (at_barriers || u.warp == t.warp)) some.push_back(&u);
    Thread *other = at_barriers ? first([](const Thread &u) { return u.state == AT_WARP; })
                                : first([](const Thread &u) { return u.state == AT_BARRIER; });
    if (!other) other = first([](const Thread &u) { return u.state == AT_MBARRIER; });
    Thread *ended = first([](const Thread &u) { return u.state == ENDED; });
    self = &t;
    if (other) report(DIVERGENCE, t.pc, other->pc, other->index);
    else report(DIVERGENCE, t.pc, nullptr, ended ? ended->index : -1);
    self = nullptr;
    for (Threads &waiting : at_barrier) waiting.clear();
    if (!at_barriers) waiting_in_warp[t.warp] = 0;
    meet(some);
    wake(some);
}

// Nobody can go on, and nothing is under way. False: the launch ends here.
static bool unlock() {
    Thread *t = first([](const Thread &u) { return u.state == AT_WARP || u.state == AT_BARRIER; });
    if (t) {
        release_waiting(*t);
        return true;
    }
    for (Thread &u : threads)
        if (u.state == AT_MBARRIER) {
            self = &u;
            report(HANG, u.pc);
        }
    self = nullptr;
    return false;
}

static bool run_block() {
    begin_block();
    for (;;) {
        bool ran = false, left = false;
        for (Thread &t : threads)
            if (t.state == READY) {
                ran = true;
                resume(t);
                if (t.state == ENDED) end_thread(t);
            }
        for (Thread &t : threads) left = left || t.state != ENDED;
        if (!left) break;
        if (!ran && !finish_load() && !unlock()) return false;
    }
    for (const Load &load : loads) report(ASYNC, load.site->pc);
    for (u32 w = 0; w < launch.warps; w++) close_requests(w);
    return true;
}

// ---- the report

static void write_report() {
    FILE *out = fopen(report_path, "w");
    const char *comma = "";
    fprintf(out, "{\"faults\": [");
    for (const Fault &f : faults) {
        fprintf(out,
                "%s\n{\"kind\": \"%s\", \"pc\": %lu, \"other\": %lu, \"where\": \"%s\", "
                "\"offset\": %ld, \"block\": [%u, %u, %u], \"thread\": %d, "
                "\"other_thread\": %d, \"count\": %lu}",
                comma, f.kind, (u64)f.pc, (u64)f.other, f.where.c_str(), f.offset, f.block.x,
                f.block.y, f.block.z, f.thread, f.other_thread, f.count);
        comma = ",";
    }
    fprintf(out, "],\n\"accesses\": [");
    comma = "";
    for (const Site *s : sites) {
        if (!s->requests) continue;
        fprintf(out,
                "%s\n{\"pc\": %lu, \"kind\": %d, \"space\": %d, \"bytes\": %u, \"requests\": %lu, "
                "\"transactions\": %lu, \"ideal\": %lu}",
                comma, (u64)s->pc, s->kind, s->space, s->size, s->requests, s->transactions,
                s->ideal);
        comma = ",";
    }
    fprintf(out, "]}\n");
    fclose(out);
}

// Two places: where it is, which may be no line of the kernel, and the last access before.
[[noreturn]] static void stop(const char *kind, void *pc, const char *why) {
    report(kind, pc, self ? self->pc : nullptr, -1, why);
    write_report();
    _exit(0);
}

[[noreturn]] static void stop_launch() { stop(HANG, self->pc, ""); }

static void on_signal(int signal, siginfo_t *, void *context) {
#ifdef __x86_64__
    void *pc = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] + 1;
#else
    void *pc = nullptr;
#endif
    if (signal != SIGALRM) stop(CRASH, pc, strsignal(signal));
    if (out_of_time) stop(HANG, pc, "");  // a loop without memory accesses
    out_of_time = true;
    alarm(1);
}

static void catch_signals() {
    static char stack[64 << 10];  // a fiber's may be what is used up
    stack_t other = {stack, 0, sizeof stack};
    sigaltstack(&other, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    for (int s : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
        sigaction(s, &action, nullptr);
}

static void set_up() {
    launch.threads = launch.block.x * launch.block.y * launch.block.z;
    launch.warps = divide_up(launch.threads, launch.lanes);
    weft_grid_dim = launch.grid;
    weft_block_dim = launch.block;
    weft_warp_size = launch.lanes;
    dirty.resize(launch.warps);
    sites.push_back(new Site{});
    add_region((uintptr_t)&__executable_start, &data_start - &__executable_start, OTHER, "");
    make_fibers();
    for (u32 i = 0; i < launch.threads; i++) {
        Index b = launch.block;
        threads[i].index = i;
        threads[i].warp = i / launch.lanes;
        threads[i].lane = i % launch.lanes;
        threads[i].at = {i % b.x, i / b.x % b.y, i / (b.x * b.y)};
    }
}

static std::vector<void *> checked_arguments() {
    std::vector<void *> pointers;
    if (arguments.size() != kernel->count) give_up("wrong number of arguments");
    for (size_t i = 0; i < arguments.size(); i++) {
        if (arguments[i].size() != kernel->bytes[i])
            give_up(("argument " + std::to_string(i) + " has another size").c_str());
        pointers.push_back(arguments[i].data());
    }
    return pointers;
}

// All blocks, or a sample spread evenly over the grid.
static void run_blocks() {
    Index g = launch.grid;
    u64 all = (u64)g.x * g.y * g.z, some = launch.sample ? std::min(launch.sample, all) : all;
    for (u64 i = 0; i < some; i++) {
        u64 b = i * all / some;
        block_index = {(u32)(b % g.x), (u32)(b / g.x % g.y), (u32)(b / g.x / g.y)};
        weft_block_index = block_index;
        if (!run_block()) return;
    }
}

int main(int, char **argv) {
    catch_signals();
    data_path = argv[2];
    report_path = argv[3];
    std::ifstream job(argv[1]);
    size_t offset = 0;
    for (std::string line; std::getline(job, line);) read_line(line, offset);
    move_data(true);
    set_up();
    std::vector<void *> pointers = checked_arguments();
    kernel_arguments = pointers.data();
    run_blocks();
    move_data(false);
    write_report();
    _exit(0);
}
