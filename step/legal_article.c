/* step/legal_article.c: the founding article's two rules, of searches alone. */
#include "step/legal.h"

bool mcp_pipeline_rule(const struct mcp_question *question, const struct mcp_plan *plan)
{
    return plan->pipeline_parallel == 1 ||
           plan->pipeline_parallel <= question->model->num_layers / 5;
}

bool mcp_batch_rule(const struct mcp_question *question, const struct mcp_plan *plan)
{
    int64_t batch = question->job->global_batch_size;
    return batch % plan->data_parallel == 0 &&
           batch / plan->data_parallel %
                   ((int64_t)plan->microbatch_size * plan->pipeline_parallel) ==
               0;
}
