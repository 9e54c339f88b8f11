/* tests/step/test_pool.c: places of buffers: what lives at once lies apart, and the sum of
 * what lives is the planner's. */
#include "step/build.h"
#include "step/estimate.h"
#include "step/pool.h"
#include "tests/step/setup.h"

#include <criterion/parameterized.h>

struct case_pool {
    char name[40], model[24];
    int layers;
    int tensor, context, pipeline, data, expert, zero, virtual_stages;
    bool sequence_parallel, reshard;
    enum mcp_schedule schedule;
    enum mcp_recompute recompute;
    enum mcp_context_kind kind;
};
ParameterizedTestParameters(pool, layouts)
{
    static struct case_pool cases[] = {
        {"one rank", "gpt2", 4, 1, 1, 1, 1, 1, 0, 1, false, false, MCP_1F1B, MCP_RECOMPUTE_NONE, 0},
        {"tensor and sequence", "llama-3.1-8b", 4, 4, 1, 2, 1, 1, 0, 1, true, false, MCP_1F1B,
         MCP_RECOMPUTE_SELECTIVE, 0},
        {"ring and full recompute", "llama-3.1-8b", 4, 2, 4, 1, 1, 1, 1, 1, true, false, MCP_1F1B,
         MCP_RECOMPUTE_FULL, MCP_CONTEXT_RING},
        {"all-to-all and gpipe", "gpt2", 4, 1, 2, 2, 1, 1, 0, 1, false, false, MCP_GPIPE,
         MCP_RECOMPUTE_NONE, MCP_CONTEXT_ALL_TO_ALL},
        {"interleaved ZeRO-2", "gpt2", 8, 1, 1, 2, 4, 1, 2, 2, false, false, MCP_INTERLEAVED,
         MCP_RECOMPUTE_NONE, 0},
        {"ZeRO-3 gathered again", "llama-3.1-8b", 6, 1, 1, 2, 4, 1, 3, 1, false, true, MCP_1F1B,
         MCP_RECOMPUTE_FULL, 0},
        {"ZeRO-3 gathered once", "gpt2", 4, 1, 1, 1, 4, 1, 3, 1, false, false, MCP_1F1B,
         MCP_RECOMPUTE_NONE, 0},
        {"experts", "mixtral-8x7b", 4, 1, 1, 2, 4, 4, 1, 1, false, false, MCP_1F1B,
         MCP_RECOMPUTE_SELECTIVE, 0},
    };
    return cr_make_param_array(struct case_pool, cases, MCP_COUNT_OF(cases));
}

static void load(struct setup *s, const struct case_pool *c)
{
    setup_load(s, c->model, "dgx-h100:8", "mcpplan-cpu");
    setup_cut(s, c->layers);
    s->job.attention = "fused";
    s->job.sequence_length = 512;
    s->plan.tensor_parallel = c->tensor;
    s->plan.context_parallel = c->context;
    s->plan.context_parallel_kind = c->kind;
    s->plan.pipeline_parallel = c->pipeline;
    s->plan.data_parallel = c->data;
    s->plan.expert_parallel = c->expert;
    s->plan.zero_stage = c->zero;
    s->plan.virtual_stages = c->virtual_stages;
    s->plan.sequence_parallel = c->sequence_parallel;
    s->plan.reshard_after_forward = c->reshard;
    s->plan.schedule = c->schedule;
    setup_finish(s, 8, c->recompute);
}

static bool are_apart(struct mcp_place a, struct mcp_place b)
{
    bool share = a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes &&
                 b.offset < a.offset + a.bytes;
    return !share || a.offset == b.offset || (a.cell >= 0 && a.cell == b.cell);
}

/* Operands of one op that are not the same lie apart, inside the block, and those of
 * different cells never share bytes. */
static void check_entry(const struct case_pool *c, const struct mcp_pool *pool,
                        const struct mcp_program *program, const struct mcp_entry *entry,
                        int microbatch)
{
    const struct mcp_block *block = &program->types[entry->type].blocks[entry->role];
    for (int i = 0; i < block->num_ops; i++) {
        const struct mcp_op *op = &block->ops[i];
        struct mcp_place places[MCP_MAX_READS + MCP_MAX_WRITES];
        int count = 0;
        for (int r = 0; r < op->num_reads; r++)
            places[count++] = mcp_pool_place(pool, entry, microbatch, op->reads[r]);
        for (int w = 0; w < op->num_writes; w++)
            places[count++] = mcp_pool_place(pool, entry, microbatch, op->writes[w]);
        for (int a = 0; a < count; a++) {
            cr_expect(places[a].offset >= 0 &&
                          places[a].offset + places[a].bytes <= mcp_pool_bytes(pool),
                      "%s: a place outside the block", c->name);
            for (int b = 0; b < a; b++)
                cr_expect(are_apart(places[a], places[b]),
                          "%s: layer %d %s op %d: two operands share bytes", c->name, entry->layer,
                          mcp_block_role_names[entry->role], i);
        }
    }
}

static void check_class(const struct case_pool *c, struct setup *s,
                        const struct mcp_program *program, int class, int64_t planned)
{
    struct mcp_error err = {""};
    struct mcp_pool *pool;
    cr_assert(mcp_pool_new(s->arena, program, class, &pool, &err) == MCP_OK, "%s", err.text);
    cr_expect(mcp_pool_peak_bytes(pool) == planned, "%s: stage %d: %lld bytes, %lld planned",
              c->name, class, (long long)mcp_pool_peak_bytes(pool), (long long)planned);
    cr_expect(mcp_pool_bytes(pool) >= mcp_pool_peak_bytes(pool) / 2, "%s", c->name);
    const struct mcp_program_class *slots = &program->classes[class];
    for (int i = 0; i < slots->num_slots; i++) {
        const struct mcp_entry_list *list = &program->lists[slots->slots[i].list];
        for (int e = 0; e < list->num_entries; e++) {
            const struct mcp_entry *entry = &list->entries[e];
            int microbatch = slots->slots[i].microbatch < 0
                                 ? -1
                                 : slots->slots[i].microbatch + entry->microbatch_offset;
            check_entry(c, pool, program, entry, microbatch);
        }
    }
}

ParameterizedTest(struct case_pool *c, pool, layouts)
{
    struct setup s;
    struct mcp_program program;
    struct mcp_prediction *predicted;
    load(&s, c);
    predicted = MCP_NEW(s.arena, struct mcp_prediction);
    mcp_program_build(s.arena, &s.question, &s.plan, &program);
    mcp_estimate(mcp_pricer_new(s.arena, &s.question), &s.plan, predicted);
    for (int class = 0; class < program.num_classes; class ++)
        check_class(c, &s, &program, class, mcp_memory_allocated(&predicted->stages[class].memory));
    mcp_arena_free(s.arena);
}
