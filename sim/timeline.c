/* sim/timeline.c: spans of ranks in lockstep kept once, as a timeline and as a trace. */
#include "sim/timeline.h"

#include "core/mesh.h"
#include "sim/cells.h"

#include <stdio.h>
#include <stdlib.h>

enum kind { OPS, SLOTS, NUM_KINDS };

/* The first spans of their kind, in the order in which they end. */
struct list {
    struct mcp_sim_span *spans;
    size_t count, capacity;
    int64_t seen;
    int64_t lost_from_ns; /* the earliest start of those not kept; INT64_MAX: none */
};

/* Ranks of one cell on one stage. */
struct lane {
    int rank; /* the first of them that was asked for */
    int stage;
    int64_t end_ns; /* of its last slot */
    struct list of[NUM_KINDS];
};

struct mcp_sim_timeline {
    struct mcp_arena *arena;
    const struct mcp_program *program;
    struct mcp_sim_cells cells; /* num_cells 1, no members: all are equal */
    int *cell_of;               /* [ranks of stage 0, by number] */
    int *lane_of;               /* [cells x stages]; -1: not asked for */
    int num_lanes;
    struct lane *lanes;
    int num_ranks;
    int *ranks;                         /* asked for */
    int64_t most_of_lane, most_of_rank; /* spans of a kind: in the timeline, in the trace */
    struct mcp_sim_kept kept;
};

/* --- who is asked for --- */

static void find_cells(struct mcp_sim_timeline *timeline, bool unequal)
{
    const struct mcp_plan *plan = &timeline->program->plan;
    timeline->cells.num_cells = 1;
    timeline->cell_of = MCP_ARRAY(timeline->arena, mcp_plan_world(plan), int);
    if (!unequal)
        return;
    timeline->cells = mcp_sim_cells_of(timeline->arena, plan);
    for (int cell = 0; cell < timeline->cells.num_cells; cell++)
        for (int i = timeline->cells.first[cell]; i < timeline->cells.first[cell + 1]; i++)
            timeline->cell_of[timeline->cells.members[i]] = cell;
}

static int *lane_at(const struct mcp_sim_timeline *timeline, int cell, int stage)
{
    return &timeline->lane_of[cell * timeline->program->num_classes + stage];
}

static int *lane_of_rank(const struct mcp_sim_timeline *timeline, int rank)
{
    const struct mcp_plan *plan = &timeline->program->plan;
    int stage = mcp_mesh_coordinate(plan, rank).pipeline;
    int first = mcp_sim_rank_on(plan, rank, plan->pipeline_parallel - stage);
    return lane_at(timeline, timeline->cell_of[first], stage);
}

static void ask_for(struct mcp_sim_timeline *timeline, int rank)
{
    const struct mcp_plan *plan = &timeline->program->plan;
    int *lane = lane_of_rank(timeline, rank);
    timeline->ranks[timeline->num_ranks++] = rank;
    if (*lane >= 0)
        return;
    *lane = timeline->num_lanes++;
    timeline->lanes[*lane] =
        (struct lane){.rank = rank, .stage = mcp_mesh_coordinate(plan, rank).pipeline};
    for (int kind = 0; kind < NUM_KINDS; kind++)
        timeline->lanes[*lane].of[kind].lost_from_ns = INT64_MAX;
}

/* On each stage the first rank of the pipeline of `around`: all of its cell's are alike. */
static void ask_for_stages(struct mcp_sim_timeline *timeline, int around)
{
    const struct mcp_plan *plan = &timeline->program->plan;
    int p = plan->pipeline_parallel, stage = mcp_mesh_coordinate(plan, around).pipeline;
    int first = mcp_sim_rank_on(plan, around, p - stage);
    if (timeline->cells.members != NULL)
        first = timeline->cells.members[timeline->cells.first[timeline->cell_of[first]]];
    for (int s = 0; s < p; s++)
        ask_for(timeline, mcp_sim_rank_on(plan, first, s));
}

struct mcp_sim_timeline *mcp_sim_timeline_new(struct mcp_arena *arena,
                                              const struct mcp_program *program)
{
    const struct mcp_sim_timeline_options all = {.most_spans = INT64_MAX,
                                                 .most_trace_spans = INT64_MAX};
    return mcp_sim_timeline_new_of(arena, program, &all);
}

