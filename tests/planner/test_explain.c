/* tests/planner/test_explain.c: differences that add up, what-ifs that were searched,
 * memory step by step. */
#include "core/text.h"
#include "planner/explain.h"
#include "tests/planner/question.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct mcp_search_options options = {.top = 6, .num_threads = 1};

static void check_sums(const struct mcp_prediction *from, const struct mcp_prediction *to)
{
    struct mcp_difference difference;
    int64_t sum = 0;
    mcp_explain_difference(from, to, &difference);
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        sum += difference.cost_ns[i];
    cr_expect(eq(i64, sum, difference.iteration_ns));
    cr_expect(eq(i64, difference.iteration_ns,
                 llround(to->iteration_s * 1e9) - llround(from->iteration_s * 1e9)));
    cr_expect(eq(i64, mcp_memory_total(&difference.memory), difference.peak_memory_bytes));
    cr_expect(
        eq(i64, difference.peak_memory_bytes, to->peak_memory_bytes - from->peak_memory_bytes));
}

struct case_question {
    char model[24], cluster[16];
    int batch, length;
};
ParameterizedTestParameters(explain, differences_add_up)
{
    static struct case_question cases[] = {{"llama-3.1-8b", "dgx-h100:2", 64, 4096},
                                           {"mixtral-8x7b", "dgx-h100:4", 256, 4096},
                                           {"gpt-22b", "dgx-a100:4", 128, 2048}};
    return cr_make_param_array(struct case_question, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_question *c, explain, differences_add_up)
{
    struct loaded l;
    struct mcp_answer answer;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, c->model, c->cluster, c->batch, c->length);
    mcp_search(l.arena, &l.question, &space, &options, &answer);
    cr_assert(gt(int, answer.count, 1));
    struct mcp_pricer *pricer = mcp_pricer_new(l.arena, &l.question);
    struct mcp_prediction *p = MCP_ARRAY(l.arena, answer.count, struct mcp_prediction);
    for (int i = 0; i < answer.count; i++)
        mcp_estimate(pricer, &answer.found[i].plan, &p[i]);
    for (int i = 0; i < answer.count; i++)
        for (int k = 0; k < answer.count; k++)
            check_sums(&p[i], &p[k]);
    mcp_arena_free(l.arena);
}

Test(explain, order_is_by_size)
{
    struct mcp_difference difference = {
        .cost_ns = {[MCP_COST_MATMUL] = 5, [MCP_COST_DATA] = -9, [MCP_COST_BUBBLE] = 7}};
    enum mcp_cost order[MCP_NUM_COSTS];
    cr_assert(eq(int, mcp_difference_order(&difference, order), 3));
    cr_expect(eq(int, order[0], MCP_COST_DATA));
    cr_expect(eq(int, order[1], MCP_COST_BUBBLE));
    cr_expect(eq(int, order[2], MCP_COST_MATMUL));
}

static struct mcp_rival rival_of(struct loaded *l, int tensor, int data, int microbatch)
{
    struct mcp_rival rival = {.name = "rival", .plan = mcp_plan_default()};
    rival.plan.tensor_parallel = tensor;
    rival.plan.sequence_parallel = tensor > 1;
    rival.plan.data_parallel = data;
    rival.plan.microbatch_size = microbatch;
    mcp_plan_uniform_chunks(l->arena, &rival.plan, l->model.num_layers, MCP_RECOMPUTE_NONE);
    return rival;
}

/* A rival is refused by meaning, by memory, or priced. */
Test(explain, rivals)
{
    struct loaded l;
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 64, 4096);
    struct mcp_rival *rival = MCP_NEW(l.arena, struct mcp_rival);
    *rival = rival_of(&l, 4, 2, 1);
    mcp_rival_judge(l.arena, &l.question, rival);
    cr_expect(rival->priced);
    cr_expect(eq(int, rival->refusals.count, 0));
    *rival = rival_of(&l, 4, 2, 32);
    mcp_rival_judge(l.arena, &l.question, rival);
    cr_expect(rival->priced);
    cr_assert(eq(int, rival->refusals.count, 1));
    cr_expect(mcp_same(rival->refusals.items[0].rule, mcp_rule_memory));
    *rival = rival_of(&l, 3, 2, 1);
    mcp_rival_judge(l.arena, &l.question, rival);
    cr_expect(not(rival->priced));
    cr_expect(gt(int, rival->refusals.count, 1));
    mcp_arena_free(l.arena);
}

/* What helps helps, and each answer is what the changed question's search says. */
Test(explain, what_ifs)
{
    struct loaded l;
    struct mcp_answer answer, again;
    struct mcp_error err;
    struct mcp_what_if what_ifs[MCP_NUM_WHAT_IFS];
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:2", 64, 4096);
    mcp_search(l.arena, &l.question, &space, &options, &answer);
    mcp_what_ifs(l.arena, &l.question, &space, &options, &answer.found[0], what_ifs);
    for (int i = MCP_IF_LINKS_FASTER; i <= MCP_IF_TWICE_THE_GPUS; i++) {
        cr_assert(what_ifs[i].fits, "%s", mcp_what_if_names[i]);
        cr_expect(ge(dbl, what_ifs[i].speed_up, 1 - 1e-12), "%s", mcp_what_if_names[i]);
    }
    cr_expect(gt(dbl, what_ifs[MCP_IF_HIGHER_CLOCK].speed_up, 1.03));
    cr_expect(lt(dbl, what_ifs[MCP_IF_HIGHER_CLOCK].speed_up, 1.1));
    cr_expect(lt(dbl, what_ifs[MCP_IF_HALF_THE_GPUS].speed_up, 0.6));
    cr_assert(mcp_cluster_set_gpus(&l.cluster, 32, &err) == MCP_OK);
    mcp_search(l.arena, &l.question, &space, &options, &again);
    cr_expect(
        eq(dbl, what_ifs[MCP_IF_TWICE_THE_GPUS].found.iteration_s, again.found[0].iteration_s));
    mcp_arena_free(l.arena);
}

