/* tests/exec/test_update.c: AdamW, and the norm of gradients, on all ranks of a mesh. */
#include "kit.h"

#include "core/mesh.h"
#include "exec/flats.h"
#include "step/weights.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

/* A layer of a replicated norm with its bias, a matrix, a tied table; 3 experts or none. */
static struct mcp_weight parts[] = {
    {.name = "norm",
     .rows = 2,
     .columns = 7,
     .copies = 1,
     .replicated = true,
     .init = MCP_INIT_NORM},
    {.name = "matrix", .rows = 5, .columns = 7, .copies = 1, .init = MCP_INIT_NORMAL},
    {.name = "table", .rows = 3, .columns = 7, .copies = 1, .twin = true, .init = MCP_INIT_NORMAL},
    {.name = "expert",
     .rows = 2,
     .columns = 7,
     .copies = 3,
     .expert = true,
     .init = MCP_INIT_NORMAL},
};
enum { DENSE = 49, TABLE = 21, EXPERTS = 42 };

struct case_norm {
    char name[40];
    int tensor, context, data, expert;
    bool sharded;
    enum mcp_flat flat;
    bool duplicate;
    bool own; /* nothing is reduced: all ranks count, times their number */
};

ParameterizedTestParameters(update, norm)
{
    static struct case_norm cases[] = {
        {"one rank", 1, 1, 1, 1, false, MCP_FLAT_DENSE, false, false},
        {"replicas", 1, 2, 3, 1, false, MCP_FLAT_DENSE, false, false},
        {"shards", 1, 2, 3, 1, true, MCP_FLAT_DENSE, false, false},
        {"more shards than fill", 1, 1, 48, 1, true, MCP_FLAT_DENSE, false, false},
        {"tensor ranks", 2, 1, 3, 1, false, MCP_FLAT_DENSE, false, false},
        {"tensor ranks, shards", 3, 2, 2, 1, true, MCP_FLAT_DENSE, false, false},
        {"a table's shards", 1, 1, 4, 1, true, MCP_FLAT_TABLE, false, false},
        {"a table that counts elsewhere", 1, 1, 4, 1, true, MCP_FLAT_TABLE, true, false},
        {"experts", 1, 2, 4, 4, false, MCP_FLAT_EXPERT, false, false},
        {"experts' shards", 2, 1, 4, 2, true, MCP_FLAT_EXPERT, false, false},
        {"each rank's own", 1, 2, 3, 1, false, MCP_FLAT_DENSE, false, true},
        {"own ones of tensor ranks", 2, 1, 3, 1, false, MCP_FLAT_DENSE, false, true},
        {"own ones of experts", 1, 2, 4, 4, false, MCP_FLAT_EXPERT, false, true},
    };
    return cr_make_param_array(struct case_norm, cases, sizeof cases / sizeof *cases);
}

static int64_t elements_of(enum mcp_flat flat)
{
    return flat == MCP_FLAT_DENSE ? DENSE : flat == MCP_FLAT_TABLE ? TABLE : EXPERTS;
}

struct layout {
    int64_t elements, first, shard, shard_first;
    int members;
};

static struct layout layout_of(const struct mcp_plan *plan, enum mcp_flat flat, bool sharded)
{
    unsigned axes =
        flat == MCP_FLAT_EXPERT ? (unsigned)MCP_EXPERT_DATA : (unsigned)MCP_DATA | MCP_CONTEXT;
    struct layout l = {.elements = elements_of(flat), .members = mcp_group_size(plan, axes)};
    int64_t k = sharded ? l.members : 1;
    l.shard = (l.elements + k - 1) / k;
    if (flat == MCP_FLAT_TABLE) {
        l.first = DENSE;
        l.shard_first = (DENSE + k - 1) / k;
    }
    return l;
}

static void begin(struct kit *kit, enum mcp_function function, const struct layout *l)
{
    KIT_OP(kit, function, l->shard, 1, l->elements, l->first, l->shard_first);
}

/* Whole gradients of the flat buffer behind what lies before it, in layer space. */
static int gradients(struct kit *kit, const struct layout *l, enum mcp_flat flat)
{
    int buffer = kit_random_buffer(kit, MCP_F32, l->first + l->elements);
    kit_read(kit, buffer);
    kit->op.reads[0].space = MCP_SPACE_LAYER;
    int index = flat == MCP_FLAT_EXPERT ? MCP_LAYER_EXPERT_GRADIENTS : MCP_LAYER_GRADIENTS;
    kit->buffers[index].dtype = MCP_F32;
    kit->op.reads[0].index = (unsigned short)index;
    return buffer;
}

static void set_mesh(struct kit *kit, int tensor, int context, int data, int expert)
{
    static struct mcp_weight weights[4];
    memcpy(weights, parts, sizeof weights);
    struct mcp_plan *plan = &kit->program.plan;
    plan->tensor_parallel = tensor;
    plan->context_parallel = context;
    plan->data_parallel = data;
    plan->expert_parallel = expert;
    kit->type.weights = weights;
    kit->type.num_weights = 4;
    while (kit->num_buffers < 16) /* layer buffers have these numbers */
        kit_buffer(kit, MCP_F32, 1);
}