struct mcp_sim_timeline *mcp_sim_timeline_new_of(struct mcp_arena *arena,
                                                 const struct mcp_program *program,
                                                 const struct mcp_sim_timeline_options *options)
{
    struct mcp_sim_timeline *timeline = MCP_NEW(arena, struct mcp_sim_timeline);
    int p = program->num_classes, most = options->num_ranks > p ? options->num_ranks : p;
    timeline->arena = arena;
    timeline->program = program;
    find_cells(timeline, options->unequal);
    int lanes = timeline->cells.num_cells * p;
    timeline->lane_of = MCP_ARRAY(arena, lanes, int);
    for (int i = 0; i < lanes; i++)
        timeline->lane_of[i] = -1;
    timeline->lanes = MCP_ARRAY(arena, lanes < most ? lanes : most, struct lane);
    timeline->ranks = MCP_ARRAY(arena, most, int);
    for (int i = 0; i < options->num_ranks; i++)
        ask_for(timeline, options->ranks[i]);
    if (options->num_ranks == 0)
        ask_for_stages(timeline, options->unequal ? options->around : 0);
    timeline->most_of_lane = options->most_spans / timeline->num_lanes;
    timeline->most_of_rank = options->most_trace_spans / timeline->num_ranks;
    return timeline;
}

/* --- what is kept --- */

void mcp_sim_timeline_take(void *context, const struct mcp_sim_span *span)
{
    struct mcp_sim_timeline *timeline = context;
    int index = *lane_at(timeline, span->cell, span->stage);
    if (index < 0)
        return;
    struct lane *lane = &timeline->lanes[index];
    struct list *list = &lane->of[span->entry < 0 ? SLOTS : OPS];
    if (span->entry < 0)
        lane->end_ns = span->end_ns;
    list->seen++;
    if (list->seen > timeline->most_of_lane && list->seen > timeline->most_of_rank) {
        if (span->start_ns < list->lost_from_ns)
            list->lost_from_ns = span->start_ns;
        return;
    }
    list->spans =
        mcp_grow(timeline->arena, list->spans, list->count, &list->capacity, sizeof *list->spans);
    list->spans[list->count++] = *span;
}

/* From when on a file leaves spans out, if a lane may have `most` of them. */
static int64_t cut_ns(const struct mcp_sim_timeline *timeline, enum kind kind, int64_t most)
{
    int64_t cut = INT64_MAX;
    for (int l = 0; l < timeline->num_lanes; l++) {
        const struct list *list = &timeline->lanes[l].of[kind];
        cut = list->lost_from_ns < cut ? list->lost_from_ns : cut;
        for (size_t i = (size_t)most; i < list->count; i++)
            cut = list->spans[i].start_ns < cut ? list->spans[i].start_ns : cut;
    }
    return cut;
}

static void cut(struct mcp_sim_timeline *timeline, int64_t most_of_lane)
{
    timeline->kept = (struct mcp_sim_kept){.ops_until_ns = cut_ns(timeline, OPS, most_of_lane),
                                           .slots_until_ns = cut_ns(timeline, SLOTS, most_of_lane)};
}

/* --- timeline --- */

static void fill_ranks(const struct mcp_sim_timeline *timeline, struct mcp_timeline *out)
{
    out->num_ranks = mcp_plan_world(&timeline->program->plan);
    out->like = MCP_ARRAY(timeline->arena, out->num_ranks, int);
    for (int rank = 0; rank < out->num_ranks; rank++) {
        int lane = *lane_of_rank(timeline, rank);
        out->like[rank] = lane < 0 ? -1 : timeline->lanes[lane].rank;
    }
}

/* Of transfers of once a step a part runs beside compute and the rest stands at an edge of the
 * step. Their spans are those of the part: stretched over the rest, they fill it all. */
struct stretch {
    int64_t from_ns, to_ns;         /* as played */
    int64_t new_from_ns, new_to_ns; /* as told */
};

static int64_t stretched_ns(const struct stretch *stretch, int64_t ns)
{
    double scale = (double)(stretch->new_to_ns - stretch->new_from_ns) /
                   (double)(stretch->to_ns - stretch->from_ns);
    return stretch->new_from_ns + (int64_t)(scale * (double)(ns - stretch->from_ns));
}

