/* step/extents_facts.c: are a layer type's facts and weights possible? Kernels divide by them, and
 * size their own arrays by them. */
#include "step/extents_parts.h"

#include "core/arena.h"
#include "step/weights.h"

/* A fact, and what it must be. */
struct rule {
    bool holds;
    const char *fact;
    int64_t value;
    const char *must;
};

/* `op` NULL: whatever the type's ops are. */
static enum mcp_status check_rules(const struct mcp_judged *at, const struct rule *rules,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = &rules[i];
        if (rule->holds)
            continue;
        if (at->op != NULL)
            return mcp_extents_fail(at, "%s=%lld must be %s", rule->fact, (long long)rule->value,
                                    rule->must);
        return mcp_fail(at->err, MCP_INVALID,
                        "layer type '%s': %s=%lld must be %s: the program's sizes contradict each "
                        "other",
                        at->type->name, rule->fact, (long long)rule->value, rule->must);
    }
    return MCP_OK;
}

/* --- by op --- */

static enum mcp_status check_heads(const struct mcp_judged *at)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    const struct mcp_plan *plan = &at->program->plan;
    const bool shared_out =
        plan->context_parallel > 1 && plan->context_parallel_kind == MCP_CONTEXT_ALL_TO_ALL;
    const struct rule rules[] = {
        {f->heads >= 1, "heads", f->heads, "at least 1"},
        {f->kv_heads >= 1 && f->heads % f->kv_heads == 0, "kv_heads", f->kv_heads,
         "a divisor of heads"},
        {!shared_out || f->kv_heads % plan->context_parallel == 0, "kv_heads", f->kv_heads,
         "a multiple of context_parallel, which shares heads out"},
        {f->head_dim >= 1 && f->head_dim <= MCP_MAX_HEAD_DIM, "head_dim", f->head_dim,
         "from 1 to 256"},
        {f->value_head_dim >= 1 && f->value_head_dim <= MCP_MAX_HEAD_DIM, "value_head_dim",
         f->value_head_dim, "from 1 to 256"},
        {f->rotary_dim % 2 == 0 && f->rotary_dim <= f->head_dim, "rotary_dim", f->rotary_dim,
         "even, and no more than head_dim"},
        {plan->context_parallel <= MCP_MAX_RING, "context_parallel", plan->context_parallel,
         "at most 256"},
    };
    return check_rules(at, rules, MCP_COUNT_OF(rules));
}

static enum mcp_status check_tokens(const struct mcp_judged *at)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    const struct rule rules[] = {
        {f->sequence_local >= 1, "sequence_local", f->sequence_local, "at least 1"}};
    return check_rules(at, rules, MCP_COUNT_OF(rules));
}

static enum mcp_status check_routing(const struct mcp_judged *at)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    const int64_t ranks = at->program->plan.expert_parallel;
    const struct rule rules[] = {
        {f->num_experts >= 1 && f->num_experts <= MCP_MAX_ROUTED, "num_experts", f->num_experts,
         "from 1 to 4096"},
        {f->local_experts >= 1 && f->num_experts % ranks == 0 &&
             f->num_experts / ranks == f->local_experts,
         "local_experts", f->local_experts, "num_experts / expert_parallel"},
        {f->experts_per_token >= 1 && f->experts_per_token <= f->num_experts, "experts_per_token",
         f->experts_per_token, "from 1 to num_experts"},
    };
    return check_rules(at, rules, MCP_COUNT_OF(rules));
}

static enum mcp_status check_routed(const struct mcp_judged *at)
{
    MCP_TRY(check_routing(at));
    const int64_t experts = at->type->facts.num_experts;
    const struct rule rules[] = {{at->op->dims[1] == experts, "num_experts", experts,
                                  "the columns of what the router reads"}};
    return check_rules(at, rules, MCP_COUNT_OF(rules));
}

static enum mcp_status check_vocabulary(const struct mcp_judged *at, int64_t columns)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    const struct rule rules[] = {{f->vocab_local >= 1 && f->vocab_local <= columns, "vocab_local",
                                  f->vocab_local, "from 1 to the columns of the logits"}};
    return check_rules(at, rules, MCP_COUNT_OF(rules));
}

static enum mcp_status check_embedding(const struct mcp_judged *at)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    const struct rule rules[] = {{f->positions_part <= at->type->num_weights, "positions_part",
                                  f->positions_part, "a part of the type's weights + 1, or 0"}};
    MCP_TRY(check_tokens(at));
    return check_rules(at, rules, MCP_COUNT_OF(rules));
}

