/* tests/cuda/fake/engine.c: queues of ops, who may run, and who is next. */
#include "tests/cuda/fake/parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_STREAMS = 1024,
    MAX_CLOSINGS = 8,
    NEWS = 12,
    TICK_NS = 1000,
    SLEEP_NS = 20000000,
    LIMIT_S = 120
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct fake_policy policy;
    int devices, device_error;
    size_t device_bytes;
    struct CUstream_st *streams[MAX_STREAMS]; /* by device, then by index */
    int num_streams;
    struct CUstream_st *defaults[FAKE_MAX_DEVICES];
    int next_index[FAKE_MAX_DEVICES];
    long next_number[FAKE_MAX_DEVICES];
    struct waiter *waiters;
    int news[FAKE_MAX_DEVICES]; /* questions until a rank has seen what came of the last op */
    int joined, joined_waiting, joining;
    long joins;                             /* fake_join()s that are over */
    bool needs_known, memory_is_open, runs; /* runs: an op */
    int closings; /* of the memory since the last fake_join(): each takes a while */
    int objects, vain_rounds, patience;
    long run;
    uint64_t random;
    int64_t now_ns;
} engine = {.mutex = PTHREAD_MUTEX_INITIALIZER,
            .changed = PTHREAD_COND_INITIALIZER,
            .memory_is_open = true};

static _Thread_local struct fake_thread self;

struct fake_thread *fake_self(void)
{
    return &self;
}

int fake_num_devices(void)
{
    return engine.devices;
}

const struct CUstream_st *fake_stream_at(int i)
{
    return i < engine.num_streams ? engine.streams[i] : NULL;
}

const struct waiter *fake_waiters(void)
{
    return engine.waiters;
}

int fake_device_error(void)
{
    return engine.device_error;
}

size_t fake_device_bytes(void)
{
    return engine.device_bytes;
}

void fake_lock(void)
{
    pthread_mutex_lock(&engine.mutex);
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&engine.mutex);
}

void fake_wake(void)
{
    pthread_cond_broadcast(&engine.changed);
}

void fake_sleep(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += SLEEP_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&engine.changed, &engine.mutex, &until);
}

void fake_count_object(int change)
{
    engine.objects += change;
}

/* --- streams --- */

static bool is_before(const struct CUstream_st *a, const struct CUstream_st *b)
{
    return a->device != b->device ? a->device < b->device : a->index < b->index;
}

static struct CUstream_st *add_stream(int index)
{
    struct CUstream_st *s = calloc(1, sizeof *s);
    int at = engine.num_streams++;
    if (at == MAX_STREAMS)
        fake_stop("more than %d streams", MAX_STREAMS);
    s->device = self.device;
    s->index = index;
    s->tail = &s->head;
    for (; at > 0 && is_before(s, engine.streams[at - 1]); at--)
        engine.streams[at] = engine.streams[at - 1];
    engine.streams[at] = s;
    return s;
}

struct CUstream_st *fake_new_stream(void)
{
    fake_count_object(1);
    return add_stream(engine.next_index[self.device]++);
}

struct CUstream_st *fake_stream(struct CUstream_st *stream)
{
    if (stream != NULL)
        return stream;
    if (engine.defaults[self.device] == NULL)
        engine.defaults[self.device] = add_stream(-1);
    return engine.defaults[self.device];
}

static void remove_stream(struct CUstream_st *stream)
{
    int at = 0;
    while (engine.streams[at] != stream)
        at++;
    for (engine.num_streams--; at < engine.num_streams; at++)
        engine.streams[at] = engine.streams[at + 1];
    free(stream);
}

void fake_free_stream(struct CUstream_st *stream)
{
    if (stream->head != NULL)
        fake_stop("a stream is freed that holds ops");
    fake_count_object(-1);
    remove_stream(stream);
}

void fake_release_mark(struct fake_mark *mark)
{
    if (mark != NULL && --mark->owners == 0)
        free(mark);
}

/* --- what is over --- */

static void pop(struct CUstream_st *s)
{
    struct fake_op *op = s->head;
    s->head = op->next;
    if (s->head == NULL)
        s->tail = &s->head;
    if (op->calls != NULL && op->calls->drop != NULL)
        op->calls->drop(op);
    fake_release_mark(op->mark);
    free(op);
}

static bool is_over(const struct fake_op *op)
{
    if (op->calls == NULL)
        return !op->waits || op->mark->reached;
    return op->calls->is_over != NULL ? op->calls->is_over(op) : op->has_run;
}

/* Marks and waits cost nothing, and no order of theirs can be told from another. */
static void settle(void)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < engine.num_streams; i++) {
            struct CUstream_st *s = engine.streams[i];
            for (; s->head != NULL && is_over(s->head); again = true) {
                if (s->head->calls == NULL && !s->head->waits) {
                    s->head->mark->reached = true;
                    s->head->mark->reached_ns = engine.now_ns;
                    if (engine.runs)
                        engine.news[s->device] = NEWS;
                }
                pop(s);
            }
        }
    }
}