/* When spans of the pass begin and end, from span `first` on; false: there are none. */
static bool find_pass(const struct mcp_timeline *timeline, size_t first, enum mcp_block_role pass,
                      struct stretch *out)
{
    *out = (struct stretch){.from_ns = INT64_MAX, .to_ns = -1};
    for (size_t i = first; i < timeline->num_spans; i++) {
        const struct mcp_timeline_span *span = &timeline->spans[i];
        if (span->pass != pass)
            continue;
        out->from_ns = span->start_ns < out->from_ns ? span->start_ns : out->from_ns;
        out->to_ns = span->end_ns > out->to_ns ? span->end_ns : out->to_ns;
    }
    return out->to_ns > out->from_ns;
}

static void stretch_pass(struct mcp_timeline *timeline, size_t first, enum mcp_block_role pass,
                         const struct stretch *stretch)
{
    for (size_t i = first; i < timeline->num_spans; i++) {
        struct mcp_timeline_span *span = &timeline->spans[i];
        if (span->pass != pass)
            continue;
        span->start_ns = stretched_ns(stretch, span->start_ns);
        span->end_ns = stretched_ns(stretch, span->end_ns);
    }
}

/* Of the lane's spans, which begin at `first`; reductions only where all of them are there. */
static void fill_edges(struct mcp_timeline *timeline, size_t first, const struct lane *lane,
                       const struct mcp_sim_stage *stage, bool whole)
{
    struct stretch stretch;
    if (stage->head_ns > 0 && !stage->head_laid &&
        find_pass(timeline, first, MCP_GATHER, &stretch)) {
        stretch.new_from_ns = 0;
        stretch.new_to_ns = stretch.to_ns;
        stretch_pass(timeline, first, MCP_GATHER, &stretch);
    }
    if (whole && stage->tail_ns > 0 && !stage->tail_laid &&
        find_pass(timeline, first, MCP_REDUCE, &stretch)) {
        int64_t last_ns = stretch.to_ns > lane->end_ns ? stretch.to_ns : lane->end_ns;
        stretch.new_from_ns = stretch.from_ns;
        stretch.new_to_ns = last_ns + stage->tail_ns;
        stretch_pass(timeline, first, MCP_REDUCE, &stretch);
    }
}

static void fill_lane(struct mcp_sim_timeline *timeline, const struct lane *lane,
                      struct mcp_timeline *out)
{
    struct mcp_sim_kept *kept = &timeline->kept;
    const struct list *list = &lane->of[OPS];
    kept->all_ops += list->seen;
    for (size_t i = 0; i < list->count; i++) {
        const struct mcp_sim_span *from = &list->spans[i];
        struct mcp_timeline_span span = {.rank = lane->rank,
                                         .slot = from->slot,
                                         .entry = from->entry,
                                         .op = from->op,
                                         .stream = (unsigned char)from->stream,
                                         .start_ns = from->start_ns,
                                         .end_ns = from->end_ns};
        if (from->start_ns >= kept->ops_until_ns)
            continue;
        kept->ops++;
        if (from->op < 0)
            continue;
        mcp_timeline_tell(timeline->program, from->stage, &span);
        mcp_timeline_add(timeline->arena, out, &span);
    }
}

void mcp_sim_timeline_fill(struct mcp_sim_timeline *timeline, const struct mcp_sim_result *result,
                           struct mcp_timeline *out)
{
    *out = (struct mcp_timeline){.iteration_ns = result->step_ns};
    fill_ranks(timeline, out);
    cut(timeline, timeline->most_of_lane);
    if (timeline->kept.ops_until_ns < INT64_MAX)
        out->until_ns = timeline->kept.ops_until_ns;
    for (int l = 0; l < timeline->num_lanes; l++) {
        const struct lane *lane = &timeline->lanes[l];
        size_t first = out->num_spans;
        fill_lane(timeline, lane, out);
        fill_edges(out, first, lane, &result->stages[lane->stage],
                   timeline->kept.ops_until_ns == INT64_MAX);
    }
}

/* --- trace --- */

/* Microseconds, as traces have them. */
static void put_us(struct mcp_text *out, int64_t ns)
{
    mcp_text_add(out, "%lld.%03lld", (long long)(ns / 1000), (long long)(ns % 1000));
}

static void put_names(const struct mcp_sim_timeline *timeline, struct mcp_text *out)
{
    for (int i = 0; i < timeline->num_ranks; i++) {
        int rank = timeline->ranks[i];
        mcp_text_add(out,
                     "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
                     "\"args\":{\"name\":\"stage %d, rank %d\"}}",
                     i > 0 ? "," : "", rank,
                     mcp_mesh_coordinate(&timeline->program->plan, rank).pipeline, rank);
        for (int t = 0; t < MCP_NUM_STREAMS; t++)
            mcp_text_add(out,
                         ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                         "\"args\":{\"name\":\"%s\"}}",
                         rank, t, mcp_stream_names[t]);
    }
}

