/* step/layer_price.c: the two caches of layer prices. */
#include "step/layer_price.h"

#include "core/mesh.h"
#include "core/minmax.h"
#include "core/rank_map.h"
#include "core/stack.h"
#include "step/layer_shape.h"

#include <string.h>

enum { SHAPE_FIELDS = 15, RANK_MAP_FIELD = SHAPE_FIELDS, LINK_FIELDS };
enum { GROUPS = 3, LINKS = GROUPS * (MCP_MAX_TIERS - 1) };
_Static_assert(LINK_FIELDS + LINKS == MCP_PRICE_FIELDS, "keys fit");

struct entry {
    struct mcp_price_key key;
    const void *value;
};

struct slot {
    uint64_t hash;
    struct entry *entry; /* NULL: free */
};

struct table {
    struct slot *slots;
    size_t capacity, count;
};

struct mcp_price_cache {
    struct mcp_arena *arena;
    const struct mcp_question *question;
    size_t num_fields; /* of keys that are not 0 everywhere */
    bool sums_only;
    struct table layers, steps;
    struct mcp_shapes *shapes;
};

struct mcp_price_cache *mcp_price_cache_new(struct mcp_arena *arena,
                                            const struct mcp_question *question,
                                            const struct mcp_price_cache_options *options)
{
    struct mcp_price_cache *cache = MCP_NEW(arena, struct mcp_price_cache);
    cache->arena = arena;
    cache->question = question;
    cache->num_fields = LINK_FIELDS + GROUPS * (size_t)(question->cluster->num_tiers - 1);
    cache->sums_only = options->sums_only;
    cache->shapes = options->beside != NULL ? options->beside->shapes : mcp_shapes_new(arena);
    struct table *tables[2] = {&cache->layers, &cache->steps};
    for (int i = 0; i < 2; i++) {
        tables[i]->capacity = 256;
        tables[i]->slots = MCP_ARRAY(arena, tables[i]->capacity, struct slot);
    }
    return cache;
}

static uint64_t hash(const struct mcp_price_cache *cache, const struct mcp_price_key *key)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < cache->num_fields; i++)
        h = (h ^ (uint64_t)(unsigned)key->fields[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* The slot of the key, or a free one for it. */
static struct slot *find(const struct table *table, uint64_t hash, const struct mcp_price_key *key)
{
    size_t i = (size_t)hash & (table->capacity - 1);
    while (table->slots[i].entry != NULL &&
           (table->slots[i].hash != hash ||
            memcmp(&table->slots[i].entry->key, key, sizeof *key) != 0))
        i = (i + 1) & (table->capacity - 1);
    return &table->slots[i];
}

static void grow(struct mcp_arena *arena, struct table *table)
{
    struct table old = *table;
    table->capacity *= 2;
    table->slots = MCP_ARRAY(arena, table->capacity, struct slot);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].entry != NULL)
            *find(table, old.slots[i].hash, &old.slots[i].entry->key) = old.slots[i];
}

static void insert(struct mcp_arena *arena, struct table *table, uint64_t hash,
                   const struct mcp_price_key *key, const void *value)
{
    struct entry *entry = MCP_NEW(arena, struct entry);
    if (2 * (table->count + 1) > table->capacity)
        grow(arena, table);
    *entry = (struct entry){*key, value};
    *find(table, hash, key) = (struct slot){hash, entry};
    table->count++;
}

static const enum mcp_axis usual_order[4] = {MCP_TENSOR, MCP_CONTEXT, MCP_DATA, MCP_PIPELINE};

/* How groups lie on the links: their members in a domain of each tier but the last. */
static void write_links(const struct mcp_cluster *cluster, const struct mcp_plan *plan,
                        const unsigned groups[GROUPS], int *links)
{
    for (int tier = 0; tier < cluster->num_tiers - 1; tier++)
        for (int g = 0; g < GROUPS; g++)
            *links++ = mcp_group_in_domain(plan, groups[g], cluster->tiers[tier].ranks);
}

/* Inside a layer. In the usual order they lie alike whatever data and pipeline are: no need
 * to say how. Another order that makes no difference has the same key. */
