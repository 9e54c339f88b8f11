/* tests/cuda/fake/engine.h: streams of all ranks in one process, run in the order that a test
 * asks for.
 *
 * Ranks are threads. What they queue (kernels, copies, products, collectives) runs nowhere
 * until a host thread waits or asks; then that thread runs, under one lock, op after op of
 * those that may run: heads of their streams whose waits are reached and, of a collective,
 * whose peers are there too. Which of them is the policy's choice. Between fake_join() and
 * fake_leave() nothing runs until every rank that joined waits, so that the order depends on
 * nothing but the policy; and device memory can be touched by ops alone, so that a host that
 * looks into it dies (the first times that it waits, which is when it queues).
 *
 * A wait that a program lacks shows under some policy: to run Y before X where nothing says
 * otherwise, hold back X's stream (FAKE_STREAM_LAST). `lazy` runs only what somebody waits for,
 * so that a host function goes before all that it does not wait for.
 *
 * Where nothing can run and everybody waits, the process aborts with a listing. */
#ifndef TESTS_CUDA_ENGINE_H
#define TESTS_CUDA_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKE_MAX_DEVICES = 16 };

enum fake_order {
    FAKE_FIFO,            /* as each rank queued them */
    FAKE_NEWEST,          /* last queued first */
    FAKE_TRANSFERS_LAST,  /* collectives and messages when nothing else can run */
    FAKE_TRANSFERS_FIRST, /* ... before all else */
    FAKE_KERNELS_LAST,    /* copies and transfers, newest first, then kernels and products */
    FAKE_STREAM_LAST, /* the stream numbered `stream` on each device when nothing else can run */
    FAKE_RANDOM,      /* by `seed` */
    FAKE_NUM_ORDERS
};
struct fake_policy {
    enum fake_order order;
    int stream; /* from 0, in the order of creation */
    uint64_t seed;
    bool lazy;  /* only what some thread waits for */
    bool eager; /* at once when it can run, whoever queued it */
};

/* A machine with so many devices of so much memory each. */
void fake_begin(int devices, size_t device_bytes);
/* How many streams, events, blocks of memory and communicators were left behind. */
int fake_end(void);
/* Of what is run from now on. */
void fake_set_policy(const struct fake_policy *policy);
/* What cudaGetDeviceCount() says in the place of a count; cudaSuccess: nothing. */
void fake_set_device_error(int error);
/* Compute capability of all devices; 9.0 where nothing is said. */
void fake_set_capability(int major, int minor);
/* How often in a row ranks may ask in vain, with nothing that can run, before the process
 * aborts. */
void fake_set_patience(int rounds);

/* The calling thread is one of `ranks` that train together: returns when all are there. */
void fake_join(int ranks);
void fake_leave(void);

/* From now on ranks that train together exchange nothing with a peer for the first time. */
void fake_connect_early(bool on);

/* How often an algorithm for a product has been asked for. */
int fake_algorithms_chosen(void);

/* How many ops have run since fake_begin(). */
long fake_ops_run(void);
/* Streams, what they hold and who waits for what, as an abort would list it. */
void fake_list(char *text, size_t size);

/* The rank's share of its `after`-th collective from now on (from 0) fails, -1: of whatever device:
 * its peers see ncclRemoteError, it itself ncclSystemError; nothing of it is done. */
void fake_fail_collective(int device, int after);
/* From the `after`-th kernel on (from 0), of any device, all fails with an illegal address. */
void fake_fail_kernel(int after);

/* Ranks of communicators whose ids are made from now on are processes, and what they exchange
 * lies in `folder` (64 letters at most). Who dies or gives up is not noticed by its peers, who
 * wait for it, unless this is set in them: then they see ncclRemoteError. */
void fake_keep_apart(const char *folder);
void fake_set_notices(bool on);

#endif
