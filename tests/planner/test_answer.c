/* tests/planner/test_answer.c: why nothing fits, and what would. */
#include "core/text.h"
#include "planner/answer.h"
#include "planner/explain.h"
#include "tests/planner/question.h"

#include <criterion/new/assert.h>
#include <string.h>

static const struct mcp_search_options options = {
    .objective = MCP_OBJECTIVE_TIME, .top = 1, .num_threads = 1};

static struct mcp_answer ask(struct loaded *l, const struct mcp_plan_space *space)
{
    struct mcp_answer answer;
    mcp_search(l->arena, &l->question, space, &options, &answer);
    return answer;
}

static const struct mcp_change *change(const struct mcp_changes *changes, enum mcp_change_kind kind)
{
    for (int i = 0; i < changes->count; i++)
        if (changes->items[i].kind == kind)
            return &changes->items[i];
    return NULL;
}

static const struct mcp_remedy *remedy(const struct mcp_remedy *list, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (mcp_same(list[i].name, name))
            return &list[i];
    return NULL;
}

/* 405 B need more than 8 GPUs; how many was found by searching: with fewer none fits. */
Test(answer, too_few_gpus)
{
    struct loaded l;
    struct mcp_remedy list[MCP_MOST_REMEDIES];
    struct mcp_answer answer;
    struct mcp_plan_space space = mcp_space_default();
    struct mcp_search_options smallest = options;
    smallest.smallest = true;
    load_question(&l, "llama-3.1-405b", "dgx-h100:1", 64, 4096);
    mcp_search(l.arena, &l.question, &space, &smallest, &answer);
    cr_assert(eq(int, answer.count, 0));
    cr_assert(answer.has_smallest);
    cr_expect(gt(i64, answer.smallest.peak_memory_bytes, l.cluster.gpu.memory_bytes));
    cr_expect(mcp_same(mcp_binding_rule(&answer.record), "memory"));
    int count = mcp_remedies(l.arena, &l.question, &space, &options,
                             answer.smallest.peak_memory_bytes, list);
    const struct mcp_remedy *gpus = remedy(list, count, "gpus");
    cr_assert(gpus != NULL);
    int needed = mcp_plan_world(&gpus->found.plan);
    struct mcp_error err;
    for (int less = 0; less <= 8; less += 8) {
        cr_assert(mcp_cluster_set_gpus(&l.cluster, needed - less, &err) == MCP_OK);
        struct mcp_answer again = ask(&l, &space);
        cr_expect(eq(int, again.count > 0, less == 0), "%d GPUs", needed - less);
    }
    mcp_arena_free(l.arena);
}

/* A pin that is too much is the first change named, with the value that fits. */
Test(answer, names_the_pin_that_is_too_much)
{
    struct loaded l;
    struct mcp_changes changes;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 1024, 8192);
    mcp_space_pin(&space, MCP_KNOB_MICROBATCH, 128);
    struct mcp_answer answer = ask(&l, &space);
    cr_assert(eq(int, answer.count, 0));
    cr_expect(mcp_same(mcp_binding_rule(&answer.record), "memory"));
    mcp_nearest_changes(l.arena, &l.question, &space, &options, &answer, &changes);
    cr_assert(gt(int, changes.count, 0));
    cr_expect(eq(int, changes.items[0].kind, MCP_CHANGE_KNOB));
    cr_expect(strstr(changes.items[0].text, "microbatch_size=") != NULL);
    cr_expect(strstr(changes.items[0].text, "instead of 128") != NULL);
    cr_expect(lt(int, changes.items[0].found.plan.microbatch_size, 128));
    mcp_arena_free(l.arena);
}

/* A rule that refuses all that is left is named, and lifting it is a change. */
Test(answer, names_the_rule_that_binds)
{
    struct loaded l;
    struct mcp_changes changes;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 9, 4096);
    mcp_space_pin(&space, MCP_KNOB_PIPELINE, 4);
    mcp_space_pin(&space, MCP_KNOB_TENSOR, 2);
    struct mcp_answer answer = ask(&l, &space);
    cr_assert(eq(int, answer.count, 0));
    cr_expect(mcp_same(mcp_binding_rule(&answer.record), "batch_rule"));
    mcp_nearest_changes(l.arena, &l.question, &space, &options, &answer, &changes);
    const struct mcp_change *lifted = change(&changes, MCP_CHANGE_RULE);
    cr_assert(lifted != NULL);
    cr_expect(mcp_same(lifted->text, "batch_rule off"));
    mcp_arena_free(l.arena);
}

/* Nothing legal at all: every rule that the closest plan breaks. */
Test(answer, least_illegal)
{
    struct loaded l;
    struct mcp_plan plan;
    struct mcp_refusals refusals;
    struct mcp_plan_space space = mcp_space_default();
    load_question(&l, "llama-3.1-8b", "dgx-h100:8", 64, 4096);
    mcp_space_pin(&space, MCP_KNOB_PIPELINE, 64);
    struct mcp_answer answer = ask(&l, &space);
    cr_assert(eq(int, answer.count, 0));
    cr_expect(mcp_same(mcp_binding_rule(&answer.record), "pipeline_within_layers"));
    cr_assert(mcp_least_illegal(l.arena, &l.question, &space, &plan, &refusals));
    cr_assert(eq(int, refusals.count, 1));
    cr_expect(strstr(refusals.items[0].text, "exceeds num_layers=32") != NULL);
    mcp_arena_free(l.arena);
}
