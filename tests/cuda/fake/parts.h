/* tests/cuda/fake/parts.h: what runtime.c, blas.c and nccl.c need of the engine. All is called
 * with the lock held but what takes it. */
#ifndef TESTS_CUDA_PARTS_H
#define TESTS_CUDA_PARTS_H

#include "cuda_runtime_api.h"
#include "tests/cuda/fake/engine.h"

enum fake_work { FAKE_KERNEL, FAKE_COPY, FAKE_TRANSFER };

/* A place in a stream; reached when all before it is over. Counted: events and waits share it. */
struct fake_mark {
    int owners;
    bool reached;
    int64_t reached_ns; /* of the engine's own clock, which ticks with each op */
    struct CUstream_st *stream;
    long position;
};

struct fake_op;
struct fake_op_calls {
    bool (*can_run)(const struct fake_op *op); /* at the head of its stream; NULL: yes */
    void (*run)(struct fake_op *op);
    bool (*is_over)(const struct fake_op *op); /* NULL: once it has run */
    void (*drop)(struct fake_op *op);          /* frees the closure */
    void (*need)(const struct fake_op *op);    /* fake_need() of what else must run; NULL: none */
    void (*tell)(const struct fake_op *op, char *text, size_t size); /* NULL: its name */
};

struct fake_op {
    struct fake_op *next;
    const struct fake_op_calls *calls; /* NULL: a mark, or a wait for one */
    const char *name;
    enum fake_work work;
    struct CUstream_st *stream;
    long number;   /* on its device, in the order queued */
    long position; /* in its stream, from 1 */
    void *closure;
    struct fake_mark *mark;
    bool waits, has_run;
};

struct CUstream_st {
    int device, index;
    struct fake_op *head, **tail;
    long pushed;          /* position of the last op */
    long needed, scanned; /* positions up to which ops are waited for, and were looked at */
};

/* A thread in fake_wait(). */
struct waiter {
    struct waiter *next;
    struct fake_mark *mark;
    int device;
    bool asks, joined, released;
};

/* Of the calling thread. */
struct fake_thread {
    int device;
    int last_error;
    bool joined;
    bool has_queued; /* since it last asked whether something is over */
};
struct fake_thread *fake_self(void);
int fake_num_devices(void);
const struct CUstream_st *fake_stream_at(int i); /* by device, then in order; NULL: no more */
const struct waiter *fake_waiters(void);
int fake_device_error(void);
size_t fake_device_bytes(void);

void fake_lock(void);
void fake_unlock(void);
/* The device's own stream where `stream` is NULL. */
struct CUstream_st *fake_stream(struct CUstream_st *stream);
struct CUstream_st *fake_new_stream(void);
void fake_free_stream(struct CUstream_st *stream); /* when it is empty */
/* The op's memory is the engine's; it is run, if eager. */
void fake_push(struct CUstream_st *stream, const struct fake_op_calls *calls, enum fake_work work,
               const char *name, void *closure);
/* The same; the caller knows the op before it is run. */
void fake_push_op(struct CUstream_st *stream, const struct fake_op_calls *calls,
                  enum fake_work work, void *closure, struct fake_op **out);
/* Holders: the stream until it is reached, and the caller. */
struct fake_mark *fake_push_mark(struct CUstream_st *stream);
void fake_push_wait(struct CUstream_st *stream, struct fake_mark *mark);
void fake_release_mark(struct fake_mark *mark);
/* Runs ops until the mark is reached. `asks`: returns sooner, false where it is not reached: when
 * nothing can run; between fake_join() and fake_leave() after one op, and where a rank has not yet
 * looked at what came of the last one, or has queued more since, at once. */
bool fake_wait(struct fake_mark *mark, bool asks);
/* The least goes first. */
long fake_rank_of(const struct fake_op *op, const struct fake_policy *policy, uint64_t *random);
/* Until nothing is queued on the calling thread's device. */
void fake_finish_device(void);
/* What a stream holds up to a position is waited for. */
void fake_need(struct CUstream_st *stream, long position);
/* Sleeps until another thread has called fake_wake(), or a moment has passed. */
void fake_sleep(void);
void fake_wake(void);
/* Prints the sentence and the listing, and aborts. */
_Noreturn void fake_stop(const char *format, ...);
/* Objects alive, for fake_end(). */
void fake_count_object(int change);

/* memory.c: all of it with the lock held. */
enum fake_place { FAKE_PAGEABLE, FAKE_PINNED, FAKE_ON_DEVICE };
enum fake_place fake_place_of(const void *memory);
/* May host threads touch device memory? */
void fake_open_memory(bool open);
void fake_forget_memory(void);

void fake_forget_comms(void);

#endif
