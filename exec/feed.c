/* exec/feed.c: a thread that reads one step ahead. */
#include "exec/feed.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* One batch of what the rank reads. */
struct half {
    int32_t *ids; /* [count][sequence_length + 1] */
    enum mcp_status status;
    struct mcp_error err;
};

struct mcp_feed {
    const struct mcp_data *data;
    int64_t sequence_length, batch, count;
    int64_t *indices; /* [count] */
    int64_t *slots;   /* [batch] place among indices, -1: not announced */
    struct half halves[2];
    int current; /* the half that the rank reads; the other is the thread's while busy */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    int64_t wanted; /* position that the thread reads, or has read; -1: none */
    bool busy, stop;
};

static void read_batch(struct mcp_feed *feed, int64_t first, struct half *half)
{
    half->status = MCP_OK;
    for (int64_t i = 0; i < feed->count && half->status == MCP_OK; i++)
        half->status = mcp_data_sequence(feed->data, first + feed->indices[i],
                                         half->ids + i * (feed->sequence_length + 1), &half->err);
}

static void *work(void *context)
{
    struct mcp_feed *feed = context;
    pthread_mutex_lock(&feed->lock);
    while (!feed->stop) {
        if (!feed->busy) {
            pthread_cond_wait(&feed->changed, &feed->lock);
            continue;
        }
        struct half *half = &feed->halves[1 - feed->current];
        const int64_t first = feed->wanted;
        pthread_mutex_unlock(&feed->lock);
        read_batch(feed, first, half);
        pthread_mutex_lock(&feed->lock);
        feed->busy = false;
        pthread_cond_broadcast(&feed->changed);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

static void stop_thread(void *handle)
{
    struct mcp_feed *feed = handle;
    pthread_mutex_lock(&feed->lock);
    feed->stop = true;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
    pthread_join(feed->thread, NULL);
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->lock);
}

static void set_indices(struct mcp_arena *arena, struct mcp_feed *feed, const int64_t *indices)
{
    feed->indices = MCP_ARRAY(arena, feed->count, int64_t);
    feed->slots = MCP_ARRAY(arena, feed->batch, int64_t);
    memset(feed->slots, 0xff, (size_t)feed->batch * sizeof *feed->slots);
    for (int64_t i = 0; i < feed->count; i++) {
        feed->indices[i] = indices[i];
        feed->slots[indices[i]] = i;
    }
}

enum mcp_status mcp_feed_open(struct mcp_arena *arena, const struct mcp_data *data,
                              const struct mcp_feed_options *options, struct mcp_feed **out,
                              struct mcp_error *err)
{
    struct mcp_feed *feed = MCP_NEW(arena, struct mcp_feed);
    *out = feed;
    feed->data = data;
    feed->sequence_length = options->sequence_length;
    feed->batch = options->batch;
    feed->count = options->count;
    feed->wanted = -1;
    set_indices(arena, feed, options->indices);
    for (int i = 0; i < 2; i++)
        feed->halves[i].ids = MCP_ARRAY(arena, feed->count * (feed->sequence_length + 1), int32_t);
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->changed, NULL);
    const int failed = pthread_create(&feed->thread, NULL, work, feed);
    if (failed != 0)
        return mcp_fail(err, MCP_RUN_FAILURE, "no thread to read data with: %s", strerror(failed));
    mcp_defer(arena, stop_thread, feed);
    return MCP_OK;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waits for the thread, and reads what it did not; the lock is held. */
static struct half *fetch(struct mcp_feed *feed, int64_t first)
{
    struct half *half = &feed->halves[1 - feed->current];
    while (feed->busy)
        pthread_cond_wait(&feed->changed, &feed->lock);
    if (feed->wanted != first)
        read_batch(feed, first, half);
    return half;
}

enum mcp_status mcp_feed_step(struct mcp_feed *feed, int64_t first, double *wait_s,
                              struct mcp_error *err)
{
    const double start_s = now_s();
    pthread_mutex_lock(&feed->lock);
    const struct half *half = fetch(feed, first);
    const enum mcp_status status = half->status;
    feed->current = 1 - feed->current;
    feed->wanted = status == MCP_OK ? first + feed->batch : -1;
    feed->busy = status == MCP_OK;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->lock);
    *wait_s += now_s() - start_s;
    return status == MCP_OK ? MCP_OK : mcp_fail(err, status, "%s", half->err.text);
}

const int32_t *mcp_feed_sequence(void *context, int64_t index)
{
    const struct mcp_feed *feed = context;
    const int64_t slot = index >= 0 && index < feed->batch ? feed->slots[index] : -1;
    if (slot < 0)
        return NULL;
    return feed->halves[feed->current].ids + slot * (feed->sequence_length + 1);
}