/* Replicated weights count once, cut ones on each tensor rank, replicas' once. */
static double norm_wanted(const struct kit *kit, const struct case_norm *c, int buffer,
                          const struct layout *l)
{
    double sum = 0;
    int copies = c->flat == MCP_FLAT_EXPERT ? c->expert : c->tensor;
    for (int64_t i = 0; i < l->elements; i++) {
        double g = kit_get(kit, buffer, l->first + i);
        bool replicated = c->flat == MCP_FLAT_DENSE && i < 14;
        sum += g * g * (replicated ? 1 : copies);
    }
    if (c->own)
        sum *= (double)l->members * (double)l->members;
    return c->duplicate ? 0 : sum;
}

ParameterizedTest(struct case_norm *c, update, norm)
{
    static struct kit kit;
    kit_new(&kit);
    set_mesh(&kit, c->tensor, c->context, c->data, c->expert);
    kit.type.weights[2].duplicate = c->duplicate;
    struct layout l = layout_of(&kit.program.plan, c->flat, c->sharded);
    int norm = kit_buffer(&kit, MCP_F32, 1);
    kit_set(&kit, norm, 0, 0);
    begin(&kit, MCP_FN_SUM_SQUARES, &l);
    kit.op.dims[5] = c->own;
    int buffer = gradients(&kit, &l, c->flat);
    kit_read(&kit, norm);
    kit_write(&kit, norm);
    for (int rank = 0; rank < mcp_plan_world(&kit.program.plan); rank++) {
        kit.rank.rank = rank;
        kit.rank.at = mcp_mesh_coordinate(&kit.program.plan, rank);
        kit_run(&kit);
    }
    double want = norm_wanted(&kit, c, buffer, &l), got = kit_get(&kit, norm, 0);
    cr_expect(fabs(got - want) <= 1e-5 * want, "%s: %.8g for %.8g", c->name, got, want);
    mcp_arena_free(kit.arena);
}

/* --- AdamW --- */

struct case_adam {
    char name[32];
    int members;
    enum mcp_flat flat;
    enum mcp_dtype dtype; /* of weights */
    bool skipped;
};

ParameterizedTestParameters(update, adam)
{
    static struct case_adam cases[] = {
        {"one rank", 1, MCP_FLAT_DENSE, MCP_F32, false},
        {"shards", 4, MCP_FLAT_DENSE, MCP_F32, false},
        {"a table's shards", 4, MCP_FLAT_TABLE, MCP_F32, false},
        {"masters of bf16", 3, MCP_FLAT_DENSE, MCP_BF16, false},
        {"experts", 2, MCP_FLAT_EXPERT, MCP_F32, false},
        {"skipped", 2, MCP_FLAT_DENSE, MCP_F32, true},
    };
    return cr_make_param_array(struct case_adam, cases, sizeof cases / sizeof *cases);
}

/* One element, three steps, as the paper has it. */
static double adam_wanted(const struct mcp_step_inputs *in, double weight, double gradient,
                          double factor, bool decays)
{
    double m = 0, v = 0, g = gradient * factor;
    for (int step = 1; step <= 3; step++) {
        m = in->beta1 * m + (1 - in->beta1) * g;
        v = in->beta2 * v + (1 - in->beta2) * g * g;
        double mean = m / (1 - pow(in->beta1, step)), square = v / (1 - pow(in->beta2, step));
        weight -= in->learning_rate *
                  (mean / (sqrt(square) + in->epsilon) + (decays ? in->weight_decay * weight : 0));
    }
    return weight;
}

/* State of a member: master copies of its weights if they are not fp32, zeros. */
static int new_state(struct kit *kit, const struct layout *l, int weights, int member)
{
    bool master = kit->buffers[weights].dtype != MCP_F32;
    int64_t words = master ? 3 : 2, first = words * l->shard_first;
    int state = kit_buffer(kit, MCP_F32, first + words * l->shard);
    memset(kit->memory[state], 0, (size_t)kit_bytes(kit, state));
    for (int64_t i = 0; master && i < l->shard && member * l->shard + i < l->elements; i++)
        kit_set(kit, state, first + i, kit_get(kit, weights, l->first + member * l->shard + i));
    return state;
}

static void three_steps(struct kit *kit, const struct case_adam *c, const struct layout *l,
                        int weights, int scalars)
{
    int gradient = -1;
    for (int member = 0; member < c->members; member++) {
        kit->seed = 99;
        begin(kit, MCP_FN_ADAM, l);
        gradient = gradients(kit, l, c->flat);
        int state = new_state(kit, l, weights, member);
        kit_read(kit, state);
        kit_read(kit, scalars);
        kit_write(kit, weights);
        kit_write(kit, state);
        kit->rank.rank = member;
        kit->rank.at = mcp_mesh_coordinate(&kit->program.plan, member);
        struct mcp_step_inputs *in = &kit->rank.inputs;
        for (in->updates = in->variance_updates = 0; in->updates < 3; in->updates++) {
            kit_run(kit);
            in->variance_updates++;
        }
    }
    cr_assert(gradient >= 0);
}

