/* exec/flats.c: a rank's own elements of flat buffers. */
#include "exec/flats.h"

#include "core/minmax.h"

#include <math.h>

static bool is_expert(struct mcp_operand at)
{
    return at.space == MCP_SPACE_LAYER && at.index % 2 == 1;
}

struct mcp_share mcp_share_of(const struct mcp_launch *launch, struct mcp_operand at)
{
    const int64_t *d = launch->op->dims;
    bool expert = is_expert(at);
    struct mcp_share s = {.elements = d[2], .first = d[3], .shard = d[0], .shard_first = d[4]};
    s.kind = mcp_flat_at(launch->type, at, s.first);
    s.sharded = s.shard < s.elements;
    s.member =
        mcp_group_index(&launch->rank->program->plan, mcp_reduce_axes(expert), launch->rank->rank);
    s.own_first = s.sharded ? s.member * s.shard : 0;
    s.own = mcp_clamp_int64(s.elements - s.own_first, 0, s.shard);
    return s;
}

struct mcp_view mcp_own_view(const struct mcp_share *s, struct mcp_operand at, struct mcp_view view)
{
    return mcp_view_at(view, mcp_is_of_shards(at) ? s->shard_first : s->first + s->own_first);
}

struct mcp_view mcp_cleared_view(const struct mcp_launch *launch)
{
    struct mcp_operand at = launch->op->writes[0];
    const int64_t *d = launch->op->dims;
    return mcp_view_at(mcp_write_view(launch, 0), mcp_is_of_shards(at) ? d[4] : d[3]);
}

int mcp_reducing_ranks(const struct mcp_launch *launch)
{
    return mcp_group_size(&launch->rank->program->plan,
                          mcp_reduce_axes(is_expert(launch->op->reads[0])));
}

static bool is_duplicate(const struct mcp_layer_type *type, enum mcp_flat flat)
{
    for (int i = 0; i < type->num_weights; i++)
        if (mcp_weight_flat(&type->weights[i]) == flat && type->weights[i].duplicate)
            return true;
    return false;
}

struct mcp_squares mcp_squares_of(const struct mcp_launch *launch)
{
    struct mcp_operand at = launch->op->reads[0];
    struct mcp_share s = mcp_share_of(launch, at);
    bool own = launch->op->dims[5] != 0;
    int64_t skip = 0;
    if ((!s.sharded && !own && s.member > 0) || is_duplicate(launch->type, s.kind))
        return (struct mcp_squares){.elements = 0};
    if (launch->rank->at.tensor > 0)
        skip = mcp_clamp_int64(mcp_flat_replicated(launch->type, s.kind) - s.own_first, 0, s.own);
    return (struct mcp_squares){
        .view = mcp_view_at(mcp_own_view(&s, at, mcp_read_view(launch, 0)), skip),
        .elements = s.own - skip,
        .factor = own ? mcp_reducing_ranks(launch) : 1};
}

/* --- updates --- */

struct mcp_update mcp_update_of(const struct mcp_launch *launch, const struct mcp_share *s)
{
    const struct mcp_step_inputs *inputs = &launch->rank->inputs;
    bool frozen = launch->op->function == MCP_FN_ADAM_FROZEN;
    double seen = (double)inputs->variance_updates + (frozen ? 0 : 1);
    struct mcp_update u = {
        .weights = mcp_own_view(s, launch->op->writes[0], mcp_write_view(launch, 0)),
        .beta1 = (float)inputs->beta1,
        .beta2 = (float)inputs->beta2,
        .epsilon = (float)inputs->epsilon,
        .rate = (float)inputs->learning_rate,
        .correction1 = (float)(1 / (1 - pow(inputs->beta1, (double)inputs->updates + 1))),
        .correction2 = (float)(1 / (1 - pow(inputs->beta2, seen)))};
    bool has_master = u.weights.dtype != MCP_F32;
    float *state = (float *)launch->writes[1] + (has_master ? 3 : 2) * s->shard_first;
    u.master = has_master ? state : NULL;
    u.first = state + (has_master ? s->shard : 0);
    u.second = u.first + s->shard;
    return u;
}

float *mcp_moment_of(const struct mcp_launch *launch, const struct mcp_share *s)
{
    bool has_master = launch->op->dtype != MCP_F32;
    return (float *)launch->writes[0] + (has_master ? 3 : 2) * s->shard_first +
           (has_master ? s->elements : 0);
}

/* Moves on to the next weight of the flat buffer; NULL: there is none. */
static const struct mcp_weight *next_weight(const struct mcp_launch *launch,
                                            const struct mcp_share *s, struct mcp_range *range)
{
    const struct mcp_layer_type *type = launch->type;
    while (range->part < type->num_weights) {
        const struct mcp_weight *weight = &type->weights[range->part];
        if (mcp_weight_flat(weight) == s->kind && range->copy < weight->copies) {
            range->copy++;
            return weight;
        }
        range->part++;
        range->copy = 0;
    }
    return NULL;
}

bool mcp_next_range(const struct mcp_launch *launch, const struct mcp_share *s,
                    struct mcp_range *range)
{
    const struct mcp_weight *weight;
    while ((weight = next_weight(launch, s, range)) != NULL) {
        int64_t first =
            mcp_weight_offset(launch->type, range->part, range->copy - 1) - s->first - s->own_first;
        range->last = mcp_clamp_int64(first + mcp_weight_elements(weight), 0, s->own);
        range->first = mcp_clamp_int64(first, 0, s->own);
        range->decay = mcp_weight_decays(weight) ? (float)launch->rank->inputs.weight_decay : 0;
        if (range->first < range->last)
            return true;
    }
    return false;
}

/* --- signs --- */

struct mcp_span mcp_span_of(const struct mcp_launch *launch, struct mcp_operand error)
{
    const int64_t *d = launch->op->dims;
    struct mcp_span s = {.elements = d[0]};
    if (d[5] > 1)
        s.first = d[0] * mcp_group_index(&launch->rank->program->plan,
                                         mcp_reduce_axes(error.index % 2 == 1), launch->rank->rank);
    s.real = mcp_clamp_int64(d[4] - s.first, 0, s.elements);
    return s;
}