static void add_links(const struct mcp_cluster *cluster, const struct mcp_plan *plan, int *fields)
{
    static const unsigned groups[GROUPS] = {MCP_TENSOR, MCP_CONTEXT, MCP_EXPERT};
    int usual_links[LINKS] = {0};
    struct mcp_plan usual = *plan;
    if (memcmp(plan->rank_order, usual_order, sizeof usual_order) == 0)
        return;
    memcpy(usual.rank_order, usual_order, sizeof usual_order);
    write_links(cluster, &usual, groups, usual_links);
    write_links(cluster, plan, groups, fields);
    if (memcmp(fields, usual_links, sizeof usual_links) == 0)
        memset(fields, 0, sizeof usual_links);
}

/* Once a step: those that gather, reduce and agree. Ends have no experts, and the step itself
 * asks all ranks. */
static void add_step_links(const struct mcp_cluster *cluster, const struct mcp_plan *plan, int kind,
                           int *fields)
{
    static const unsigned all = (unsigned)MCP_TENSOR | MCP_CONTEXT | MCP_DATA | MCP_PIPELINE;
    const unsigned dense = kind == MCP_KIND_STEP ? all : (unsigned)MCP_DATA | MCP_CONTEXT;
    const unsigned groups[GROUPS] = {dense, kind < 0 ? MCP_ENDS : MCP_EXPERT_DATA, MCP_TENSOR};
    write_links(cluster, plan, groups, fields);
}

static int rank_map_of(const struct mcp_plan *plan)
{
    return plan->rank_map != NULL ? (int)(plan->rank_map->id >> 1) : 0;
}

static struct mcp_price_key layer_key(const struct mcp_cluster *cluster,
                                      const struct mcp_plan *plan,
                                      const struct mcp_layer_spec *spec)
{
    struct mcp_price_key key = {
        {spec->kind, spec->mtp, (int)spec->recompute, spec->split_backward, plan->microbatch_size,
         plan->tensor_parallel, plan->context_parallel, plan->expert_parallel,
         plan->sequence_parallel, (int)plan->context_parallel_kind, mcp_plan_ends_meet(plan),
         plan->overlap.tensor, plan->overlap.expert, plan->overlap.context, spec->mirrored}};
    add_links(cluster, plan, key.fields + LINK_FIELDS);
    key.fields[RANK_MAP_FIELD] = rank_map_of(plan);
    return key;
}

static struct mcp_price_key step_key(const struct mcp_cluster *cluster, const struct mcp_plan *plan,
                                     const struct mcp_layer_spec *spec)
{
    struct mcp_price_key key = {{spec->kind, spec->mtp, spec->split_backward, plan->tensor_parallel,
                                 plan->context_parallel, plan->expert_parallel,
                                 plan->sequence_parallel, mcp_plan_ends_meet(plan),
                                 plan->data_parallel, plan->pipeline_parallel, plan->zero_stage}};
    add_step_links(cluster, plan, spec->kind, key.fields + LINK_FIELDS);
    key.fields[RANK_MAP_FIELD] = rank_map_of(plan);
    return key;
}

/* Frames alive between this layer's forward and its backward. */
static int64_t kept_frames(const struct mcp_layer_type *type)
{
    const struct mcp_block *forward = &type->blocks[MCP_FORWARD];
    int64_t bytes = mcp_input_ends_with_forward(type)
                        ? 0
                        : type->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].capacity_bytes;
    bool seen[MCP_MAX_TYPE_BUFFERS] = {false};
    for (int i = 0; i < forward->num_ops; i++)
        for (int w = 0; w < forward->ops[i].num_writes; w++) {
            struct mcp_operand at = forward->ops[i].writes[w];
            if (at.space != MCP_SPACE_FRAME || at.layer_offset != 0 || seen[at.index])
                continue;
            seen[at.index] = true;
            bytes += type->buffers[MCP_SPACE_FRAME][at.index].capacity_bytes;
        }
    return bytes;
}

static bool mentions(const struct mcp_block *block, struct mcp_operand at)
{
    for (int i = 0; i < block->num_ops; i++)
        if (mcp_op_reads(&block->ops[i], at) || mcp_op_writes(&block->ops[i], at))
            return true;
    return false;
}

