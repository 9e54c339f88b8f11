/* tests/cuda/shim/shim.cc: a block's threads as fibers: shim.h.
 *
 * Threads run in a fixed order, each until it waits. One that never waits leaves its fiber to
 * the next, so that element-wise kernels run at the speed of plain loops; under ThreadSanitizer
 * (MCP_SHIM_TSAN; this file is not instrumented) each has a fiber of its own, and only barriers,
 * __syncwarp and the edges of a block order what they do. */
#include "shim.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <vector>

/* A switch by hand costs a third of swapcontext's, which asks the kernel for a signal mask. */
#if defined(__x86_64__) && !defined(MCP_SHIM_UCONTEXT)
#define MCP_SHIM_BY_HAND 1
#else
#define MCP_SHIM_BY_HAND 0
#include <ucontext.h>
#endif

#if defined(MCP_SHIM_TSAN)
extern "C" {
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void *__tsan_get_current_fiber(void);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}
#endif
#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size);
}
#endif

thread_local const mcp_shim_place *mcp_shim_here;

namespace
{

constexpr size_t stack_bytes = 256 << 10;
enum mcp_shim_order order_of_threads = MCP_SHIM_ASCENDING;

[[noreturn]] void give_up(const char *what, const mcp_shim_place &place, const char *file, int line)
{
    fprintf(stderr, "shim: %s: block (%u, %u, %u), thread (%u, %u, %u), %s:%d\n", what,
            place.block.x, place.block.y, place.block.z, place.thread.x, place.thread.y,
            place.thread.z, file == nullptr ? "?" : file, line);
    abort();
}

/* --- fibers --- */

struct fiber {
#if MCP_SHIM_BY_HAND
    void *pointer = nullptr; /* of the stack, while it does not run */
#else
    ucontext_t context;
#endif
    void *stack = nullptr;
    void *fake_stack = nullptr, *tsan = nullptr;
    const void *bottom = nullptr; /* for AddressSanitizer */
    size_t bytes = 0;
};

#if MCP_SHIM_BY_HAND
extern "C" void mcp_shim_switch(void **from, void *to);
__asm__(".text\n"
        ".globl mcp_shim_switch\n"
        ".type mcp_shim_switch, @function\n"
        "mcp_shim_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size mcp_shim_switch, .-mcp_shim_switch\n");
#endif

void switch_fibers(fiber &from, fiber &to)
{
#if defined(MCP_SHIM_TSAN)
    __tsan_switch_to_fiber(to.tsan, 1);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
#if MCP_SHIM_BY_HAND
    mcp_shim_switch(&from.pointer, to.pointer);
#else
    swapcontext(&from.context, &to.context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

/* --- a block at work --- */

enum state { UNSTARTED, READY, AT_BARRIER, MEETING, DONE };

struct thread {
    mcp_shim_place place;
    enum state state;
    fiber *on;
    mcp_shim_meeting meeting; /* file and line of barriers too */
    void *mine;
};

struct shared_memory {
    const void *site;
    unsigned char *data;
    size_t bytes;
};

struct engine {
    std::vector<std::unique_ptr<fiber>> fibers;
    std::vector<fiber *> idle, spent; /* spent: of no further thread of this block */
    fiber scheduler;
    fiber *current_fiber = nullptr;
    std::vector<thread> threads;
    std::vector<unsigned> order;
    unsigned cursor = 0;
    thread *current = nullptr, *handed_over = nullptr;
    const mcp_shim_shape *shape = nullptr;
    void (*function)(void *context) = nullptr;
    void *context = nullptr;
    std::vector<shared_memory> shared;
    size_t arena_used = 0;
    /* What ThreadSanitizer is told of: a thread that is late still sees its own barrier only. */
    char start = 0, end = 0, barriers[2] = {}, warps[32][2] = {};
    unsigned num_barriers = 0, num_meetings[32] = {};

    ~engine()
    {
        for (auto &f : fibers) {
            ASAN_UNPOISON_MEMORY_REGION(f->stack, stack_bytes); /* others come to lie there */
            munmap(f->stack, stack_bytes);
        }
    }
};
thread_local std::unique_ptr<engine> engines;
thread_local engine *the;

void acquire([[maybe_unused]] void *what)
{
#if defined(MCP_SHIM_TSAN)
    __tsan_acquire(what);
#endif
}

void release([[maybe_unused]] void *what)
{
#if defined(MCP_SHIM_TSAN)
    __tsan_release(what);
#endif
}

thread *next_runnable()
{
    const unsigned count = static_cast<unsigned>(the->order.size());
    for (unsigned i = 0; i < count; i++) {
        thread &t = the->threads[the->order[the->cursor]];
        the->cursor = (the->cursor + 1) % count;
        if (t.state == UNSTARTED || t.state == READY)
            return &t;
    }
    return nullptr;
}

void enter(thread *t)
{
    the->current = t;
    mcp_shim_here = &t->place;
}

/* Runs threads from their beginning, one after the other while none waits. */
void run_threads()
{
    for (thread *t = the->current;;) {
        t->on = the->current_fiber;
        t->state = READY;
        enter(t);
        acquire(&the->start);
        the->function(the->context);
        release(&the->end);
        t->state = DONE;
#if defined(MCP_SHIM_TSAN)
        the->spent.push_back(the->current_fiber);
#else
        t = next_runnable();
        if (t != nullptr && t->state == UNSTARTED)
            continue;
        the->handed_over = t;
        the->idle.push_back(the->current_fiber);
#endif
        switch_fibers(*the->current_fiber, the->scheduler);
        t = the->current;
    }
}

void begin_fiber()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &the->scheduler.bottom, &the->scheduler.bytes);
#endif
    run_threads();
}

fiber *new_fiber()
{
    auto made = std::make_unique<fiber>();
    void *memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, 4096, PROT_NONE) != 0) {
        fprintf(stderr, "shim: no memory for the stack of a thread\n");
        abort();
    }
    made->stack = memory;
    made->bottom = memory;
    made->bytes = stack_bytes;
