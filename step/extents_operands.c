/* step/extents_operands.c: what kernels touch of their operands, function by function. */
#include "step/extents_parts.h"

#include "core/arena.h"
#include "core/minmax.h"
#include "step/quantised.h"

/* How much is touched of an operand. In double: dimensions and facts may be anything. */
struct asked {
    const struct mcp_judged *at;
    const int64_t *d;
    const struct mcp_layer_facts *f;
    struct mcp_operand operand;
};

static double one(const struct asked *q)
{
    (void)q;
    return 1;
}

static double two(const struct asked *q)
{
    (void)q;
    return 2;
}

static double rows(const struct asked *q)
{
    return (double)q->d[0];
}

static double columns(const struct asked *q)
{
    return (double)q->d[1];
}

static double elements(const struct asked *q)
{
    return (double)q->d[0] * (double)q->d[1];
}

/* --- heads: exec/shapes.h, step/facts.h --- */

static double query_columns(const struct mcp_layer_facts *f)
{
    return (double)f->heads * (double)f->head_dim;
}

static double kv_columns(const struct mcp_layer_facts *f)
{
    return (double)f->kv_heads * (double)(f->head_dim + f->value_head_dim);
}

static double projected_columns(const struct asked *q)
{
    return query_columns(q->f) + kv_columns(q->f);
}

static double projected(const struct asked *q)
{
    return rows(q) * projected_columns(q);
}

static double queries(const struct asked *q)
{
    return rows(q) * query_columns(q->f);
}

static double keys_values(const struct asked *q)
{
    return rows(q) * kv_columns(q->f);
}

static double merged(const struct asked *q)
{
    return rows(q) * (double)q->f->heads * (double)q->f->value_head_dim;
}

static double merged_statistics(const struct asked *q)
{
    return rows(q) * (double)q->f->heads;
}

/* Of attention: all ranks' tokens and a share of the heads after an exchange; and of a ring's
 * step or a whole one the keys of one rank or all. */
static double own_tokens(const struct mcp_layer_facts *f)
{
    return (double)f->microbatch_size * (double)f->sequence_local;
}

static double attended_heads(const struct asked *q)
{
    return own_tokens(q->f) * (double)q->f->heads;
}

static double attended_queries(const struct asked *q)
{
    return own_tokens(q->f) * query_columns(q->f);
}

static double attended_outputs(const struct asked *q)
{
    return attended_heads(q) * (double)q->f->value_head_dim;
}

static double attended_keys(const struct asked *q)
{
    const struct mcp_plan *plan = &q->at->program->plan;
    const int function = q->at->op->function;
    const bool own = function == MCP_FN_ATTENTION_STEP_FORWARD ||
                     function == MCP_FN_ATTENTION_STEP_BACKWARD ||
                     plan->context_parallel_kind == MCP_CONTEXT_ALL_TO_ALL;
    return own_tokens(q->f) * kv_columns(q->f) * (own ? 1 : plan->context_parallel);
}

/* --- tokens of experts: step/extents_experts.c --- */

static double routes(const struct asked *q)
{
    return (double)mcp_tokens_routed(q->at) * (double)q->f->num_experts;
}

static double chances(const struct asked *q)
{
    return 2 * elements(q);
}

static double tokens_rows(const struct asked *q)
{
    return (double)mcp_tokens_routed(q->at) * columns(q);
}

static double chosen_rows(const struct asked *q)
{
    return mcp_rows_chosen(q->at) * columns(q);
}

static double sizes(const struct asked *q)
{
    return 2 * (double)q->f->num_experts;
}

/* --- the ends --- */

static double table(const struct asked *q)
{
    return (double)q->f->vocab_local * columns(q);
}

static double ids(const struct asked *q)
{
    return own_tokens(q->f);
}

static double three_rows(const struct asked *q)
{
    return 3 * rows(q);
}

static double logits(const struct asked *q)
{
    return rows(q) * (double)q->d[2];
}

static double logit_columns(const struct asked *q)
{
    return (double)q->d[2];
}

/* --- flat buffers: exec/flats.h --- */

static double cleared(const struct asked *q)
{
    return (double)q->d[mcp_is_of_shards(q->operand) ? 4 : 3] + elements(q);
}

