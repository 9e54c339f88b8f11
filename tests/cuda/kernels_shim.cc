/* tests/cuda/kernels_shim.cc: the shim itself: what warps and barriers do, and that it ends a
 * test whose threads go wrong. */
#include "kit.h"

#include "exec/cuda_device.cuh"

#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

constexpr unsigned all = 0xffffffffu;

/* out[i] of one block of n threads. */
static std::vector<double> run(void (*kernel)(int *), dim3 block, size_t shared_bytes = 0)
{
    kit_memory<int> out(block.x * block.y * block.z);
    MCP_LAUNCH(kernel, 1, block, shared_bytes, nullptr, static_cast<int *>(out));
    return out.values();
}

static std::vector<double> numbers(int count, int (*of)(int))
{
    std::vector<double> want;
    for (int i = 0; i < count; i++)
        want.push_back(of(i));
    return want;
}

static int index()
{
    return static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
}

static void reverse(int *out)
{
    MCP_SHARED_ARRAY(int, shared);
    const int n = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
    for (int round = 0; round < 3; round++) {
        __syncthreads();
        shared[index()] = index() + round;
        __syncthreads();
        out[index()] = shared[n - 1 - index()];
    }
}

TEST(shim_barriers)
{
    for (const dim3 &block : {dim3(90), dim3(9, 10), dim3(5, 6, 3)})
        kit_compare(run(reverse, block, 90 * sizeof(int)),
                    numbers(90, [](int i) { return 91 - i; }), {0, 0}, "reversed");
}

static void shuffles(int *out)
{
    const int i = index(), value = 10 * i;
    out[i] = __shfl_xor_sync(all, value, 5) + __shfl_sync(all, i, 3) +
             __shfl_down_sync(all, value, 4) + __shfl_up_sync(all, value, 2);
}

TEST(shim_shuffles)
{
    kit_compare(run(shuffles, 64),
                numbers(64,
                        [](int i) {
                            const int warp = i / 32 * 32, lane = i % 32;
                            const int down = lane + 4 < 32 ? i + 4 : i;
                            const int up = lane >= 2 ? i - 2 : i;
                            return 10 * (warp + (lane ^ 5)) + warp + 3 + 10 * down + 10 * up;
                        }),
                {0, 0}, "shuffled");
}

static void votes(int *out)
{
    const int i = index();
    const unsigned half = i % 32 < 16 ? 0xffffu : 0xffff0000u;
    const unsigned odd = __ballot_sync(half, i % 2 != 0);
    out[i] = __popc(odd) + 100 * __any_sync(all, i == 40) + 1000 * __all_sync(all, i < 32);
}

TEST(shim_votes)
{
    kit_compare(run(votes, 64), numbers(64, [](int i) { return 8 + (i < 32 ? 1000 : 100); }),
                {0, 0}, "votes");
}

static void leave_early(int *out)
{
    if (index() >= 32)
        return;
    __syncthreads();
    out[index()] = 1;
}

TEST(shim_warps_may_leave)
{
    kit_compare(run(leave_early, 64), numbers(64, [](int i) { return i < 32 ? 1 : -1; }), {0, 0},
                "left");
}

static void unwritten(int *out)
{
    MCP_SHARED(float, shared, 64);
    out[index()] = std::isnan(shared[index()]);
}

TEST(shim_shared_memory_is_poisoned_for_each_block)
{
    for (int i = 0; i < 2; i++)
        kit_compare(run(unwritten, 64), std::vector<double>(64, 1), {0, 0}, "poison");
}

/* --- threads that go wrong --- */

/* Sanitizers may have been told to write into files; here a report is what is wanted. */
static void report_to_stderr(const char *options)
{
    const char *before = getenv(options);
    setenv(options, (std::string(before == nullptr ? "" : before) + ":log_path=stderr").c_str(), 1);
}

/* What a process of its own says that runs the kernel, before it ends by abort() or by a
 * sanitizer. Not a fork: after one, ThreadSanitizer no longer looks. */
static std::string last_words(const char *fault)
{
    int ends[2];
    std::string said;
    char text[256];
    if (pipe(ends) != 0)
        return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        report_to_stderr("ASAN_OPTIONS");
        report_to_stderr("UBSAN_OPTIONS");
        report_to_stderr("TSAN_OPTIONS");
        execl("/proc/self/exe", "kernels", "fault", fault, static_cast<char *>(nullptr));
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t count; (count = read(ends[0], text, sizeof text)) > 0;)
        said.append(text, static_cast<size_t>(count));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? "ended well" : said;
}

static void expect(const char *fault, const char *words)
{
    const std::string said = last_words(fault);
    if (said.find(words) == std::string::npos)
        kit_fail("%s: no \"%s\" in: %.2000s", fault, words, said.c_str());
}

/* A kernel, and how many threads it goes wrong with. */
#define FAULT(name, threads)                                                                       \
    static void name(int *out);                                                                    \
    static const kit_registered fault_##name(kit_faults(), #name,                                  \
                                             [] { run(name, threads, 64 * sizeof(int)); });        \
    static void name([[maybe_unused]] int *out)

FAULT(two_barriers, 64)
{
    if (index() < 32)
        __syncthreads();
    else
        __syncthreads();
    out[index()] = 0;
}