#if MCP_SHIM_BY_HAND
    auto *top = reinterpret_cast<uintptr_t *>(static_cast<char *>(memory) + stack_bytes);
    top -= 1; /* where begin_fiber() would return to */
    *--top = reinterpret_cast<uintptr_t>(begin_fiber);
    made->pointer = top - 6;
#else
    getcontext(&made->context);
    made->context.uc_stack.ss_sp = memory;
    made->context.uc_stack.ss_size = stack_bytes;
    made->context.uc_link = nullptr;
    makecontext(&made->context, begin_fiber, 0);
#endif
#if defined(MCP_SHIM_TSAN)
    made->tsan = __tsan_create_fiber(0);
#endif
    the->fibers.push_back(std::move(made));
    return the->fibers.back().get();
}

void resume(thread *t)
{
    if (t->state == UNSTARTED && the->idle.empty())
        the->idle.push_back(new_fiber());
    fiber *f = t->on;
    if (t->state == UNSTARTED) {
        f = the->idle.back();
        the->idle.pop_back();
    }
    the->current_fiber = f;
    enter(t);
    switch_fibers(the->scheduler, *f);
}

void wait_as(enum state state)
{
    thread *self = the->current;
    self->state = state;
    switch_fibers(*self->on, the->scheduler);
}

/* All threads wait or are done: what for? False: all are done. */
bool open_barrier()
{
    thread *first = nullptr;
    for (thread &t : the->threads) {
        if (t.state == DONE)
            continue;
        if (t.state == MEETING)
            give_up("waits for lanes that do not come", t.place, t.meeting.file, t.meeting.line);
        if (first == nullptr)
            first = &t;
        if (t.meeting.line != first->meeting.line ||
            strcmp(t.meeting.file, first->meeting.file) != 0) {
            fprintf(stderr, "shim: others are at %s:%d\n", first->meeting.file,
                    first->meeting.line);
            give_up("threads meet at different barriers", t.place, t.meeting.file, t.meeting.line);
        }
    }
    for (thread &t : the->threads)
        t.state = t.state == DONE ? DONE : READY;
    the->cursor = 0;
    the->num_barriers++;
    return first != nullptr;
}

void make_order(unsigned count)
{
    the->order.resize(count);
    std::iota(the->order.begin(), the->order.end(), 0u);
    if (order_of_threads == MCP_SHIM_DESCENDING)
        std::reverse(the->order.begin(), the->order.end());
    uint64_t state = 88172645463325252u;
    for (unsigned i = count; order_of_threads == MCP_SHIM_SHUFFLED && i > 1; i--) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        std::swap(the->order[i - 1], the->order[state % i]);
    }
}

