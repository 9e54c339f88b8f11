/* sim/memory.c: lives of frames along the played times. */
#include "sim/memory.h"

#include "core/stack.h"
#include "step/stage.h"

#include <math.h>

static void add(struct mcp_sim_curve *out, int64_t time_ns, double bytes)
{
    struct mcp_sim_moment *moment = &out->moments[out->count++];
    *moment = (struct mcp_sim_moment){time_ns, out->static_bytes + llround(bytes)};
    if (moment->bytes > out->peak_bytes)
        out->peak_bytes = moment->bytes;
}

static struct mcp_chunk_memory *chunks_of(struct mcp_arena *arena, struct mcp_pricer *pricer,
                                          const struct mcp_plan *plan, int stage)
{
    struct mcp_chunk_memory *chunks =
        MCP_ARRAY(arena, plan->virtual_stages, struct mcp_chunk_memory);
    mcp_pricer_turn(pricer);
    for (int c = 0; c < plan->virtual_stages; c++) {
        int k = mcp_plan_virtual_stage(plan, stage, c);
        struct mcp_stage priced;
        mcp_stage_price(pricer, plan, k, &plan->chunks[k], &priced);
        chunks[c] = priced.memory;
    }
    return chunks;
}

void mcp_sim_memory(struct mcp_arena *arena, const struct mcp_sim_played *of, int stage,
                    struct mcp_sim_curve *out)
{
    const struct mcp_question *question = mcp_pricer_question(of->pricer);
    const struct mcp_sim_stage *played = &of->result->stages[stage];
    struct mcp_chunk_memory *chunks = chunks_of(arena, of->pricer, of->plan, stage);
    double factor = question->stack->activation_memory_factor;
    int64_t kept, live = 0;
    int m = (int)mcp_num_microbatches(of->plan, question->job);
    int64_t peak = mcp_stage_peak(of->plan, m, stage, chunks, &kept);
    *out = (struct mcp_sim_curve){
        .moments = MCP_ARRAY(arena, 2 * played->num_slots + 1, struct mcp_sim_moment)};
    out->static_bytes = mcp_memory_total(&of->predicted->stages[stage].memory) -
                        llround((double)kept * factor) - llround((double)(peak - kept) * factor);
    add(out, 0, 0);
    for (int s = 0; s < played->num_slots; s++) {
        const struct mcp_slot *slot = &played->slots[s];
        if (slot->chunk < 0)
            continue;
        const struct mcp_action action = {slot->chunk, slot->microbatch, (enum mcp_pass)slot->pass};
        struct mcp_slot_memory bytes =
            mcp_slot_memory(chunks, of->plan->virtual_stages, &action, live);
        add(out, played->times[s].start_ns,
            (double)(bytes.others_bytes + bytes.running_bytes) * factor);
        live = bytes.others_bytes + bytes.left_bytes;
        add(out, played->times[s].end_ns, (double)live * factor);
    }
}

void mcp_sim_memory_sample(const struct mcp_sim_curve *curve, int64_t step_ns, double *bytes,
                           int count)
{
    for (int i = 0; i < count; i++)
        bytes[i] = 0;
    for (int i = 0; i < curve->count && step_ns > 0; i++) {
        int64_t end_ns = i + 1 < curve->count ? curve->moments[i + 1].time_ns : step_ns;
        int first = (int)((double)curve->moments[i].time_ns / (double)step_ns * count);
        int last = (int)((double)end_ns / (double)step_ns * count);
        for (int k = first; k <= last && k < count; k++)
            bytes[k] = fmax(bytes[k], (double)curve->moments[i].bytes);
    }
}
