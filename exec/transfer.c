/* exec/transfer.c: which transfers there are, and where their elements lie. */
#include "exec/transfer.h"

#include "core/minmax.h"
#include "step/weights.h"

bool mcp_transfer_supports(enum mcp_function function, enum mcp_dtype dtype)
{
    switch (function) {
    case MCP_FN_ALL_REDUCE:
    case MCP_FN_ALL_REDUCE_MAX:
    case MCP_FN_REDUCE_SCATTER:
        return dtype == MCP_F32 || dtype == MCP_BF16 || dtype == MCP_F16;
    case MCP_FN_ALL_GATHER:
    case MCP_FN_ALL_TO_ALL:
    case MCP_FN_ALL_TO_ALL_V:
    case MCP_FN_SEND:
    case MCP_FN_RECEIVE:
    case MCP_FN_SHIFT:
        return dtype <= MCP_F16 || dtype == MCP_I32 || dtype == MCP_U8;
    default:
        return false;
    }
}

int64_t mcp_transfer_size(const struct mcp_transfer *t)
{
    return (int64_t)mcp_dtype_bytes((enum mcp_dtype)t->dtype);
}

struct mcp_shard mcp_shard_of(int64_t elements, int members, int member)
{
    int64_t q = (elements + members - 1) / members;
    int64_t first = mcp_min_int64(member * q, elements);
    return (struct mcp_shard){first, mcp_min_int64(first + q, elements) - first};
}

int mcp_neighbour(int members, int member, int delta)
{
    return ((member + delta) % members + members) % members;
}

/* --- operands --- */

/* Of gradients that are sharded in place: this rank's own shard of the whole alone. */
static void pick_shard(const struct mcp_launch *launch, struct mcp_transfer *t)
{
    const struct mcp_op *op = launch->op;
    int index =
        mcp_group_index(&launch->rank->program->plan, mcp_reduce_axes(false), launch->rank->rank);
    int64_t skip = mcp_min_int64(index * op->dims[0], op->dims[4]);
    t->elements = mcp_min_int64(op->dims[0], op->dims[4] - skip);
    t->from += skip * mcp_transfer_size(t);
    t->to += skip * mcp_transfer_size(t);
}

/* The part of a buffer that this tensor rank sends where messages are shared out. */
static void pick_part(const struct mcp_launch *launch, struct mcp_transfer *t)
{
    int64_t bytes = t->elements * mcp_transfer_size(t);
    int64_t skip = launch->rank->at.tensor * bytes;
    if (t->function == MCP_FN_SEND && bytes < launch->read_bytes[0])
        t->from += skip;
    if (t->function == MCP_FN_RECEIVE && bytes < launch->write_bytes[0])
        t->to += skip;
}

static void skip_to_first(const struct mcp_op *op, struct mcp_transfer *t)
{
    bool in_place = t->from == t->to;
    bool from_shard = !in_place && op->function == MCP_FN_ALL_GATHER;
    bool to_shard = !in_place && op->function == MCP_FN_REDUCE_SCATTER;
    if (t->from != NULL)
        t->from += op->dims[from_shard ? 3 : 2] * mcp_transfer_size(t);
    if (t->to != NULL)
        t->to += op->dims[to_shard ? 3 : 2] * mcp_transfer_size(t);
}

static bool writes_gradients(const struct mcp_launch *launch)
{
    return mcp_operand_buffer(launch->rank->program, launch->type, launch->op->writes[0])->kind ==
           MCP_BUFFER_GRADIENT;
}

void mcp_transfer_read(const struct mcp_launch *launch, struct mcp_transfer *t)
{
    const struct mcp_op *op = launch->op;
    *t = (struct mcp_transfer){.function = op->function,
                               .dtype = op->dtype,
                               .delta = op->delta,
                               .elements = op->dims[0],
                               .columns = op->dims[2],
                               .from = op->num_reads > 0 ? launch->reads[0] : NULL,
                               .to = op->num_writes > 0 ? launch->writes[0] : NULL,
                               .to_bytes = op->num_writes > 0 ? launch->write_bytes[0] : 0};
    if (op->function == MCP_FN_ALL_TO_ALL_V)
        return;
    skip_to_first(op, t);
    if (op->function == MCP_FN_ALL_REDUCE && op->dims[4] > 0)
        pick_shard(launch, t);
    t->accumulate =
        op->function == MCP_FN_REDUCE_SCATTER && t->from != t->to && writes_gradients(launch);
    pick_part(launch, t);
}

/* --- rows of experts --- */

struct mcp_rows mcp_rows_of(const struct mcp_transfer *t, const int32_t *sizes, int experts,
                            int members)
{
    return (struct mcp_rows){.experts = experts,
                             .local = experts / members,
                             .members = members,
                             .row_bytes = t->columns * mcp_transfer_size(t),
                             .has = sizes,
                             .gets = sizes + experts};
}

int64_t mcp_rows_before(const struct mcp_rows *rows, int member, int expert)
{
    int64_t before = 0;
    for (int g = 0; g < expert; g++)
        for (int j = 0; j < rows->members; j++)
            before += rows->gets[j * rows->local + g];
    for (int j = 0; j < member; j++)
        before += rows->gets[j * rows->local + expert];
    return before * rows->row_bytes;
}

enum mcp_status mcp_rows_check(const struct mcp_transfer *t, const struct mcp_rows *rows,
                               struct mcp_error *err)
{
    int64_t total = t->delta > 0 ? mcp_rows_before(rows, 0, rows->local) : 0;
    for (int x = 0; t->delta < 0 && x < rows->experts; x++)
        total += rows->has[x] * rows->row_bytes;
    if (total > t->to_bytes)
        return mcp_fail(err, MCP_RUN_FAILURE,
                        "routing sends %lld bytes of tokens to the experts of one rank, which has "
                        "room for %lld: use a smaller expert_parallel or microbatch_size",
                        (long long)total, (long long)t->to_bytes);
    return MCP_OK;
}