/* Frames that wait for the weight gradients; the incoming gradient may be one. */
static int64_t weight_frames(const struct mcp_layer_type *type, int64_t gradient_bytes)
{
    const struct mcp_block *weight = &type->blocks[MCP_BACKWARD_WEIGHT];
    struct mcp_operand incoming = {MCP_SPACE_FRAME, 1, MCP_FRAME_DX};
    int64_t bytes = mentions(weight, incoming) ? gradient_bytes : 0;
    for (int f = 0; f < type->num_buffers[MCP_SPACE_FRAME]; f++) {
        struct mcp_operand at = {MCP_SPACE_FRAME, 0, (unsigned short)f};
        if (f != MCP_FRAME_DX && mentions(weight, at))
            bytes += type->buffers[MCP_SPACE_FRAME][f].capacity_bytes;
    }
    return bytes;
}

/* While backward runs: what was kept, the gradient that came in, and what the
 * recompute and backward blocks add. */
static void price_memory(struct mcp_layer_price *price, const struct mcp_layer_type *type,
                         int64_t gradient_bytes)
{
    struct mcp_block_memory forward, recompute, backward;
    mcp_block_memory(type, MCP_FORWARD, false, &forward);
    mcp_block_memory(type, MCP_RECOMPUTE, false, &recompute);
    mcp_block_memory(type, MCP_BACKWARD, true, &backward);
    price->x_bytes = type->buffers[MCP_SPACE_FRAME][MCP_FRAME_X].capacity_bytes;
    price->kept_bytes = kept_frames(type);
    price->forward_bytes = forward.peak_bytes;
    int64_t during = mcp_max_int64(recompute.peak_bytes, recompute.end_bytes + backward.peak_bytes);
    price->backward_bytes = price->kept_bytes + during;
    struct mcp_block_memory input, weight;
    mcp_block_memory(type, MCP_BACKWARD_INPUT, true, &input);
    mcp_block_memory(type, MCP_BACKWARD_WEIGHT, true, &weight);
    during = mcp_max_int64(recompute.peak_bytes, recompute.end_bytes + input.peak_bytes);
    price->input_bytes = price->kept_bytes + during;
    price->weight_kept_bytes = weight_frames(type, gradient_bytes);
    price->weight_bytes = price->weight_kept_bytes + weight.peak_bytes;
}

/* Of a built type a price needs its weights and its messages later, no more. */
static const struct mcp_layer_type *keep_type(struct mcp_arena *arena,
                                              const struct mcp_layer_type *built)
{
    struct mcp_layer_type *type = MCP_NEW(arena, struct mcp_layer_type);
    memcpy(type->name, built->name, sizeof type->name);
    type->recompute = built->recompute;
    type->num_weights = built->num_weights;
    type->weights = MCP_ARRAY(arena, built->num_weights, struct mcp_weight);
    memcpy(type->weights, built->weights, (size_t)built->num_weights * sizeof *type->weights);
    for (int role = MCP_SEND_FORWARD; role <= MCP_RECEIVE_BACKWARD; role++) {
        const struct mcp_block *block = &built->blocks[role];
        type->blocks[role].num_ops = block->num_ops;
        type->blocks[role].ops = MCP_ARRAY(arena, block->num_ops, struct mcp_op);
        memcpy(type->blocks[role].ops, block->ops, (size_t)block->num_ops * sizeof *block->ops);
    }
    return type;
}

static void take_memory(struct mcp_layer_price *price, const struct mcp_layer_price *same)
{
    price->type = same->type;
    price->has_input = same->has_input;
    price->dense_parameters = same->dense_parameters;
    price->x_bytes = same->x_bytes;
    price->kept_bytes = same->kept_bytes;
    price->forward_bytes = same->forward_bytes;
    price->backward_bytes = same->backward_bytes;
    price->input_bytes = same->input_bytes;
    price->weight_kept_bytes = same->weight_kept_bytes;
    price->weight_bytes = same->weight_bytes;
}