/* --- what is waited for --- */

/* A rank that trains and only asks: about this or that, so that nothing is needed by it. */
static bool is_curious(const struct waiter *w)
{
    return w->asks && w->joined;
}

void fake_need(struct CUstream_st *stream, long position)
{
    if (stream->needed < position)
        stream->needed = position;
}

static bool look_at_needs(struct CUstream_st *s)
{
    bool found = false;
    for (const struct fake_op *op = s->head; op != NULL && op->position <= s->needed;
         op = op->next) {
        if (op->position <= s->scanned)
            continue;
        found = true;
        if (op->calls == NULL && op->waits && !op->mark->reached)
            fake_need(op->mark->stream, op->mark->position);
        else if (op->calls != NULL && op->calls->need != NULL)
            op->calls->need(op);
    }
    s->scanned = s->needed;
    return found;
}

static void find_needs(void)
{
    for (int i = 0; i < engine.num_streams; i++)
        engine.streams[i]->needed = engine.streams[i]->scanned = 0;
    for (const struct waiter *w = engine.waiters; w != NULL; w = w->next)
        if (!is_curious(w))
            fake_need(w->mark->stream, w->mark->position);
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < engine.num_streams; i++)
            again = look_at_needs(engine.streams[i]) || again;
    }
    engine.needs_known = true;
}

/* --- who is next: the least rank, then the first queued, then the first device --- */

static struct fake_op *choose(bool lazy)
{
    struct fake_op *best = NULL;
    long best_rank = 0;
    if (lazy && !engine.needs_known)
        find_needs();
    for (int i = 0; i < engine.num_streams; i++) {
        struct fake_op *op = engine.streams[i]->head;
        if (op == NULL || op->calls == NULL || op->has_run ||
            (lazy && op->position > engine.streams[i]->needed) ||
            (op->calls->can_run != NULL && !op->calls->can_run(op)))
            continue;
        long rank = fake_rank_of(op, &engine.policy, &engine.random);
        if (best == NULL || rank < best_rank || (rank == best_rank && op->number < best->number)) {
            best = op;
            best_rank = rank;
        }
    }
    return best;
}

static void open_memory(bool open)
{
    if (engine.memory_is_open == open || (!open && ++engine.closings > MAX_CLOSINGS))
        return;
    fake_open_memory(open);
    engine.memory_is_open = open;
}

static void run(struct fake_op *op)
{
    open_memory(true);
    engine.run++;
    engine.now_ns += TICK_NS;
    engine.vain_rounds = 0;
    op->has_run = op->calls->is_over == NULL;
    engine.runs = true;
    op->calls->run(op);
    settle();
    engine.runs = false;
}

/* --- queueing --- */

static struct fake_op *push(struct CUstream_st *s)
{
    struct fake_op *op = calloc(1, sizeof *op);
    op->stream = s;
    op->number = engine.next_number[s->device]++;
    op->position = ++s->pushed;
    *s->tail = op;
    s->tail = &op->next;
    return op;
}

static void run_if_eager(void)
{
    if (!engine.policy.eager)
        return;
    settle();
    for (struct fake_op *op = choose(false); op != NULL; op = choose(false))
        run(op);
    fake_wake();
}

void fake_push(struct CUstream_st *stream, const struct fake_op_calls *calls, enum fake_work work,
               const char *name, void *closure)
{
    struct fake_op *op = push(stream);
    op->calls = calls;
    op->work = work;
    op->name = name;
    op->closure = closure;
    self.has_queued = true;
    run_if_eager();
}

void fake_push_op(struct CUstream_st *stream, const struct fake_op_calls *calls,
                  enum fake_work work, void *closure, struct fake_op **out)
{
    struct fake_op *op = *out = push(stream);
    op->calls = calls;
    op->work = work;
    op->closure = closure;
    self.has_queued = true;
    run_if_eager();
}

struct fake_mark *fake_push_mark(struct CUstream_st *stream)
{
    struct fake_op *op = push(stream);
    struct fake_mark *mark = calloc(1, sizeof *mark);
    *mark = (struct fake_mark){.owners = 2, .stream = stream, .position = op->position};
    op->mark = mark;
    run_if_eager();
    return mark;
}

void fake_push_wait(struct CUstream_st *stream, struct fake_mark *mark)
{
    if (mark->reached)
        return;
    struct fake_op *op = push(stream);
    op->mark = mark;
    op->waits = true;
    mark->owners++;
    self.has_queued = true;
}

/* --- waiting --- */

static void release(struct waiter **at)
{
    struct waiter *w = *at;
    *at = w->next;
    w->released = true;
    engine.joined_waiting -= w->joined;
    engine.needs_known = false;
}

enum released { REACHED, CURIOUS, ASKING };

