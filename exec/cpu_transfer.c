/* exec/cpu_transfer.c: which messages a transfer is, and sums in the members' order. */
#include "exec/cpu_transfer.h"

#include "core/minmax.h"
#include "exec/half.h"

#include <string.h>

/* Elements of a shard that are reduced at once: room for k of them is all that is held. */
enum { PIECE = 1 << 18, BLOCK = 512 };

static int64_t size_of(unsigned char dtype)
{
    return (int64_t)mcp_dtype_bytes((enum mcp_dtype)dtype);
}

static bool is_reduction(enum mcp_function function)
{
    return function == MCP_FN_ALL_REDUCE || function == MCP_FN_ALL_REDUCE_MAX ||
           function == MCP_FN_REDUCE_SCATTER;
}

/* --- shards --- */

static int members(const struct mcp_cpu_transfer *t)
{
    return t->channel == NULL ? 1 : mcp_cpu_channel_size(t->channel);
}

static int own(const struct mcp_cpu_transfer *t)
{
    return t->channel == NULL ? 0 : mcp_cpu_channel_index(t->channel);
}

static struct mcp_shard shard_of(const struct mcp_cpu_transfer *t, int member)
{
    return mcp_shard_of(t->what.elements, members(t), member);
}

/* What of a member's shard is in the piece at hand. */
static struct mcp_shard piece_of(const struct mcp_cpu_transfer *t, int member)
{
    struct mcp_shard shard = shard_of(t, member);
    int64_t skip = mcp_min_int64(t->piece, shard.count);
    return (struct mcp_shard){shard.first + skip, mcp_min_int64(PIECE, shard.count - skip)};
}

static int64_t longest_piece(const struct mcp_cpu_transfer *t)
{
    return mcp_min_int64(PIECE, (t->what.elements + members(t) - 1) / members(t));
}

/* --- sums --- */

static void load(unsigned char dtype, const char *from, int64_t first, int count, float *out)
{
    if (dtype == MCP_F32) {
        memcpy(out, from + 4 * first, (size_t)count * sizeof *out);
        return;
    }
    const uint16_t *x = (const uint16_t *)(const void *)from + first;
    mcp_widen((enum mcp_dtype)dtype, x, count, out);
}

static void store(unsigned char dtype, char *to, int64_t first, int count, const float *values)
{
    if (dtype == MCP_F32) {
        memcpy(to + 4 * first, values, (size_t)count * sizeof *values);
        return;
    }
    uint16_t *x = (uint16_t *)(void *)to + first;
    mcp_narrow((enum mcp_dtype)dtype, values, count, x);
}

/* NaN wins, so that no rank misses one. */
static void combine(bool max, float *sum, const float *more, int count)
{
    if (!max) {
        for (int i = 0; i < count; i++)
            sum[i] += more[i];
        return;
    }
    for (int i = 0; i < count; i++)
        sum[i] = sum[i] >= more[i] || sum[i] != sum[i] ? sum[i] : more[i];
}

/* Where the pieces of the members lie: in room, the own one in the buffer. */
static const char *source(const struct mcp_cpu_transfer *t, int member, int64_t own_first)
{
    int64_t size = size_of(t->what.dtype);
    return member == own(t) ? t->what.from + own_first * size
                            : t->room + member * longest_piece(t) * size;
}

/* Of the own shard's piece; `to` is where its first element goes. */
static void reduce_piece(const struct mcp_cpu_transfer *t, char *to)
{
    float sum[BLOCK], more[BLOCK];
    struct mcp_shard piece = piece_of(t, own(t));
    for (int64_t at = 0; at < piece.count; at += BLOCK) {
        int count = (int)mcp_min_int64(BLOCK, piece.count - at);
        load(t->what.dtype, source(t, 0, piece.first), at, count, sum);
        for (int j = 1; j < members(t); j++) {
            load(t->what.dtype, source(t, j, piece.first), at, count, more);
            combine(t->what.function == MCP_FN_ALL_REDUCE_MAX, sum, more, count);
        }
        if (t->what.accumulate) {
            load(t->what.dtype, to, at, count, more);
            combine(false, sum, more, count);
        }
        store(t->what.dtype, to, at, count, sum);
    }
}

/* --- messages --- */

