/* planner/rule.c: degrees from square roots, and why they often mean nothing. */
#include "planner/rule.h"

#include "planner/search.h"

#include <math.h>

static double billions(const struct mcp_question *question)
{
    struct mcp_parameters parameters = mcp_model_parameters(question->model);
    return (double)mcp_parameters_total(&parameters) / 1e9;
}

static int at_least_one(double value)
{
    return value > 1 ? (int)value : 1;
}

struct mcp_plan mcp_rule_plan(const struct mcp_question *question)
{
    struct mcp_plan plan = mcp_plan_default();
    double gpus = mcp_cluster_gpus(question->cluster);
    plan.tensor_parallel = at_least_one(ceil(sqrt(billions(question))));
    plan.context_parallel = at_least_one(ceil(sqrt(gpus / plan.tensor_parallel)));
    plan.pipeline_parallel = plan.context_parallel;
    double replica = (double)plan.tensor_parallel * plan.context_parallel * plan.pipeline_parallel;
    plan.data_parallel = at_least_one(floor(gpus / replica));
    return plan;
}

const char *mcp_rule_arithmetic(struct mcp_arena *arena, const struct mcp_question *question)
{
    struct mcp_plan plan = mcp_rule_plan(question);
    int gpus = mcp_cluster_gpus(question->cluster);
    int replica = plan.tensor_parallel * plan.context_parallel * plan.pipeline_parallel;
    return mcp_format(arena,
                      "tensor = ceil(sqrt(%.1f)) = %d, context = pipeline = ceil(sqrt(%d / %d)) = "
                      "%d, data = floor(%d / %d) = %d",
                      billions(question), plan.tensor_parallel, gpus, plan.tensor_parallel,
                      plan.context_parallel, gpus, replica, gpus / replica);
}

static void add(struct mcp_refusals *out, const char *rule, const char *text)
{
    if (out->count < MCP_MAX_REFUSALS)
        out->items[out->count++] = (struct mcp_refusal){rule, text};
}

bool mcp_rule_legal(struct mcp_arena *arena, const struct mcp_question *question,
                    const struct mcp_plan *plan, struct mcp_refusals *out)
{
    mcp_legal(arena, question, plan, out);
    int num_layers = question->model->num_layers;
    if (!mcp_pipeline_rule(question, plan))
        add(out, mcp_rule_pipeline,
            mcp_format(arena,
                       "pipeline_parallel=%d is more than a fifth of num_layers=%d; at most %d",
                       plan->pipeline_parallel, num_layers, num_layers >= 5 ? num_layers / 5 : 1));
    if (!mcp_batch_rule(question, plan))
        add(out, mcp_rule_batch,
            mcp_format(arena,
                       "a replica's batch, %lld / %d, is not divisible by microbatch_size=%d x "
                       "pipeline_parallel=%d",
                       (long long)question->job->global_batch_size, plan->data_parallel,
                       plan->microbatch_size, plan->pipeline_parallel));
    return out->count == 0;
}
