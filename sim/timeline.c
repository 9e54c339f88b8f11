/* sim/timeline.c: spans kept, as a timeline and as a trace. */
#include "sim/timeline.h"

#include "core/mesh.h"
#include "sim/cells.h"

#include <stdio.h>

struct mcp_sim_timeline {
    struct mcp_arena *arena;
    const struct mcp_program *program;
    struct mcp_sim_span *spans;
    size_t count, capacity;
};

struct mcp_sim_timeline *mcp_sim_timeline_new(struct mcp_arena *arena,
                                              const struct mcp_program *program)
{
    struct mcp_sim_timeline *timeline = MCP_NEW(arena, struct mcp_sim_timeline);
    timeline->arena = arena;
    timeline->program = program;
    return timeline;
}

void mcp_sim_timeline_take(void *context, const struct mcp_sim_span *span)
{
    struct mcp_sim_timeline *timeline = context;
    timeline->spans = mcp_grow(timeline->arena, timeline->spans, timeline->count,
                               &timeline->capacity, sizeof *timeline->spans);
    timeline->spans[timeline->count++] = *span;
}

/* Microseconds, as traces have them. */
static void put_us(struct mcp_text *out, int64_t ns)
{
    mcp_text_add(out, "%lld.%03lld", (long long)(ns / 1000), (long long)(ns % 1000));
}

