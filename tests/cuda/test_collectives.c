/* tests/cuda/test_collectives.c: the fake NCCL: ranks as threads, whatever the order, and what
 * it says of ranks that do not agree. */
#include "nccl.h"
#include "tests/cuda/fake/engine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, COUNT = 10 };

/* Criterion's assertions are its main thread's: ranks count what is wrong. */
struct rank {
    int rank, wrong;
    cudaStream_t streams[2];
    ncclComm_t world;
    float *data; /* on the device: COUNT, then RANKS x COUNT */
    float host[(RANKS + 1) * COUNT];
    void (*act)(struct rank *rank);
};

static ncclUniqueId id;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            r->wrong++;                                                                            \
            fprintf(stderr, "rank %d: line %d: %s\n", r->rank, __LINE__, #condition);              \
        }                                                                                          \
    } while (0)

static void settle(struct rank *r, ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress)
        ncclCommGetAsyncError(comm, &state);
    CHECK(state == ncclSuccess);
}

static void open_rank(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    cudaSetDevice(r->rank);
    for (int i = 0; i < 2; i++)
        cudaStreamCreateWithFlags(&r->streams[i], cudaStreamNonBlocking);
    CHECK(ncclCommInitRankConfig(&r->world, RANKS, id, r->rank, &config) == ncclInProgress);
    settle(r, r->world);
    cudaMalloc((void **)&r->data, sizeof r->host);
    for (int i = 0; i < (RANKS + 1) * COUNT; i++)
        r->host[i] = (float)(r->rank * 100 + i);
    cudaMemcpy(r->data, r->host, sizeof r->host, cudaMemcpyHostToDevice);
}

static void close_rank(struct rank *r)
{
    ncclCommDestroy(r->world);
    cudaFree(r->data);
    for (int i = 0; i < 2; i++)
        cudaStreamDestroy(r->streams[i]);
}

static void *live(void *argument)
{
    struct rank *r = argument;
    open_rank(r);
    fake_join(RANKS);
    r->act(r);
    fake_leave();
    close_rank(r);
    return NULL;
}

static void run_ranks(void (*act)(struct rank *rank), const struct fake_policy *policy)
{
    static struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    fake_begin(RANKS, (size_t)1 << 20);
    fake_set_policy(policy);
    ncclGetUniqueId(&id);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){.rank = i, .act = act};
        pthread_create(&threads[i], NULL, live, &ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(eq(int, ranks[i].wrong, 0), "rank %d, order %d", i, policy->order);
    }
    cr_expect(eq(int, fake_end(), 0), "something was left behind");
}

/* Under every order, with and without laziness. */
static void run_orders(void (*act)(struct rank *rank))
{
    for (int order = 0; order < FAKE_NUM_ORDERS; order++)
        for (int lazy = 0; lazy < 2; lazy++) {
            const struct fake_policy policy = {.order = (enum fake_order)order, .lazy = lazy};
            run_ranks(act, &policy);
        }
    run_ranks(act, &(struct fake_policy){.eager = true});
}

static void fetch(struct rank *r)
{
    for (int i = 0; i < 2; i++)
        cudaStreamSynchronize(r->streams[i]);
    cudaMemcpyAsync(r->host, r->data, sizeof r->host, cudaMemcpyDefault, r->streams[0]);
    cudaStreamSynchronize(r->streams[0]);
}

/* --- what they do --- */

static void reduce(struct rank *r)
{
    float *whole = r->data + COUNT;
    CHECK(ncclAllReduce(r->data, r->data, COUNT, ncclFloat32, ncclSum, r->world, r->streams[0]) ==
          ncclInProgress);
    settle(r, r->world);
    ncclReduceScatter(whole, whole + r->rank * COUNT, COUNT, ncclFloat32, ncclMax, r->world,
                      r->streams[0]);
    settle(r, r->world);
    fetch(r);
    for (int i = 0; i < COUNT; i++) {
        CHECK(r->host[i] == (float)(600 + 4 * i));
        CHECK(r->host[(1 + r->rank) * COUNT + i] == (float)(300 + (1 + r->rank) * COUNT + i));
    }
}

Test(collectives, reduce)
{
    run_orders(reduce);
}

static void gather(struct rank *r)
{
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    float *whole = r->data + COUNT;
    ncclAllGather(r->data, whole, COUNT, ncclFloat32, r->world, r->streams[1]);
    settle(r, r->world);
    cudaEventRecord(event, r->streams[1]);
    cudaStreamWaitEvent(r->streams[0], event, 0);
    ncclGroupStart();
    for (int i = 0; i < RANKS; i++) /* of uneven length */
        ncclBroadcast(whole + i * COUNT, r->data, (size_t)(i + 1), ncclFloat32, i, r->world,
                      r->streams[0]);
    CHECK(ncclGroupEnd() == ncclInProgress);
    settle(r, r->world);
    fetch(r);
    for (int i = 0; i < RANKS * COUNT; i++)
        CHECK(r->host[COUNT + i] == (float)(i / COUNT * 100 + i % COUNT));
    CHECK(r->host[0] == 300 && r->host[3] == 303);
    cudaEventDestroy(event);
}

Test(collectives, gather)
{
    run_orders(gather);
}

