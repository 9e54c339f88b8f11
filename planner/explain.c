/* planner/explain.c: two predictions, account by account. */
#include "planner/explain.h"

#include <math.h>
#include <stdlib.h>

static int64_t to_ns(double seconds)
{
    return (int64_t)llround(seconds * 1e9);
}

/* Rounding leaves a few nanoseconds over; the largest account takes them. */
static void settle(struct mcp_difference *out)
{
    int largest = 0;
    int64_t left = out->iteration_ns;
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        left -= out->cost_ns[i];
        if (llabs(out->cost_ns[i]) > llabs(out->cost_ns[largest]))
            largest = i;
    }
    out->cost_ns[largest] += left;
}

static struct mcp_memory memory_less(const struct mcp_memory *to, const struct mcp_memory *from)
{
    return (struct mcp_memory){
        .weights_bytes = to->weights_bytes - from->weights_bytes,
        .gradients_bytes = to->gradients_bytes - from->gradients_bytes,
        .optimizer_bytes = to->optimizer_bytes - from->optimizer_bytes,
        .activations_bytes = to->activations_bytes - from->activations_bytes,
        .buffers_bytes = to->buffers_bytes - from->buffers_bytes,
        .reserve_bytes = to->reserve_bytes - from->reserve_bytes,
    };
}

void mcp_explain_difference(const struct mcp_prediction *from, const struct mcp_prediction *to,
                            struct mcp_difference *out)
{
    out->iteration_ns = to_ns(to->iteration_s) - to_ns(from->iteration_s);
    for (int i = 0; i < MCP_NUM_COSTS; i++)
        out->cost_ns[i] = to_ns(to->cost_s[i] - from->cost_s[i]);
    settle(out);
    out->peak_memory_bytes = to->peak_memory_bytes - from->peak_memory_bytes;
    out->memory = memory_less(&to->memory, &from->memory);
}

int mcp_difference_order(const struct mcp_difference *difference,
                         enum mcp_cost order[MCP_NUM_COSTS])
{
    int count = 0;
    for (int i = 0; i < MCP_NUM_COSTS; i++) {
        int64_t size = llabs(difference->cost_ns[i]);
        int at = count;
        if (size == 0)
            continue;
        while (at > 0 && llabs(difference->cost_ns[order[at - 1]]) < size) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = (enum mcp_cost)i;
        count++;
    }
    return count;
}

static const char *say_memory(struct mcp_arena *arena, const struct mcp_prediction *p)
{
    const double gib = (double)(1 << 30);
    return mcp_format(arena, "it needs %.1f GiB, %.1f GiB more than the limit of %.1f GiB",
                      (double)p->peak_memory_bytes / gib,
                      (double)(p->peak_memory_bytes - p->memory_limit_bytes) / gib,
                      (double)p->memory_limit_bytes / gib);
}

void mcp_rival_judge(struct mcp_arena *arena, const struct mcp_question *question,
                     struct mcp_rival *rival)
{
    rival->priced = mcp_legal(arena, question, &rival->plan, &rival->refusals);
    if (!rival->priced)
        return;
    struct mcp_pricer *pricer = mcp_pricer_new(arena, question);
    mcp_estimate(pricer, &rival->plan, &rival->prediction);
    if (!rival->prediction.fits)
        rival->refusals.items[rival->refusals.count++] =
            (struct mcp_refusal){mcp_rule_memory, say_memory(arena, &rival->prediction)};
}