/* Whichever shard of the whole is this rank's; one in a buffer of shards may be short. */
static double owned(const struct asked *q)
{
    return mcp_is_of_shards(q->operand) ? (double)q->d[4] + (double)mcp_min_int64(q->d[0], q->d[2])
                                        : (double)q->d[3] + (double)q->d[2];
}

static double whole(const struct asked *q)
{
    return (double)q->d[3] + (double)q->d[2];
}

/* Two moments of a shard, and a master unless the weights are it. */
static double state(const struct asked *q)
{
    const struct mcp_buffer *weights =
        mcp_operand_buffer(q->at->program, q->at->type, q->at->op->writes[0]);
    return (weights->dtype == MCP_F32 ? 2 : 3) * ((double)q->d[4] + (double)q->d[0]);
}

static double first_moments(const struct asked *q)
{
    const bool has_master = q->at->op->dtype != MCP_F32;
    return (has_master ? 3 : 2) * (double)q->d[4] + (has_master ? 2 : 1) * (double)q->d[2];
}

/* --- signs --- */

static double real(const struct asked *q)
{
    return (double)mcp_min_int64(q->d[0], q->d[4]);
}

static double added(const struct asked *q)
{
    return (double)q->d[3] + real(q);
}

static double errors(const struct asked *q)
{
    return (double)q->d[2] + real(q);
}

static double variances(const struct asked *q)
{
    return (double)q->d[3] + (double)q->d[4];
}

static double sign_bytes(const struct asked *q)
{
    const int64_t bytes = (q->d[0] + 7) / 8;
    return (double)bytes;
}

static double arrived_signs(const struct asked *q)
{
    return columns(q) * sign_bytes(q);
}

static double moments_behind(const struct asked *q)
{
    return (double)q->d[2] + rows(q);
}

/* Of all rows that there is room for beside it. */
static double quantised(const struct asked *q)
{
    const struct mcp_op *op = q->at->op;
    const struct mcp_operand beside =
        op->function == MCP_FN_QUANTISE ? op->reads[0] : op->writes[0];
    const int64_t all = mcp_judged_elements(q->at, beside) / q->d[1];
    return (double)all * ((double)q->d[1] + 4 * (double)mcp_quantised_blocks(q->d[1]));
}

/* --- the table --- */

/* Operands: reads from 0 on, writes from WRITES on. */
enum { WRITES = 16 };
#define R(index) (index)
#define W(index) (WRITES + (index))

enum format { NUMBERS, FLOATS, INTS, BYTES };
enum place {
    ALL,     /* from the buffer's start */
    PART,    /* from the op's weight part on, if it has one */
    IF_PART, /* the same; without a part the operand is not there */
    IF_READ  /* where there are so many operands */
};

struct touch {
    unsigned char function, operand, format, place;
    double (*amount)(const struct asked *q);
};

/* A bias's gradient alone is no function of its own. */
enum { SUMS_ALONE = MCP_NUM_FUNCTIONS };