/* What does not depend on links. */
static void price_shape(struct mcp_price_cache *cache, const struct mcp_plan *plan,
                        const struct mcp_layer_spec *spec, const struct mcp_layer_type *type,
                        struct mcp_layer_price *price)
{
    price->has_input = type->blocks[MCP_BACKWARD_INPUT].num_ops > 0;
    price->dense_parameters = spec->kind >= 0 ? mcp_layer_type_parameters(type, false) : 0;
    price_memory(price, type, mcp_residual_bytes(cache->question, plan));
    price->type = keep_type(cache->arena, type);
}

static void play_blocks(struct mcp_price_cache *cache, const struct mcp_pricing *pricing,
                        const struct mcp_layer_shape *shape, struct mcp_layer_price *price)
{
    struct mcp_layer_costs costs, *kept = &costs;
    int64_t *const times[MCP_PRICED_BLOCKS] = {&price->forward_ns, &price->backward_ns,
                                               &price->recompute_ns, &price->input_ns,
                                               &price->weight_ns};
    if (!cache->sums_only)
        price->costs = kept = MCP_NEW(cache->arena, struct mcp_layer_costs);
    struct mcp_block_price *const prices[MCP_PRICED_BLOCKS] = {
        &kept->forward, &kept->backward, &kept->recompute, &kept->input, &kept->weight};
    for (int i = 0; i < MCP_PRICED_BLOCKS; i++) {
        mcp_block_play(pricing, &shape->type.blocks[mcp_priced_blocks[i]], shape->local[i],
                       prices[i]);
        *times[i] = prices[i]->time_ns;
    }
}

static const struct mcp_layer_price *price_layer(struct mcp_price_cache *cache,
                                                 const struct mcp_plan *plan,
                                                 const struct mcp_layer_spec *spec,
                                                 const struct mcp_price_key *key)
{
    struct mcp_layer_price *price = MCP_NEW(cache->arena, struct mcp_layer_price);
    const struct mcp_pricing pricing = {cache->question, plan};
    struct mcp_price_key anywhere = *key;
    memset(anywhere.fields + RANK_MAP_FIELD, 0, (1 + LINKS) * sizeof *anywhere.fields);
    struct mcp_layer_shape *shape = mcp_shape_of(cache->shapes, &pricing, spec, &anywhere);
    play_blocks(cache, &pricing, shape, price);
    if (shape->price != NULL)
        take_memory(price, shape->price);
    else
        price_shape(cache, plan, spec, &shape->type, price);
    shape->price = price;
    return price;
}

const struct mcp_layer_price *mcp_layer_price(struct mcp_price_cache *cache,
                                              const struct mcp_plan *plan,
                                              const struct mcp_layer_spec *spec)
{
    const struct mcp_price_key key = layer_key(cache->question->cluster, plan, spec);
    uint64_t at = hash(cache, &key);
    struct slot *slot = find(&cache->layers, at, &key);
    if (slot->entry != NULL)
        return (const struct mcp_layer_price *)slot->entry->value;
    const struct mcp_layer_price *price = price_layer(cache, plan, spec, &key);
    insert(cache->arena, &cache->layers, at, &key, price);
    return price;
}

void mcp_price_cache_rest(struct mcp_price_cache *cache)
{
    mcp_shapes_forget(cache->shapes);
}

static int64_t layer_bytes(const struct mcp_layer_type *type, int dense_index)
{
    return type->buffers[MCP_SPACE_LAYER][dense_index].capacity_bytes +
           type->buffers[MCP_SPACE_LAYER][dense_index + 1].capacity_bytes;
}

/* Moments and master, and what 1-bit Adam keeps beside them. */
static int64_t optimizer_bytes(const struct mcp_layer_type *type)
{
    int64_t bytes = layer_bytes(type, MCP_LAYER_OPTIMIZER);
    for (int i = MCP_NUM_LAYER_BUFFERS;
         i < type->num_buffers[MCP_SPACE_LAYER] && i < MCP_LAYER_CAST_WEIGHTS; i++)
        bytes += type->buffers[MCP_SPACE_LAYER][i].capacity_bytes;
    return bytes;
}

/* Beside the weights themselves, and like them gathered anew under ZeRO-3. */
static int64_t cast_bytes(const struct mcp_layer_type *type)
{
    return type->num_buffers[MCP_SPACE_LAYER] > MCP_LAYER_CAST_COLUMNS
               ? layer_bytes(type, MCP_LAYER_CAST_WEIGHTS)
               : 0;
}

