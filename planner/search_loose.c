/* planner/search_loose.c: bounds of families on kinder machines.
 *
 * The loose machine bounds a family before anything of it is priced: matrix products
 * without tiles or waves left over, every group as near as it can lie, start-ups paid
 * once for a million tokens. There a token costs the same whatever the microbatch, so
 * that one price serves all that differ in microbatch, data and pipeline degrees.
 *
 * The near machine is the real one but for the groups, which lie as near as they can:
 * what it takes, no rank order beats. Of a mixed cluster both have the best of all
 * pools (search_kinder.c), so that no placement beats them. */
#include "planner/bound_parts.h"
#include "planner/search_parts.h"

#include <math.h>
#include <string.h>

enum { LOOSE_TOKENS = 1 << 20 };
static const double unfilled = 0.01; /* tiles of a million tokens, spread over experts */

/* --- loose --- */

struct mcp_loose_price {
    struct mcp_loose_price *next; /* of the same tensor and context degree */
    int expert_parallel;
    bool sequence_parallel, pipelined;
    enum mcp_context_kind context_kind;
    struct mcp_floor floor; /* of one sequence; bytes held between steps unsharded */
};

struct mcp_loose {
    struct mcp_search *search;
    struct mcp_arena *arena; /* of one tensor and one context degree */
    struct mcp_cluster cluster;
    struct mcp_question question;
    struct mcp_pricer *pricer;
    int microbatch;
    struct mcp_loose_price *prices;
};

struct mcp_loose *mcp_loose_new(struct mcp_search *search)
{
    struct mcp_loose *loose = MCP_NEW(search->arena, struct mcp_loose);
    loose->search = search;
    return loose;
}

void mcp_loose_free(struct mcp_loose *loose)
{
    mcp_arena_free(loose->arena);
    loose->arena = NULL;
}

void mcp_loose_turn(struct mcp_loose *loose, const struct mcp_layout *layout)
{
    const struct mcp_question *question = loose->search->question;
    mcp_arena_free(loose->arena);
    loose->arena = mcp_arena_new();
    mcp_kinder_question(question, layout->tensor_parallel, &loose->cluster, &loose->question);
    loose->cluster.gpu.num_multiprocessors = 1;
    const struct mcp_pricer_options sums = {.sums_only = true};
    loose->pricer = mcp_pricer_with(loose->arena, &loose->question, &sums);
    int64_t tokens = question->job->sequence_length / layout->context_parallel;
    loose->microbatch = (int)(tokens > 0 ? (LOOSE_TOKENS + tokens - 1) / tokens : 1);
    loose->prices = NULL;
}

static void scale(struct mcp_layer_floor *layer, double factor)
{
    layer->forward_ns *= factor;
    layer->backward_ns *= factor;
    layer->kept_bytes *= factor;
    layer->least_kept_bytes *= factor;
    layer->working_bytes *= factor;
    layer->saved_bytes *= factor;
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        layer->given_bytes[r] *= factor;
        layer->extra_ns[r] *= factor;
    }
}

static void scale_all(struct mcp_floor *floor, double factor)
{
    for (int i = 0; i < floor->num_kinds; i++) {
        scale(&floor->kinds[0][i], factor);
        scale(&floor->least[i], factor);
    }
    for (int i = 0; i < 2; i++)
        scale(&floor->ends[i], factor);
    floor->hop_forward_ns *= factor;
    floor->hop_backward_ns *= floor->hop_backward_ns > 0 ? factor : 1;
    floor->send_ns *= factor;
}

/* A number of stages, right after tensor, that a domain holds whole. */
static int near_stages(const struct mcp_cluster *cluster, int tensor_parallel)
{
    for (int tier = 0; tier < cluster->num_tiers - 1; tier++) {
        int stages = cluster->tiers[tier].ranks / tensor_parallel;
        for (int factor = 2; factor <= stages; factor++)
            if (stages % factor == 0)
                return factor;
    }
    return 2;
}