void place_threads(uint3 block)
{
    const dim3 &shape = the->shape->block;
    for (unsigned i = 0; i < the->threads.size(); i++) {
        thread &t = the->threads[i];
        t = thread{};
        t.place.thread = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
        t.place.block = block;
        t.place.block_shape = shape;
        t.place.grid_shape = the->shape->grid;
    }
}

void free_shared()
{
#if !defined(MCP_SHIM_TSAN)
    for (shared_memory &s : the->shared)
        free(s.data);
#endif
    the->arena_used = 0;
    the->shared.clear();
}

void run_block(uint3 block)
{
    place_threads(block);
    the->cursor = 0;
    release(&the->start);
    do {
        for (thread *t = next_runnable(); t != nullptr;) {
            the->handed_over = nullptr;
            resume(t);
            t = the->handed_over != nullptr ? the->handed_over : next_runnable();
        }
    } while (open_barrier());
    acquire(&the->end);
    free_shared();
    the->idle.insert(the->idle.end(), the->spent.begin(), the->spent.end());
    the->spent.clear();
    mcp_shim_here = nullptr;
}

/* Not memset: ThreadSanitizer watches that. */
void poison(unsigned char *data, size_t bytes)
{
    volatile unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        at[i] = 0xff;
}

#if defined(MCP_SHIM_TSAN)
/* No allocator's, nor mmap's: those are watched too. */
alignas(256) unsigned char arena[1 << 20];
#endif

unsigned char *new_shared(size_t bytes)
{
#if defined(MCP_SHIM_TSAN)
    auto *data = arena + the->arena_used;
    the->arena_used += (bytes + 255) / 256 * 256;
    if (the->arena_used > sizeof arena)
        give_up("shared memory is used up", the->current->place, nullptr, 0);
#else
    auto *data = static_cast<unsigned char *>(malloc(bytes > 0 ? bytes : 1));
    if (data == nullptr)
        abort();
#endif
    poison(data, bytes);
    return data;
}

unsigned index_of(const thread *t)
{
    return static_cast<unsigned>(t - the->threads.data());
}

} // namespace

/* --- what kernels call --- */

void *mcp_shim_shared(const void *site, size_t bytes)
{
    for (const shared_memory &s : the->shared)
        if (s.site == site)
            return s.data;
    size_t all = bytes;
    for (const shared_memory &s : the->shared)
        all += s.bytes;
    if (all > mcp_shared_limit())
        give_up("more shared memory than a block has", the->current->place, nullptr, 0);
    the->shared.push_back({site, new_shared(bytes), bytes});
    return the->shared.back().data;
}

void *mcp_shim_dynamic()
{
    return mcp_shim_shared(&the->shape, the->shape->shared_bytes);
}

void mcp_shim_barrier(const char *file, int line)
{
    thread *self = the->current;
    self->meeting = {0, nullptr, file, line};
    void *edge = &the->barriers[the->num_barriers % 2];
    release(edge);
    wait_as(AT_BARRIER);
    acquire(edge);
}

void __threadfence()
{
}

int mcp_shim_lane()
{
    return static_cast<int>(index_of(the->current) % 32);
}

/* Most lanes see by their neighbours that they are not the last. */
static bool is_early(const thread *self, const thread *warp, unsigned lanes)
{
    const unsigned lane = static_cast<unsigned>(self - warp);
    for (unsigned i : {lane + 1, lane - 1})
        if (i < lanes && (self->meeting.mask >> i & 1) != 0 && warp[i].state != MEETING &&
            warp[i].state != DONE)
            return true;
    return false;
}

/* The last lane finds all others waiting; it does the work of all. */
static bool is_last(const thread *self, thread *warp, unsigned lanes)
{
    if (is_early(self, warp, lanes))
        return false;
    const mcp_shim_meeting &mine = self->meeting;
    bool all = true;
    for (unsigned i = 0; i < 32; i++) {
        if ((mine.mask >> i & 1) == 0 || &warp[i] == self)
            continue;
        if (i >= lanes || warp[i].state == DONE)
            give_up("a lane of the mask is gone", self->place, mine.file, mine.line);
        all = all && warp[i].state == MEETING;
        if (warp[i].state != MEETING)
            continue;
        const mcp_shim_meeting &other = warp[i].meeting;
        if (other.mask != mine.mask || other.together != mine.together || other.line != mine.line ||
            (other.file != mine.file && strcmp(other.file, mine.file) != 0))
            give_up("lanes meet at different operations", warp[i].place, other.file, other.line);
    }
    return all;
}

