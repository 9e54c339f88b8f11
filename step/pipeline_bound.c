/* step/pipeline_bound.c: lower bounds on any order of slots. */
#include "step/pipeline_bound.h"

#include "core/minmax.h"

struct bound {
    const struct mcp_pipeline *pipeline;
    int stages;
    int64_t *arrival; /* [p v] earliest end of a forward of that stage */
};

static int64_t busy_ns(const struct mcp_slot_price *price)
{
    return price->lead_ns + price->body_ns + price->send_ns;
}

static int rank_of(const struct bound *bound, int k)
{
    return mcp_placed_rank(bound->pipeline->placement, bound->pipeline->pipeline_parallel, k);
}

static bool is_message(const struct bound *bound, int from, int to)
{
    return rank_of(bound, from) != rank_of(bound, to);
}

/* Of the part that others wait for, whichever form the backward has. */
static int64_t input_ns(const struct bound *bound, int k)
{
    return mcp_min_int64(busy_ns(&bound->pipeline->backward_input[k]),
                         busy_ns(&bound->pipeline->backward[k]));
}

static int64_t both_ns(const struct bound *bound, int k)
{
    return mcp_min_int64(busy_ns(&bound->pipeline->backward_input[k]) +
                             busy_ns(&bound->pipeline->backward_weight[k]),
                         busy_ns(&bound->pipeline->backward[k]));
}

/* The same once a message has come: the lead may pass before. `weights` too, or not. */
static int64_t after_lead_ns(const struct bound *bound, int k, bool weights)
{
    const struct mcp_slot_price *input = &bound->pipeline->backward_input[k];
    const struct mcp_slot_price *whole = &bound->pipeline->backward[k];
    int64_t more = weights ? busy_ns(&bound->pipeline->backward_weight[k]) : 0;
    return mcp_min_int64(input->body_ns + input->send_ns + more, whole->body_ns + whole->send_ns);
}

/* Ends of one forward after the other; a rank cannot start before its release. */
static void find_arrivals(struct bound *bound)
{
    const struct mcp_pipeline *pipeline = bound->pipeline;
    for (int k = 0; k < bound->stages; k++) {
        const struct mcp_slot_price *price = &pipeline->forward[k];
        int64_t start = pipeline->release_ns ? pipeline->release_ns[rank_of(bound, k)] : 0;
        int64_t sent = k > 0 ? bound->arrival[k - 1] : 0;
        if (k > 0 && is_message(bound, k - 1, k))
            sent += pipeline->forward[k - 1].delay_ns - price->lead_ns;
        bound->arrival[k] = mcp_max_int64(start, sent) + busy_ns(price);
    }
}

/* From the end of a backward of stage k until its message has come, at least. */
static int64_t way_back_ns(const struct bound *bound, int k)
{
    const struct mcp_slot_price *whole = &bound->pipeline->backward[k];
    return whole->delay_ns - whole->after_ns;
}

/* What must still follow the end of a backward of stage k: its microbatch goes through stage
 * 0, with its weight gradient there, and that rank's edge. */
static int64_t after_ns(const struct bound *bound, int k, const int64_t *tail_ns)
{
    int64_t sum = tail_ns ? tail_ns[rank_of(bound, 0)] : 0;
    if (k == 0)
        return sum + both_ns(bound, 0) - input_ns(bound, 0);
    for (int j = k - 1; j >= 0; j--) {
        if (is_message(bound, j + 1, j))
            sum += way_back_ns(bound, j + 1) + after_lead_ns(bound, j, j == 0);
        else
            sum += j == 0 ? both_ns(bound, j) : input_ns(bound, j);
    }
    return sum;
}

static int64_t rank_bound_ns(const struct bound *bound, int r, const int64_t *tail_ns)
{
    const struct mcp_pipeline *pipeline = bound->pipeline;
    int64_t all = 0, inputs = 0, m = pipeline->num_microbatches;
    int first = mcp_placed_stage(pipeline->placement, pipeline->pipeline_parallel, r, 0);
    for (int c = 0; c < pipeline->virtual_stages; c++) {
        int k = mcp_placed_stage(pipeline->placement, pipeline->pipeline_parallel, r, c);
        all += busy_ns(&pipeline->forward[k]) + both_ns(bound, k);
        inputs += busy_ns(&pipeline->forward[k]) + input_ns(bound, k);
    }
    int64_t head = bound->arrival[first] - busy_ns(&pipeline->forward[first]);
    int64_t work = head + m * all + (tail_ns ? tail_ns[r] : 0);
    return mcp_max_int64(work, head + m * inputs + after_ns(bound, first, tail_ns));
}

int64_t mcp_pipeline_bound_ns(struct mcp_arena *scratch, const struct mcp_pipeline *pipeline,
                              const int64_t *tail_ns)
{
    struct mcp_mark mark = mcp_arena_mark(scratch);
    struct bound bound = {pipeline, pipeline->pipeline_parallel * pipeline->virtual_stages, NULL};
    int last = bound.stages - 1;
    bound.arrival = MCP_ARRAY(scratch, bound.stages, int64_t);
    find_arrivals(&bound);
    int64_t chain = bound.arrival[last] + input_ns(&bound, last);
    int64_t longest = chain + after_ns(&bound, last, tail_ns);
    for (int r = 0; r < pipeline->pipeline_parallel; r++)
        longest = mcp_max_int64(longest, rank_bound_ns(&bound, r, tail_ns));
    mcp_arena_rewind(scratch, mark);
    return longest;
}