static const struct touch touches[] = {
    {MCP_FN_ROTARY_FORWARD, R(0), NUMBERS, ALL, projected},
    {MCP_FN_ROTARY_FORWARD, R(1), NUMBERS, IF_PART, projected_columns},
    {MCP_FN_ROTARY_FORWARD, W(0), NUMBERS, ALL, queries},
    {MCP_FN_ROTARY_FORWARD, W(1), NUMBERS, ALL, keys_values},
    {MCP_FN_ROTARY_BACKWARD, R(0), NUMBERS, ALL, queries},
    {MCP_FN_ROTARY_BACKWARD, R(1), NUMBERS, ALL, keys_values},
    {MCP_FN_ROTARY_BACKWARD, W(0), NUMBERS, ALL, projected},
    {MCP_FN_ROTARY_BACKWARD, W(1), NUMBERS, IF_PART, projected_columns},
    {SUMS_ALONE, R(0), NUMBERS, ALL, elements},
    {SUMS_ALONE, W(0), NUMBERS, PART, columns},
    {MCP_FN_ATTENTION_FORWARD, R(0), NUMBERS, ALL, attended_queries},
    {MCP_FN_ATTENTION_FORWARD, R(1), NUMBERS, ALL, attended_keys},
    {MCP_FN_ATTENTION_FORWARD, W(0), NUMBERS, ALL, attended_outputs},
    {MCP_FN_ATTENTION_FORWARD, W(1), FLOATS, ALL, attended_heads},
    {MCP_FN_ATTENTION_BACKWARD, R(0), NUMBERS, ALL, attended_queries},
    {MCP_FN_ATTENTION_BACKWARD, R(1), NUMBERS, ALL, attended_keys},
    {MCP_FN_ATTENTION_BACKWARD, R(2), NUMBERS, ALL, attended_outputs},
    {MCP_FN_ATTENTION_BACKWARD, R(3), NUMBERS, ALL, attended_outputs},
    {MCP_FN_ATTENTION_BACKWARD, R(4), FLOATS, ALL, attended_heads},
    {MCP_FN_ATTENTION_BACKWARD, W(0), NUMBERS, ALL, attended_queries},
    {MCP_FN_ATTENTION_BACKWARD, W(1), NUMBERS, ALL, attended_keys},
    {MCP_FN_MERGE, R(0), NUMBERS, ALL, merged},
    {MCP_FN_MERGE, R(1), FLOATS, ALL, merged_statistics},
    {MCP_FN_MERGE, W(0), NUMBERS, ALL, merged},
    {MCP_FN_MERGE, W(1), FLOATS, ALL, merged_statistics},
    {MCP_FN_PACK_HEADS, R(0), NUMBERS, ALL, elements},
    {MCP_FN_PACK_HEADS, W(0), NUMBERS, ALL, elements},
    {MCP_FN_RESIDUAL_FORWARD, R(0), NUMBERS, ALL, elements},
    {MCP_FN_RESIDUAL_FORWARD, R(1), NUMBERS, ALL, elements},
    {MCP_FN_RESIDUAL_FORWARD, R(2), NUMBERS, IF_PART, columns},
    {MCP_FN_RESIDUAL_FORWARD, W(0), NUMBERS, ALL, elements},
    {MCP_FN_RESIDUAL_BACKWARD, R(0), NUMBERS, ALL, elements},
    {MCP_FN_RESIDUAL_BACKWARD, W(0), NUMBERS, ALL, elements},
    {MCP_FN_RESIDUAL_BACKWARD, W(1), NUMBERS, IF_PART, columns},
    {MCP_FN_COPY, R(0), NUMBERS, PART, elements},
    {MCP_FN_COPY, W(0), NUMBERS, ALL, elements},
    {MCP_FN_ADD, R(0), NUMBERS, PART, elements},
    {MCP_FN_ADD, R(1), NUMBERS, PART, elements},
    {MCP_FN_ADD, W(0), NUMBERS, PART, elements},
    {MCP_FN_QUANTISE, R(0), NUMBERS, ALL, elements},
    {MCP_FN_QUANTISE, W(0), BYTES, ALL, quantised},
    {MCP_FN_DEQUANTISE, W(0), NUMBERS, ALL, elements},
    {MCP_FN_DEQUANTISE, R(0), BYTES, ALL, quantised},
    /* experts */
    {MCP_FN_ROUTER_TOP_K, R(0), NUMBERS, ALL, elements},
    {MCP_FN_ROUTER_TOP_K, R(1), NUMBERS, IF_PART, columns},
    {MCP_FN_ROUTER_TOP_K, W(0), FLOATS, ALL, chances},
    {MCP_FN_ROUTER_TOP_K_BACKWARD, R(0), NUMBERS, ALL, routes},
    {MCP_FN_ROUTER_TOP_K_BACKWARD, W(0), NUMBERS, ALL, routes},
    {MCP_FN_ROUTER_TOP_K_BACKWARD, W(1), NUMBERS, IF_PART, columns},
    {MCP_FN_EXPERT_COUNTS, W(0), INTS, ALL, sizes},
    {MCP_FN_PERMUTE, R(0), NUMBERS, ALL, tokens_rows},
    {MCP_FN_PERMUTE, W(0), NUMBERS, ALL, chosen_rows},
    {MCP_FN_PERMUTE_BACKWARD, R(0), NUMBERS, ALL, chosen_rows},
    {MCP_FN_PERMUTE_BACKWARD, W(0), NUMBERS, ALL, tokens_rows},
    {MCP_FN_UNPERMUTE, R(0), NUMBERS, ALL, chosen_rows},
    {MCP_FN_UNPERMUTE, W(0), NUMBERS, ALL, tokens_rows},
    {MCP_FN_UNPERMUTE_BACKWARD, R(0), NUMBERS, ALL, tokens_rows},
    {MCP_FN_UNPERMUTE_BACKWARD, R(2), NUMBERS, ALL, chosen_rows},
    {MCP_FN_UNPERMUTE_BACKWARD, W(0), NUMBERS, ALL, chosen_rows},
    {MCP_FN_UNPERMUTE_BACKWARD, W(1), NUMBERS, ALL, routes},
    /* the ends */
    {MCP_FN_LOAD_MICROBATCH, W(0), INTS, ALL, ids},
    {MCP_FN_EMBEDDING_FORWARD, R(0), INTS, ALL, rows},
    {MCP_FN_EMBEDDING_FORWARD, R(1), NUMBERS, PART, table},
    {MCP_FN_EMBEDDING_FORWARD, W(0), NUMBERS, ALL, elements},
    {MCP_FN_EMBEDDING_BACKWARD, R(0), NUMBERS, ALL, elements},
    {MCP_FN_EMBEDDING_BACKWARD, R(1), INTS, ALL, rows},
    {MCP_FN_EMBEDDING_BACKWARD, W(0), NUMBERS, PART, table},
    {MCP_FN_LOSS_MAX, R(1), INTS, ALL, rows},
    {MCP_FN_LOSS_MAX, R(2), NUMBERS, IF_PART, logit_columns},
    {MCP_FN_LOSS_MAX, W(0), FLOATS, ALL, three_rows},
    {MCP_FN_LOSS_MAX, W(1), NUMBERS, ALL, logits},
    {MCP_FN_LOSS_SUMS, W(0), FLOATS, ALL, three_rows},
    {MCP_FN_LOSS_FORWARD, R(1), FLOATS, ALL, three_rows},
    {MCP_FN_LOSS_FORWARD, R(2), INTS, ALL, rows},
    {MCP_FN_LOSS_FORWARD, W(0), FLOATS, ALL, one},
    {MCP_FN_LOSS_FORWARD, W(1), NUMBERS, ALL, elements},
    {MCP_FN_LOSS_BACKWARD, R(0), NUMBERS, ALL, elements},
    {MCP_FN_LOSS_BACKWARD, W(0), NUMBERS, ALL, elements},
    /* once a step */
    {MCP_FN_ZERO, W(0), NUMBERS, ALL, cleared},
    {MCP_FN_SUM_SQUARES, R(0), NUMBERS, ALL, owned},
    {MCP_FN_SUM_SQUARES, W(0), FLOATS, ALL, one},
    {MCP_FN_ADAM, R(0), NUMBERS, ALL, owned},
    {MCP_FN_ADAM, R(2), FLOATS, ALL, two},
    {MCP_FN_ADAM, W(0), NUMBERS, ALL, owned},
    {MCP_FN_ADAM, W(1), FLOATS, ALL, state},
    {MCP_FN_MOMENTUM, R(0), NUMBERS, ALL, whole},
    {MCP_FN_MOMENTUM, R(2), FLOATS, ALL, two},
    {MCP_FN_MOMENTUM, W(0), FLOATS, ALL, first_moments},
    {MCP_FN_ADAM_FROZEN, R(1), FLOATS, ALL, two},
    {MCP_FN_ADAM_FROZEN, W(0), NUMBERS, ALL, owned},
    {MCP_FN_ADAM_FROZEN, W(1), FLOATS, ALL, state},
    {MCP_FN_ADD_ERROR, R(0), FLOATS, ALL, added},
    {MCP_FN_ADD_ERROR, R(2), FLOATS, ALL, two},
    {MCP_FN_ADD_ERROR, W(0), FLOATS, ALL, errors},
    {MCP_FN_COMPRESS_SIGNS, R(1), FLOATS, ALL, variances},
    {MCP_FN_COMPRESS_SIGNS, R(2), FLOATS, ALL, two},
    {MCP_FN_COMPRESS_SIGNS, W(0), BYTES, ALL, sign_bytes},
    {MCP_FN_COMPRESS_SIGNS, W(1), FLOATS, ALL, one},
    {MCP_FN_COMPRESS_SIGNS, W(2), FLOATS, ALL, errors},
    {MCP_FN_AVERAGE_SIGNS, R(0), BYTES, ALL, arrived_signs},
    {MCP_FN_AVERAGE_SIGNS, R(1), FLOATS, ALL, columns},
    {MCP_FN_AVERAGE_SIGNS, W(0), FLOATS, ALL, rows},
    {MCP_FN_DECOMPRESS_SIGNS, R(0), BYTES, ALL, sign_bytes},
    {MCP_FN_DECOMPRESS_SIGNS, R(1), FLOATS, ALL, one},
    {MCP_FN_DECOMPRESS_SIGNS, R(3), FLOATS, ALL, two},
    {MCP_FN_DECOMPRESS_SIGNS, W(0), FLOATS, ALL, moments_behind},
    {MCP_FN_CLEAR_SCALARS, W(0), FLOATS, ALL, one},
    {MCP_FN_CLEAR_SCALARS, W(1), FLOATS, IF_READ, one},
    {MCP_FN_STEP_SCALARS, R(0), FLOATS, ALL, one},
    {MCP_FN_STEP_SCALARS, R(1), FLOATS, IF_READ, one},
    {MCP_FN_STEP_SCALARS, W(0), FLOATS, ALL, two},
};

