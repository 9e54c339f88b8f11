/* planner/split_price.c: prices of columns, and which of them are worth keeping. */
#include "planner/split_parts.h"

#include <string.h>

bool mcp_layers_alike(const struct mcp_model *model)
{
    for (int i = 1; i < model->num_layers; i++)
        if (model->layer_kind[i] != model->layer_kind[0])
            return false;
    return true;
}

/* The first virtual stage with layers 0 .. count - 1, where layer `at` does `recompute`
 * and the others none. */
static struct mcp_stage price_first(struct mcp_splitter *s, int count, int at,
                                    enum mcp_recompute recompute)
{
    struct mcp_recompute_run runs[3] = {
        {MCP_RECOMPUTE_NONE, at}, {recompute, 1}, {MCP_RECOMPUTE_NONE, count - at - 1}};
    const struct mcp_chunk chunk = {0, count, count > 0 ? 3 : 0, runs};
    struct mcp_stage stage;
    mcp_stage_price(s->pricer, s->plan, 0, &chunk, &stage);
    return stage;
}

static void price_extra(struct mcp_splitter *s, int count, int at,
                        int64_t extra_ns[MCP_NUM_RECOMPUTES],
                        int64_t kept_bytes[MCP_NUM_RECOMPUTES])
{
    struct mcp_stage none = price_first(s, count, at, MCP_RECOMPUTE_NONE);
    int64_t kept = kept_bytes[MCP_RECOMPUTE_NONE];
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        struct mcp_stage some = price_first(s, count, at, (enum mcp_recompute)r);
        extra_ns[r] = some.forward_ns + some.backward_ns - none.forward_ns - none.backward_ns;
        kept_bytes[r] = kept + some.memory.kept_bytes - none.memory.kept_bytes;
    }
}

/* A lone stage always holds all layers: it is priced whole, then changed. */
static void price_alone(struct mcp_splitter *s, struct mcp_layer_times *out)
{
    const struct mcp_model *model = s->question->model;
    int layers = model->num_layers;
    struct mcp_stage whole = price_first(s, layers, 0, MCP_RECOMPUTE_NONE);
    out->base_ns[0] = whole.forward_ns + whole.backward_ns;
    /* MTP modules would keep less after a last layer that recomputes */
    out->base_kept_bytes = model->num_mtp_layers > 0 ? 0 : whole.memory.kept_bytes;
    for (int i = 0; i < layers; i++) {
        int kind = model->layer_kind[i];
        if (i == 0 || kind != model->layer_kind[i - 1])
            price_extra(s, layers, i, out->extra_ns[kind], out->kept_bytes[kind]);
    }
}

void mcp_layer_times(struct mcp_splitter *s, struct mcp_layer_times *out)
{
    const struct mcp_model *model = s->question->model;
    bool seen[MCP_MAX_LAYER_KINDS] = {false};
    int stages = s->plan->pipeline_parallel * s->plan->virtual_stages;
    memset(out, 0, sizeof *out);
    if (stages == 1) {
        price_alone(s, out);
        return;
    }
    for (int i = 0; i < model->num_layers; i++) {
        int kind = model->layer_kind[i];
        if (seen[kind])
            continue;
        seen[kind] = true;
        struct mcp_stage with = price_first(s, i + 1, i, MCP_RECOMPUTE_NONE);
        struct mcp_stage without = price_first(s, i, 0, MCP_RECOMPUTE_NONE);
        out->layer_ns[kind] =
            with.forward_ns + with.backward_ns - without.forward_ns - without.backward_ns;
        out->kept_bytes[kind][MCP_RECOMPUTE_NONE] =
            with.memory.kept_bytes - without.memory.kept_bytes;
        price_extra(s, i + 1, i, out->extra_ns[kind], out->kept_bytes[kind]);
    }
    for (int end = 0; end < 2; end++) {
        const struct mcp_chunk empty = {end == 0 ? 0 : model->num_layers, 0, 0, NULL};
        struct mcp_stage stage;
        mcp_stage_price(s->pricer, s->plan, end == 0 ? 0 : stages - 1, &empty, &stage);
        out->base_ns[end] = stage.forward_ns + stage.backward_ns;
    }
}