static enum mcp_status post_pieces(struct mcp_cpu_transfer *t, struct mcp_error *err)
{
    int64_t size = size_of(t->what.dtype), room = longest_piece(t) * size;
    struct mcp_shard mine = piece_of(t, own(t));
    for (int j = 0; j < members(t); j++) {
        struct mcp_shard theirs = piece_of(t, j);
        if (j == own(t))
            continue;
        MCP_TRY(mcp_cpu_receive(t->channel, t->room + j * room, mine.count * size, j, err));
        MCP_TRY(mcp_cpu_send(t->channel, t->what.from + theirs.first * size, theirs.count * size, j,
                             err));
    }
    return MCP_OK;
}

/* Every member's shard of `to` to every other. */
static enum mcp_status post_shards(struct mcp_cpu_transfer *t, struct mcp_error *err)
{
    int64_t size = size_of(t->what.dtype);
    struct mcp_shard mine = shard_of(t, own(t));
    for (int j = 0; j < members(t); j++) {
        struct mcp_shard theirs = shard_of(t, j);
        if (j == own(t))
            continue;
        MCP_TRY(mcp_cpu_receive(t->channel, t->what.to + theirs.first * size, theirs.count * size,
                                j, err));
        MCP_TRY(
            mcp_cpu_send(t->channel, t->what.to + mine.first * size, mine.count * size, j, err));
    }
    return MCP_OK;
}

static enum mcp_status post_blocks(struct mcp_cpu_transfer *t, struct mcp_error *err)
{
    int64_t bytes = t->what.elements / members(t) * size_of(t->what.dtype);
    for (int j = 0; j < members(t); j++) {
        if (j == own(t)) {
            memcpy(t->what.to + j * bytes, t->what.from + j * bytes, (size_t)bytes);
            continue;
        }
        MCP_TRY(mcp_cpu_receive(t->channel, t->what.to + j * bytes, bytes, j, err));
        MCP_TRY(mcp_cpu_send(t->channel, t->what.from + j * bytes, bytes, j, err));
    }
    return MCP_OK;
}

/* Rows of one expert between the sorted side `sorted`, here, and the grouped side. */
static enum mcp_status post_expert(struct mcp_cpu_transfer *t, const struct mcp_rows *rows,
                                   int expert, int64_t sorted, struct mcp_error *err)
{
    int owner = expert / rows->local, expert_there = expert % rows->local;
    int64_t bytes = rows->has[expert] * rows->row_bytes;
    if (owner == own(t)) {
        int64_t grouped = mcp_rows_before(rows, own(t), expert_there);
        memcpy(t->what.to + (t->what.delta > 0 ? grouped : sorted),
               t->what.from + (t->what.delta > 0 ? sorted : grouped), (size_t)bytes);
        return MCP_OK;
    }
    return t->what.delta > 0 ? mcp_cpu_send(t->channel, t->what.from + sorted, bytes, owner, err)
                             : mcp_cpu_receive(t->channel, t->what.to + sorted, bytes, owner, err);
}

static enum mcp_status post_rows(struct mcp_cpu_transfer *t, struct mcp_error *err)
{
    struct mcp_rows rows = mcp_rows_of(&t->what, t->sizes, (int)t->num_experts, members(t));
    int64_t sorted = 0;
    MCP_TRY(mcp_rows_check(&t->what, &rows, err));
    for (int x = 0; x < rows.experts; x++) {
        MCP_TRY(post_expert(t, &rows, x, sorted, err));
        sorted += rows.has[x] * rows.row_bytes;
    }
    for (int j = 0; j < members(t); j++)
        for (int g = 0; j != own(t) && g < rows.local; g++) {
            int64_t grouped = mcp_rows_before(&rows, j, g);
            int64_t bytes = rows.gets[j * rows.local + g] * rows.row_bytes;
            MCP_TRY(t->what.delta > 0
                        ? mcp_cpu_receive(t->channel, t->what.to + grouped, bytes, j, err)
                        : mcp_cpu_send(t->channel, t->what.from + grouped, bytes, j, err));
        }
    return MCP_OK;
}

static int neighbour(const struct mcp_cpu_transfer *t, int delta)
{
    return mcp_neighbour(members(t), own(t), delta);
}

static enum mcp_status post_messages(struct mcp_cpu_transfer *t, struct mcp_error *err)
{
    int64_t bytes = t->what.elements * size_of(t->what.dtype);
    bool sends = t->what.function == MCP_FN_SHIFT; /* MCP_FN_SEND goes by the outbox */
    int from = neighbour(t, t->what.function == MCP_FN_SHIFT ? -t->what.delta : t->what.delta);
    if (t->channel == NULL)
        return mcp_fail(err, MCP_RUN_FAILURE, "a message within a group of one rank");
    MCP_TRY(mcp_cpu_receive(t->channel, t->what.to, bytes, from, err));
    if (sends)
        MCP_TRY(mcp_cpu_send(t->channel, t->what.from, bytes, neighbour(t, t->what.delta), err));
    return MCP_OK;
}

