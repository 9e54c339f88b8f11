/* planner/search_record.c: what was refused and how often; what was found, and which is better. */
#include "core/text.h"
#include "planner/search_parts.h"

#include <stdlib.h>
#include <string.h>

const char *const mcp_objective_names[MCP_NUM_OBJECTIVES] = {"time", "memory", "cost"};
const char mcp_rule_pipeline[] = "pipeline_rule";
const char mcp_rule_batch[] = "batch_rule";
const char mcp_rule_memory[] = "memory";
const char mcp_rule_gpipe[] = "gpipe_is_never_better";
const char mcp_rule_zb_v[] = "zb_v_fits_as_well";

static void count_in(struct mcp_refused *items, int *num, int most, struct mcp_refused more)
{
    int i = 0;
    while (i < *num && !mcp_same(items[i].rule, more.rule))
        i++;
    if (i == most)
        i--;
    else if (i == *num)
        items[(*num)++].rule = more.rule;
    items[i].count += more.count;
}

void mcp_record_refuse(struct mcp_search_record *record, const char *rule, int64_t count)
{
    count_in(record->refused, &record->num_refused, MCP_MAX_REFUSED,
             (struct mcp_refused){rule, count});
}

int64_t mcp_search_refused(const struct mcp_search_record *record, const char *rule)
{
    for (int i = 0; i < record->num_refused; i++)
        if (mcp_same(record->refused[i].rule, rule))
            return record->refused[i].count;
    return 0;
}

void mcp_record_refute(struct mcp_search_record *record, const char *by, int64_t count)
{
    mcp_record_refuse(record, mcp_rule_memory, count);
    if (by != NULL)
        count_in(record->refuted, &record->num_refuted, 4, (struct mcp_refused){by, count});
}

static int by_count(const void *a, const void *b)
{
    const struct mcp_refused *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return strcmp(x->rule, y->rule);
}

void mcp_record_sort(struct mcp_search_record *record)
{
    qsort(record->refused, (size_t)record->num_refused, sizeof *record->refused, by_count);
    qsort(record->refuted, (size_t)record->num_refuted, sizeof *record->refuted, by_count);
}

int mcp_plan_compare(const struct mcp_plan *a, const struct mcp_plan *b)
{
    for (int knob = 0; knob < MCP_NUM_KNOBS; knob++) {
        if (knob == MCP_KNOB_RECOMPUTE)
            continue;
        int x = mcp_knob_value((enum mcp_knob)knob, a), y = mcp_knob_value((enum mcp_knob)knob, b);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

int mcp_found_compare(enum mcp_objective objective, const struct mcp_found *a,
                      const struct mcp_found *b)
{
    int by_time = (a->iteration_s > b->iteration_s) - (a->iteration_s < b->iteration_s);
    int by_memory = (a->peak_memory_bytes > b->peak_memory_bytes) -
                    (a->peak_memory_bytes < b->peak_memory_bytes);
    int first = objective == MCP_OBJECTIVE_MEMORY ? by_memory : by_time;
    int second = objective == MCP_OBJECTIVE_MEMORY ? by_time : by_memory;
    if (first != 0 || second != 0)
        return first != 0 ? first : second;
    return mcp_plan_compare(&a->plan, &b->plan);
}

static struct mcp_chunk *copy_chunks(struct mcp_arena *arena, const struct mcp_plan *plan)
{
    int count = plan->pipeline_parallel * plan->virtual_stages;
    struct mcp_chunk *chunks = MCP_ARRAY(arena, count, struct mcp_chunk);
    for (int k = 0; k < count; k++) {
        chunks[k] = plan->chunks[k];
        chunks[k].runs = MCP_ARRAY(arena, chunks[k].num_runs, struct mcp_recompute_run);
        memcpy(chunks[k].runs, plan->chunks[k].runs,
               (size_t)chunks[k].num_runs * sizeof *chunks[k].runs);
    }
    return chunks;
}

struct mcp_found mcp_search_keep(struct mcp_arena *arena, const struct mcp_question *question,
                                 const struct mcp_tuple *tuple, bool unlimited)
{
    struct mcp_found found = tuple->found;
    if (found.plan.stage_pool != NULL) {
        int *pools = MCP_ARRAY(arena, found.plan.pipeline_parallel, int);
        memcpy(pools, found.plan.stage_pool, (size_t)found.plan.pipeline_parallel * sizeof *pools);
        found.plan.stage_pool = pools;
    }
    if (found.plan.chunks != NULL)
        found.plan.chunks = copy_chunks(arena, &found.plan);
    else
        mcp_plan_uniform_chunks(arena, &found.plan, question->model->num_layers, tuple->recompute);
    if (found.plan.rows == NULL) {
        bool bounded;
        struct mcp_arena *scratch = mcp_arena_new();
        struct mcp_rows_order order = {arena, mcp_pricer_new(scratch, question), unlimited,
                                       INT64_MAX};
        mcp_search_order(&order, &found.plan, &bounded);
        mcp_arena_free(scratch);
    }
    return found;
}
