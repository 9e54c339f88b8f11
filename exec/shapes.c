/* exec/shapes.c: shapes that follow from an op's operands and its layer's facts. */
#include "exec/shapes.h"

#include <assert.h>
#include <math.h>

/* --- norms --- */

/* A row that is wider than what is normed holds queries, keys and more. Either all heads of
 * the one, then of the other, are one segment, or each head is. */
static void set_bands(const struct mcp_launch *launch, struct mcp_norm_shape *n)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    const struct mcp_weight *part = mcp_launch_weight(launch);
    int64_t heads[2] = {facts->heads, facts->kv_heads}, first = 0;
    bool together = part != NULL && part->columns == n->columns;
    n->num_bands = 2;
    for (int i = 0; i < 2; i++) {
        struct mcp_norm_band *band = &n->bands[i];
        band->first = first;
        band->segments = together ? 1 : heads[i];
        band->columns = (together ? heads[i] : 1) * facts->head_dim;
        band->weight_at = together                 ? first
                          : i == 0 || part == NULL ? 0
                                                   : part->rows / 2 * facts->head_dim;
        band->bias_at = together ? n->columns + first : band->weight_at + facts->head_dim;
        first += heads[i] * facts->head_dim;
    }
}

struct mcp_norm_shape mcp_norm_shape_of(const struct mcp_launch *launch, struct mcp_view x)
{
    const int64_t *d = launch->op->dims;
    const struct mcp_weight *part = mcp_launch_weight(launch);
    struct mcp_norm_shape n = {.rows = d[0], .stride = x.elements / d[0], .columns = d[1]};
    bool plain = n.stride == n.columns;
    n.has_bias = part != NULL && part->rows > (!plain && part->columns != d[1] ? 2 : 1);
    n.num_bands = 1;
    n.bands[0] = (struct mcp_norm_band){.segments = 1, .columns = d[1], .bias_at = d[1]};
    if (!plain)
        set_bands(launch, &n);
    return n;
}

/* --- an MLP's activation --- */

/* Backward with the gradients of a bias need not read it: a product may have added it. */
static bool reads_weights(const struct mcp_launch *launch)
{
    const struct mcp_op *op = launch->op;
    return op->weight != MCP_NO_WEIGHT && op->num_reads > 0 &&
           mcp_operand_buffer(launch->rank->program, launch->type, op->reads[op->num_reads - 1])
                   ->kind == MCP_BUFFER_WEIGHT;
}

struct mcp_mlp_inputs mcp_mlp_inputs_of(const struct mcp_launch *launch, int first,
                                        const int32_t *sizes)
{
    const struct mcp_layer_facts *facts = &launch->type->facts;
    bool biased = reads_weights(launch);
    int operands = launch->op->num_reads - first - (sizes != NULL) - biased;
    struct mcp_mlp_inputs in = {.rows = launch->op->dims[0],
                                .width = launch->op->dims[1],
                                .up_stride = launch->op->dims[1],
                                .up = mcp_read_view(launch, first)};
    if (sizes != NULL)
        in.rows = mcp_all_expert_rows(launch, sizes);
    if (facts->gated && operands == 1) {
        in.up_stride = in.other_stride = 2 * in.width;
        in.other = mcp_view_at(in.up, in.width);
    } else if (facts->gated) {
        in.other_stride = in.width;
        in.other = mcp_read_view(launch, first + 1);
    }
    if (!biased)
        return in;
    in.bias = mcp_weight_view(launch, launch->op->num_reads - 1, 0);
    if (in.other.data != NULL)
        in.other_bias = mcp_view_at(in.bias, in.width);
    return in;
}

/* --- heads --- */

/* Llama 3.1: waves longer than the original length over low_factor are stretched, those
 * shorter than over high_factor are not, between them a mixture. */
static double llama3_frequency(const struct mcp_layer_facts *facts, double frequency)
{
    double turns = facts->rotary_original_length * frequency / (2 * 3.14159265358979323846);
    double stretched = frequency / facts->rotary_factor;
    if (turns < facts->rotary_low_factor)
        return stretched;
    if (turns > facts->rotary_high_factor)
        return frequency;
    double share =
        (turns - facts->rotary_low_factor) / (facts->rotary_high_factor - facts->rotary_low_factor);
    return (1 - share) * stretched + share * frequency;
}

int mcp_rotary_frequencies(const struct mcp_layer_facts *facts, float *out)
{
    int count = (int)(facts->rotary_dim / 2);
    assert(count <= MCP_MAX_HEAD_DIM / 2);
    for (int i = 0; i < count; i++) {
        double frequency = pow(facts->rotary_base, -2.0 * i / (double)facts->rotary_dim);
        if (facts->rotary_scaling == MCP_ROTARY_LINEAR)
            frequency /= facts->rotary_factor;
        if (facts->rotary_scaling == MCP_ROTARY_LLAMA3)
            frequency = llama3_frequency(facts, frequency);
        out[i] = (float)frequency;
    }
    return count;
}

bool mcp_heads_exchanged(const struct mcp_launch *launch)
{
    const struct mcp_plan *plan = &launch->rank->program->plan;
    return plan->context_parallel > 1 && plan->context_parallel_kind == MCP_CONTEXT_ALL_TO_ALL;
}

bool mcp_is_ring_step(const struct mcp_op *op)
{
    return op->function == MCP_FN_ATTENTION_STEP_FORWARD ||
           op->function == MCP_FN_ATTENTION_STEP_BACKWARD;
}

int mcp_key_owner(const struct mcp_launch *launch)
{
    int ranks = launch->rank->program->plan.context_parallel;
    return (launch->rank->at.context + ranks - (int)(launch->op->dims[6] % ranks)) % ranks;
}

/* --- routing --- */

struct mcp_routing mcp_routing_of(const struct mcp_launch *launch, int read)
{
    struct mcp_routing r = {.experts = launch->type->facts.num_experts};
    r.tokens = launch->read_bytes[read] / 8 / r.experts;
    r.probabilities = launch->reads[read];
    r.shares = r.probabilities + r.tokens * r.experts;
    return r;
}

/* --- the vocabulary --- */

int64_t mcp_first_id(const struct mcp_launch *launch)
{
    return launch->rank->at.tensor * launch->type->facts.vocab_local;
}

int64_t mcp_true_columns(const struct mcp_launch *launch, int64_t columns)
{
    int64_t left = launch->type->facts.vocab_size - mcp_first_id(launch);
    return left < 0 ? 0 : left < columns ? left : columns;
}

struct mcp_view mcp_positions_view(const struct mcp_launch *launch, struct mcp_view buffer)
{
    int64_t part = launch->type->facts.positions_part;
    if (part == 0)
        return (struct mcp_view){0};
    return mcp_view_at(buffer, mcp_weight_offset(launch->type, (int)part - 1, 0));
}

/* From the step dims[2] on, all of it from dims[3] on; 0 where there are none. */
float mcp_rounding_share(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims, step = launch->rank->inputs.step;
    if (step < d[2] || d[3] <= d[2])
        return 0;
    return step >= d[3] ? 1 : (float)((double)(step - d[2] + 1) / (double)(d[3] - d[2] + 1));
}