/* --- the steps of a transfer --- */

void mcp_cpu_transfer_set(const struct mcp_launch *launch, struct mcp_cpu_channel *channel,
                          struct mcp_cpu_transfer *t)
{
    char *room = t->room;
    int64_t room_bytes = t->room_bytes;
    *t = (struct mcp_cpu_transfer){.channel = channel, .room = room, .room_bytes = room_bytes};
    mcp_transfer_read(launch, &t->what);
    if (t->what.function != MCP_FN_ALL_TO_ALL_V)
        return;
    t->sizes = launch->reads[1];
    t->num_experts = launch->type->facts.num_experts;
}

const void *mcp_cpu_transfer_text(const struct mcp_cpu_transfer *t, int64_t *bytes, int *peer)
{
    *bytes = t->what.elements * size_of(t->what.dtype);
    *peer = neighbour(t, t->what.delta);
    return t->what.from;
}

static void make_room(struct mcp_arena *arena, struct mcp_cpu_transfer *t)
{
    int64_t bytes = members(t) * longest_piece(t) * size_of(t->what.dtype);
    if (bytes <= t->room_bytes)
        return;
    t->room = MCP_ARRAY(arena, bytes, char);
    t->room_bytes = bytes;
}

/* The own shard into its place among all. */
static void place_shard(const struct mcp_cpu_transfer *t)
{
    struct mcp_shard mine = shard_of(t, own(t));
    int64_t size = size_of(t->what.dtype);
    if (t->what.from != t->what.to)
        memcpy(t->what.to + mine.first * size, t->what.from, (size_t)(mine.count * size));
}

static enum mcp_status post(struct mcp_cpu_transfer *t, struct mcp_error *err)
{
    switch (t->what.function) {
    case MCP_FN_ALL_GATHER:
        place_shard(t);
        return post_shards(t, err);
    case MCP_FN_ALL_TO_ALL:
        return post_blocks(t, err);
    case MCP_FN_ALL_TO_ALL_V:
        return post_rows(t, err);
    case MCP_FN_RECEIVE:
    case MCP_FN_SHIFT:
        return post_messages(t, err);
    default:
        return post_pieces(t, err);
    }
}

enum mcp_status mcp_cpu_transfer_start(struct mcp_arena *arena, struct mcp_cpu_transfer *t,
                                       bool *done, struct mcp_error *err)
{
    *done = false;
    if (is_reduction((enum mcp_function)t->what.function))
        make_room(arena, t);
    MCP_TRY(post(t, err));
    return mcp_cpu_transfer_advance(t, done, err);
}

/* Where the sum of the piece at hand goes. */
static char *sum_place(const struct mcp_cpu_transfer *t)
{
    int64_t size = size_of(t->what.dtype);
    bool whole = t->what.function != MCP_FN_REDUCE_SCATTER || t->what.from == t->what.to;
    return t->what.to + (whole ? shard_of(t, own(t)).first + t->piece : t->piece) * size;
}

/* After a piece: its sum; then the next piece, or the end of the reduction. */
static enum mcp_status next_piece(struct mcp_cpu_transfer *t, bool *done, struct mcp_error *err)
{
    int64_t longest = (t->what.elements + members(t) - 1) / members(t);
    reduce_piece(t, sum_place(t));
    t->piece += PIECE;
    if (t->piece < longest)
        return post_pieces(t, err);
    if (t->what.function != MCP_FN_REDUCE_SCATTER) {
        t->phase = 1;
        return post_shards(t, err);
    }
    if (t->what.accumulate)
        memset(t->what.from, 0, (size_t)(t->what.elements * size_of(t->what.dtype)));
    *done = true;
    return MCP_OK;
}

enum mcp_status mcp_cpu_transfer_advance(struct mcp_cpu_transfer *t, bool *done,
                                         struct mcp_error *err)
{
    bool arrived = true;
    *done = false;
    for (;;) {
        if (t->channel != NULL)
            MCP_TRY(mcp_cpu_test(t->channel, &arrived, err));
        if (!arrived)
            return MCP_OK;
        if (!is_reduction((enum mcp_function)t->what.function) || t->phase == 1) {
            *done = true;
            return MCP_OK;
        }
        MCP_TRY(next_piece(t, done, err));
        if (*done)
            return MCP_OK;
    }
}
