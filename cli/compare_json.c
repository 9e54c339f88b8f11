/* cli/compare_json.c: two timelines held against each other, for machines. */
#include "cli/compare_view.h"

#include <math.h>

static double seconds(int64_t ns)
{
    return 1e-9 * (double)ns;
}

static void set_account(struct mcp_json *object, const struct mcp_account *account)
{
    struct mcp_json *parts = mcp_json_set_object(object, "seconds");
    mcp_json_set_double(object, "bubble_frac", mcp_account_bubble_frac(account));
    mcp_json_set_double(object, "exposed_comm_frac", mcp_account_exposed_comm_frac(account));
    for (int k = 0; k < MCP_NUM_SECONDS; k++)
        mcp_json_set_double(parts, mcp_second_names[k], seconds(account->ns[k]));
}

static void set_side(struct mcp_json *object, const char *key, const struct mcp_compare_side *side,
                     int64_t step_ns, const struct mcp_account *mean)
{
    struct mcp_json *out = mcp_json_set_object(object, key);
    mcp_json_set_string(out, "path", side->path);
    mcp_json_set_string(out, "kind", mcp_timeline_kind_names[side->timeline.measured]);
    mcp_json_set_bool(out, "plan", side->is_plan);
    mcp_json_set_double(out, "iteration_s", seconds(step_ns));
    set_account(out, mean);
}

static void set_kind(struct mcp_json *out, const struct mcp_compare *result,
                     const struct mcp_compare_kind *kind)
{
    double difference = kind->b_s - kind->a_s;
    mcp_json_set_string(out, "op", kind->name);
    mcp_json_set_int(out, "count", kind->num_both);
    mcp_json_set_double(out, "a_s", kind->a_s);
    mcp_json_set_double(out, "b_s", kind->b_s);
    mcp_json_set_double(out, "ratio", mcp_compare_ratio(kind));
    mcp_json_set_double(out, "difference_s", difference);
    mcp_json_set_double(out, "share_frac",
                        result->gross_s > 0 ? fabs(difference) / result->gross_s : 0);
    mcp_json_set_int(out, "only_a", kind->num_a);
    mcp_json_set_double(out, "only_a_s", kind->only_a_s);
    mcp_json_set_int(out, "only_b", kind->num_b);
    mcp_json_set_double(out, "only_b_s", kind->only_b_s);
}

/* Null where it is not stated. */
static void set_maybe(struct mcp_json *out, const char *key, int value)
{
    if (value < 0)
        mcp_json_set_null(out, key);
    else
        mcp_json_set_int(out, key, value);
}

static void set_pair(struct mcp_json *out, const struct mcp_compare_pair *pair)
{
    const struct mcp_timeline_span *known =
        pair->a->function < MCP_NUM_FUNCTIONS ? pair->a : pair->b;
    mcp_json_set_int(out, "rank", pair->rank);
    mcp_json_set_int(out, "slot", pair->a->slot);
    mcp_json_set_int(out, "entry", pair->a->entry);
    mcp_json_set_int(out, "op", pair->a->op);
    mcp_json_set_string(out, "function",
                        known->function < MCP_NUM_FUNCTIONS ? mcp_functions[known->function].name
                                                            : NULL);
    mcp_json_set_string(
        out, "pass", known->pass < MCP_NUM_BLOCK_ROLES ? mcp_block_role_names[known->pass] : NULL);
    set_maybe(out, "layer", known->layer);
    set_maybe(out, "microbatch", known->microbatch);
    mcp_json_set_double(out, "a_s", seconds(pair->a->end_ns - pair->a->start_ns));
    mcp_json_set_double(out, "b_s", seconds(pair->b->end_ns - pair->b->start_ns));
}

static void set_ranks(struct mcp_json *object, const struct mcp_compare *result)
{
    struct mcp_json *list = mcp_json_set_array(object, "ranks");
    for (int i = 0; i < result->num_ranks; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_int(row, "rank", result->ranks[i]);
        set_account(mcp_json_set_object(row, "a"), &result->accounts_a[i]);
        set_account(mcp_json_set_object(row, "b"), &result->accounts_b[i]);
    }
}

static void set_checks(struct mcp_json *object, const struct mcp_compare_view *view)
{
    struct mcp_json *list = mcp_json_set_array(object, "checks");
    for (int i = 0; i < view->num_checks; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        double value = view->checks[i].value_frac;
        mcp_json_set_string(row, "what", view->checks[i].what);
        mcp_json_set_double(row, "limit_frac", view->checks[i].limit_frac);
        mcp_json_set_double(row, "value_frac", isfinite(value) ? value : (double)NAN);
        mcp_json_set_bool(row, "holds", view->checks[i].holds);
    }
}

struct mcp_json *mcp_compare_json(struct mcp_arena *arena, const struct mcp_compare_view *view)
{
    const struct mcp_compare *result = &view->result;
    struct mcp_json *out = mcp_json_new_object(arena);
    mcp_json_set_string(out, "schema", "mcpplan.compare/1");
    set_side(out, "a", &view->a, result->ends_a.step_ns, &result->mean_a);
    set_side(out, "b", &view->b, result->ends_b.step_ns, &result->mean_b);
    mcp_json_set_double(out, "difference_frac", mcp_compare_step_frac(view));
    mcp_json_set_double(out, "until_s",
                        result->until_ns > 0 ? seconds(result->until_ns) : (double)NAN);
    mcp_json_set_int(out, "ranks_compared", result->num_ranks);
    mcp_json_set_int(out, "ranks_only_a", result->num_only_a);
    mcp_json_set_int(out, "ranks_only_b", result->num_only_b);
    mcp_json_set_int(out, "other_ops", result->num_other);
    set_kind(mcp_json_set_object(out, "all"), result, &result->all);
    struct mcp_json *list = mcp_json_set_array(out, "kinds");
    for (int i = 0; i < result->num_kinds; i++)
        set_kind(mcp_json_add_object(list), result, &result->kinds[i]);
    list = mcp_json_set_array(out, "worst");
    for (int i = 0; i < result->num_worst; i++)
        set_pair(mcp_json_add_object(list), &result->worst[i]);
    set_ranks(out, result);
    set_checks(out, view);
    return out;
}