/* Messages between such stages: in no rank order are they nearer. */
static void bring_stages_near(struct mcp_pricer *pricer, const struct mcp_plan *plan,
                              const bool *recompute, struct mcp_floor *out)
{
    static const enum mcp_axis order[4] = {MCP_TENSOR, MCP_PIPELINE, MCP_CONTEXT, MCP_DATA};
    struct mcp_floor floor;
    struct mcp_plan near = *plan;
    if (plan->pipeline_parallel == 1)
        return;
    near.pipeline_parallel =
        near_stages(mcp_pricer_question(pricer)->cluster, plan->tensor_parallel);
    memcpy(near.rank_order, order, sizeof order);
    mcp_floor_load(pricer, &near, recompute, MCP_FLOOR_SLOTS, &floor);
    out->hop_forward_ns = floor.hop_forward_ns;
    out->hop_backward_ns = floor.hop_backward_ns;
    out->send_ns = floor.send_ns;
}

/* Nothing is faster than no recompute, so it counts as allowed. */
static void load(struct mcp_loose *loose, const struct mcp_plan *plan, struct mcp_floor *out)
{
    bool recompute[MCP_NUM_RECOMPUTES];
    struct mcp_plan large = *plan;
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
        recompute[r] = r == MCP_RECOMPUTE_NONE || loose->search->recompute[r];
    large.microbatch_size = loose->microbatch;
    large.zero_stage = 0;
    large.stage_pool = NULL; /* the kinder machine has one */
    mcp_rank_order(0, large.rank_order);
    mcp_floor_load(loose->pricer, &large, recompute, MCP_FLOOR_ALL, out);
    bring_stages_near(loose->pricer, &large, recompute, out);
    scale_all(out, (1 - unfilled) / loose->microbatch);
    out->fixed_ns = 0;
    out->gathers_once = out->reduces_once = false;
    for (int i = 0; i < out->num_kinds; i++) {
        out->least[i].update_ns = 0;
        out->kinds[0][i].ns_per_byte *= 1 - 2 * unfilled;
        out->kinds[0][i].last_ns_per_byte = INFINITY;
        out->kinds[0][i].saved_bytes *= 1 + 2 * unfilled;
        for (int r = 0; r < MCP_NUM_RECOMPUTES; r++)
            out->kinds[0][i].given_bytes[r] *= 1 + 4 * unfilled;
    }
    out->ends[0].update_ns = out->ends[1].update_ns = 0;
}

static const struct mcp_loose_price *price_of(struct mcp_loose *loose, const struct mcp_plan *plan)
{
    bool pipelined = plan->pipeline_parallel > 1;
    for (struct mcp_loose_price *p = loose->prices; p != NULL; p = p->next)
        if (p->expert_parallel == plan->expert_parallel && p->pipelined == pipelined &&
            p->sequence_parallel == plan->sequence_parallel &&
            p->context_kind == plan->context_parallel_kind)
            return p;
    struct mcp_loose_price *price = MCP_NEW(loose->search->arena, struct mcp_loose_price);
    price->next = loose->prices;
    price->expert_parallel = plan->expert_parallel;
    price->pipelined = pipelined;
    price->sequence_parallel = plan->sequence_parallel;
    price->context_kind = plan->context_parallel_kind;
    load(loose, plan, &price->floor);
    loose->prices = price;
    return price;
}

/* The floor of `plan`. Bytes held between steps as if ZeRO-3 had cut them all. */
static void floor_of(const struct mcp_loose_price *price, const struct mcp_question *question,
                     const struct mcp_plan *plan, struct mcp_floor *out)
{
    double plane = (double)plan->context_parallel * plan->data_parallel;
    double experts = plane * plan->tensor_parallel / plan->expert_parallel;
    double shards = 1 / fmax(1, fmax(plane, experts));
    mcp_floor_copy(&price->floor, out);
    scale_all(out, plan->microbatch_size);
    if (plan->virtual_stages > 1)
        out->send_ns = 0; /* messages may hide */
    out->p = plan->pipeline_parallel;
    out->v = plan->virtual_stages;
    out->m = mcp_num_microbatches(plan, question->job);
    out->schedule = plan->schedule;
    out->any_order = mcp_schedule_is_even(plan->schedule);
    for (int i = -2; i < out->num_kinds; i++) {
        struct mcp_layer_floor *layer = i < 0 ? &out->ends[i + 2] : &out->kinds[0][i];
        layer->weights_bytes *= shards;
        layer->gradients_bytes *= shards;
        layer->optimizer_bytes *= shards;
    }
}