void mcp_shim_meet(const mcp_shim_meeting &meeting, void *mine)
{
    thread *self = the->current;
    const unsigned first = index_of(self) / 32 * 32;
    const unsigned left = static_cast<unsigned>(the->threads.size()) - first;
    thread *warp = &the->threads[first];
    self->meeting = meeting;
    self->mine = mine;
    if ((meeting.mask >> (index_of(self) % 32) & 1) == 0)
        give_up("a lane is not in its mask", self->place, meeting.file, meeting.line);
    unsigned &number = the->num_meetings[first / 32];
    void *edge = &the->warps[first / 32][number % 2];
    if (meeting.together == nullptr)
        release(edge);
    if (!is_last(self, warp, left < 32 ? left : 32)) {
        wait_as(MEETING);
    } else {
        void *lanes[32];
        for (unsigned i = 0; i < 32; i++)
            lanes[i] = (meeting.mask >> i & 1) != 0 ? warp[i].mine : nullptr;
        if (meeting.together != nullptr)
            meeting.together(lanes, meeting.mask);
        for (unsigned i = 0; i < 32; i++)
            if ((meeting.mask >> i & 1) != 0)
                warp[i].state = READY;
        number++;
    }
    if (meeting.together == nullptr)
        acquire(edge);
}

/* --- shared memory of a device --- */

static std::mutex limits; /* ranks are threads */
static size_t shared_limit = 227 << 10;
static std::map<void (*)(), size_t> allowed;

extern "C" void mcp_shim_set_shared_limit(size_t bytes)
{
    shared_limit = bytes;
}

size_t mcp_shared_limit()
{
    return shared_limit;
}

void mcp_shim_allow_shared(void (*kernel)(), size_t bytes)
{
    const std::lock_guard<std::mutex> lock(limits);
    if (bytes > shared_limit) {
        fprintf(stderr, "shim: a kernel wants %zu bytes shared, of %zu\n", bytes, shared_limit);
        abort();
    }
    allowed[kernel] = bytes;
}

void mcp_shim_check_shared(void (*kernel)(), size_t bytes)
{
    const std::lock_guard<std::mutex> lock(limits);
    if (bytes > (48u << 10) && (allowed.count(kernel) == 0 || bytes > allowed[kernel])) {
        fprintf(stderr, "shim: nobody has allowed a kernel its %zu bytes shared\n", bytes);
        abort();
    }
}

/* --- launches --- */

void mcp_shim_set_order(enum mcp_shim_order order)
{
    order_of_threads = order;
}

void mcp_shim_run(const mcp_shim_shape &shape, void (*function)(void *context), void *context)
{
    const unsigned long count = 1ul * shape.block.x * shape.block.y * shape.block.z;
    const unsigned long blocks = 1ul * shape.grid.x * shape.grid.y * shape.grid.z;
    if (count == 0 || count > 1024 || blocks == 0 || shape.grid.y > 65535 || shape.grid.z > 65535 ||
        shape.grid.x > 0x7fffffffu) {
        fprintf(stderr, "shim: a launch of (%u, %u, %u) blocks of (%u, %u, %u), %zu bytes shared\n",
                shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
                shape.block.z, shape.shared_bytes);
        abort();
    }
    if (engines == nullptr)
        engines = std::make_unique<engine>();
    the = engines.get();
    the->idle.reserve(1024); /* here, not by a thread of the kernel */
    the->spent.reserve(1024);
    the->shared.reserve(64);
    the->shape = &shape;
    the->function = function;
    the->context = context;
    the->threads.resize(count);
#if defined(MCP_SHIM_TSAN)
    the->scheduler.tsan = __tsan_get_current_fiber();
#endif
    make_order(static_cast<unsigned>(count));
    for (unsigned long i = 0; i < blocks; i++)
        run_block({static_cast<unsigned>(i % shape.grid.x),
                   static_cast<unsigned>(i / shape.grid.x % shape.grid.y),
                   static_cast<unsigned>(i / shape.grid.x / shape.grid.y)});
}

__attribute__((weak)) void mcp_shim_enqueue(void *, void (*run)(void *closure),
                                            void (*drop)(void *closure), void *closure)
{
    run(closure);
    drop(closure);
}