/* Those whose mark is reached, and who else; a thread that goes on closes the memory. */
static bool release_waiters(enum released who)
{
    bool any = false;
    for (struct waiter **at = &engine.waiters; *at != NULL;)
        if ((*at)->mark->reached || (who == ASKING && (*at)->asks) ||
            (who == CURIOUS && is_curious(*at))) {
            release(at);
            any = true;
        } else {
            at = &(*at)->next;
        }
    if (any) {
        open_memory(engine.joined == 0 || engine.policy.eager);
        fake_wake();
    }
    return any;
}

/* Lazy: what is waited for; where ranks only ask, or nothing of it can run, anything. */
static struct fake_op *choose_for_waiters(void)
{
    bool curious = false, patient = false;
    for (const struct waiter *w = engine.waiters; w != NULL; w = w->next)
        *(is_curious(w) ? &curious : &patient) = true;
    struct fake_op *op = patient ? choose(engine.policy.lazy) : NULL;
    return op == NULL && curious ? choose(false) : op;
}

/* Runs one op, or lets those go that only ask. False: all is stuck. */
static bool advance(void)
{
    struct fake_op *op = choose_for_waiters();
    if (op != NULL) {
        run(op);
        release_waiters(CURIOUS);
        return true;
    }
    if (!release_waiters(ASKING))
        return false;
    if (engine.joined > 0 && ++engine.vain_rounds > engine.patience)
        fake_stop("ranks have asked %d times in vain: nothing can run", engine.patience);
    return true;
}

static long seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec;
}

static void wait_as(struct waiter *w)
{
    long since = seconds(), done = engine.run;
    settle();
    release_waiters(REACHED);
    while (!w->released) {
        bool quiet = engine.joined == engine.joined_waiting;
        if (quiet && advance())
            continue;
        if (quiet && engine.joined > 0)
            fake_stop("deadlock: nothing can run, and all ranks wait");
        fake_sleep();
        if (done != engine.run)
            since = seconds();
        done = engine.run;
        if (seconds() - since > LIMIT_S)
            fake_stop("nothing has run for %d s", LIMIT_S);
    }
}

/* May a rank that asks be told "not yet" at once? It has just queued something, or has not yet
 * looked at all that it may ask about since something came to be over. */
static bool is_too_early(void)
{
    int *news = &engine.news[self.device];
    bool early = self.has_queued || (self.joined && *news > 0);
    *news -= *news > 0;
    return early;
}

bool fake_wait(struct fake_mark *mark, bool asks)
{
    settle();
    bool early = asks && !mark->reached && is_too_early();
    self.has_queued = false;
    if (mark->reached || early)
        return mark->reached;
    struct waiter w = {engine.waiters, mark, self.device, asks, self.joined, false};
    engine.waiters = &w;
    engine.joined_waiting += self.joined;
    engine.needs_known = false;
    wait_as(&w);
    return mark->reached;
}

void fake_finish_device(void)
{
    for (int i = 0; i < engine.num_streams; i++)
        if (engine.streams[i]->device == self.device && engine.streams[i]->head != NULL) {
            struct fake_mark *mark = fake_push_mark(engine.streams[i]);
            fake_wait(mark, false);
            fake_release_mark(mark);
            i = -1;
        }
}

/* --- what tests call --- */

void fake_begin(int devices, size_t device_bytes)
{
    fake_lock();
    engine.devices = devices;
    engine.device_bytes = device_bytes;
    engine.device_error = 0;
    engine.patience = 100000;
    engine.run = 0;
    engine.now_ns = 0;
    engine.vain_rounds = 0;
    engine.policy = (struct fake_policy){.order = FAKE_FIFO};
    self = (struct fake_thread){0};
    fake_unlock();
}

int fake_end(void)
{
    fake_lock();
    int left = engine.objects;
    fake_forget_memory();
    fake_forget_comms();
    while (engine.num_streams > 0) {
        while (engine.streams[0]->head != NULL)
            pop(engine.streams[0]);
        remove_stream(engine.streams[0]);
    }
    memset(engine.defaults, 0, sizeof engine.defaults);
    memset(engine.next_index, 0, sizeof engine.next_index);
    memset(engine.next_number, 0, sizeof engine.next_number);
    engine.objects = 0;
    fake_unlock();
    return left;
}

void fake_set_policy(const struct fake_policy *policy)
{
    fake_lock();
    engine.policy = *policy;
    engine.random = policy->seed;
    engine.needs_known = false;
    fake_unlock();
}

void fake_set_device_error(int error)
{
    engine.device_error = error;
}

void fake_set_patience(int rounds)
{
    engine.patience = rounds;
}

void fake_join(int ranks)
{
    fake_lock();
    long join = engine.joins;
    if (++engine.joining == ranks) {
        engine.joined = ranks;
        engine.joining = 0;
        engine.joins++;
        engine.closings = 0;
        open_memory(engine.policy.eager);
        fake_wake();
    }
    while (engine.joins == join)
        fake_sleep();
    self.joined = true;
    fake_unlock();
}

void fake_leave(void)
{
    fake_lock();
    self.joined = false;
    if (--engine.joined == 0)
        open_memory(true);
    fake_wake();
    fake_unlock();
}

long fake_ops_run(void)
{
    return engine.run;
}