void mcp_loose_bound(struct mcp_loose *loose, const struct mcp_plan *plan,
                     struct mcp_family *family)
{
    struct mcp_floor floor;
    const struct mcp_question *question = loose->search->question;
    family->loose = price_of(loose, plan);
    floor_of(family->loose, question, plan, &floor);
    if (loose->search->objective != MCP_OBJECTIVE_MEMORY)
        family->bound = mcp_floor_fluid_ns(&floor);
    else if (question->cluster->next == NULL) /* else the fullest GPU need not hold most */
        family->bound = (double)mcp_floor_bytes(&floor, question);
}

const char *mcp_loose_refute(const struct mcp_family *family, const struct mcp_search *search,
                             const struct mcp_plan *plan)
{
    struct mcp_floor floor;
    if (family->loose == NULL || search->unlimited)
        return NULL;
    floor_of(family->loose, search->question, plan, &floor);
    return mcp_floor_refute(&floor);
}

bool mcp_loose_reaches(const struct mcp_family *family, const struct mcp_search *search,
                       const struct mcp_plan *plan, int64_t time_ns)
{
    struct mcp_floor floor;
    if (family->loose == NULL || time_ns == INT64_MAX)
        return true;
    floor_of(family->loose, search->question, plan, &floor);
    if (search->unlimited)
        floor.room[0] = INFINITY;
    return mcp_floor_reaches(&floor, (double)time_ns);
}

/* --- near --- */

struct mcp_near_price {
    struct mcp_near_price *next;
    int microbatch;
    bool sequence_parallel, pipelined, interleaved;
    enum mcp_context_kind context_kind;
    double hop_forward_ns, hop_backward_ns, send_ns;
    double (*times)[3]; /* forward, backward, lead: of kinds, then of both ends */
};

enum { NEAR_LISTS = 64 };
struct mcp_near {
    struct mcp_arena *arena;
    struct mcp_cluster cluster;
    struct mcp_question question;
    struct mcp_pricer *pricer;
    struct mcp_near_price *prices[NEAR_LISTS]; /* by list_of() */
};

static unsigned list_of(const struct mcp_plan *plan)
{
    unsigned kind = (unsigned)plan->context_parallel_kind * 4 + plan->sequence_parallel * 2u +
                    (plan->virtual_stages > 1);
    return ((unsigned)plan->microbatch_size * 13 + kind) % NEAR_LISTS;
}

struct mcp_near *mcp_near_new(struct mcp_arena *arena, const struct mcp_pricer *pricer,
                              int tensor_parallel)
{
    const struct mcp_question *question = mcp_pricer_question(pricer);
    const bool alike = question->cluster->next == NULL; /* but for the tiers */
    const struct mcp_pricer_options options = {.sums_only = true, .beside = alike ? pricer : NULL};
    struct mcp_near *near = MCP_NEW(arena, struct mcp_near);
    near->arena = arena;
    mcp_kinder_question(question, tensor_parallel, &near->cluster, &near->question);
    near->pricer = mcp_pricer_with(arena, &near->question, &options);
    return near;
}

static void put_times(const struct mcp_layer_floor *layer, double times[3])
{
    times[0] = layer->forward_ns;
    times[1] = layer->backward_ns;
    times[2] = layer->lead_ns;
}

static void get_times(const double times[3], struct mcp_layer_floor *layer)
{
    layer->forward_ns = times[0];
    layer->backward_ns = times[1];
    layer->lead_ns = times[2];
}