static void add_price(struct mcp_block_price *sum, const struct mcp_block_price *price)
{
    sum->time_ns += price->time_ns;
    sum->launches += price->launches;
    sum->flops += price->flops;
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        sum->cost_s[i] += price->cost_s[i];
        sum->comm_s[i] += price->comm_s[i];
    }
}

static void price_update(struct mcp_price_cache *cache, const struct mcp_pricing *pricing,
                         const struct mcp_layer_type *type, struct mcp_layer_step_price *price)
{
    struct mcp_block_price sum = {0}, *kept = &sum;
    if (!cache->sums_only)
        price->update = kept = MCP_NEW(cache->arena, struct mcp_block_price);
    static const enum mcp_block_role roles[] = {MCP_PROLOGUE, MCP_EPILOGUE, MCP_OPTIMIZER};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        struct mcp_block_price part;
        mcp_block_price(pricing, &type->blocks[roles[i]], &part);
        add_price(kept, &part);
    }
    price->update_ns = kept->time_ns;
}

/* What belongs to no layer has no weights: its blocks alone. */
static void price_agreement(struct mcp_price_cache *cache, const struct mcp_plan *plan,
                            const struct mcp_layer_spec *spec, struct mcp_layer_step_price *price)
{
    struct mcp_arena *workshop = mcp_arena_new();
    struct mcp_layer_type type;
    const struct mcp_pricing pricing = {cache->question, plan};
    mcp_layer_build(workshop, cache->question, plan, spec, &type);
    price_update(cache, &pricing, &type, price);
    mcp_arena_free(workshop);
}

static struct mcp_layer_step_price *price_step(struct mcp_price_cache *cache,
                                               const struct mcp_plan *plan,
                                               const struct mcp_layer_spec *spec)
{
    struct mcp_layer_step_price *price = MCP_NEW(cache->arena, struct mcp_layer_step_price);
    if (spec->kind == MCP_KIND_STEP) {
        price_agreement(cache, plan, spec, price);
        return price;
    }
    const struct mcp_layer_type *shapes = mcp_layer_price(cache, plan, spec)->type;
    struct mcp_layer_type type = *shapes;
    const struct mcp_pricing pricing = {cache->question, plan};
    int zero = plan->zero_stage;
    struct mcp_arena *workshop = mcp_arena_new();
    mcp_layer_data_build(workshop, cache->question, plan, spec, &type);
    struct mcp_block_price gather, reduce;
    mcp_block_price(&pricing, &type.blocks[MCP_GATHER], &gather);
    mcp_block_price(&pricing, &type.blocks[MCP_REDUCE], &reduce);
    price->gather_ns = gather.time_ns;
    price->reduce_ns = reduce.time_ns;
    price_update(cache, &pricing, &type, price);
    int64_t weights = layer_bytes(&type, MCP_LAYER_WEIGHTS) + cast_bytes(&type);
    int64_t gradients = layer_bytes(&type, MCP_LAYER_GRADIENTS);
    price->weights_bytes = zero < 3 ? weights : layer_bytes(&type, MCP_LAYER_WEIGHT_SHARD);
    price->gradients_bytes = zero < 2 ? gradients : layer_bytes(&type, MCP_LAYER_GRADIENT_SHARD);
    price->optimizer_bytes = optimizer_bytes(&type);
    price->gathered_bytes = zero < 3 ? 0 : weights;
    price->transient_bytes = zero < 2 ? 0 : gradients;
    mcp_arena_free(workshop);
    return price;
}

const struct mcp_layer_step_price *mcp_layer_step_price(struct mcp_price_cache *cache,
                                                        const struct mcp_plan *plan,
                                                        const struct mcp_layer_spec *spec)
{
    const struct mcp_price_key key = step_key(cache->question->cluster, plan, spec);
    uint64_t at = hash(cache, &key);
    struct slot *slot = find(&cache->steps, at, &key);
    if (slot->entry != NULL)
        return (const struct mcp_layer_step_price *)slot->entry->value;
    const struct mcp_layer_step_price *price = price_step(cache, plan, spec);
    insert(cache->arena, &cache->steps, at, &key, price);
    return price;
}
