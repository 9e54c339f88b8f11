/* tests/sim/test_played.c: transfers in a played step take what their closed forms say, and
 * share links by halves. */
#include "sim/activity.h"
#include "sim/ops.h"
#include "tests/step/setup.h"

#include "step/build.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

/* --- all-reduces of a layer, as spans --- */

struct case_played {
    char name[48];
    enum mcp_collective_algorithm algorithm;
    int tensor; /* of nodes of 8 */
};

/* H100: 360 GB/s of NVLink and 42.5 GB/s of the network a GPU. */
static double expected_s(const struct case_played *c, double bytes)
{
    const double nvlink = 0.8 * 450e9, nic = 0.85 * 50e9, start = 1.6;
    double n = c->tensor, g = fmin(n, 8), nodes = n / g, ramp = 15e-6 * (1 - exp(-bytes / 4e6));
    double bus = nodes > 1 ? fmin(nvlink, g * nic) : nvlink;
    double near = 12e-6 + (g - 1) * 1e-6;
    switch (c->algorithm) {
    case MCP_TREE:
        return start * (near + 2e-6 * log2(nodes)) + ramp + 2 * bytes / bus;
    case MCP_IN_SWITCH:
        return start * 13e-6 + ramp + (g + 1) / g * bytes / (0.84 * nvlink);
    case MCP_HIERARCHICAL:
        return 2 * (near + ramp + (g - 1) / g * bytes / nvlink) +
               start * (12e-6 + 2e-6 * (nodes - 1)) + 15e-6 * (1 - exp(-bytes / g / 4e6)) +
               2 * (nodes - 1) / nodes * bytes / g / nic;
    default:
        return start * (near + 2e-6 * (nodes - 1)) + ramp + 2 * (n - 1) / n * bytes / bus;
    }
}

struct sums {
    const struct mcp_program *program;
    const struct case_played *c;
    int all_reduces;
};

static void take(void *context, const struct mcp_sim_span *span)
{
    struct sums *sums = context;
    if (span->op < 0)
        return;
    const struct mcp_slot *slot = &sums->program->classes[span->stage].slots[span->slot];
    const struct mcp_entry *entry = &sums->program->lists[slot->list].entries[span->entry];
    const struct mcp_op *op = &sums->program->types[entry->type].blocks[entry->role].ops[span->op];
    if (op->function != MCP_FN_ALL_REDUCE || entry->role != MCP_FORWARD || slot->microbatch < 0)
        return;
    double bytes = (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype);
    double want_ns = 1e9 * expected_s(sums->c, bytes);
    cr_expect(lt(dbl, fabs((double)(span->end_ns - span->start_ns) - want_ns), 1.0),
              "%s, %g bytes: %lld ns, not %g", sums->c->name, bytes,
              (long long)(span->end_ns - span->start_ns), want_ns);
    sums->all_reduces++;
}

ParameterizedTestParameters(sim_played, all_reduce)
{
    static struct case_played cases[] = {
        {"a ring in a node: 2 (n - 1) / n", MCP_RING, 8},
        {"a ring of four", MCP_RING, 4},
        {"a ring over two nodes", MCP_RING, 16},
        {"a tree over two nodes", MCP_TREE, 16},
        {"a tree over four", MCP_TREE, 32},
        {"in NVLink's switches", MCP_IN_SWITCH, 8},
        {"inside, across, inside", MCP_HIERARCHICAL, 16},
    };
    return cr_make_param_array(struct case_played, cases, sizeof cases / sizeof *cases);
}

/* Two layers of Llama 8B, tensor parallel without sequence parallelism: nothing else is on
 * the links. */
ParameterizedTest(struct case_played *c, sim_played, all_reduce)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_sim_result result;
    struct sums sums = {&program, c, 0};
    const struct mcp_sim_ops_options options = {
        .shared_links = true, .span = take, .context = &sums};
    setup_load(&s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    setup_cut(&s, 2);
    s.plan.tensor_parallel = c->tensor;
    setup_finish(&s, 2, MCP_RECOMPUTE_NONE);
    s.stack.collective_algorithm = c->algorithm;
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    mcp_sim_play_ops(s.arena, &s.question, &program, &options, &result);
    cr_expect(ge(int, sums.all_reduces, 2 * 2 * 2), "two a layer and microbatch");
    mcp_arena_free(s.arena);
}

/* --- on shared links --- */

enum { FLOW_NS = 1000 };

static struct mcp_sim_phase phase_on(int tier, int64_t fixed_ns)
{
    struct mcp_sim_phase phase = {.fixed_ns = fixed_ns, .shared_ns = FLOW_NS};
    phase.shape.loads[tier] = 1;
    return phase;
}

/* Starts both at once on one rank; out: when each ends, by index. */
static void run_two(const struct mcp_sim_phase *a, int num_a, const struct mcp_sim_phase *b,
                    int num_b, int64_t ends_ns[2])
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_sim_activities *all = mcp_sim_activities_new(arena, 1, true);
    struct mcp_sim_activity x = {.index = 0}, y = {.index = 1}, ended;
    mcp_sim_use_ports(&x, a, num_a);
    mcp_sim_use_ports(&y, b, num_b);
    mcp_sim_start(all, &x);
    mcp_sim_start(all, &y);
    while (mcp_sim_next(all, &ended))
        ends_ns[ended.index] = mcp_sim_now(all);
    mcp_arena_free(arena);
}

Test(sim_played, two_equal_flows_take_twice_as_long)
{
    const struct mcp_sim_phase phase = phase_on(1, 0);
    int64_t ends_ns[2];
    run_two(&phase, 1, &phase, 1, ends_ns);
    cr_expect(eq(i64, ends_ns[0], 2 * FLOW_NS));
    cr_expect(eq(i64, ends_ns[1], 2 * FLOW_NS));
}

Test(sim_played, flows_on_other_tiers_do_not_meet)
{
    const struct mcp_sim_phase near = phase_on(0, 0), far = phase_on(1, 0);
    int64_t ends_ns[2];
    run_two(&near, 1, &far, 1, ends_ns);
    cr_expect(eq(i64, ends_ns[0], FLOW_NS));
    cr_expect(eq(i64, ends_ns[1], FLOW_NS));
}

/* Inside, across, inside, against one that crosses all the while: they meet across alone. */
Test(sim_played, phases_meet_only_what_is_on_their_tier)
{
    const struct mcp_sim_phase phases[3] = {phase_on(0, 0), phase_on(1, 0), phase_on(0, 0)};
    struct mcp_sim_phase across = phase_on(1, 0);
    int64_t ends_ns[2];
    across.shared_ns = 2 * FLOW_NS;
    run_two(phases, 3, &across, 1, ends_ns);
    /* the other has half done alone; then both have half each for twice as long */
    cr_expect(eq(i64, ends_ns[1], 3 * FLOW_NS));
    cr_expect(eq(i64, ends_ns[0], 4 * FLOW_NS));
}

/* While one is still in its latency the other has the links alone. */
Test(sim_played, latency_uses_no_link)
{
    const struct mcp_sim_phase at_once = phase_on(1, 0), later = phase_on(1, FLOW_NS);
    int64_t ends_ns[2];
    run_two(&at_once, 1, &later, 1, ends_ns);
    cr_expect(eq(i64, ends_ns[0], FLOW_NS));
    cr_expect(eq(i64, ends_ns[1], 2 * FLOW_NS));
}
