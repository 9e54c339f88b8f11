/* cli/report_links.c: bytes and busy time of a rank's ports, by tier and kind of traffic. */
#include "cli/report_links.h"

#include "cli/report_parts.h"
#include "core/mesh.h"
#include "core/units.h"
#include "sim/timeline.h"
#include "step/price_parts.h"

#include <math.h>

enum { NUM_POINTS = 300, FIRST = MCP_COST_TENSOR, NUM_TRAFFIC = MCP_COST_DATA - FIRST + 1 };

/* What one op of one block asks of a port. */
struct use {
    bool known;
    double busy_s[MCP_MAX_TIERS]; /* at full rate */
    double links_s;               /* from the first byte to the last, alone */
    double sent_bytes;
};

struct links {
    struct mcp_arena *arena;
    const struct mcp_program *program;
    struct mcp_pricing pricing;
    int num_tiers;
    double step_s;
    struct use **uses; /* [type][role], by op; NULL until one is asked for */
    /* mean over stages: */
    double busy_s[MCP_MAX_TIERS][NUM_TRAFFIC], sent_bytes[NUM_TRAFFIC];
    double (*over)[NUM_TRAFFIC][NUM_POINTS]; /* [tier] seconds busy in each part of the step */
};

static double message_bytes(const struct mcp_op *op)
{
    return (double)op->dims[0] * mcp_dtype_bytes((enum mcp_dtype)op->dtype);
}

/* A message uses the innermost tier that holds both stages. */
static void use_message(const struct links *links, const struct mcp_op *op, int stage,
                        struct use *use)
{
    const struct mcp_plan *plan = links->pricing.plan;
    const struct mcp_cluster *cluster = links->pricing.question->cluster;
    int stages = plan->pipeline_parallel, to = (stage + op->delta + stages) % stages, tier = 0;
    while (tier < links->num_tiers - 1 &&
           !mcp_stages_in_domain(plan, stage, to, cluster->tiers[tier].ranks))
        tier++;
    use->busy_s[tier] = message_bytes(op) / mcp_tier_bandwidth(&links->pricing, tier);
    use->links_s = use->busy_s[tier];
    use->sent_bytes = message_bytes(op);
}

static void use_group(const struct links *links, const struct mcp_op *op, struct use *use)
{
    struct mcp_transfer transfer;
    mcp_transfer_of(&links->pricing, op, &transfer);
    use->sent_bytes = mcp_op_sent_bytes(op, mcp_group_size(links->pricing.plan, op->group));
    for (int i = 0; i < transfer.num_phases; i++) {
        const struct mcp_transfer_phase *phase = &transfer.phases[i];
        use->links_s += phase->links_s;
        for (int tier = 0; tier < links->num_tiers; tier++)
            use->busy_s[tier] += phase->loads[tier] * phase->links_s;
    }
}

/* Messages of one block may cross other tiers on another stage, so those are not kept. */
static struct use use_of(struct links *links, const struct mcp_entry *entry, int op_index,
                         int stage)
{
    const struct mcp_block *block = &links->program->types[entry->type].blocks[entry->role];
    struct use **of = &links->uses[entry->type * MCP_NUM_BLOCK_ROLES + entry->role];
    const struct mcp_op *op = &block->ops[op_index];
    struct use use = {.known = true};
    if (mcp_op_code(op) == MCP_SEND) {
        use_message(links, op, stage, &use);
        return use;
    }
    if (*of == NULL)
        *of = MCP_ARRAY(links->arena, block->num_ops, struct use);
    if (!(*of)[op_index].known && mcp_op_is_transfer(op) && mcp_op_code(op) != MCP_RECEIVE)
        use_group(links, op, &use);
    if (!(*of)[op_index].known)
        (*of)[op_index] = use;
    return (*of)[op_index];
}

/* Evenly over [from_s, to_s]. */
static void lay(struct links *links, int tier, int traffic, double busy_s, double from_s,
                double to_s)
{
    double part_s = links->step_s / NUM_POINTS;
    int first = (int)fmax(floor(from_s / part_s), 0);
    for (int i = first; i < NUM_POINTS && i * part_s < to_s; i++) {
        double shared = fmin(to_s, (i + 1) * part_s) - fmax(from_s, i * part_s);
        if (shared > 0)
            links->over[tier][traffic][i] += busy_s * shared / (to_s - from_s);
    }
}

