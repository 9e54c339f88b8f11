/* cli/sim_case.c: slow and dead links, a slow rank, other collectives: options to a case. */
#include "cli/sim_case.h"

#include "sim/check.h"

#include <string.h>

/* --- the case as the plan has it --- */

static void copy_pools(const struct mcp_cluster *from, struct mcp_cluster *pools)
{
    for (int i = 0; from != NULL; i++, from = from->next) {
        pools[i] = *from;
        pools[i].next = from->next != NULL ? &pools[i + 1] : NULL;
    }
}

static void begin_case(const struct mcp_sim_args *args, struct mcp_sim_case *out)
{
    copy_pools(&out->file.cluster, out->pools);
    copy_pools(&out->file.cluster, out->port_pools);
    out->stack = out->file.stack;
    out->question = out->port_question = out->file.question;
    out->question.stack = out->port_question.stack = &out->stack;
    out->question.cluster = out->pools;
    out->port_question.cluster = out->port_pools;
    out->options = mcp_sim_options_default();
    out->options.seed = (uint64_t)args->seed;
    out->options.slow_links = &out->port_question;
}

/* --- reading --- */

enum mcp_status mcp_sim_rank_read(struct mcp_context *ctx, const struct mcp_plan *plan,
                                  const char *text, int *out)
{
    int64_t rank = 0;
    int world = mcp_plan_world(plan);
    if (!mcp_parse_int64(text, &rank) || rank < 0 || rank >= world)
        return mcp_fail(&ctx->err, MCP_USAGE, "there is no rank '%s'; the plan's are 0 to %d",
                        mcp_shown(ctx->arena, text), world - 1);
    *out = (int)rank;
    return MCP_OK;
}

/* "NAME:FACTOR" with a factor of 1 or more. */
static enum mcp_status read_factor(struct mcp_context *ctx, const char *option, const char *text,
                                   const char **name, double *factor)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text || !mcp_parse_double(colon + 1, factor) || *factor < 1)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "--%s %s: not of the form NAME:FACTOR with a factor of 1 or more", option,
                        mcp_shown(ctx->arena, text));
    *name = mcp_strndup(ctx->arena, text, (size_t)(colon - text));
    return MCP_OK;
}

/* Cuts "@RANK" off. *port: whether there was one; then the case has a slow port, of which
 * there is one. */
static enum mcp_status read_port(struct mcp_context *ctx, const char *text, const char **name,
                                 bool *port, struct mcp_sim_case *out)
{
    int rank = -1, before = out->options.slow_port;
    const char *at = strchr(text, '@');
    *name = text;
    *port = at != NULL;
    if (at == NULL)
        return MCP_OK;
    *name = mcp_strndup(ctx->arena, text, (size_t)(at - text));
    MCP_TRY(mcp_sim_rank_read(ctx, &out->file.plan, at + 1, &rank));
    if (before >= 0 && before != rank)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "links of ranks %d and %d: those of one rank are played at a time", before,
                        rank);
    out->options.slow_port = rank;
    return MCP_OK;
}

/* --- links --- */

enum { SLOW, DEAD };

/* What happens to every tier of a name. */
struct fault {
    const char *option, *tier;
    int kind;
    double factor;
    bool port;       /* of one rank's links */
    const char *how; /* out: where a dead link's traffic goes */
};

static enum mcp_status cannot_finish(struct mcp_context *ctx, const struct fault *fault,
                                     const char *why)
{
    return mcp_fail(&ctx->err, MCP_INFEASIBLE, "the step cannot finish: without %s %s",
                    mcp_shown(ctx->arena, fault->tier), why);
}

/* A neighbour's port carries both ranks' traffic; without neighbours, and for all ranks,
 * the next tier's links are left. */