FAULT(two_operations, 32)
{
    if (index() < 16)
        out[index()] = __shfl_xor_sync(all, index(), 1);
    else
        __syncwarp();
}

FAULT(two_masks, 32)
{
    const unsigned mask = index() < 16 ? all : 0xffff0000u;
    out[index()] = __shfl_xor_sync(mask, index(), 1);
}

FAULT(lane_that_left, 32)
{
    if (index() == 31)
        return;
    out[index()] = __shfl_xor_sync(all, index(), 1);
}

FAULT(half_a_warp, 32)
{
    if (index() < 16)
        out[index()] = __shfl_xor_sync(all, index(), 1);
    __syncthreads();
}

FAULT(not_in_the_mask, 32)
{
    out[index()] = __shfl_xor_sync(0xfffffffeu, index(), 1);
}

FAULT(nothing, 1025)
{
}

TEST(shim_ends_what_goes_wrong)
{
    expect("two_barriers", "threads meet at different barriers");
    expect("two_operations", "lanes meet at different operations");
    expect("two_masks", "lane"); /* gone, or never there: by the order */
    expect("lane_that_left", "lane");
    expect("half_a_warp", "waits for lanes that do not come");
    expect("not_in_the_mask", "a lane is not in its mask");
    expect("nothing", "a launch of");
}

#if defined(__SANITIZE_THREAD__)

FAULT(no_barrier, 64)
{
    MCP_SHARED(int, shared, 64);
    shared[index()] = index();
    out[index()] = shared[63 - index()];
}

FAULT(late_barrier, 64)
{
    MCP_SHARED(int, shared, 1);
    for (int round = 0; round < 2; round++) {
        if (index() == 0)
            *shared = round;
        __syncthreads();
        out[index()] = *shared;
        /* the next round writes before all have read */
    }
}

FAULT(shuffle_orders_nothing, 32)
{
    MCP_SHARED(int, shared, 32);
    shared[index()] = index();
    __shfl_sync(all, 1, 0);
    out[index()] = shared[31 - index()];
}

FAULT(well_ordered, 64)
{
    MCP_SHARED(int, shared, 64);
    shared[index()] = index();
    __syncwarp();
    out[index()] = shared[index() ^ 1];
    __syncthreads();
    shared[63 - index()] = index();
}

TEST(shim_tells_thread_sanitizer)
{
    expect("no_barrier", "data race");
    expect("late_barrier", "data race");
    expect("shuffle_orders_nothing", "data race");
    expect("well_ordered", "ended well");
}

#else

/* Without a barrier what is read depends on the order of threads. */
static void read_neighbour(int *out)
{
    MCP_SHARED(int, shared, 64);
    shared[index()] = index();
    out[index()] = shared[(index() + 1) % 64];
}

TEST(shim_orders_differ)
{
    std::vector<double> first = run(read_neighbour, 64);
    bool whole = true;
    for (int i = 0; i < 64; i++)
        whole = whole && static_cast<int>(first[static_cast<size_t>(i)]) == (i + 1) % 64;
    if (whole)
        kit_fail("a missing barrier is not seen in this order");
}

#endif

/* --- shared memory of a device --- */

static void with_some(int *out)
{
    MCP_SHARED(int, more, 1024);
    MCP_SHARED_ARRAY(int, shared);
    more[index()] = shared[index()] = index();
    out[index()] = more[index()] + shared[index()];
}

#define SHARED_FAULT(name, limit, allowed, bytes)                                                  \
    static const kit_registered fault_##name(kit_faults(), #name, [] {                             \
        mcp_shim_set_shared_limit(limit);                                                          \
        if ((allowed) > 0)                                                                         \
            MCP_ALLOW_SHARED(with_some, allowed);                                                  \
        run(with_some, 32, bytes);                                                                 \
    })

SHARED_FAULT(not_allowed, 227 << 10, 0, 49 << 10);
SHARED_FAULT(allowed_less, 227 << 10, 50 << 10, 51 << 10);
SHARED_FAULT(not_there, 99 << 10, 113 << 10, 113 << 10);
SHARED_FAULT(not_there_for_both, 99 << 10, 97 << 10, 97 << 10);

TEST(shim_knows_how_much_shared_memory_there_is)
{
    expect("not_allowed", "nobody has allowed a kernel its 50176 bytes");
    expect("allowed_less", "nobody has allowed a kernel its 52224 bytes");
    expect("not_there", "a kernel wants 115712 bytes shared, of 101376");
    expect("not_there_for_both", "more shared memory than a block has");
    MCP_ALLOW_SHARED(with_some, 96 << 10);
    kit_compare({run(with_some, 32, 96 << 10)[31]}, {62}, {0, 0}, "96 KiB");
}

#if defined(__SANITIZE_ADDRESS__)

FAULT(past_the_end, 32)
{
    MCP_SHARED(int, shared, 32);
    shared[index() + 1] = index();
    out[index()] = 0;
}

FAULT(past_the_launch, 32)
{
    MCP_SHARED_ARRAY(int, shared);
    shared[index() + 33] = index();
    out[index()] = 0;
}

TEST(shim_tells_address_sanitizer)
{
    expect("past_the_end", "heap-buffer-overflow");
    expect("past_the_launch", "heap-buffer-overflow");
}

#endif
