/* planner/choice_split.c: split a tuple, and otherwise where that breaks what is required. */
#include "planner/choice_parts.h"

#include <limits.h>
#include <math.h>

/* Programmes for the best; for those that only come after it; where what is required
 * may be broken by any split; tuples split otherwise. */
enum { MOST_MILPS = 64, FEW_MILPS = 4, STEERED_MILPS = 1, MOST_STEERED = 16 };

/* The most that is allowed of `name`, a count; -1: any number. */
static int most_of(const struct mcp_requirements *requirements, enum mcp_require_name name)
{
    int most = -1;
    for (int i = 0; i < requirements->count; i++) {
        const struct mcp_requirement *r = &requirements->items[i];
        bool caps =
            r->op == MCP_AT_MOST || r->op == MCP_BELOW || (r->op == MCP_ONE_OF && r->count == 1);
        int cap = (int)fmax(0, r->values[0] - (r->op == MCP_BELOW));
        if (r->name == name && caps && (most < 0 || cap < most))
            most = cap;
    }
    return most;
}

/* A stage that recomputes has a layer that does. */
static int most_stages(const struct mcp_requirements *requirements)
{
    int stages = most_of(requirements, MCP_REQUIRE_RECOMPUTED_STAGES);
    int layers = most_of(requirements, MCP_REQUIRE_RECOMPUTED_LAYERS);
    return stages < 0 || (layers >= 0 && layers < stages) ? layers : stages;
}

static struct mcp_split_options options_of(const struct mcp_choice_pool *pool,
                                           int64_t better_than_ns)
{
    struct mcp_split_options options = {.limit_bytes = INT64_MAX,
                                        .better_than_ns = better_than_ns,
                                        .uneven = true,
                                        .max_recomputed_stages = most_stages(pool->requirements),
                                        .max_milps = MOST_MILPS};
    for (int i = 0; i < MCP_NUM_RECOMPUTES; i++)
        options.recompute[i] = pool->search.recompute[i];
    return options;
}

/* What it finds is in the pool; true when that meets all that is required. */
static bool split(struct mcp_choice_pool *pool, const struct mcp_tuple *tuple,
                  const struct mcp_split_options *options, struct mcp_split *out)
{
    struct mcp_look look = mcp_choice_pool_look(pool, tuple->layout, options->better_than_ns);
    struct mcp_tuple found = *tuple;
    struct mcp_split_options limited = *options;
    struct mcp_plan plan;
    mcp_choices_plan(&look.lot->choices, tuple->index, &plan);
    if (plan.stage_pool == NULL)
        limited.limit_bytes = mcp_stage_limit_bytes(look.desk->pricer, &plan, 0);
    mcp_split_best(look.desk->arena, look.desk->pricer, &plan, &limited, out);
    pool->search.record.milps += out->milps;
    pool->splits++;
    if (!out->found)
        return false;
    found.found.plan = plan;
    found.found.plan.chunks = out->chunks;
    return mcp_choice_pool_add(pool, &found);
}

/* With less freedom in what is recomputed and how layers are cut: other memory,
 * other bubbles. */
static void split_otherwise(struct mcp_choice_pool *pool, const struct mcp_tuple *tuple)
{
    struct mcp_split unused;
    const bool *allowed = pool->search.recompute;
    int all = allowed[0] | allowed[1] << 1 | allowed[2] << 2;
    _Static_assert(MCP_NUM_RECOMPUTES == 3, "a bit for each");
    for (int subset = 1; subset <= all; subset++) {
        if ((subset & ~all) != 0)
            continue;
        for (int uneven = 0; uneven < 2; uneven++) {
            struct mcp_split_options options = options_of(pool, pool->best_ns);
            for (int i = 0; i < MCP_NUM_RECOMPUTES; i++)
                options.recompute[i] = (subset >> i & 1) != 0;
            options.uneven = uneven;
            options.max_milps = STEERED_MILPS;
            if (subset < all || !uneven)
                split(pool, tuple, &options, &unused);
        }
    }
}

static void leave_open(struct mcp_choice_pool *pool, int64_t bound_ns)
{
    if (bound_ns < pool->open_ns)
        pool->open_ns = bound_ns;
}

/* May it be the best? Then that is settled, or left open with what it could still give. */
static bool split_to_win(struct mcp_choice_pool *pool, const struct mcp_tuple *tuple)
{
    struct mcp_split_options options = options_of(pool, pool->best_ns);
    struct mcp_split best;
    if (pool->steered > 0) /* the best may break what is required again */
        options.max_milps = STEERED_MILPS;
    if (split(pool, tuple, &options, &best))
        return true;
    if (best.found || !best.proven)
        leave_open(pool, best.bound_ns > tuple->bound_ns ? best.bound_ns : tuple->bound_ns);
    if (!best.found && best.bound_ns == INT64_MAX)
        mcp_record_refute(&pool->search.record, NULL, 1);
    if (best.found && pool->steered++ < MOST_STEERED)
        split_otherwise(pool, tuple);
    return best.found || best.bound_ns == INT64_MAX;
}

void mcp_choice_pool_split(struct mcp_choice_pool *pool, struct mcp_tuple *tuple)
{
    struct mcp_split best;
    int64_t cutoff_ns = mcp_choice_pool_cutoff(pool, tuple->layout);
    if (tuple->bound_ns >= cutoff_ns)
        return;
    if (tuple->bound_ns < pool->best_ns && split_to_win(pool, tuple))
        return;
    struct mcp_split_options options =
        options_of(pool, mcp_choice_pool_cutoff(pool, tuple->layout));
    options.max_milps = FEW_MILPS;
    if (options.better_than_ns > pool->best_ns)
        split(pool, tuple, &options, &best);
}

void mcp_choice_pool_even(struct mcp_choice_pool *pool, const struct mcp_tuple *tuple)
{
    bool fits = false;
    struct mcp_search one = pool->search; /* of one recompute */
    for (int r = 0; r < MCP_NUM_RECOMPUTES; r++) {
        struct mcp_tuple found = *tuple;
        int64_t cutoff_ns = mcp_choice_pool_cutoff(pool, tuple->layout);
        struct mcp_look look = mcp_choice_pool_look(pool, tuple->layout, cutoff_ns);
        if (!pool->search.recompute[r] || tuple->bound_ns >= cutoff_ns)
            continue;
        for (int i = 0; i < MCP_NUM_RECOMPUTES; i++)
            one.recompute[i] = i == r;
        look.search = &one;
        mcp_look_even(&look, &found);
        pool->search.record.priced += look.priced;
        fits = fits || found.state == MCP_TUPLE_FITS;
        if (found.state == MCP_TUPLE_FITS)
            mcp_choice_pool_add(pool, &found);
    }
    pool->search.record.fitting += fits;
}