static enum mcp_status kill_tier(struct mcp_context *ctx, struct fault *fault,
                                 const struct mcp_sim_case *of, struct mcp_cluster *pool, int k)
{
    struct mcp_tier *tier = &pool->tiers[k];
    const struct mcp_tier *next = tier + 1;
    int below = k > 0 ? pool->tiers[k - 1].ranks : 1;
    if (fault->port && below > 1) {
        tier->bandwidth_bytes_per_s /= 2;
        fault->how = mcp_format(ctx->arena, "traffic goes by a neighbour's, over %s",
                                mcp_printable(ctx->arena, pool->tiers[k - 1].name));
        return MCP_OK;
    }
    if (tier->ranks == below)
        return MCP_OK; /* joins nobody */
    if (k + 1 == pool->num_tiers)
        return cannot_finish(ctx, fault,
                             fault->port ? "nothing joins that rank to the others"
                                         : mcp_format(ctx->arena,
                                                      "nothing joins %d parts of %d "
                                                      "GPUs",
                                                      tier->ranks / below, below));
    fault->how = mcp_format(ctx->arena, "traffic takes %s", mcp_printable(ctx->arena, next->name));
    tier->bandwidth_bytes_per_s = next->bandwidth_bytes_per_s;
    tier->efficiency_frac = next->efficiency_frac * (k == 0 ? of->stack.network_frac : 1);
    tier->latency_s = next->latency_s;
    tier->round_trip_s = next->round_trip_s;
    tier->in_switch_reduction = false;
    return MCP_OK;
}

/* In all pools that have a tier of that name. */
static enum mcp_status break_links(struct mcp_context *ctx, struct fault *fault,
                                   const struct mcp_sim_case *of, struct mcp_cluster *pools,
                                   bool *found)
{
    for (struct mcp_cluster *pool = pools; pool != NULL;
         pool = pool->next != NULL ? pool + 1 : NULL)
        for (int k = 0; k < pool->num_tiers; k++) {
            if (!mcp_same(pool->tiers[k].name, fault->tier))
                continue;
            *found = true;
            if (fault->kind == DEAD)
                MCP_TRY(kill_tier(ctx, fault, of, pool, k));
            else
                pool->tiers[k].bandwidth_bytes_per_s /= fault->factor;
        }
    return MCP_OK;
}

static const char *tier_names(struct mcp_arena *arena, const struct mcp_cluster *pool)
{
    const char *names[MCP_MAX_TIERS * MCP_MAX_POOLS];
    int count = 0;
    for (; pool != NULL; pool = pool->next)
        for (int k = 0; k < pool->num_tiers; k++)
            names[count++] = pool->tiers[k].name;
    const struct mcp_choice tiers = {-1, names, count};
    return mcp_choice_names(arena, &tiers);
}

/* One rank's links are those of all, and worse. */
static enum mcp_status apply_fault(struct mcp_context *ctx, struct fault *fault,
                                   struct mcp_sim_case *out)
{
    bool found = false;
    if (!fault->port)
        MCP_TRY(break_links(ctx, fault, out, out->pools, &found));
    MCP_TRY(break_links(ctx, fault, out, out->port_pools, &found));
    return found ? MCP_OK
                 : mcp_fail(&ctx->err, MCP_USAGE, "--%s %s: the cluster's tiers are %s",
                            fault->option, mcp_shown(ctx->arena, fault->tier),
                            tier_names(ctx->arena, out->pools));
}

/* --- one thing after the other: each returns why it costs what it costs, NULL: not asked --- */

static enum mcp_status apply_collectives(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                         struct mcp_sim_case *out, const char **why)
{
    bool in_switch = false;
    int algorithm = args->collective_algorithm.value;
    if (algorithm < 0)
        return MCP_OK;
    for (const struct mcp_cluster *pool = out->pools; pool != NULL; pool = pool->next)
        for (int k = 0; k < pool->num_tiers; k++)
            in_switch = in_switch || pool->tiers[k].in_switch_reduction;
    if (algorithm == MCP_IN_SWITCH && !in_switch)
        return mcp_fail(&ctx->err, MCP_USAGE,
                        "--collective-algorithm in-switch: the cluster says of none of its tiers "
                        "that its switches add up (in_switch_reduction); they are %s",
                        tier_names(ctx->arena, out->pools));
    out->stack.collective_algorithm = (enum mcp_collective_algorithm)algorithm;
    *why = mcp_format(ctx->arena, "collectives by %s, where the plan has %s",
                      mcp_collective_algorithm_names[algorithm],
                      mcp_collective_algorithm_names[out->file.stack.collective_algorithm]);
    return MCP_OK;
}

