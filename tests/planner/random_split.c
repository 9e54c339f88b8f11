/* tests/planner/random_split.c: cuts and recompute at random. */
#include "tests/planner/random_split.h"

uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void draw_cut(uint64_t *dice, int num_layers, struct mcp_plan *plan)
{
    int count = plan->pipeline_parallel;
    for (int i = 0; i < num_layers; i++) {
        int a = (int)(random_next(dice) % (uint64_t)count);
        int b = (int)(random_next(dice) % (uint64_t)count);
        bool moves = plan->chunks[a].num_layers > (a == 0 || a == count - 1 ? 0 : 1);
        plan->chunks[a].num_layers -= moves;
        plan->chunks[b].num_layers += moves;
    }
}

/* Any recompute of any layer. */
static void draw_recompute(struct mcp_arena *arena, uint64_t *dice, struct mcp_chunk *chunk)
{
    chunk->num_runs = chunk->num_layers;
    chunk->runs = MCP_ARRAY(arena, chunk->num_layers, struct mcp_recompute_run);
    for (int i = 0; i < chunk->num_layers; i++)
        chunk->runs[i] = (struct mcp_recompute_run){
            (enum mcp_recompute)(random_next(dice) % MCP_NUM_RECOMPUTES), 1};
}

static int part(int count, int v, int c)
{
    return count / v + (c < count % v);
}

/* So many layers of the rank do full, so many selective, spread over its chunks. */
static void draw_share(struct mcp_arena *arena, uint64_t *dice, int rank, struct mcp_plan *plan)
{
    int p = plan->pipeline_parallel, v = plan->virtual_stages, layers = 0;
    for (int c = 0; c < v; c++)
        layers += plan->chunks[c * p + rank].num_layers;
    int some = (int)(random_next(dice) % (uint64_t)(layers + 1));
    int full = (int)(random_next(dice) % (uint64_t)(some + 1));
    for (int c = 0; c < v; c++) {
        struct mcp_chunk *chunk = &plan->chunks[c * p + rank];
        int n = chunk->num_layers, f = part(full, v, c), all = part(some, v, c);
        f = f < n ? f : n;
        all = all < f ? f : all < n ? all : n;
        const struct mcp_recompute_run runs[3] = {{MCP_RECOMPUTE_FULL, f},
                                                  {MCP_RECOMPUTE_SELECTIVE, all - f},
                                                  {MCP_RECOMPUTE_NONE, n - all}};
        chunk->num_runs = 0;
        chunk->runs = MCP_ARRAY(arena, 3, struct mcp_recompute_run);
        for (int i = 0; i < 3; i++)
            if (runs[i].num_layers > 0)
                chunk->runs[chunk->num_runs++] = runs[i];
    }
}

void random_split_draw(struct mcp_arena *arena, uint64_t *dice, int num_layers,
                       struct mcp_plan *plan)
{
    int count = plan->pipeline_parallel * plan->virtual_stages;
    int mode = (int)(random_next(dice) % 4);
    mcp_plan_uniform_chunks(arena, plan, num_layers,
                            (enum mcp_recompute)(random_next(dice) % MCP_NUM_RECOMPUTES));
    if (plan->virtual_stages == 1 && mode > 0)
        draw_cut(dice, num_layers, plan);
    for (int k = 0, first = 0; k < count; k++) {
        plan->chunks[k].first_layer = first;
        plan->chunks[k].runs[0].num_layers = plan->chunks[k].num_layers;
        plan->chunks[k].num_runs = plan->chunks[k].num_layers > 0;
        first += plan->chunks[k].num_layers;
    }
    for (int k = 0; plan->virtual_stages == 1 && mode < 3 && k < count; k++)
        draw_recompute(arena, dice, &plan->chunks[k]);
    for (int r = 0; plan->virtual_stages > 1 && mode < 3 && r < plan->pipeline_parallel; r++)
        draw_share(arena, dice, r, plan);
}
