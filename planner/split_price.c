/* planner/split_price.c: prices of columns, and which of them are worth keeping. */
#include "planner/split_parts.h"

#include <assert.h>
#include <string.h>

bool mcp_layers_alike(const struct mcp_model *model)
{
    for (int i = 1; i < model->num_layers; i++)
        if (model->layer_kind[i] != model->layer_kind[0])
            return false;
    return true;
}

int mcp_pool_of(const struct mcp_splitter *s, int rank)
{
    return s->plan->stage_pool != NULL ? s->plan->stage_pool[rank] : 0;
}

static bool same_messages(const struct mcp_stage *a, const struct mcp_stage *b)
{
    return a->forward.send_ns == b->forward.send_ns && a->forward.delay_ns == b->forward.delay_ns &&
           a->backward.send_ns == b->backward.send_ns &&
           a->backward.delay_ns == b->backward.delay_ns &&
           a->backward.after_ns == b->backward.after_ns;
}

int *mcp_stage_classes(struct mcp_splitter *s, int *num_classes)
{
    int count = s->plan->pipeline_parallel * s->plan->virtual_stages;
    int *classes = MCP_ARRAY(s->arena, count, int), p = s->plan->pipeline_parallel;
    struct mcp_stage *probes = MCP_ARRAY(s->arena, count, struct mcp_stage);
    int layers = s->question->model->num_layers, size = count > 1 ? 1 : layers;
    struct mcp_recompute_run run = {MCP_RECOMPUTE_NONE, size};
    *num_classes = 0;
    for (int k = 0; k < count; k++) {
        const struct mcp_chunk chunk = {k < count - 1 ? 0 : layers - size, size, 1, &run};
        mcp_stage_price(s->pricer, s->plan, k, &chunk, &probes[k]);
        classes[k] = -1;
        for (int i = 1; i < k && k < count - 1 && classes[k] < 0; i++)
            if (mcp_pool_of(s, i % p) == mcp_pool_of(s, k % p) &&
                same_messages(&probes[i], &probes[k]))
                classes[k] = classes[i];
        if (classes[k] < 0)
            classes[k] = (*num_classes)++;
    }
    return classes;
}

void mcp_column_price(struct mcp_splitter *s, struct mcp_column *column)
{
    struct mcp_rank_edges edges;
    column->load_ns = column->update_ns = 0;
    for (int c = 0; c < s->plan->virtual_stages; c++) {
        const struct mcp_stage *stage = column->stages[c];
        column->update_ns += stage->update_ns;
        column->load_ns += stage->forward.lead_ns + stage->forward.body_ns +
                           stage->forward.send_ns + stage->backward.lead_ns +
                           stage->backward.body_ns + stage->backward.send_ns;
    }
    mcp_rank_edges(s->question, s->plan, column->rank, column->stages, &edges);
    column->head_ns = edges.head_ns;
    column->tail_ns = edges.tail_ns;
}

int64_t mcp_column_hideable(struct mcp_splitter *s, const struct mcp_column *column)
{
    struct mcp_rank_edges edges;
    struct mcp_stage endless = *column->stages[0];
    const struct mcp_stage *chunks[1] = {&endless};
    assert(s->plan->virtual_stages == 1);
    endless.backward_ns = endless.reduce_ns;
    mcp_rank_edges(s->question, s->plan, column->rank, chunks, &edges);
    return column->tail_ns - edges.tail_ns;
}

int64_t mcp_rank_limit(const struct mcp_splitter *s, int rank)
{
    int64_t own = mcp_stage_limit_bytes(s->pricer, s->plan, rank);
    return own < s->options->limit_bytes ? own : s->options->limit_bytes;
}

bool mcp_column_fits(struct mcp_splitter *s, const struct mcp_column *column)
{
    int p = s->plan->pipeline_parallel, v = s->plan->virtual_stages;
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    const struct mcp_stage **stages = MCP_ARRAY(s->arena, p * v, const struct mcp_stage *);
    for (int c = 0; c < v; c++)
        stages[c * p + column->rank] = column->stages[c];
    bool fits = mcp_stages_bytes(s->pricer, s->plan, column->rank, stages) <=
                mcp_rank_limit(s, column->rank);
    mcp_arena_rewind(s->arena, mark);
    return fits;
}

/* Paths count a slot whole, or without its lead. */
static bool no_longer(const struct mcp_slot_price *a, const struct mcp_slot_price *b)
{
    int64_t body_a = a->body_ns + a->send_ns, body_b = b->body_ns + b->send_ns;
    return body_a <= body_b && body_a + a->lead_ns <= body_b + b->lead_ns &&
           a->delay_ns - a->after_ns <= b->delay_ns - b->after_ns;
}

/* No path is longer with `a` than with `b`. A path with the tail ends in a backward
 * of the first chunk: more of that may pay for less of the tail. */
static bool as_good(const struct mcp_column *a, const struct mcp_column *b, int v)
{
    struct mcp_slot_price last_a = a->stages[0]->backward, last_b = b->stages[0]->backward;
    if (a->head_ns > b->head_ns || a->update_ns > b->update_ns || (a->recomputes && !b->recomputes))
        return false;
    for (int c = 0; c < v; c++)
        if (!no_longer(&a->stages[c]->forward, &b->stages[c]->forward) ||
            !no_longer(&a->stages[c]->backward, &b->stages[c]->backward))
            return false;
    last_a.body_ns += a->tail_ns;
    last_b.body_ns += b->tail_ns;
    return no_longer(&last_a, &last_b);
}

void mcp_grid_add(struct mcp_splitter *s, const struct mcp_column *column)
{
    struct mcp_grid *grid = &s->grid;
    for (int i = grid->count - 1; i >= 0; i--) {
        struct mcp_column *other = &grid->columns[i];
        if (other->rank != column->rank || other->from != column->from ||
            other->size != column->size)
            break;
        if (as_good(other, column, grid->v))
            return;
        if (as_good(column, other, grid->v)) {
            *other = *column;
            return;
        }
    }
    grid->columns =
        mcp_grow(s->arena, grid->columns, (size_t)grid->count, &grid->room, sizeof *grid->columns);
    grid->columns[grid->count++] = *column;
}

void mcp_grid_begin(struct mcp_splitter *s, int length, bool counted)
{
    struct mcp_grid *grid = &s->grid;
    grid->p = s->plan->pipeline_parallel;
    grid->v = s->plan->virtual_stages;
    grid->m = (int)mcp_num_microbatches(s->plan, s->question->job);
    grid->length = length;
    grid->counted = counted;
    grid->cut = false;
    grid->count = 0;
    grid->first = MCP_ARRAY(s->arena, grid->p + 1, int);
}

void mcp_grid_end(struct mcp_splitter *s)
{
    struct mcp_grid *grid = &s->grid;
    for (int r = 0, i = 0; r <= grid->p; r++) {
        while (i < grid->count && grid->columns[i].rank < r)
            i++;
        grid->first[r] = i;
    }
}
