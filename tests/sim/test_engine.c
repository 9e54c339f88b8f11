/* tests/sim/test_engine.c: pipelines of stated prices play to the closed forms. */
#include "sim/steps.h"

#include "step/schedule.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>

enum { FORWARD_NS = 1000, BACKWARD_NS = 2000 };

/* Equal stages of one entry a slot. */
struct toy {
    struct mcp_program program;
    struct mcp_sim_steps steps;
    struct mcp_block_price prices[2];
    int64_t send_ns, delay_ns;
};

static void add_step(struct mcp_sim_list *list, enum mcp_sim_kind kind, int side, int64_t time_ns)
{
    list->steps[list->num_steps++] =
        (struct mcp_sim_step){.kind = kind, .side = side, .time_ns = time_ns};
    list->steps[list->num_steps - 1].mail = kind == MCP_SIM_SEND ? !side : side;
}

static void fill_list(struct toy *toy, int k, bool backward, struct mcp_sim_list *list)
{
    const struct mcp_plan *plan = &toy->program.plan;
    int stages = plan->pipeline_parallel * plan->virtual_stages;
    bool receives = backward ? k < stages - 1 : k > 0, sends = backward ? k > 0 : k < stages - 1;
    if (receives)
        add_step(list, MCP_SIM_RECEIVE, backward, 0);
    add_step(list, MCP_SIM_COMPUTE, 0, backward ? BACKWARD_NS : FORWARD_NS);
    list->steps[list->num_steps - 1].price = &toy->prices[backward];
    list->steps[list->num_steps - 1].stretch_ns = list->steps[list->num_steps - 1].time_ns;
    if (sends) {
        add_step(list, MCP_SIM_SEND, !backward, toy->send_ns);
        list->steps[list->num_steps - 1].delay_ns = toy->delay_ns;
    }
}

static void fill_class(struct mcp_arena *arena, struct toy *toy, int r)
{
    const struct mcp_plan *plan = &toy->program.plan;
    struct mcp_program_class *class = &toy->program.classes[r];
    int p = plan->pipeline_parallel, v = plan->virtual_stages, m = toy->program.num_microbatches;
    struct mcp_action *actions = MCP_ARRAY(arena, mcp_schedule_length(v, m), struct mcp_action);
    mcp_schedule_actions(plan->schedule, p, v, m, r, actions);
    class->num_slots = mcp_schedule_length(v, m);
    class->slots = MCP_ARRAY(arena, class->num_slots, struct mcp_slot);
    for (int i = 0; i < class->num_slots; i++) {
        int k = actions[i].chunk * p + r;
        class->slots[i] = (struct mcp_slot){actions[i].chunk, actions[i].microbatch,
                                            (unsigned char)actions[i].pass,
                                            2 * k + (actions[i].pass != MCP_PASS_FORWARD), 0};
    }
}

static void toy_make(struct mcp_arena *arena, struct mcp_plan plan, int m, struct toy *toy)
{
    int p = plan.pipeline_parallel, stages = p * plan.virtual_stages;
    toy->program = (struct mcp_program){.plan = plan,
                                        .num_microbatches = m,
                                        .num_layers = 1,
                                        .num_lists = 2 * stages,
                                        .num_classes = p};
    toy->program.classes = MCP_ARRAY(arena, p, struct mcp_program_class);
    toy->prices[0] = (struct mcp_block_price){.time_ns = FORWARD_NS};
    toy->prices[1] = (struct mcp_block_price){.time_ns = BACKWARD_NS};
    toy->prices[0].cost_s[MCP_COST_MATMUL] = FORWARD_NS * 1e-9;
    toy->prices[1].cost_s[MCP_COST_MATMUL] = BACKWARD_NS * 1e-9;
    toy->steps = (struct mcp_sim_steps){.program = &toy->program, .num_copies = 1};
    toy->steps.lists = MCP_ARRAY(arena, 2 * stages, struct mcp_sim_list);
    toy->steps.classes = MCP_ARRAY(arena, p, struct mcp_sim_class);
    for (int i = 0; i < 2 * stages; i++) {
        toy->steps.lists[i].steps = MCP_ARRAY(arena, 3, struct mcp_sim_step);
        fill_list(toy, i / 2, i % 2 != 0, &toy->steps.lists[i]);
    }
    for (int r = 0; r < p; r++)
        fill_class(arena, toy, r);
}

static struct mcp_plan pipeline_plan(enum mcp_schedule schedule, int p, int v)
{
    struct mcp_plan plan = mcp_plan_default();
    plan.schedule = schedule;
    plan.pipeline_parallel = p;
    plan.virtual_stages = v;
    return plan;
}

static struct mcp_sim_result play(struct mcp_arena *arena, const struct toy *toy,
                                  const struct mcp_sim_options *options)
{
    struct mcp_sim_result result;
    mcp_sim_play_steps(arena, &toy->steps, options, &result);
    return result;
}