/* An odd batch has no half; learned positions end; one device has no half either. */
Test(explain, impossible_what_ifs)
{
    struct loaded l;
    struct mcp_answer answer;
    struct mcp_what_if what_ifs[MCP_NUM_WHAT_IFS];
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "gpt2", "dgx-h100:1", 9, 1024);
    struct mcp_error err;
    cr_assert(mcp_cluster_take(&l.cluster, 1, &err) == MCP_OK);
    mcp_search(l.arena, &l.question, &space, &options, &answer);
    cr_assert(gt(int, answer.count, 0));
    mcp_what_ifs(l.arena, &l.question, &space, &options, &answer.found[0], what_ifs);
    cr_expect(not(what_ifs[MCP_IF_HALF_THE_BATCH].possible));
    cr_expect(not(what_ifs[MCP_IF_HALF_THE_GPUS].possible));
    cr_expect(not(what_ifs[MCP_IF_LINKS_FASTER].possible));
    cr_expect(not(what_ifs[MCP_IF_TWICE_THE_LENGTH].possible));
    cr_expect(what_ifs[MCP_IF_TWICE_THE_BATCH].possible);
    mcp_arena_free(l.arena);
}

/* Each step keeps the degrees and needs no more than the one before. */
Test(explain, memory_falls_step_by_step)
{
    struct loaded l;
    struct mcp_answer answer;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-70b", "dgx-h100:8", 512, 4096);
    mcp_search(l.arena, &l.question, &space, &options, &answer);
    const struct mcp_plan *plan = &answer.found[0].plan;
    struct mcp_memory_step *steps =
        MCP_ARRAY(l.arena, MCP_NUM_MEMORY_STEPS, struct mcp_memory_step);
    mcp_memory_steps(l.arena, &l.question, plan, steps);
    for (int i = 0; i < MCP_NUM_MEMORY_STEPS; i++) {
        cr_assert(steps[i].refused == NULL, "%s: %s", steps[i].name, steps[i].refused);
        cr_expect(eq(int, steps[i].plan.tensor_parallel, plan->tensor_parallel));
        cr_expect(eq(int, steps[i].plan.microbatch_size, plan->microbatch_size));
        if (i > 0)
            cr_expect(le(i64, steps[i].prediction.peak_memory_bytes,
                         steps[i - 1].prediction.peak_memory_bytes),
                      "%s", steps[i].name);
    }
    cr_expect(lt(i64, steps[2].prediction.memory.activations_bytes,
                 steps[0].prediction.memory.activations_bytes / 4));
    cr_expect(lt(i64, steps[5].prediction.memory.weights_bytes,
                 steps[4].prediction.memory.weights_bytes));
    mcp_arena_free(l.arena);
}

static const struct mcp_remedy *remedy(const struct mcp_remedy *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (mcp_same(list[i].name, name))
            return &list[i];
    return NULL;
}

/* The memory that would do is the least that does, to the GiB. */
Test(explain, remedies)
{
    struct loaded l;
    struct mcp_answer answer;
    struct mcp_remedy list[MCP_MOST_REMEDIES];
    struct mcp_plan_space space = mcp_space_default();
    struct mcp_search_options smallest = options;
    smallest.smallest = true;
    load_question(&l, "llama-3.1-70b", "dgx-h100:1", 64, 4096);
    mcp_search(l.arena, &l.question, &space, &smallest, &answer);
    cr_assert(eq(int, answer.count, 0));
    int count = mcp_remedies(l.arena, &l.question, &space, &options,
                             answer.smallest.peak_memory_bytes, list);
    cr_expect(remedy(list, count, "sequence_length") == NULL, "weights alone are too much");
    const struct mcp_remedy *gpus = remedy(list, count, "gpus");
    cr_assert(gpus != NULL);
    cr_expect(eq(int, mcp_plan_world(&gpus->found.plan), (int)gpus->value));
    const struct mcp_remedy *memory = remedy(list, count, "memory_bytes");
    cr_assert(memory != NULL);
    for (int less = 0; less < 2; less++) {
        l.cluster.gpu.memory_bytes = (int64_t)memory->value - ((int64_t)less << 30);
        mcp_search(l.arena, &l.question, &space, &options, &answer);
        cr_expect(eq(int, answer.count > 0, less == 0));
    }
    mcp_arena_free(l.arena);
}

/* Shorter sequences where activations are what does not fit. */
Test(explain, shorter_sequences)
{
    struct loaded l;
    struct mcp_answer answer;
    struct mcp_remedy list[MCP_MOST_REMEDIES];
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 64, 4096);
    mcp_space_pin(&space, MCP_KNOB_MICROBATCH, 32);
    mcp_space_pin(&space, MCP_KNOB_RECOMPUTE, MCP_RECOMPUTE_NONE);
    mcp_search(l.arena, &l.question, &space, &options, &answer);
    cr_assert(eq(int, answer.count, 0));
    int count = mcp_remedies(l.arena, &l.question, &space, &options, 1, list);
    const struct mcp_remedy *shorter = remedy(list, count, "sequence_length");
    cr_assert(shorter != NULL);
    l.job.sequence_length = 2 * (int64_t)shorter->value;
    mcp_search(l.arena, &l.question, &space, &options, &answer);
    cr_expect(eq(int, answer.count, 0));
    mcp_arena_free(l.arena);
}
