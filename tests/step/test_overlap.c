/* tests/step/test_overlap.c: what a plan does not ask to hide stands alone, in price and program. */
#include "tests/step/setup.h"

#include "core/mesh.h"
#include "core/rank_map.h"
#include "core/stack.h"
#include "step/build.h"
#include "step/constants.h"
#include "step/estimate.h"
#include "step/verify.h"

#include <criterion/new/assert.h>
#include <math.h>

static struct mcp_block_price price_of(const struct setup *s, const struct mcp_block *block)
{
    struct mcp_block_price price;
    const struct mcp_pricing pricing = {&s->question, &s->plan};
    mcp_block_price(&pricing, block, &price);
    return price;
}

/* Attention of a step takes longer than a shift: hidden, the ring costs nothing. */
Test(overlap, ring_steps_that_are_not_hidden_stand_alone)
{
    struct setup s;
    setup_load(&s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    s.stack.host_launch_s = 0;
    s.job.sequence_length = 131072;
    s.plan.context_parallel = 4;
    for (int role = MCP_FORWARD; role <= MCP_BACKWARD; role++) {
        s.plan.overlap.context = true;
        struct mcp_layer_type hidden = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
        struct mcp_block_price beside = price_of(&s, &hidden.blocks[role]);
        s.plan.overlap.context = false;
        struct mcp_layer_type alone = setup_layer(&s, 0, MCP_RECOMPUTE_NONE);
        struct mcp_block_price after = price_of(&s, &alone.blocks[role]);
        double ring = after.comm_s[MCP_COST_CONTEXT];
        cr_expect(gt(dbl, ring, 1e-3));
        cr_expect(epsilon_eq(dbl, beside.comm_s[MCP_COST_CONTEXT], ring, 1e-12));
        cr_expect(epsilon_eq(dbl, after.cost_s[MCP_COST_CONTEXT], ring, 1e-8));
        cr_expect(epsilon_eq(dbl, beside.cost_s[MCP_COST_CONTEXT], 0,
                             role == MCP_FORWARD ? 1e-8 : ring / 3 + 1e-8));
        cr_expect(epsilon_eq(dbl, (double)(after.time_ns - beside.time_ns) * 1e-9,
                             ring - beside.cost_s[MCP_COST_CONTEXT], 1e-7));
    }
    mcp_arena_free(s.arena);
}

static void fully_sharded(struct setup *s)
{
    setup_load(s, "llama-3.1-8b", "dgx-h100", "fsdp");
    setup_cut(s, 4);
    s->job.sequence_length = 8192;
    s->plan.data_parallel = 8;
    s->plan.zero_stage = 3;
    s->plan.overlap = (struct mcp_overlap){.data = true, .gather = true, .context = true};
    setup_finish(s, 2, MCP_RECOMPUTE_NONE);
}

/* Entries of the class before which the weights of their own layer were gathered last. */
static int gathers_at_hand(const struct mcp_program *program, int *copies)
{
    int at_hand = 0;
    *copies = 0;
    for (int i = 0; i < program->classes[0].num_slots; i++) {
        const struct mcp_entry_list *list = &program->lists[program->classes[0].slots[i].list];
        for (int e = 0; e < list->num_entries; e++) {
            const struct mcp_entry *entry = &list->entries[e];
            *copies = entry->copy + 1 > *copies ? entry->copy + 1 : *copies;
            at_hand += e > 0 && list->entries[e - 1].role == MCP_GATHER &&
                       list->entries[e - 1].layer == entry->layer &&
                       list->entries[e - 1].copy == entry->copy;
        }
    }
    return at_hand;
}

Test(overlap, weights_come_ahead_or_when_they_are_at_hand)
{
    struct setup s;
    struct mcp_prediction ahead, at_hand;
    struct mcp_program program;
    int copies;
    fully_sharded(&s);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    cr_expect(eq(int, gathers_at_hand(&program, &copies), 0));
    cr_expect(eq(int, copies, 2));
    mcp_estimate(mcp_pricer_new(s.arena, &s.question), &s.plan, &ahead);
    s.plan.overlap.gather = false;
    setup_program(&s, &program);
    cr_expect(eq(int, gathers_at_hand(&program, &copies), 2 * 2 * 6), "each pass of each layer");
    cr_expect(eq(int, copies, 1));
    mcp_estimate(mcp_pricer_new(s.arena, &s.question), &s.plan, &at_hand);
    cr_expect(gt(dbl, at_hand.cost_s[MCP_COST_DATA], ahead.cost_s[MCP_COST_DATA]));
    cr_expect(epsilon_eq(dbl, at_hand.comm_s[MCP_COST_DATA], ahead.comm_s[MCP_COST_DATA], 1e-9));
    cr_expect(lt(i64, at_hand.memory.buffers_bytes, ahead.memory.buffers_bytes));
    mcp_arena_free(s.arena);
}

static int reductions_in(const struct mcp_program *program, int first_slot, int end_slot)
{
    int count = 0;
    for (int i = first_slot; i < end_slot; i++) {
        const struct mcp_entry_list *list = &program->lists[program->classes[0].slots[i].list];
        for (int e = 0; e < list->num_entries; e++)
            count += list->entries[e].role == MCP_REDUCE;
    }
    return count;
}

/* Bucket by bucket within the last backward, or all of them after it. */
Test(overlap, gradients_are_reduced_under_backward_or_after_it)
{
    struct setup s;
    struct mcp_program program;
    fully_sharded(&s);
    s.plan.zero_stage = 1;
    for (int hides = 0; hides < 2; hides++) {
        s.plan.overlap.data = hides;
        setup_program(&s, &program);
        int last = program.classes[0].num_slots - 1;
        cr_expect(eq(int, reductions_in(&program, 0, last), hides ? 6 : 0));
        cr_expect(eq(int, reductions_in(&program, last, last + 1), hides ? 0 : 6));
    }
    mcp_arena_free(s.arena);
}

/* Two sites of two nodes: nine tenths of what a rank sends leaves its node, half its site. */
Test(overlap, all_to_all_pays_every_tier_that_it_crosses)
{
    struct setup s;
    setup_load(&s, "llama-3.1-8b", "dgx-h100:4", "megatron-core");
    s.cluster.num_tiers = 3;
    s.cluster.tiers[2] = s.cluster.tiers[1];
    s.cluster.tiers[1].ranks = 16;
    s.cluster.tiers[2].bandwidth_bytes_per_s = 1e9;
    s.cluster.tiers[2].round_trip_s = 0.01;
    s.plan.data_parallel = 32;
    const struct mcp_pricing pricing = {&s.question, &s.plan};
    double bytes = 64e6, share = s.cluster.tiers[2].efficiency_frac * s.stack.network_frac;
    double want = MCP_COLLECTIVE_START_S + 0.01 + bytes * 16 / 32 / (1e9 * share);
    cr_expect(epsilon_eq(dbl, mcp_collective_seconds(&pricing, MCP_FN_ALL_TO_ALL, MCP_DATA, bytes),
                         want, 1e-9));
    mcp_arena_free(s.arena);
}

/* Nodes in any order: what crossed one site's network crosses the other's too. */
Test(overlap, a_scrambled_plan_costs_more)
{
    struct setup s;
    struct mcp_error err = {""};
    struct mcp_prediction neat, scrambled;
    setup_load(&s, "llama-3.1-8b", "dgx-h100:8", "megatron-core");
    s.cluster.num_tiers = 3;
    s.cluster.tiers[2] = s.cluster.tiers[1];
    s.cluster.tiers[1].ranks = s.cluster.tiers[1].full_ranks = 32;
    s.cluster.tiers[2].bandwidth_bytes_per_s /= 10;
    s.job.sequence_length = 4096;
    s.plan.tensor_parallel = 8;
    s.plan.sequence_parallel = true;
    s.plan.pipeline_parallel = 4;
    s.plan.data_parallel = 2;
    s.plan.rank_order[2] = MCP_PIPELINE;
    s.plan.rank_order[3] = MCP_DATA;
    s.job.global_batch_size = 32;
    mcp_plan_uniform_chunks(s.arena, &s.plan, s.model.num_layers, MCP_RECOMPUTE_NONE);
    struct mcp_pricer *pricer = mcp_pricer_new(s.arena, &s.question); /* one cache for both */
    mcp_estimate(pricer, &s.plan, &neat);
    cr_assert(eq(int,
                 (int)mcp_plan_place(s.arena, &s.plan, &s.cluster,
                                     mcp_rank_map_scrambled(s.arena, 64, 8, 1), &err),
                 0));
    mcp_estimate(pricer, &s.plan, &scrambled);
    cr_expect(gt(dbl, scrambled.cost_s[MCP_COST_PIPELINE], 2 * neat.cost_s[MCP_COST_PIPELINE]));
    cr_expect(
        epsilon_eq(dbl, scrambled.cost_s[MCP_COST_TENSOR], neat.cost_s[MCP_COST_TENSOR], 1e-9),
        "nodes stay whole");
    s.plan.rank_map = NULL;
    mcp_estimate(pricer, &s.plan, &scrambled);
    cr_expect(eq(dbl, scrambled.iteration_s, neat.iteration_s));
    mcp_arena_free(s.arena);
}
