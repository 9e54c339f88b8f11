/* exec/cuda_transfer.c: which calls of NCCL a transfer is. */
#include "exec/cuda_channels.h"
#include "exec/cuda_kernels.h"
#include "exec/cuda_runtime.h"
#include "exec/transfer.h"

/* --- one transfer --- */

struct move {
    struct mcp_cuda_channels *channels;
    struct mcp_transfer t;
    const struct mcp_cuda_group *group;
    enum mcp_nccl_type type;
    int64_t size; /* bytes of an element */
    enum mcp_stream queue;
    void *stream;
};

static struct mcp_shard shard_of(const struct move *m, int member)
{
    return mcp_shard_of(m->t.elements, m->group->size, member);
}

static bool is_even(const struct move *m)
{
    return m->t.elements % m->group->size == 0;
}

static enum mcp_status copy(const struct move *m, char *to, const char *from, int64_t bytes,
                            struct mcp_error *err)
{
    return to == from ? MCP_OK : mcp_cuda_copy(to, from, bytes, m->stream, err);
}

/* Every member's shard to all, each from its own: `own` holds this rank's. */
static enum mcp_status gather_shards(const struct move *m, const char *own, struct mcp_error *err)
{
    MCP_TRY(mcp_nccl_group_begin(m->group->all, err));
    for (int j = 0; j < m->group->size; j++) {
        struct mcp_shard shard = shard_of(m, j);
        char *to = m->t.to + shard.first * m->size;
        struct mcp_nccl_data data = {j == m->group->index ? own : to, to, shard.count, m->type};
        if (shard.count > 0)
            MCP_TRY(mcp_nccl_broadcast(m->group->all, &data, j, m->stream, err));
    }
    return mcp_nccl_group_end(m->group->all, err);
}

static enum mcp_status all_gather(const struct move *m, struct mcp_error *err)
{
    struct mcp_shard mine = shard_of(m, m->group->index);
    char *place = m->t.to + mine.first * m->size;
    const char *own = m->t.from == m->t.to ? place : m->t.from;
    struct mcp_nccl_data data = {own, m->t.to, mine.count, m->type};
    if (m->group->size == 1)
        return copy(m, place, own, mine.count * m->size, err);
    return is_even(m) ? mcp_nccl_all_gather(m->group->all, &data, m->stream, err)
                      : gather_shards(m, own, err);
}

/* Every member's shard summed to its own. */
static enum mcp_status reduce_shards(const struct move *m, char *sum, struct mcp_error *err)
{
    MCP_TRY(mcp_nccl_group_begin(m->group->all, err));
    for (int j = 0; j < m->group->size; j++) {
        struct mcp_shard shard = shard_of(m, j);
        char *from = m->t.from + shard.first * m->size;
        struct mcp_nccl_data data = {from, j == m->group->index ? sum : from, shard.count, m->type};
        if (shard.count > 0)
            MCP_TRY(mcp_nccl_reduce(m->group->all, &data, j, m->stream, err));
    }
    return mcp_nccl_group_end(m->group->all, err);
}

static enum mcp_status sum_shard(const struct move *m, char *sum, struct mcp_error *err)
{
    struct mcp_nccl_data data = {m->t.from, sum, shard_of(m, m->group->index).count, m->type};
    return is_even(m) ? mcp_nccl_reduce_scatter(m->group->all, &data, m->stream, err)
                      : reduce_shards(m, sum, err);
}

/* to += sum; what was read is cleared. */
static enum mcp_status add_and_clear(const struct move *m, char *sum, struct mcp_error *err)
{
    enum mcp_cuda_format format = m->t.dtype == MCP_F32    ? MCP_CUDA_F32
                                  : m->t.dtype == MCP_BF16 ? MCP_CUDA_BF16
                                                           : MCP_CUDA_F16;
    struct mcp_cuda_array to = {m->t.to, format};
    const struct mcp_cuda_queue queue = {m->stream, NULL};
    int64_t count = shard_of(m, m->group->index).count;
    if (count > 0)
        mcp_cuda_add(to, (struct mcp_cuda_array){sum, format}, to, count, &queue);
    MCP_TRY(mcp_cuda_check_launch("the sum of a reduce_scatter", err));
    return mcp_cuda_set_bytes(m->t.from, 0, m->t.elements * m->size, m->stream, err);
}

static enum mcp_status reduce_scatter(const struct move *m, struct mcp_error *err)
{
    bool in_place = m->t.from == m->t.to;
    int64_t first = in_place ? shard_of(m, m->group->index).first : 0;
    char *place = m->t.to + first * m->size;
    char *sum = m->t.accumulate ? m->channels->room[m->queue] : place;
    if (m->group->size > 1)
        MCP_TRY(sum_shard(m, sum, err));
    else if (m->t.accumulate)
        sum = m->t.from;
    else
        return copy(m, place, m->t.from, m->t.elements * m->size, err);
    return m->t.accumulate ? add_and_clear(m, sum, err) : MCP_OK;
}

