/* tests/planner/test_rule.c: the rule of thumb, its arithmetic and its refusals. */
#include "planner/rule.h"
#include "tests/planner/question.h"

#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

struct case_rule {
    char name[40], model[24], cluster[16];
    int tensor, context, pipeline, data;
    bool legal;
};
ParameterizedTestParameters(rule, degrees)
{
    static struct case_rule cases[] = {
        /* ceil(sqrt(8.03)) = 3, ceil(sqrt(16 / 3)) = 3, floor(16 / 27) = 0 */
        {"8 B on 16", "llama-3.1-8b", "dgx-h100:2", 3, 3, 3, 1, false},
        /* ceil(sqrt(70.6)) = 9 */
        {"70 B on 64", "llama-3.1-70b", "dgx-h100:8", 9, 3, 3, 1, false},
        {"34 B on 64", "article-34b", "dgx-h100:8", 6, 4, 4, 1, false},
        /* 0.12 B: everything is 1 but what the GPUs ask for */
        {"GPT-2 on 8", "gpt2", "dgx-h100:1", 1, 3, 3, 1, false},
    };
    return cr_make_param_array(struct case_rule, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_rule *c, rule, degrees)
{
    struct loaded l;
    struct mcp_refusals refusals;
    load_question(&l, c->model, c->cluster, 1024, 1024);
    struct mcp_plan plan = mcp_rule_plan(&l.question);
    cr_expect(eq(int, plan.tensor_parallel, c->tensor), "%s", c->name);
    cr_expect(eq(int, plan.context_parallel, c->context), "%s", c->name);
    cr_expect(eq(int, plan.pipeline_parallel, c->pipeline), "%s", c->name);
    cr_expect(eq(int, plan.data_parallel, c->data), "%s", c->name);
    cr_expect(eq(int, mcp_rule_legal(l.arena, &l.question, &plan, &refusals), c->legal), "%s",
              c->name);
    mcp_arena_free(l.arena);
}

static const char *refusal(const struct mcp_refusals *refusals, const char *rule)
{
    for (int i = 0; i < refusals->count; i++)
        if (strcmp(refusals->items[i].rule, rule) == 0)
            return refusals->items[i].text;
    return "";
}

/* The article's example: 6 x 4 x 4 needs 96 GPUs and cuts heads by 6. */
Test(rule, article_example_is_refused_because)
{
    struct loaded l;
    struct mcp_refusals refusals;
    load_question(&l, "article-34b", "dgx-a100:8", 1024, 4096);
    struct mcp_plan plan = mcp_rule_plan(&l.question);
    cr_assert(not(mcp_rule_legal(l.arena, &l.question, &plan, &refusals)));
    cr_expect(strstr(refusal(&refusals, "world_equals_gpus"), "96 ranks") != NULL);
    cr_expect(strstr(refusal(&refusals, "tensor_parallel_divides_heads"),
                     "tensor_parallel=6 does not divide num_attention_heads") != NULL);
    cr_expect(strstr(mcp_rule_arithmetic(l.arena, &l.question), "floor(64 / 96) = 0") != NULL);
    mcp_arena_free(l.arena);
}

/* A square model on a square cluster: the rule of thumb can be a plan. */
Test(rule, can_be_legal)
{
    struct loaded l;
    struct mcp_refusals refusals;
    load_question(&l, "llama-3.1-8b", "dgx-h100:1", 64, 4096);
    l.model.num_layers = 10; /* 2.2 B more or less: ceil(sqrt(3.2)) = 2, ceil(sqrt(8 / 2)) = 2 */
    struct mcp_plan plan = mcp_rule_plan(&l.question);
    cr_expect(mcp_rule_legal(l.arena, &l.question, &plan, &refusals));
    cr_expect(eq(int, plan.tensor_parallel, 2));
    cr_expect(eq(int, plan.pipeline_parallel, 2));
    cr_expect(eq(int, plan.data_parallel, 1));
    mcp_arena_free(l.arena);
}

/* Too many stages for the article's own rule is said too. */
Test(rule, article_rules_are_asked_too)
{
    struct loaded l;
    struct mcp_refusals refusals;
    load_question(&l, "gpt2", "dgx-h100:2", 30, 1024);
    struct mcp_plan plan = mcp_rule_plan(&l.question);
    cr_expect(eq(int, plan.pipeline_parallel, 4));
    cr_expect(not(mcp_rule_legal(l.arena, &l.question, &plan, &refusals)));
    cr_expect(strstr(refusal(&refusals, "pipeline_rule"), "num_layers=12; at most 2") != NULL);
    cr_expect(strstr(refusal(&refusals, "batch_rule"), "30 / 1") != NULL);
    mcp_arena_free(l.arena);
}