static bool same_messages(const struct mcp_stage *a, const struct mcp_stage *b)
{
    return a->forward.send_ns == b->forward.send_ns && a->forward.delay_ns == b->forward.delay_ns &&
           a->backward.send_ns == b->backward.send_ns &&
           a->backward.delay_ns == b->backward.delay_ns;
}

int *mcp_stage_classes(struct mcp_splitter *s, int *num_classes)
{
    int count = s->plan->pipeline_parallel * s->plan->virtual_stages;
    int *classes = MCP_ARRAY(s->arena, count, int);
    struct mcp_stage *probes = MCP_ARRAY(s->arena, count, struct mcp_stage);
    int layers = s->question->model->num_layers, size = count > 1 ? 1 : layers;
    struct mcp_recompute_run run = {MCP_RECOMPUTE_NONE, size};
    *num_classes = 0;
    for (int k = 0; k < count; k++) {
        const struct mcp_chunk chunk = {k < count - 1 ? 0 : layers - size, size, 1, &run};
        mcp_stage_price(s->pricer, s->plan, k, &chunk, &probes[k]);
        classes[k] = -1;
        for (int i = 1; i < k && k < count - 1 && classes[k] < 0; i++)
            if (same_messages(&probes[i], &probes[k]))
                classes[k] = classes[i];
        if (classes[k] < 0)
            classes[k] = (*num_classes)++;
    }
    return classes;
}

/* What a step of one rank takes whose slots are empty: its edges. */
static int64_t edges_ns(struct mcp_splitter *s, const struct mcp_stage *rank)
{
    struct mcp_plan alone = *s->plan;
    alone.pipeline_parallel = alone.virtual_stages = 1;
    alone.schedule = MCP_1F1B;
    const struct mcp_stage *stages[1] = {rank};
    return mcp_stages_time_ns(s->pricer, &alone, stages) - mcp_step_fixed_ns(s->pricer, &alone);
}

void mcp_column_price(struct mcp_splitter *s, struct mcp_column *column)
{
    struct mcp_stage rank = {.bottom_gather_ns = column->stages[0]->bottom_gather_ns,
                             .bottom_reduce_ns = column->stages[0]->bottom_reduce_ns};
    column->load_ns = column->update_ns = 0;
    for (int c = 0; c < s->plan->virtual_stages; c++) {
        const struct mcp_stage *stage = column->stages[c];
        rank.gather_ns += stage->gather_ns;
        rank.reduce_ns += stage->reduce_ns;
        rank.forward_ns += stage->forward_ns;
        rank.backward_ns += stage->backward_ns;
        column->update_ns += stage->update_ns;
        column->load_ns += stage->forward.lead_ns + stage->forward.body_ns +
                           stage->forward.send_ns + stage->backward.lead_ns +
                           stage->backward.body_ns + stage->backward.send_ns;
    }
    int64_t both = edges_ns(s, &rank);
    rank.reduce_ns = rank.bottom_reduce_ns = 0;
    column->head_ns = edges_ns(s, &rank);
    column->tail_ns = both - column->head_ns;
}

bool mcp_column_fits(struct mcp_splitter *s, const struct mcp_column *column)
{
    int p = s->plan->pipeline_parallel, v = s->plan->virtual_stages;
    struct mcp_mark mark = mcp_arena_mark(s->arena);
    const struct mcp_stage **stages = MCP_ARRAY(s->arena, p * v, const struct mcp_stage *);
    for (int c = 0; c < v; c++)
        stages[c * p + column->rank] = column->stages[c];
    bool fits =
        mcp_stages_bytes(s->pricer, s->plan, column->rank, stages) <= s->options->limit_bytes;
    mcp_arena_rewind(s->arena, mark);
    return fits;
}

/* Paths count a slot whole, or without its lead. */
static bool no_longer(const struct mcp_slot_price *a, const struct mcp_slot_price *b)
{
    int64_t body_a = a->body_ns + a->send_ns, body_b = b->body_ns + b->send_ns;
    return body_a <= body_b && body_a + a->lead_ns <= body_b + b->lead_ns &&
           a->delay_ns <= b->delay_ns;
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