static void take_span(struct links *links, const struct mcp_timeline_span *span)
{
    const struct mcp_program *program = links->program;
    int stage = mcp_mesh_coordinate(links->pricing.plan, span->rank).pipeline;
    const struct mcp_slot *slot = &program->classes[stage].slots[span->slot];
    const struct mcp_entry *entry = &program->lists[slot->list].entries[span->entry];
    const struct mcp_op *op = &program->types[entry->type].blocks[entry->role].ops[span->op];
    int traffic = (int)mcp_op_cost(op) - FIRST;
    if (traffic < 0 || traffic >= NUM_TRAFFIC || span->end_ns <= span->start_ns)
        return;
    const struct use use = use_of(links, entry, span->op, stage);
    double to_s = 1e-9 * (double)span->end_ns, from_s = 1e-9 * (double)span->start_ns;
    from_s = fmax(fmin(from_s, to_s - use.links_s), 0);
    links->sent_bytes[traffic] += use.sent_bytes / links->pricing.plan->pipeline_parallel;
    for (int tier = 0; tier < links->num_tiers; tier++) {
        double busy_s = use.busy_s[tier] / links->pricing.plan->pipeline_parallel;
        links->busy_s[tier][traffic] += busy_s;
        if (busy_s > 0 && to_s > from_s)
            lay(links, tier, traffic, busy_s, from_s, to_s);
    }
}

static void play(struct links *links)
{
    struct mcp_sim_timeline *timeline = mcp_sim_timeline_new(links->arena, links->program);
    const struct mcp_sim_ops_options options = {
        .shared_links = true, .span = mcp_sim_timeline_take, .context = timeline};
    struct mcp_sim_result result;
    struct mcp_timeline filled;
    mcp_sim_play_ops(links->arena, links->pricing.question, links->program, &options, &result);
    mcp_sim_timeline_fill(timeline, &result, &filled);
    links->step_s = 1e-9 * (double)result.step_ns;
    for (size_t i = 0; i < filled.num_spans; i++)
        take_span(links, &filled.spans[i]);
}

/* --- drawn --- */

static const char *tier_name(const struct links *links, int tier)
{
    return links->pricing.question->cluster->tiers[tier].name;
}

static double tier_busy_s(const struct links *links, int tier)
{
    double sum = 0;
    for (int i = 0; i < NUM_TRAFFIC; i++)
        sum += links->busy_s[tier][i];
    return sum;
}

static void add_bars(struct mcp_report *report, const struct links *links)
{
    struct mcp_arena *arena = report->arena;
    struct mcp_report_part *parts = MCP_ARRAY(arena, NUM_TRAFFIC, struct mcp_report_part);
    const char **rows = MCP_ARRAY(arena, links->num_tiers, const char *);
    double *values = MCP_ARRAY(arena, links->num_tiers * NUM_TRAFFIC, double);
    for (int i = 0; i < NUM_TRAFFIC; i++)
        parts[i] = (struct mcp_report_part){mcp_cost_names[FIRST + i], FIRST + i};
    for (int tier = 0; tier < links->num_tiers; tier++) {
        rows[tier] = tier_name(links, tier);
        for (int i = 0; i < NUM_TRAFFIC; i++)
            values[tier * NUM_TRAFFIC + i] = links->busy_s[tier][i];
    }
    const struct mcp_report_bars bars = {
        .title = "How long a rank's port of each tier is busy, at full rate",
        .num_parts = NUM_TRAFFIC,
        .num_rows = links->num_tiers,
        .parts = parts,
        .rows = rows,
        .values = values,
        .dimension = MCP_SECONDS,
        .limit = links->step_s,
        .limit_text = "the step"};
    mcp_report_bars(report, &bars);
}