/* Everybody sends to everybody, itself too; the two halves of a ring pass meet by being grouped. */
static void exchange(struct rank *r)
{
    float *whole = r->data + COUNT;
    ncclGroupStart();
    for (int i = 0; i < RANKS; i++) {
        ncclSend(r->data + i, 1, ncclFloat32, i, r->world, r->streams[0]);
        ncclRecv(whole + i, 1, ncclFloat32, i, r->world, r->streams[0]);
    }
    ncclGroupEnd();
    settle(r, r->world);
    fetch(r);
    for (int i = 0; i < RANKS; i++)
        CHECK(r->host[COUNT + i] == (float)(100 * i + r->rank));
}

Test(collectives, exchange)
{
    run_orders(exchange);
}

/* Calls of a communicator keep their order though they are on two streams; two communicators'
 * do not. */
static void split(struct rank *r)
{
    ncclComm_t pair = r->world; /* to be overwritten */
    int rank = -1, size = -1;
    ncclCommSplit(r->world, r->rank % 2, -r->rank, &pair, NULL);
    CHECK(pair == NULL);
    CHECK(ncclAllReduce(r->data, r->data, 1, ncclFloat32, ncclSum, r->world, r->streams[0]) ==
          ncclInvalidArgument); /* still at work */
    fake_leave();
    settle(r, r->world);
    CHECK(pair != NULL);
    settle(r, pair);
    fake_join(RANKS);
    ncclCommUserRank(pair, &rank);
    ncclCommCount(pair, &size);
    CHECK(rank == (r->rank < 2) && size == 2);
    ncclAllReduce(r->data, r->data, 1, ncclFloat32, ncclSum, pair, r->streams[0]);
    settle(r, pair);
    ncclAllReduce(r->data, r->data, 1, ncclFloat32, ncclSum, pair, r->streams[1]);
    settle(r, pair);
    fetch(r);
    CHECK(r->host[0] == (float)(r->rank % 2 == 0 ? 400 : 800));
    ncclCommDestroy(pair);
}

Test(collectives, split)
{
    run_orders(split);
}

/* The sum is of what lies there when the collective runs, and nothing says that the memset waits. */
static void race(struct rank *r)
{
    ncclAllReduce(r->data, r->data + 1, 1, ncclFloat32, ncclSum, r->world, r->streams[0]);
    settle(r, r->world);
    cudaMemsetAsync(r->data, 0, sizeof(float), r->streams[1]);
    fetch(r);
}

static void race_won(struct rank *r)
{
    race(r);
    CHECK(r->host[1] == 600);
}

static void race_lost(struct rank *r)
{
    race(r);
    CHECK(r->host[1] == 0);
}

Test(collectives, a_wait_that_lacks_shows)
{
    run_ranks(race_won, &(struct fake_policy){.order = FAKE_FIFO});
    run_ranks(race_won, &(struct fake_policy){.order = FAKE_TRANSFERS_FIRST});
    run_ranks(race_lost, &(struct fake_policy){.order = FAKE_TRANSFERS_LAST});
    run_ranks(race_lost, &(struct fake_policy){.order = FAKE_STREAM_LAST, .stream = 0});
}

/* --- who does not agree --- */

static void miscount(struct rank *r)
{
    ncclAllReduce(r->data, r->data, r->rank == 2 ? 2 : 1, ncclFloat32, ncclSum, r->world,
                  r->streams[0]);
    settle(r, r->world);
    cudaStreamSynchronize(r->streams[0]);
}

/* It lists what is queued on standard error before it ends. */
static void expect_no_text(void)
{
    cr_assert(freopen("/dev/null", "w", stderr) != NULL);
}

Test(collectives, counts_must_agree, .signal = SIGABRT, .init = expect_no_text)
{
    run_ranks(miscount, &(struct fake_policy){.order = FAKE_FIFO});
}

static void stay_away(struct rank *r)
{
    if (r->rank != 2)
        ncclAllReduce(r->data, r->data, 1, ncclFloat32, ncclSum, r->world, r->streams[0]);
    settle(r, r->world);
    cudaStreamSynchronize(r->streams[0]);
}

Test(collectives, deadlock_ends, .signal = SIGABRT, .init = expect_no_text)
{
    run_ranks(stay_away, &(struct fake_policy){.order = FAKE_FIFO});
}

static void fail(struct rank *r)
{
    ncclResult_t state = ncclSuccess, result;
    result = ncclAllReduce(r->data, r->data, 1, ncclFloat32, ncclSum, r->world, r->streams[0]);
    while (result != ncclSystemError && result != ncclRemoteError) {
        cudaStreamQuery(r->streams[0]);
        ncclCommGetAsyncError(r->world, &state);
        result = state == ncclInProgress ? ncclSuccess : state;
    }
    CHECK(result == (r->rank == 1 ? ncclSystemError : ncclRemoteError));
    ncclCommAbort(r->world);
    cudaStreamSynchronize(r->streams[0]); /* nothing of it hangs */
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    fake_leave();
    ncclCommInitRankConfig(&r->world, 1, (ncclUniqueId){{(char)('a' + r->rank)}}, 0, &config);
    fake_join(RANKS);
}

Test(collectives, failure_is_told_to_all)
{
    fake_fail_collective(1, 0);
    run_ranks(fail, &(struct fake_policy){.order = FAKE_FIFO});
}
