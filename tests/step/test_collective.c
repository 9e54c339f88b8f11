/* tests/step/test_collective.c: collectives by every algorithm, against its closed form. */
#include "step/price_parts.h"
#include "tests/step/random_plan.h"
#include "tests/step/setup.h"

#include "core/mesh.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

enum { DP = MCP_DATA | MCP_CONTEXT, NUM_PLANS = 60 };

/* H100 nodes of 8: NVLink and InfiniBand as their preset has them. */
static const double nvlink = 0.8 * 450e9, nic = 0.85 * 50e9, start = 12e-6, all_reduce = 1.6;

static double ramp(double bytes)
{
    return 15e-6 * (1 - exp(-bytes / 4e6));
}

struct case_algorithm {
    char name[48];
    enum mcp_collective_algorithm algorithm;
    enum mcp_function function;
    int tensor, data;
    bool near, network; /* whose switches add up */
    double bytes;
};

/* A group of all `data` ranks; `g` of them in a node, which are n / g = D. */
static double expected(const struct case_algorithm *c)
{
    double M = c->bytes, n = c->data, g = fmin(n, 8.0 / c->tensor), D = n / g;
    double bus = D > 1 ? fmin(nvlink, g * nic) : nvlink;
    double inside = start + 1e-6 * (g - 1), across = start + 2e-6 * (D - 1);
    bool twice = c->function == MCP_FN_ALL_REDUCE;
    if (c->algorithm == MCP_TREE && twice)
        return all_reduce * (inside + 2e-6 * ceil(log2(D))) + ramp(M) + 2 * M / bus;
    if (c->algorithm == MCP_HIERARCHICAL && g > 1 && D > 1) {
        double near = inside + ramp(M) + M * (g - 1) / g / nvlink;
        double far = (twice ? all_reduce : 1) * across + ramp(M / g) +
                     (twice ? 2 : 1) * M / g * (D - 1) / D / nic;
        return (twice ? 2 : 1) * near + far;
    }
    if (c->algorithm == MCP_IN_SWITCH && twice && (c->near || c->network)) {
        double near = c->near ? (g + 1) / g / (0.84 * nvlink) : 2 * (g - 1) / g / nvlink;
        double far = D <= 1 ? 0 : (c->network ? 1 : 2 * (D - 1) / D) / (g * nic);
        double hops =
            (g > 1) * (c->near ? 1 : g - 1) * 1e-6 + (D > 1) * (c->network ? 1 : D - 1) * 2e-6;
        return all_reduce * (start + hops) + ramp(M) + M * fmax(g > 1 ? near : 0, far);
    }
    double ring = (twice ? all_reduce : 1) * (inside + 2e-6 * (D - 1)) + ramp(M);
    return ring + (twice ? 2 : 1) * M * (n - 1) / n / bus;
}

ParameterizedTestParameters(collective, algorithm)
{
    static const struct case_algorithm cases[] = {
        {"ring", MCP_RING, MCP_FN_ALL_REDUCE, 1, 128, true, true, 1e9},
        {"tree over nodes", MCP_TREE, MCP_FN_ALL_REDUCE, 1, 128, true, true, 1e9},
        {"tree, one rank a node", MCP_TREE, MCP_FN_ALL_REDUCE, 8, 64, true, true, 1e5},
        {"tree of no power of two", MCP_TREE, MCP_FN_ALL_REDUCE, 8, 12, true, true, 1e5},
        {"tree gathers as a ring", MCP_TREE, MCP_FN_ALL_GATHER, 1, 128, true, true, 1e9},
        {"by tiers, all-reduce", MCP_HIERARCHICAL, MCP_FN_ALL_REDUCE, 2, 64, true, true, 1e9},
        {"by tiers, gather", MCP_HIERARCHICAL, MCP_FN_ALL_GATHER, 1, 64, false, false, 1e9},
        {"by tiers, scatter", MCP_HIERARCHICAL, MCP_FN_REDUCE_SCATTER, 1, 64, true, true, 1e6},
        {"one tier: a ring", MCP_HIERARCHICAL, MCP_FN_ALL_REDUCE, 1, 8, true, true, 1e9},
        {"across nodes: a ring", MCP_HIERARCHICAL, MCP_FN_ALL_REDUCE, 8, 16, true, true, 1e9},
        {"NVLink's switches", MCP_IN_SWITCH, MCP_FN_ALL_REDUCE, 1, 8, true, false, 1e9},
        {"those of nodes too", MCP_IN_SWITCH, MCP_FN_ALL_REDUCE, 1, 64, true, true, 1e9},
        {"the network's alone", MCP_IN_SWITCH, MCP_FN_ALL_REDUCE, 2, 64, false, true, 1e9},
        {"NVLink's, and rings", MCP_IN_SWITCH, MCP_FN_ALL_REDUCE, 1, 64, true, false, 1e9},
        {"one rank a node", MCP_IN_SWITCH, MCP_FN_ALL_REDUCE, 8, 16, true, true, 1e9},
        {"no such switches", MCP_IN_SWITCH, MCP_FN_ALL_REDUCE, 1, 64, false, false, 1e9},
        {"switches do not gather", MCP_IN_SWITCH, MCP_FN_ALL_GATHER, 1, 64, true, true, 1e9},
    };
    return cr_make_param_array(struct case_algorithm, (struct case_algorithm *)cases,
                               sizeof cases / sizeof *cases);
}

