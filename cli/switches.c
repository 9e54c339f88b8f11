/* cli/switches.c: switches as options, and what each of them saves. */
#include "cli/switches.h"

#include "cli/output.h"
#include "core/mesh.h"
#include "core/text.h"
#include "core/units.h"
#include "reports/table.h"
#include "sim/check.h"
#include "sim/sim.h"
#include "step/build.h"
#include "step/stage.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* --- options --- */

enum mcp_status mcp_switch_placement(struct mcp_arena *arena, const char *text,
                                     const struct mcp_cluster *cluster, struct mcp_plan *plan,
                                     struct mcp_error *err)
{
    static const char scrambled[] = "scrambled";
    int64_t seed = 1;
    size_t length = sizeof scrambled - 1;
    if (text == NULL)
        return MCP_OK;
    if (mcp_same(text, "topology")) {
        plan->rank_map = NULL;
        return MCP_OK;
    }
    bool named = strncmp(text, scrambled, length) == 0;
    if (!named || (text[length] != '\0' &&
                   (text[length] != ':' || !mcp_parse_int64(text + length + 1, &seed) || seed < 0)))
        return mcp_fail(err, MCP_USAGE,
                        "--placement %s: not one of topology, scrambled, scrambled:SEED",
                        mcp_shown(arena, text));
    if (cluster->next != NULL)
        return mcp_fail(err, MCP_INVALID,
                        "--placement scrambled moves single nodes, but stages of a cluster of "
                        "several kinds fill whole pools; leave it out");
    int world = mcp_plan_world(plan), unit = cluster->gpus_per_node;
    unit = world % unit == 0 ? unit : 1;
    return mcp_plan_place(arena, plan, cluster,
                          mcp_rank_map_scrambled(arena, world, unit, (uint64_t)seed), err);
}

static const struct {
    const char *name, *text;
    size_t offset;
} overlaps[] = {
    {"data", "gradient buckets under backward", offsetof(struct mcp_overlap, data)},
    {"gather", "weights gathered ahead", offsetof(struct mcp_overlap, gather)},
    {"tensor", "tensor transfers beside products", offsetof(struct mcp_overlap, tensor)},
    {"context", "ring steps under attention", offsetof(struct mcp_overlap, context)},
    {"expert", "expert exchanges under compute", offsetof(struct mcp_overlap, expert)},
    {"pipeline", "messages between stages under compute", offsetof(struct mcp_overlap, pipeline)},
};
enum { NUM_OVERLAPS = sizeof overlaps / sizeof *overlaps };

static bool *overlap_at(struct mcp_overlap *overlap, int i)
{
    return (bool *)((char *)overlap + overlaps[i].offset);
}

/* The next of the names in `text`, of `length` characters. */
static bool switch_on(const char *text, size_t length, struct mcp_overlap *overlap)
{
    for (int i = 0; i < NUM_OVERLAPS; i++)
        if (strlen(overlaps[i].name) == length && strncmp(text, overlaps[i].name, length) == 0) {
            *overlap_at(overlap, i) = true;
            return true;
        }
    return false;
}

enum mcp_status mcp_switch_overlap(struct mcp_arena *arena, const char *text,
                                   const struct mcp_stack *stack, struct mcp_overlap *overlap,
                                   struct mcp_error *err)
{
    struct mcp_overlap asked = {.tensor = false};
    if (text == NULL)
        return MCP_OK;
    if (mcp_same(text, "all"))
        asked = mcp_stack_overlap(stack);
    for (const char *at = text; !mcp_same(text, "all") && !mcp_same(text, "none");) {
        size_t length = strcspn(at, ",");
        if (!switch_on(at, length, &asked))
            return mcp_fail(
                err, MCP_USAGE,
                "--overlap %s: not none, all, or some of data, gather, tensor, context, "
                "expert, pipeline joined by commas",
                mcp_shown(arena, text));
        at += length;
        if (*at++ == '\0')
            break;
    }
    *overlap = asked;
    return MCP_OK;
}