/* Every rank is like the first of its stage. */
static void fill_ranks(const struct mcp_sim_timeline *timeline, struct mcp_timeline *out)
{
    const struct mcp_plan *plan = &timeline->program->plan;
    out->num_ranks = mcp_plan_world(plan);
    out->like = MCP_ARRAY(timeline->arena, out->num_ranks, int);
    for (int rank = 0; rank < out->num_ranks; rank++)
        out->like[rank] = mcp_sim_rank_on(plan, 0, mcp_mesh_coordinate(plan, rank).pipeline);
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

/* When spans of the pass on the rank's data stream begin and end; false: there are none. */
static bool find_pass(const struct mcp_timeline *timeline, int rank, enum mcp_block_role pass,
                      struct stretch *out)
{
    *out = (struct stretch){.from_ns = INT64_MAX, .to_ns = -1};
    for (size_t i = 0; i < timeline->num_spans; i++) {
        const struct mcp_timeline_span *span = &timeline->spans[i];
        if (span->rank != rank || span->pass != pass)
            continue;
        out->from_ns = span->start_ns < out->from_ns ? span->start_ns : out->from_ns;
        out->to_ns = span->end_ns > out->to_ns ? span->end_ns : out->to_ns;
    }
    return out->to_ns > out->from_ns;
}

static void stretch_pass(struct mcp_timeline *timeline, int rank, enum mcp_block_role pass,
                         const struct stretch *stretch)
{
    for (size_t i = 0; i < timeline->num_spans; i++) {
        struct mcp_timeline_span *span = &timeline->spans[i];
        if (span->rank != rank || span->pass != pass)
            continue;
        span->start_ns = stretched_ns(stretch, span->start_ns);
        span->end_ns = stretched_ns(stretch, span->end_ns);
    }
}

static void fill_edges(struct mcp_timeline *timeline, int rank, const struct mcp_sim_stage *stage)
{
    struct stretch stretch;
    if (stage->head_ns > 0 && !stage->head_laid &&
        find_pass(timeline, rank, MCP_GATHER, &stretch)) {
        stretch.new_from_ns = 0;
        stretch.new_to_ns = stretch.to_ns;
        stretch_pass(timeline, rank, MCP_GATHER, &stretch);
    }
    if (stage->tail_ns > 0 && !stage->tail_laid &&
        find_pass(timeline, rank, MCP_REDUCE, &stretch)) {
        int64_t last_ns =
            stretch.to_ns > stage->latest_end_ns ? stretch.to_ns : stage->latest_end_ns;
        stretch.new_from_ns = stretch.from_ns;
        stretch.new_to_ns = last_ns + stage->tail_ns;
        stretch_pass(timeline, rank, MCP_REDUCE, &stretch);
    }
}

void mcp_sim_timeline_fill(const struct mcp_sim_timeline *timeline,
                           const struct mcp_sim_result *result, struct mcp_timeline *out)
{
    *out = (struct mcp_timeline){.iteration_ns = result->step_ns};
    fill_ranks(timeline, out);
    for (size_t i = 0; i < timeline->count; i++) {
        const struct mcp_sim_span *from = &timeline->spans[i];
        struct mcp_timeline_span span = {
            .rank = mcp_sim_rank_on(&timeline->program->plan, 0, from->stage),
            .slot = from->slot,
            .entry = from->entry,
            .op = from->op,
            .stream = (unsigned char)from->stream,
            .start_ns = from->start_ns,
            .end_ns = from->end_ns};
        if (from->op < 0)
            continue;
        mcp_timeline_tell(timeline->program, from->stage, &span);
        mcp_timeline_add(timeline->arena, out, &span);
    }
    for (int s = 0; s < result->num_stages; s++)
        fill_edges(out, mcp_sim_rank_on(&timeline->program->plan, 0, s), &result->stages[s]);
}

/* --- trace --- */

static void put_names(const struct mcp_sim_timeline *timeline, struct mcp_text *out)
{
    for (int s = 0; s < timeline->program->num_classes; s++) {
        mcp_text_add(out,
                     "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
                     "\"args\":{\"name\":\"stage %d\"}}",
                     s > 0 ? "," : "", s, s);
        for (int t = 0; t < MCP_NUM_STREAMS; t++)
            mcp_text_add(out,
                         ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                         "\"args\":{\"name\":\"%s\"}}",
                         s, t, mcp_stream_names[t]);
    }
}

static void put_event(struct mcp_text *out, const char *name, const struct mcp_sim_span *span)
{
    mcp_text_add(out, ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":", name,
                 span->stage, (int)span->stream);
    put_us(out, span->start_ns);
    mcp_text_add(out, ",\"dur\":");
    put_us(out, span->end_ns - span->start_ns);
    mcp_text_add(out, ",\"args\":{\"slot\":%d,\"entry\":%d,\"op\":%d}}", span->slot, span->entry,
                 span->op);
}

static void put_span(const struct mcp_sim_timeline *timeline, struct mcp_text *out,
                     const struct mcp_sim_span *span)
{
    const struct mcp_program *program = timeline->program;
    const struct mcp_slot *slot = &program->classes[span->stage].slots[span->slot];
    const struct mcp_entry *entry = &program->lists[slot->list].entries[span->entry];
    const struct mcp_block *block = &program->types[entry->type].blocks[entry->role];
    char name[64];
    if (span->op >= 0)
        snprintf(name, sizeof name, "%s", mcp_functions[block->ops[span->op].function].name);
    else
        snprintf(name, sizeof name, "%s layer %d", mcp_block_role_names[entry->role], entry->layer);
    put_event(out, name, span);
}

static void put_slots(struct mcp_text *out, const struct mcp_sim_result *result, int stage)
{
    const struct mcp_sim_stage *of = &result->stages[stage];
    for (int s = 0; s < of->num_slots; s++) {
        const struct mcp_slot *slot = &of->slots[s];
        const struct mcp_sim_slot_time *time = &of->times[s];
        const struct mcp_sim_span span = {stage,          s,           -1, -1, MCP_STREAM_COMPUTE,
                                          time->start_ns, time->end_ns};
        char name[64];
        if (time->end_ns == time->start_ns)
            continue;
        snprintf(name, sizeof name, "%s %d chunk %d", mcp_block_role_names[slot->pass],
                 slot->microbatch, slot->chunk);
        put_event(out, name, &span);
    }
}

void mcp_sim_timeline_trace(const struct mcp_sim_timeline *timeline,
                            const struct mcp_sim_result *result, struct mcp_text *out)
{
    int stages = timeline->program->num_classes;
    int64_t *ends = MCP_ARRAY(timeline->arena, (size_t)stages * (size_t)MCP_NUM_STREAMS, int64_t);
    mcp_text_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    put_names(timeline, out);
    for (int s = 0; s < stages; s++)
        put_slots(out, result, s);
    for (size_t i = 0; i < timeline->count; i++) {
        struct mcp_sim_span span = timeline->spans[i];
        int64_t *end_ns = &ends[span.stage * MCP_NUM_STREAMS + (int)span.stream];
        if (span.op >= 0 && span.start_ns < *end_ns)
            span.start_ns = *end_ns;
        if (span.start_ns >= span.end_ns)
            continue;
        if (span.op >= 0)
            *end_ns = span.end_ns;
        put_span(timeline, out, &span);
    }
    mcp_text_add(out, "\n]}\n");
}