static void expect_bubble(enum mcp_schedule schedule, int p, int v, int m)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct toy toy = {.send_ns = 0};
    const struct mcp_sim_options options = mcp_sim_options_default();
    toy_make(arena, pipeline_plan(schedule, p, v), m, &toy);
    struct mcp_sim_result result = play(arena, &toy, &options);
    double ideal = (double)(p - 1) / ((double)v * m), sum = 0;
    cr_expect(epsilon_eq(dbl, result.bubble_over_ideal, ideal, 1e-9), "%s p=%d v=%d m=%d",
              mcp_schedule_names[schedule], p, v, m);
    cr_expect(
        eq(i64, result.step_ns, (int64_t)(FORWARD_NS + BACKWARD_NS) * ((int64_t)v * m + p - 1)));
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        sum += result.cost_s[i];
    cr_expect(epsilon_eq(dbl, sum, (double)result.step_ns * 1e-9, 1e-12));
    mcp_arena_free(arena);
}

Test(sim_engine, bubbles_are_those_of_the_papers)
{
    for (int p = 2; p <= 32; p++)
        for (int rounds = 2; rounds <= 5; rounds += 3) {
            expect_bubble(MCP_GPIPE, p, 1, p * rounds);
            expect_bubble(MCP_1F1B, p, 1, p * rounds);
            for (int v = 2; v <= 8; v++)
                expect_bubble(MCP_INTERLEAVED, p, v, p * rounds);
        }
}

/* Slope of 1F1B with message time c on the wire: t + 2c(p-1)/p a microbatch, or less. */
Test(sim_engine, messages_are_waited_for)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct toy toy = {.send_ns = 100, .delay_ns = 50};
    const struct mcp_sim_options options = mcp_sim_options_default();
    toy_make(arena, pipeline_plan(MCP_1F1B, 2, 1), 1, &toy);
    struct mcp_sim_result result = play(arena, &toy, &options);
    cr_expect(eq(i64, result.step_ns, 2 * (FORWARD_NS + BACKWARD_NS + 150)));
    cr_expect(epsilon_eq(dbl, result.stages[0].cost_s[MCP_COST_PIPELINE], 150e-9, 1e-15));
    cr_expect(epsilon_eq(dbl, result.stages[1].cost_s[MCP_COST_PIPELINE], 150e-9, 1e-15));
    mcp_arena_free(arena);
}

/* Two ranks a stage that share slots, and two that do not. */
Test(sim_engine, a_straggler_costs_what_its_stage_does)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_plan plan = pipeline_plan(MCP_1F1B, 4, 1);
    struct toy toy = {.send_ns = 0};
    plan.tensor_parallel = plan.data_parallel = 2;
    toy_make(arena, plan, 32, &toy);
    int64_t plain_ns = play(arena, &toy, &options).step_ns;
    options.slow_rank = 15; /* of the last stage */
    options.slow_factor = 1.5;
    struct mcp_sim_result slow = play(arena, &toy, &options);
    /* its stage sets the pace: 32 slots of 1.5 t, fill and drain through the others */
    cr_expect(eq(i64, slow.step_ns, (FORWARD_NS + BACKWARD_NS) * (3 * 32 / 2 + 3)));
    cr_expect(gt(i64, slow.step_ns, plain_ns));
    cr_expect(eq(int, slow.num_cells, 2));
    cr_expect(eq(i64, slow.stages[3].earliest_end_ns, plain_ns - 3 * BACKWARD_NS),
              "the other replica keeps its pace");
    mcp_arena_free(arena);
}

Test(sim_engine, noise_is_seeded_and_costs_the_slowest)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_plan plan = pipeline_plan(MCP_1F1B, 4, 1);
    struct toy toy = {.send_ns = 0};
    plan.tensor_parallel = 8;
    plan.data_parallel = 4;
    toy_make(arena, plan, 64, &toy);
    int64_t plain_ns = play(arena, &toy, &options).step_ns;
    options.noise = 0.02;
    struct mcp_sim_result a = play(arena, &toy, &options), b = play(arena, &toy, &options);
    cr_expect(eq(i64, a.step_ns, b.step_ns));
    options.seed = 2;
    struct mcp_sim_result c = play(arena, &toy, &options);
    cr_expect(ne(i64, a.step_ns, c.step_ns));
    /* the largest of 8 normal draws is 1.42 sigma on average */
    double cost = (double)a.step_ns / (double)plain_ns - 1;
    cr_expect(gt(dbl, cost, 1.3 * 0.02), "%g", cost);
    cr_expect(lt(dbl, cost, 2.5 * 0.02), "%g", cost);
    cr_expect(gt(dbl, a.cost_s[MCP_COST_TENSOR], 0), "the others wait for the slowest");
    double sum = 0;
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        sum += a.cost_s[i];
    cr_expect(epsilon_eq(dbl, sum / ((double)a.step_ns * 1e-9), 1, 1e-9));
    mcp_arena_free(arena);
}