/* A batch has one token more than a sequence: what follows the last. */
static enum mcp_status check_load(const struct mcp_judged *at)
{
    MCP_TRY(check_tokens(at));
    return at->op->dims[2] <= 1
               ? MCP_OK
               : mcp_extents_fail(at, "tokens %lld ahead, where a batch has 1 more than a sequence",
                                  (long long)at->op->dims[2]);
}

static enum mcp_status check_attention(const struct mcp_judged *at)
{
    MCP_TRY(check_tokens(at));
    return check_heads(at);
}

/* An update's buffers are one flat buffer's, whole: who begins weights goes by its weights. */
static enum mcp_status check_update(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    MCP_TRY(mcp_check_count(at, 1, 2));
    const struct mcp_operand weights = op->writes[0], state = op->writes[1];
    const enum mcp_flat flat = mcp_flat_at(at->type, weights, op->dims[3]);
    const bool expert = flat == MCP_FLAT_EXPERT;
    const bool good =
        state.space == MCP_SPACE_LAYER && state.index == MCP_LAYER_OPTIMIZER + expert &&
        (op->function != MCP_FN_ADAM || mcp_flat_at(at->type, op->reads[0], op->dims[3]) == flat);
    const int64_t there = mcp_flat_elements(at->type, flat);
    if (good && op->dims[2] == there && op->dims[3] == mcp_flat_first(at->type, flat))
        return MCP_OK;
    return mcp_extents_fail(at, "%lld weights from %lld of '%s' on, where the layer has %lld",
                            (long long)op->dims[2], (long long)op->dims[3],
                            mcp_judged_buffer(at, weights)->name, (long long)there);
}

enum mcp_status mcp_check_op_facts(const struct mcp_judged *at)
{
    const struct mcp_op *op = at->op;
    switch (op->function) {
    case MCP_FN_ROTARY_FORWARD:
    case MCP_FN_ROTARY_BACKWARD:
    case MCP_FN_BIAS_FORWARD:
    case MCP_FN_ATTENTION_FORWARD:
    case MCP_FN_ATTENTION_BACKWARD:
    case MCP_FN_ATTENTION_STEP_FORWARD:
    case MCP_FN_ATTENTION_STEP_BACKWARD:
    case MCP_FN_MERGE:
        return check_attention(at);
    case MCP_FN_BIAS_BACKWARD:
        return op->num_reads == 1 ? MCP_OK : check_attention(at);
    case MCP_FN_ROUTER_TOP_K:
    case MCP_FN_ROUTER_TOP_K_BACKWARD:
        return check_routed(at);
    case MCP_FN_EXPERT_COUNTS:
    case MCP_FN_PERMUTE:
    case MCP_FN_PERMUTE_BACKWARD:
    case MCP_FN_UNPERMUTE:
    case MCP_FN_UNPERMUTE_BACKWARD:
    case MCP_FN_GROUPED_NT:
    case MCP_FN_GROUPED_NN:
    case MCP_FN_GROUPED_TN_ACCUMULATE:
    case MCP_FN_ALL_TO_ALL_V:
        return check_routing(at);
    case MCP_FN_LOAD_MICROBATCH:
        return check_load(at);
    case MCP_FN_EMBEDDING_FORWARD:
    case MCP_FN_EMBEDDING_MIXED_FORWARD:
    case MCP_FN_EMBEDDING_BACKWARD:
        return check_embedding(at);
    case MCP_FN_LOSS_MAX:
        return check_vocabulary(at, op->dims[2]);
    case MCP_FN_LOSS_FORWARD:
        return check_vocabulary(at, op->dims[1]);
    case MCP_FN_ADAM:
    case MCP_FN_ADAM_FROZEN:
        return check_update(at);
    default:
        return MCP_OK;
    }
}

/* --- by type --- */

/* The one length of sequences, but for types that have none: the step's own. */
static int64_t sequence_of(const struct mcp_program *program)
{
    for (int t = 0; t < program->num_types; t++)
        if (program->types[t].facts.sequence_length > 0)
            return program->types[t].facts.sequence_length;
    return 0;
}