static enum mcp_status all_reduce(const struct move *m, char operation, struct mcp_error *err)
{
    struct mcp_nccl_data data = {m->t.from, m->t.to, m->t.elements, m->type};
    if (m->group->size == 1)
        return copy(m, m->t.to, m->t.from, m->t.elements * m->size, err);
    return mcp_nccl_all_reduce(m->group->all, &data, operation, m->stream, err);
}

static enum mcp_status all_to_all(const struct move *m, struct mcp_error *err)
{
    int64_t bytes = m->t.elements / m->group->size * m->size, own = m->group->index * bytes;
    struct mcp_nccl *all = m->group->all;
    MCP_TRY(copy(m, m->t.to + own, m->t.from + own, bytes, err));
    if (m->group->size == 1)
        return MCP_OK;
    MCP_TRY(mcp_nccl_group_begin(all, err));
    for (int j = 0; j < m->group->size; j++) {
        if (j == m->group->index)
            continue;
        MCP_TRY(mcp_nccl_send(all, m->t.from + j * bytes, bytes, j, m->stream, err));
        MCP_TRY(mcp_nccl_receive(all, m->t.to + j * bytes, bytes, j, m->stream, err));
    }
    return mcp_nccl_group_end(all, err);
}

/* --- rows of experts --- */

/* Rows of one expert between the sorted side, here, and its owner. */
static enum mcp_status move_sorted(const struct move *m, const struct mcp_rows *rows, int expert,
                                   int64_t sorted, struct mcp_error *err)
{
    int owner = expert / rows->local;
    int64_t bytes = rows->has[expert] * rows->row_bytes;
    if (bytes == 0)
        return MCP_OK;
    if (owner == m->group->index) {
        int64_t grouped = mcp_rows_before(rows, owner, expert % rows->local);
        return mcp_cuda_copy(m->t.to + (m->t.delta > 0 ? grouped : sorted),
                             m->t.from + (m->t.delta > 0 ? sorted : grouped), bytes, m->stream,
                             err);
    }
    return m->t.delta > 0
               ? mcp_nccl_send(m->group->all, m->t.from + sorted, bytes, owner, m->stream, err)
               : mcp_nccl_receive(m->group->all, m->t.to + sorted, bytes, owner, m->stream, err);
}

/* Rows of one member between it and the grouped side, here. */
static enum mcp_status move_grouped(const struct move *m, const struct mcp_rows *rows, int member,
                                    struct mcp_error *err)
{
    for (int g = 0; g < rows->local; g++) {
        int64_t at = mcp_rows_before(rows, member, g);
        int64_t bytes = rows->gets[member * rows->local + g] * rows->row_bytes;
        if (bytes == 0)
            continue;
        MCP_TRY(m->t.delta > 0
                    ? mcp_nccl_receive(m->group->all, m->t.to + at, bytes, member, m->stream, err)
                    : mcp_nccl_send(m->group->all, m->t.from + at, bytes, member, m->stream, err));
    }
    return MCP_OK;
}

static enum mcp_status all_to_all_v(const struct move *m, const int32_t *sizes, int experts,
                                    struct mcp_error *err)
{
    struct mcp_rows rows = mcp_rows_of(&m->t, sizes, experts, m->group->size);
    int64_t sorted = 0;
    MCP_TRY(mcp_rows_check(&m->t, &rows, err));
    if (m->group->size > 1)
        MCP_TRY(mcp_nccl_group_begin(m->group->all, err));
    for (int x = 0; x < experts; x++) {
        MCP_TRY(move_sorted(m, &rows, x, sorted, err));
        sorted += rows.has[x] * rows.row_bytes;
    }
    for (int j = 0; j < m->group->size; j++)
        if (j != m->group->index)
            MCP_TRY(move_grouped(m, &rows, j, err));
    return m->group->size > 1 ? mcp_nccl_group_end(m->group->all, err) : MCP_OK;
}

/* --- messages --- */

static enum mcp_status shift(const struct move *m, struct mcp_error *err)
{
    int64_t bytes = m->t.elements * m->size;
    int to = mcp_neighbour(m->group->size, m->group->index, m->t.delta);
    int from = mcp_neighbour(m->group->size, m->group->index, -m->t.delta);
    MCP_TRY(mcp_nccl_group_begin(m->group->all, err));
    MCP_TRY(mcp_nccl_send(m->group->all, m->t.from, bytes, to, m->stream, err));
    MCP_TRY(mcp_nccl_receive(m->group->all, m->t.to, bytes, from, m->stream, err));
    return mcp_nccl_group_end(m->group->all, err);
}