static void put_event(struct mcp_text *out, const char *name, int rank,
                      const struct mcp_sim_span *span)
{
    mcp_text_add(out, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":", name, rank,
                 (int)span->stream);
    put_us(out, span->start_ns);
    mcp_text_add(out, ",\"dur\":");
    put_us(out, span->end_ns - span->start_ns);
    mcp_text_add(out, ",\"args\":{\"slot\":%d,\"entry\":%d,\"op\":%d}}", span->slot, span->entry,
                 span->op);
}

static const char *name_of(const struct mcp_program *program, const struct mcp_sim_span *span,
                           char name[64])
{
    const struct mcp_slot *slot = &program->classes[span->stage].slots[span->slot];
    if (span->entry < 0) {
        snprintf(name, 64, "%s %d chunk %d", mcp_block_role_names[slot->pass], slot->microbatch,
                 slot->chunk);
        return name;
    }
    const struct mcp_entry *entry = &program->lists[slot->list].entries[span->entry];
    if (span->op >= 0)
        return mcp_functions[program->types[entry->type].blocks[entry->role].ops[span->op].function]
            .name;
    snprintf(name, 64, "%s layer %d", mcp_block_role_names[entry->role], entry->layer);
    return name;
}

/* By track and start; a slot before its entries, an entry before its ops. */
static int by_place(const void *a, const void *b)
{
    const struct mcp_sim_span *x = a, *y = b;
    if (x->stream != y->stream)
        return x->stream < y->stream ? -1 : 1;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns > y->end_ns ? -1 : 1;
    if (x->entry != y->entry)
        return x->entry < y->entry ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

/* The lane's spans before the cut, counted, and in the order in which a trace has them. */
static size_t sort_lane(struct mcp_sim_timeline *timeline, const struct lane *lane,
                        struct mcp_sim_span *spans)
{
    struct mcp_sim_kept *kept = &timeline->kept;
    size_t count = 0;
    kept->all_ops += lane->of[OPS].seen;
    kept->all_slots += lane->of[SLOTS].seen;
    for (int kind = 0; kind < NUM_KINDS; kind++) {
        int64_t until_ns = kind == OPS ? kept->ops_until_ns : kept->slots_until_ns;
        for (size_t i = 0; i < lane->of[kind].count; i++) {
            if (lane->of[kind].spans[i].start_ns >= until_ns)
                continue;
            spans[count++] = lane->of[kind].spans[i];
            *(kind == OPS ? &kept->ops : &kept->slots) += 1;
        }
    }
    if (count > 0)
        qsort(spans, count, sizeof *spans, by_place);
    return count;
}

static void put_rank(struct mcp_sim_timeline *timeline, int rank, struct mcp_text *out)
{
    const struct lane *lane = &timeline->lanes[*lane_of_rank(timeline, rank)];
    size_t most = lane->of[OPS].count + lane->of[SLOTS].count;
    struct mcp_sim_span *spans = MCP_ARRAY(timeline->arena, most, struct mcp_sim_span);
    size_t count = sort_lane(timeline, lane, spans);
    int64_t ends_ns[MCP_NUM_STREAMS] = {0};
    char name[64];
    for (size_t i = 0; i < count; i++) {
        struct mcp_sim_span *span = &spans[i];
        int64_t *end_ns = &ends_ns[span->stream];
        if (span->op >= 0 && span->start_ns < *end_ns)
            span->start_ns = *end_ns;
        if (span->start_ns >= span->end_ns)
            continue;
        if (span->op >= 0)
            *end_ns = span->end_ns;
        put_event(out, name_of(timeline->program, span, name), rank, span);
    }
}

void mcp_sim_timeline_trace(struct mcp_sim_timeline *timeline, struct mcp_text *out)
{
    cut(timeline, timeline->most_of_rank);
    mcp_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    put_names(timeline, out);
    for (int i = 0; i < timeline->num_ranks; i++) {
        put_rank(timeline, timeline->ranks[i], out);
    }
    mcp_text_add(out, "\n]}\n");
}

struct mcp_sim_kept mcp_sim_timeline_kept(const struct mcp_sim_timeline *timeline)
{
    return timeline->kept;
}