static enum mcp_status apply_slow_link(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                       struct mcp_sim_case *out, const char **why)
{
    struct fault fault = {.option = "slow-link", .kind = SLOW, .factor = 1};
    const char *text;
    if (args->slow_link == NULL)
        return MCP_OK;
    *why = "the slow link";
    MCP_TRY(read_port(ctx, args->slow_link, &text, &fault.port, out));
    MCP_TRY(read_factor(ctx, fault.option, text, &fault.tier, &fault.factor));
    return apply_fault(ctx, &fault, out);
}

static enum mcp_status apply_dead_link(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                       struct mcp_sim_case *out, const char **why)
{
    struct fault fault = {.option = "dead-link", .kind = DEAD};
    if (args->dead_link == NULL)
        return MCP_OK;
    MCP_TRY(read_port(ctx, args->dead_link, &fault.tier, &fault.port, out));
    MCP_TRY(apply_fault(ctx, &fault, out));
    *why = fault.how == NULL ? "the dead link, which nobody needs"
                             : mcp_format(ctx->arena, "the dead link: %s", fault.how);
    return MCP_OK;
}

static enum mcp_status apply_slow_rank(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                       struct mcp_sim_case *out, const char **why)
{
    const char *name = "";
    if (args->slow_rank == NULL)
        return MCP_OK;
    *why = "the slow rank, for which the others wait";
    MCP_TRY(read_factor(ctx, "slow-rank", args->slow_rank, &name, &out->options.slow_factor));
    return mcp_sim_rank_read(ctx, &out->file.plan, name, &out->options.slow_rank);
}

/* --- --- */

static enum mcp_status play_entries(struct mcp_context *ctx, const struct mcp_sim_case *played,
                                    double *seconds)
{
    struct mcp_sim_result result;
    const struct mcp_program *program = &played->file.program;
    MCP_TRY(mcp_sim_check_time(&played->port_question, program, &played->options, &ctx->err));
    mcp_sim_play(ctx->arena, &played->question, program, &played->options, &result);
    *seconds = (double)result.step_ns * 1e-9;
    return MCP_OK;
}

static const char *why_data_parallel(const struct mcp_plan *plan)
{
    if (plan->rows != NULL && plan->virtual_stages > 1 && plan->zero_stage < 2)
        return "data-parallel transfers, entry by entry: those of one virtual stage go beside the "
               "microbatches of the others, where the planner counts one microbatch";
    return "data-parallel transfers, entry by entry: the first gather and the last reduction have "
           "little to hide beside, and a transfer goes on while its rank waits";
}

enum mcp_status mcp_sim_case_make(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                  struct mcp_sim_case *out, struct mcp_sim_view *view)
{
    static const struct {
        const char *name;
        enum mcp_status (*apply)(struct mcp_context *ctx, const struct mcp_sim_args *args,
                                 struct mcp_sim_case *out, const char **why);
    } steps[] = {{"collective_algorithm", apply_collectives},
                 {"slow_link", apply_slow_link},
                 {"dead_link", apply_dead_link},
                 {"slow_rank", apply_slow_rank}};
    double before, now;
    begin_case(args, out);
    MCP_TRY(play_entries(ctx, out, &now));
    mcp_sim_view_term(view, "data_parallel", why_data_parallel(&out->file.plan),
                      now - view->predicted->iteration_s);
    for (size_t i = 0; i < MCP_COUNT_OF(steps); i++) {
        const char *why = NULL;
        MCP_TRY(steps[i].apply(ctx, args, out, &why));
        if (why == NULL)
            continue;
        before = now;
        MCP_TRY(play_entries(ctx, out, &now));
        mcp_sim_view_term(view, steps[i].name, why, now - before);
        view->terms[view->num_terms - 1].asked = true;
    }
    out->options.noise = args->noise;
    return mcp_sim_check_time(&out->port_question, &out->file.program, &out->options, &ctx->err);
}