ParameterizedTest(struct case_adam *c, update, adam)
{
    static struct kit kit;
    kit_new(&kit);
    set_mesh(&kit, 1, 1, c->members, 1);
    struct layout l = layout_of(&kit.program.plan, c->flat, true);
    struct mcp_step_inputs *in = &kit.rank.inputs;
    *in = (struct mcp_step_inputs){.learning_rate = 0.01,
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .epsilon = 1e-8,
                                   .weight_decay = 0.1,
                                   .loss_scale = 1};
    int64_t all = l.first + l.elements;
    int weights = kit_random_buffer(&kit, c->dtype, all), scalars = kit_buffer(&kit, MCP_F32, 8);
    double *want = MCP_ARRAY(kit.arena, all, double);
    memset(kit.memory[scalars], 0, 32);
    kit_set(&kit, scalars, 0, 0.5);
    kit_set(&kit, scalars, 1, c->skipped);
    for (int64_t i = 0; i < all; i++)
        want[i] = kit_get(&kit, weights, i);
    kit.seed = 99; /* the gradients' */
    for (int64_t i = 0; i < all; i++) {
        double g = kit_random(&kit);
        bool decays = c->flat != MCP_FLAT_DENSE || i >= 14;
        if (i >= l.first && !c->skipped)
            want[i] = adam_wanted(in, want[i], g, 0.5, decays);
    }
    three_steps(&kit, c, &l, weights, scalars);
    double tolerance = c->dtype == MCP_F32 ? 1e-6 : 4e-3;
    cr_expect(eq(int, kit_different(&kit, weights, want, tolerance), 0), "%s", c->name);
    mcp_arena_free(kit.arena);
}

/* A table that is all an end has begins where dense parts would: it is updated all the same. */
Test(update, a_table_alone)
{
    static struct kit kit;
    struct mcp_range range = {0};
    kit_new(&kit);
    set_mesh(&kit, 1, 1, 2, 1);
    kit.type.weights = &kit.type.weights[2];
    kit.type.num_weights = 1;
    const struct layout l = {.elements = TABLE, .shard = (TABLE + 1) / 2, .members = 2};
    begin(&kit, MCP_FN_ADAM, &l);
    gradients(&kit, &l, MCP_FLAT_TABLE);
    const struct mcp_launch launch = {.op = &kit.op, .type = &kit.type, .rank = &kit.rank};
    const struct mcp_share share = mcp_share_of(&launch, kit.op.reads[0]);
    cr_expect(eq(int, share.kind, MCP_FLAT_TABLE));
    cr_assert(mcp_next_range(&launch, &share, &range));
    cr_expect(eq(i64, range.last - range.first, (TABLE + 1) / 2));
    mcp_arena_free(kit.arena);
}

/* --- scalars --- */

struct case_scalars {
    char name[32];
    double squares, clip, loss_scale;
    double factor, norm;
    bool skipped, keeps; /* keeps: the norm is found, not clipped by */
};

ParameterizedTestParameters(update, scalars)
{
    static struct case_scalars cases[] = {
        {"no clipping", 16, 0, 1, 1, 4, false, false},
        {"below the limit", 16, 5, 1, 1, 4, false, false},
        {"above it", 16, 2, 1, 0.5, 4, false, false},
        {"a loss scale", 16 * 64, 2, 8, 0.0625, 4, false, false},
        {"a norm to look at alone", 16 * 64, 2, 8, 0.125, 4, false, true},
        {"not finite", INFINITY, 2, 1, 0, INFINITY, true, false},
        {"not a number", NAN, 2, 1, 0, NAN, true, false},
    };
    return cr_make_param_array(struct case_scalars, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_scalars *c, update, scalars)
{
    static struct kit kit;
    kit_new(&kit);
    int norm = kit_buffer(&kit, MCP_F32, 1), loss = kit_buffer(&kit, MCP_F32, 1);
    int out = kit_buffer(&kit, MCP_F32, 8);
    kit_set(&kit, norm, 0, c->squares);
    kit_set(&kit, loss, 0, 12);
    kit.rank.inputs.clip_norm = c->clip;
    kit.rank.inputs.loss_scale = c->loss_scale;
    kit.rank.inputs.tokens = 4;
    KIT_OP(&kit, MCP_FN_STEP_SCALARS, c->keeps);
    kit_read(&kit, norm);
    kit_read(&kit, loss);
    kit_write(&kit, out);
    kit_run(&kit);
    const struct mcp_step_outputs *got = &kit.rank.outputs;
    cr_expect(fabs(kit_get(&kit, out, 0) - c->factor) <= 1e-6, "%s: factor %g", c->name,
              kit_get(&kit, out, 0));
    cr_expect(got->skipped == c->skipped && got->loss == 3.0, "%s", c->name);
    cr_expect(c->skipped || fabs(got->grad_norm - c->norm) <= 1e-6, "%s: norm %g", c->name,
              got->grad_norm);
    mcp_arena_free(kit.arena);
}