static enum mcp_status send(const struct move *m, struct mcp_error *err)
{
    struct mcp_cuda_outbox *box = &m->channels->outboxes[m->queue];
    int64_t slot = box->sent % box->slots, bytes = m->t.elements * m->size;
    char *copied = box->room + slot * box->slot_bytes;
    if (box->sent >= box->slots)
        MCP_TRY(mcp_cuda_wait(m->stream, box->left[slot], err));
    MCP_TRY(mcp_cuda_copy(copied, m->t.from, bytes, m->stream, err));
    MCP_TRY(mcp_cuda_record(box->copied, m->stream, err));
    MCP_TRY(mcp_cuda_wait(box->stream, box->copied, err));
    MCP_TRY(mcp_nccl_send(m->group->out, copied, bytes, 1, box->stream, err));
    box->sent++;
    return mcp_cuda_record(box->left[slot], box->stream, err);
}

static enum mcp_status message(const struct move *m, struct mcp_error *err)
{
    if (m->group->size == 1)
        return mcp_fail(err, MCP_RUN_FAILURE, "a message within a group of one rank");
    if (m->t.function == MCP_FN_SHIFT)
        return shift(m, err);
    return m->t.function == MCP_FN_SEND
               ? send(m, err)
               : mcp_nccl_receive(m->group->in, m->t.to, m->t.elements * m->size, 0, m->stream,
                                  err);
}

/* A program that was not opened, or whose ops are on ranks that their groups lack. */
static enum mcp_status check(const struct move *m, const int32_t *sizes, struct mcp_error *err)
{
    const struct mcp_cuda_group *group = m->group;
    const bool sends = m->t.function == MCP_FN_SEND, receives = m->t.function == MCP_FN_RECEIVE;
    const struct mcp_nccl *link = sends ? group->out : receives ? group->in : group->all;
    const bool joined = group->opened && (group->size == 1 || link != NULL) &&
                        (!sends || m->channels->outboxes[m->queue].slots > 0);
    if (!joined)
        return mcp_fail(err, MCP_RUN_FAILURE, "rank %d has joined no group for it",
                        m->channels->rank);
    if (m->t.function == MCP_FN_ALL_TO_ALL_V && sizes == NULL)
        return mcp_fail(err, MCP_RUN_FAILURE, "nobody has counted tokens for experts before it");
    return MCP_OK;
}

enum mcp_status mcp_cuda_transfer(struct mcp_cuda_channels *channels,
                                  const struct mcp_launch *launch, const int32_t *sizes,
                                  void *stream, struct mcp_error *err)
{
    struct move m = {.channels = channels,
                     .group = mcp_cuda_group_of(channels, (enum mcp_stream)launch->op->stream,
                                                launch->op->group),
                     .queue = (enum mcp_stream)launch->op->stream,
                     .stream = stream};
    mcp_transfer_read(launch, &m.t);
    mcp_nccl_type_of((enum mcp_dtype)m.t.dtype, &m.type);
    m.size = mcp_transfer_size(&m.t);
    MCP_TRY(check(&m, sizes, err));
    switch (launch->op->function) {
    case MCP_FN_ALL_GATHER:
        return all_gather(&m, err);
    case MCP_FN_REDUCE_SCATTER:
        return reduce_scatter(&m, err);
    case MCP_FN_ALL_REDUCE:
        return all_reduce(&m, '+', err);
    case MCP_FN_ALL_REDUCE_MAX:
        return all_reduce(&m, '>', err);
    case MCP_FN_ALL_TO_ALL:
        return all_to_all(&m, err);
    case MCP_FN_ALL_TO_ALL_V:
        return all_to_all_v(&m, sizes, (int)launch->type->facts.num_experts, err);
    default:
        return message(&m, err);
    }
}

enum mcp_status mcp_cuda_exchange_counts(struct mcp_cuda_channels *channels, int32_t *sizes,
                                         int64_t experts, void *stream, struct mcp_error *err)
{
    const struct move m = {.channels = channels,
                           .t = {.dtype = MCP_I32,
                                 .elements = experts,
                                 .from = (char *)sizes,
                                 .to = (char *)(sizes + experts)},
                           .group = mcp_cuda_group_of(channels, MCP_STREAM_COMPUTE, MCP_EXPERT),
                           .size = sizeof *sizes,
                           .queue = MCP_STREAM_COMPUTE,
                           .stream = stream};
    return all_to_all(&m, err);
}