void mcp_switch_optimizer(int optimizer, int phase, struct mcp_job *job)
{
    if (optimizer >= 0) {
        job->optimizer = (enum mcp_optimizer)optimizer;
        job->phase = optimizer == MCP_OPTIMIZER_ADAM ? MCP_PHASE_WARM : MCP_PHASE_FROZEN;
        if (optimizer == MCP_OPTIMIZER_ADAM)
            job->freeze_step = 0;
    }
    if (phase >= 0)
        job->phase = (enum mcp_phase)phase;
}

/* --- savings --- */

struct asked {
    struct mcp_arena *arena;
    struct mcp_question question;
    struct mcp_job job; /* of the question */
    struct mcp_plan plan;
};

static struct asked plain(struct mcp_arena *arena, const struct mcp_question *question,
                          const struct mcp_plan *plan)
{
    struct asked asked = {arena, *question, *question->job, *plan};
    struct mcp_error ignored;
    mcp_switch_optimizer(MCP_OPTIMIZER_ADAM, -1, &asked.job);
    asked.plan.overlap = (struct mcp_overlap){.tensor = false};
    asked.plan.rank_map = NULL;
    if (question->cluster->next == NULL && question->cluster->num_nodes > 1)
        (void)mcp_switch_placement(arena, "scrambled", question->cluster, &asked.plan, &ignored);
    return asked;
}

static void add_row(const struct asked *asked, const char *name, const char *text,
                    struct mcp_savings *out)
{
    struct mcp_saving *row = &out->rows[out->count++];
    struct mcp_question question = asked->question;
    struct mcp_prediction *priced = MCP_NEW(asked->arena, struct mcp_prediction);
    struct mcp_error ignored;
    question.job = &asked->job;
    mcp_estimate(mcp_pricer_new(asked->arena, &question), &asked->plan, priced);
    *row = (struct mcp_saving){name, text, priced->iteration_s, priced->exposed_comm_frac,
                               (double)NAN};
    if (mcp_sim_check_size(&asked->plan, &asked->job, &ignored) != MCP_OK)
        return;
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_sim_options options = mcp_sim_options_default();
    struct mcp_program program;
    struct mcp_sim_result played;
    mcp_program_build(arena, &question, &asked->plan, &program);
    mcp_sim_play(arena, &question, &program, &options, &played);
    row->played_s = 1e-9 * (double)played.step_ns;
    mcp_arena_free(arena);
}

/* Does the plan send anything that the i-th overlap could hide? */
static bool has_use(const struct mcp_question *question, const struct mcp_plan *plan, int i)
{
    struct mcp_overlap can = mcp_stack_overlap(question->stack);
    bool replicas = mcp_group_size(plan, (unsigned)MCP_DATA | MCP_CONTEXT) > 1;
    const bool uses[NUM_OVERLAPS] = {
        replicas,
        replicas && plan->zero_stage > 0,
        plan->tensor_parallel > 1,
        plan->context_parallel > 1 && plan->context_parallel_kind == MCP_CONTEXT_RING,
        plan->expert_parallel > 1,
        plan->pipeline_parallel > 1 && plan->virtual_stages > 1,
    };
    return uses[i] && *overlap_at(&can, i);
}

static bool can_compress(const struct mcp_plan *plan)
{
    return plan->zero_stage == 0 && mcp_group_size(plan, (unsigned)MCP_DATA | MCP_CONTEXT) > 1;
}

void mcp_savings_of(struct mcp_arena *arena, const struct mcp_question *question,
                    const struct mcp_plan *plan, struct mcp_savings *out)
{
    const struct asked none = plain(arena, question, plan);
    bool scrambles = none.plan.rank_map != NULL;
    struct asked all = none;
    out->count = 0;
    add_row(&none, "none", scrambles ? "nothing, nodes in any order" : "nothing", out);
    for (int i = 0; i < NUM_OVERLAPS; i++) {
        struct asked one = none;
        if (!has_use(question, plan, i))
            continue;
        *overlap_at(&one.plan.overlap, i) = *overlap_at(&all.plan.overlap, i) = true;
        add_row(&one, overlaps[i].name, overlaps[i].text, out);
    }
    if (out->count > 2) {
        struct asked hidden = none;
        hidden.plan.overlap = all.plan.overlap;
        add_row(&hidden, "overlap", "all of what is hidden", out);
    }
    if (can_compress(plan)) {
        struct asked one = none;
        mcp_switch_optimizer(MCP_OPTIMIZER_ONE_BIT_ADAM, -1, &one.job);
        mcp_switch_optimizer(MCP_OPTIMIZER_ONE_BIT_ADAM, -1, &all.job);
        add_row(&one, "one_bit_adam", "1-bit Adam, frozen", out);
    }
    if (scrambles) {
        struct asked one = none;
        one.plan.rank_map = all.plan.rank_map = NULL;
        add_row(&one, "topology", "ranks placed by topology", out);
    }
    add_row(&all, "all", "all of them", out);
}