static enum mcp_status check_cut(const struct mcp_judged *at)
{
    const struct mcp_layer_facts *f = &at->type->facts;
    const struct mcp_plan *plan = &at->program->plan;
    const int64_t ranks = plan->context_parallel;
    const struct rule rules[] = {
        {f->microbatch_size == plan->microbatch_size, "microbatch_size", f->microbatch_size,
         "the plan's"},
        {f->sequence_length == sequence_of(at->program), "sequence_length", f->sequence_length,
         "that of the other types"},
        {f->sequence_length % ranks == 0 && f->sequence_length / ranks == f->sequence_local,
         "sequence_local", f->sequence_local, "sequence_length / context_parallel"},
        {f->zigzag == 0 || (f->zigzag == 1 && f->sequence_local % 2 == 0), "zigzag", f->zigzag,
         "0, or 1 where sequence_local is even"},
    };
    const bool has_none =
        f->microbatch_size == 0 && f->sequence_length == 0 && f->sequence_local == 0;
    return has_none ? MCP_OK : check_rules(at, rules, MCP_COUNT_OF(rules));
}

/* In double: rows, columns and copies may be anything. */
static enum mcp_status check_flat(const struct mcp_judged *at, enum mcp_flat flat,
                                  struct mcp_operand operand)
{
    const struct mcp_layer_type *type = at->type;
    double wanted = 0;
    for (int i = 0; i < type->num_weights; i++) {
        const struct mcp_weight *weight = &type->weights[i];
        /* a table that is not in rank space lies behind the dense parts */
        const bool behind = flat == MCP_FLAT_DENSE && weight->twin && !weight->shared;
        if (mcp_weight_flat(weight) == flat || behind)
            wanted += (double)weight->rows * (double)weight->columns * weight->copies;
    }
    if (wanted == 0 || wanted <= (double)mcp_judged_elements(at, operand))
        return MCP_OK;
    const struct mcp_buffer *buffer = mcp_judged_buffer(at, operand);
    return mcp_fail(at->err, MCP_INVALID,
                    "layer type '%s': %.0f weights in '%s', which has %lld bytes: the program's "
                    "sizes contradict each other",
                    type->name, wanted, buffer->name, (long long)buffer->capacity_bytes);
}

static enum mcp_status check_weights(const struct mcp_judged *at)
{
    const struct mcp_layer_type *type = at->type;
    const struct mcp_operand table = {.space = MCP_SPACE_RANK, .index = MCP_RANK_TIED_WEIGHTS};
    const struct mcp_operand dense = {.space = MCP_SPACE_LAYER, .index = MCP_LAYER_WEIGHTS};
    const struct mcp_operand expert = {.space = MCP_SPACE_LAYER, .index = MCP_LAYER_EXPERT_WEIGHTS};
    for (int i = 0; i < type->num_weights; i++) {
        const struct mcp_weight *weight = &type->weights[i];
        const int64_t copies = weight->expert ? type->facts.local_experts : 1;
        const struct rule rule = {weight->copies == copies, weight->name, weight->copies,
                                  "as many copies as there are local experts, or 1"};
        MCP_TRY(check_rules(at, &rule, 1));
    }
    if (type->num_buffers[MCP_SPACE_LAYER] == 0) {
        const struct rule rule = {type->num_weights == 0, "num_weights", type->num_weights,
                                  "0 in a type without buffers of a layer"};
        return check_rules(at, &rule, 1);
    }
    MCP_TRY(check_flat(at, MCP_FLAT_DENSE, dense));
    MCP_TRY(check_flat(at, MCP_FLAT_EXPERT, expert));
    return mcp_has_shared_table(type) ? check_flat(at, MCP_FLAT_TABLE, table) : MCP_OK;
}

/* Layers write into each other's X and DX: of one size, or of none where nobody has them. */
enum mcp_status mcp_check_handed_on(const struct mcp_program *program, struct mcp_error *err)
{
    int64_t size = 0;
    for (int t = 0; t < program->num_types; t++) {
        const struct mcp_layer_type *type = &program->types[t];
        for (int i = MCP_FRAME_X; i <= MCP_FRAME_DX && i < type->num_buffers[MCP_SPACE_FRAME];
             i++) {
            const struct mcp_buffer *frame = &type->buffers[MCP_SPACE_FRAME][i];
            if (size == 0)
                size = frame->capacity_bytes;
            if (frame->capacity_bytes != 0 && frame->capacity_bytes != size)
                return mcp_fail(err, MCP_INVALID,
                                "layer type '%s': frame '%s' has %lld bytes, where others' have "
                                "%lld: the program's sizes contradict each other",
                                type->name, frame->name, (long long)frame->capacity_bytes,
                                (long long)size);
        }
    }
    return MCP_OK;
}

enum mcp_status mcp_check_type_facts(const struct mcp_program *program,
                                     const struct mcp_layer_type *type, struct mcp_error *err)
{
    const struct mcp_judged at = {program, type, NULL, err};
    MCP_TRY(check_cut(&at));
    return check_weights(&at);
}