static void place(struct setup *s, const struct case_algorithm *c)
{
    setup_load(s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    s->plan.tensor_parallel = c->tensor;
    s->plan.data_parallel = c->data;
    setup_finish(s, 1, MCP_RECOMPUTE_NONE);
    s->stack.collective_algorithm = c->algorithm;
    s->cluster.tiers[0].in_switch_reduction = c->near;
    s->cluster.tiers[1].in_switch_reduction = c->network;
}

ParameterizedTest(struct case_algorithm *c, collective, algorithm)
{
    struct setup s;
    place(&s, c);
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    double seconds = mcp_collective_seconds(&pricing, c->function, DP, c->bytes);
    cr_expect(epsilon_eq(dbl, seconds / expected(c), 1, 1e-9), "%s: %g, not %g", c->name, seconds,
              expected(c));
    mcp_arena_free(s.arena);
}

/* A round of the tree for every doubling of the nodes. */
Test(collective, latency_of_a_tree_is_logarithmic)
{
    double last = 0;
    for (int nodes = 2; nodes <= 512; nodes *= 2) {
        const struct case_algorithm c = {"", MCP_TREE, MCP_FN_ALL_REDUCE, 8, nodes, true, true, 1};
        struct setup s;
        place(&s, &c);
        const struct mcp_pricing pricing = {&s.question, &s.plan};
        double seconds = mcp_collective_seconds(&pricing, c.function, DP, c.bytes);
        if (nodes > 2)
            cr_expect(epsilon_eq(dbl, seconds - last, all_reduce * 2e-6, 1e-10), "%d", nodes);
        last = seconds;
        mcp_arena_free(s.arena);
    }
}

/* On any cluster and group: the fastest is one of them; ports carry no more than they can;
 * in each phase some port is full. */
static void expect_sound(const struct random_plan *drawn, enum mcp_function function, unsigned axes,
                         double bytes)
{
    struct mcp_stack stack = drawn->stack;
    struct mcp_question question = drawn->question;
    question.stack = &stack;
    const struct mcp_pricing pricing = {&question, &drawn->plan};
    double least = INFINITY, seconds = 0;
    for (int i = 0; i < MCP_NUM_COLLECTIVE_ALGORITHMS; i++) {
        struct mcp_transfer transfer;
        stack.collective_algorithm = (enum mcp_collective_algorithm)i;
        mcp_collective_of(&pricing, function, axes, &(struct mcp_payload){bytes, 1}, &transfer);
        seconds = mcp_transfer_sum(&transfer);
        least = fmin(least, seconds);
        cr_assert(le(int, transfer.num_phases, MCP_MAX_PHASES));
        for (int p = 0; p < transfer.num_phases; p++) {
            double fullest = 0;
            for (int tier = 0; tier < MCP_MAX_TIERS; tier++)
                fullest = fmax(fullest, transfer.phases[p].loads[tier]);
            cr_expect(epsilon_eq(dbl, fullest, 1, 1e-9), "%s, phase %d: %g",
                      mcp_collective_algorithm_names[i], p, fullest);
        }
    }
    cr_expect(eq(dbl, seconds, least)); /* the last is the fastest */
}

Test(collective, fastest_is_one_of_them_and_ports_are_used)
{
    static const unsigned axes[] = {MCP_TENSOR, DP, MCP_EXPERT, MCP_PIPELINE};
    static const enum mcp_function functions[] = {MCP_FN_ALL_REDUCE, MCP_FN_ALL_GATHER,
                                                  MCP_FN_REDUCE_SCATTER};
    for (uint64_t seed = 1; seed <= NUM_PLANS; seed++) {
        struct mcp_arena *arena = mcp_arena_new();
        struct random_plan drawn;
        random_plan_draw(arena, seed, &drawn);
        for (int tier = 0; tier < drawn.cluster.num_tiers; tier++)
            drawn.cluster.tiers[tier].in_switch_reduction = (seed >> tier) % 2 != 0;
        for (int i = 0; i < 12; i++)
            expect_sound(&drawn, functions[i % 3], axes[i / 3], 1e3 * pow(10, (double)(seed % 7)));
        mcp_arena_free(arena);
    }
}