/* Traffic of one tier over the step; kinds without any are left out. */
static void add_lines(struct mcp_report *report, const struct links *links, int tier)
{
    struct mcp_arena *arena = report->arena;
    double bandwidth = mcp_tier_bandwidth(&links->pricing, tier);
    double part_s = links->step_s / NUM_POINTS;
    struct mcp_report_part *parts = MCP_ARRAY(arena, NUM_TRAFFIC, struct mcp_report_part);
    double *values = MCP_ARRAY(arena, NUM_TRAFFIC * NUM_POINTS, double);
    struct mcp_report_lines lines = {
        .title =
            mcp_format(arena, "Traffic of a rank's port over the step: %s", tier_name(links, tier)),
        .num_points = NUM_POINTS,
        .lines = parts,
        .values = values,
        .dimension = MCP_BYTES_PER_SECOND,
        .seconds = links->step_s,
        .limit = bandwidth,
        .limit_text = "full"};
    for (int i = 0; i < NUM_TRAFFIC; i++) {
        if (!(links->busy_s[tier][i] > 0))
            continue;
        for (int k = 0; k < NUM_POINTS; k++)
            values[lines.num_lines * NUM_POINTS + k] = links->over[tier][i][k] / part_s * bandwidth;
        parts[lines.num_lines++] = (struct mcp_report_part){mcp_cost_names[FIRST + i], FIRST + i};
    }
    mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN, lines.title);
    mcp_report_lines(report, &lines);
}

static void add_table(struct mcp_report *report, const struct links *links)
{
    struct mcp_arena *arena = report->arena;
    struct mcp_column columns[2 + MCP_MAX_TIERS] = {{"traffic", "", MCP_LEFT},
                                                    {"sent by a rank", "", MCP_RIGHT}};
    for (int tier = 0; tier < links->num_tiers; tier++)
        columns[2 + tier] = (struct mcp_column){
            mcp_format(arena, "%s busy", tier_name(links, tier)), "", MCP_RIGHT};
    struct mcp_table *table = mcp_table_new(arena, columns, 2 + links->num_tiers);
    for (int i = 0; i < NUM_TRAFFIC; i++) {
        if (!(links->sent_bytes[i] > 0))
            continue;
        mcp_table_cell(table, "%s", mcp_cost_names[FIRST + i]);
        mcp_table_cell(table, "%s", mcp_show(arena, links->sent_bytes[i], MCP_BYTES));
        for (int tier = 0; tier < links->num_tiers; tier++) {
            double busy_s = links->busy_s[tier][i];
            mcp_table_cell(table, "%s",
                           busy_s > 0
                               ? mcp_format(arena, "%s, %s", mcp_show(arena, busy_s, MCP_SECONDS),
                                            mcp_report_percent(arena, busy_s / links->step_s))
                               : "");
        }
    }
    mcp_report_table(report, MCP_REPORT_TABLE, "", table);
    mcp_report_say(report, MCP_REPORT_NOTE, MCP_TONE_PLAIN,
                   "Means over stages, of one direction; received is as much. A port is busy for "
                   "the time that a transfer takes on it at full rate, a small one longer than its "
                   "bytes; what a stack hides counts as what stands alone does.");
}

void mcp_report_step_links(struct mcp_report *report, const struct mcp_question *question,
                           const struct mcp_program *program)
{
    struct mcp_arena *arena = report->arena;
    struct links links = {.arena = arena,
                          .program = program,
                          .pricing = {question, &program->plan},
                          .num_tiers = question->cluster->num_tiers};
    if (mcp_plan_world(&program->plan) == 1)
        return;
    mcp_report_say(report, MCP_REPORT_SECTION, MCP_TONE_PLAIN, "Links");
    if (mcp_cluster_num_pools(question->cluster) > 1) {
        mcp_report_say(report, MCP_REPORT_PROSE, MCP_TONE_PLAIN,
                       "not drawn: machines of several kinds have ports of several kinds");
        return;
    }
    links.uses = MCP_ARRAY(arena, program->num_types * MCP_NUM_BLOCK_ROLES, struct use *);
    links.over = mcp_alloc(arena, (size_t)links.num_tiers, sizeof *links.over);
    play(&links);
    add_bars(report, &links);
    for (int tier = 0; tier < links.num_tiers; tier++)
        if (tier_busy_s(&links, tier) > 0)
            add_lines(report, &links, tier);
    add_table(report, &links);
}