static void keep_price(struct mcp_near *near, const struct mcp_plan *plan,
                       const struct mcp_floor *floor)
{
    struct mcp_near_price *price = MCP_NEW(near->arena, struct mcp_near_price);
    *price = (struct mcp_near_price){near->prices[list_of(plan)],
                                     plan->microbatch_size,
                                     plan->sequence_parallel,
                                     plan->pipeline_parallel > 1,
                                     plan->virtual_stages > 1,
                                     plan->context_parallel_kind,
                                     floor->hop_forward_ns,
                                     floor->hop_backward_ns,
                                     floor->send_ns,
                                     NULL};
    price->times = mcp_alloc(near->arena, (size_t)floor->num_kinds + 2, sizeof *price->times);
    for (int i = 0; i < floor->num_kinds; i++)
        put_times(&floor->kinds[0][i], price->times[i]);
    for (int i = 0; i < 2; i++)
        put_times(&floor->ends[i], price->times[floor->num_kinds + i]);
    near->prices[list_of(plan)] = price;
}

static const struct mcp_near_price *near_price(struct mcp_near *near, const struct mcp_plan *plan,
                                               const bool *recompute)
{
    struct mcp_floor floor;
    for (const struct mcp_near_price *p = near->prices[list_of(plan)]; p != NULL; p = p->next)
        if (p->microbatch == plan->microbatch_size &&
            p->sequence_parallel == plan->sequence_parallel &&
            p->pipelined == (plan->pipeline_parallel > 1) &&
            p->interleaved == (plan->virtual_stages > 1) &&
            p->context_kind == plan->context_parallel_kind)
            return p;
    mcp_floor_load(near->pricer, plan, recompute, MCP_FLOOR_SLOTS, &floor);
    bring_stages_near(near->pricer, plan, recompute, &floor);
    keep_price(near, plan, &floor);
    return near->prices[list_of(plan)];
}

static void near_floor(const struct mcp_near_price *price, const struct mcp_question *question,
                       const struct mcp_plan *plan, struct mcp_floor *out)
{
    const struct mcp_model *model = question->model;
    struct mcp_layer_floor zero = {0};
    out->p = plan->pipeline_parallel;
    out->v = plan->virtual_stages;
    out->m = mcp_num_microbatches(plan, question->job);
    out->schedule = plan->schedule;
    out->any_order = mcp_schedule_is_even(plan->schedule);
    mcp_floor_number_kinds(model, out);
    out->num_pools = 1;
    out->stage_pool = NULL;
    out->room[0] = INFINITY;
    out->hop_forward_ns = price->hop_forward_ns;
    out->hop_backward_ns = price->hop_backward_ns;
    out->send_ns = price->send_ns;
    out->fixed_ns = 0;
    out->gathers_once = out->reduces_once = out->gathers_all = false;
    for (int kind = 0; kind < model->num_kinds; kind++) {
        int at = out->kind_of[kind];
        if (at < 0)
            continue;
        zero.num_layers = out->layers_of[at];
        out->kinds[0][at] = zero;
        get_times(price->times[at], &out->kinds[0][at]);
        out->least[at] = out->kinds[0][at];
    }
    zero.num_layers = 0;
    for (int i = 0; i < 2; i++) {
        out->ends[i] = zero;
        get_times(price->times[out->num_kinds + i], &out->ends[i]);
    }
}

bool mcp_near_reaches(struct mcp_near *near, const struct mcp_plan *plan, const bool *recompute,
                      int64_t time_ns)
{
    struct mcp_floor floor;
    struct mcp_plan bare = *plan;
    bare.stage_pool = NULL;
    bare.zero_stage = 0; /* transfers of gradients and weights beside slots left out */
    mcp_rank_order(0, bare.rank_order);
    near_floor(near_price(near, &bare, recompute), &near->question, &bare, &floor);
    return mcp_floor_reaches(&floor, (double)time_ns);
}