/* Functions that touch what another one does. */
static int row_of(const struct mcp_op *op)
{
    switch (op->function) {
    case MCP_FN_BIAS_FORWARD:
        return MCP_FN_ROTARY_FORWARD;
    case MCP_FN_BIAS_BACKWARD:
        return op->num_reads == 1 ? SUMS_ALONE : MCP_FN_ROTARY_BACKWARD;
    case MCP_FN_ATTENTION_STEP_FORWARD:
        return MCP_FN_ATTENTION_FORWARD;
    case MCP_FN_ATTENTION_STEP_BACKWARD:
        return MCP_FN_ATTENTION_BACKWARD;
    case MCP_FN_UNPACK_HEADS:
        return MCP_FN_PACK_HEADS;
    case MCP_FN_EMBEDDING_MIXED_FORWARD:
        return MCP_FN_EMBEDDING_FORWARD;
    default:
        return op->function;
    }
}

static enum mcp_status check_touch(const struct mcp_judged *at, const struct touch *t)
{
    static const int formats[] = {[NUMBERS] = MCP_FORMAT_NUMBERS,
                                  [FLOATS] = MCP_FORMAT_FLOATS,
                                  [INTS] = MCP_FORMAT_INTS,
                                  [BYTES] = ~0};
    const struct mcp_op *op = at->op;
    const bool writes = t->operand >= WRITES;
    const int index = t->operand % WRITES;
    if ((t->place == IF_PART && op->weight == MCP_NO_WEIGHT) ||
        (t->place == IF_READ && index >= (writes ? op->num_writes : op->num_reads)))
        return MCP_OK;
    MCP_TRY(mcp_check_count(at, writes ? 0 : index + 1, writes ? index + 1 : 0));
    const struct mcp_operand operand = writes ? op->writes[index] : op->reads[index];
    const struct asked asked = {at, op->dims, &at->type->facts, operand};
    const bool part = t->place == PART || t->place == IF_PART;
    MCP_TRY(mcp_check_format(at, operand, formats[t->format]));
    return mcp_check_room(at, operand, t->amount(&asked),
                          t->format == BYTES ? mcp_judged_buffer(at, operand)->capacity_bytes
                          : part             ? mcp_judged_part_elements(at, operand, 0)
                                             : mcp_judged_elements(at, operand));
}

enum mcp_status mcp_check_operands(const struct mcp_judged *at)
{
    const int row = row_of(at->op);
    for (size_t i = 0; i < MCP_COUNT_OF(touches); i++)
        if (touches[i].function == row)
            MCP_TRY(check_touch(at, &touches[i]));
    return MCP_OK;
}