struct mcp_table *mcp_savings_table(struct mcp_arena *arena, const struct mcp_savings *savings)
{
    const struct mcp_column columns[] = {
        {"switched on", "", MCP_LEFT},    {"iteration", "", MCP_RIGHT}, {"saves", "", MCP_RIGHT},
        {"communication", "", MCP_RIGHT}, {"played", "", MCP_RIGHT},
    };
    struct mcp_table *table = mcp_table_new(arena, columns, 5);
    double plain_s = savings->rows[0].iteration_s;
    for (int i = 0; i < savings->count; i++) {
        const struct mcp_saving *row = &savings->rows[i];
        double saved = 100 * (1 - row->iteration_s / plain_s);
        if (i == savings->count - 1)
            mcp_table_rule(table);
        mcp_table_cell(table, "%s", row->text);
        mcp_table_cell(table, "%s", mcp_show(arena, row->iteration_s, MCP_SECONDS));
        mcp_table_cell(table, "%s", i == 0 ? "" : mcp_format(arena, "%.1f %%", saved));
        mcp_table_cell(table, "%.1f %%", 100 * row->exposed_comm_frac);
        mcp_table_cell(table, "%s",
                       isnan(row->played_s) ? "-" : mcp_show(arena, row->played_s, MCP_SECONDS));
    }
    return table;
}

void mcp_savings_to_json(const struct mcp_savings *savings, struct mcp_json *list)
{
    for (int i = 0; i < savings->count; i++) {
        struct mcp_json *row = mcp_json_add_object(list);
        mcp_json_set_string(row, "switch", savings->rows[i].name);
        mcp_json_set_double(row, "iteration_s", savings->rows[i].iteration_s);
        mcp_json_set_double(row, "exposed_comm_frac", savings->rows[i].exposed_comm_frac);
        mcp_json_set_double(row, "played_s", savings->rows[i].played_s);
    }
}

/* --- phases --- */

void mcp_phases_of(struct mcp_arena *arena, const struct mcp_question *question,
                   const struct mcp_plan *plan, struct mcp_phases *out)
{
    double seconds[MCP_NUM_PHASES];
    for (int phase = 0; phase < MCP_NUM_PHASES; phase++) {
        struct mcp_job job = *question->job;
        struct mcp_question at = *question;
        struct mcp_prediction *priced = MCP_NEW(arena, struct mcp_prediction);
        job.phase = (enum mcp_phase)phase;
        at.job = &job;
        mcp_estimate(mcp_pricer_new(arena, &at), plan, priced);
        seconds[phase] = priced->iteration_s;
    }
    out->warm_s = seconds[MCP_PHASE_WARM];
    out->frozen_s = seconds[MCP_PHASE_FROZEN];
    out->warm_frac = mcp_job_warm_frac(question->job);
    out->average_s = out->warm_frac * out->warm_s + (1 - out->warm_frac) * out->frozen_s;
}

/* Gradients are clipped by their own norms then, or not at all. */
const char *mcp_phases_text(struct mcp_arena *arena, const struct mcp_phases *phases)
{
    return mcp_format(arena,
                      "1-bit Adam: %s an iteration in the warm phase, %s in the frozen one, where "
                      "gradients have no global norm to clip by; %s on average over a run of which "
                      "%.0f %% is warm",
                      mcp_show(arena, phases->warm_s, MCP_SECONDS),
                      mcp_show(arena, phases->frozen_s, MCP_SECONDS),
                      mcp_show(arena, phases->average_s, MCP_SECONDS), 100 * phases->warm_frac);
}
