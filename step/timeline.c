/* step/timeline.c: spans told what they are, and written one a line. */
#include "step/timeline.h"

#include <assert.h>
#include <stdlib.h>

const char *const mcp_timeline_kind_names[2] = {"predicted", "measured"};

void mcp_timeline_add(struct mcp_arena *arena, struct mcp_timeline *timeline,
                      const struct mcp_timeline_span *span)
{
    timeline->spans = mcp_grow(arena, timeline->spans, timeline->num_spans, &timeline->capacity,
                               sizeof *timeline->spans);
    timeline->spans[timeline->num_spans++] = *span;
}

static int by_key(const void *a, const void *b)
{
    const struct mcp_timeline_span *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->entry != y->entry)
        return x->entry < y->entry ? -1 : 1;
    return (x->op > y->op) - (x->op < y->op);
}

void mcp_timeline_sort(struct mcp_timeline *timeline)
{
    if (timeline->num_spans > 0)
        qsort(timeline->spans, timeline->num_spans, sizeof *timeline->spans, by_key);
}

void mcp_timeline_tell(const struct mcp_program *program, int class, struct mcp_timeline_span *span)
{
    assert(class < program->num_classes && span->slot < program->classes[class].num_slots);
    const struct mcp_slot *slot = &program->classes[class].slots[span->slot];
    assert(span->entry < program->lists[slot->list].num_entries);
    const struct mcp_entry *entry = &program->lists[slot->list].entries[span->entry];
    const struct mcp_block *block = &program->types[entry->type].blocks[entry->role];
    assert(span->op < block->num_ops);
    span->function = block->ops[span->op].function;
    span->pass = entry->role;
    span->layer = entry->layer;
    span->microbatch = slot->microbatch < 0 ? -1 : slot->microbatch + entry->microbatch_offset;
}

bool mcp_timeline_is_lines(const char *path)
{
    return mcp_ends_with(path, ".jsonl");
}

/* --- writing --- */

/* A nanosecond is the ninth digit. */
static void put_seconds(struct mcp_text *out, const char *key, int64_t ns)
{
    mcp_text_add(out, ",\"%s\":%lld.%09lld", key, (long long)(ns / 1000000000),
                 (long long)(ns % 1000000000));
}

static void put_span(struct mcp_text *out, const struct mcp_timeline_span *span)
{
    mcp_text_add(out, "{\"rank\":%d,\"stream\":\"%s\",\"slot\":%d,\"entry\":%d,\"op\":%d",
                 span->rank, mcp_stream_names[span->stream], span->slot, span->entry, span->op);
    put_seconds(out, "start_s", span->start_ns);
    put_seconds(out, "end_s", span->end_ns);
    if (span->function < MCP_NUM_FUNCTIONS)
        mcp_text_add(out, ",\"function\":\"%s\"", mcp_functions[span->function].name);
    if (span->pass < MCP_NUM_BLOCK_ROLES)
        mcp_text_add(out, ",\"pass\":\"%s\"", mcp_block_role_names[span->pass]);
    if (span->layer >= 0)
        mcp_text_add(out, ",\"layer\":%d", span->layer);
    if (span->microbatch >= 0)
        mcp_text_add(out, ",\"microbatch\":%d", span->microbatch);
    mcp_text_add(out, "}");
}

/* [[0,1,2,3],[4,5,6,7]]: the first of each list has the spans. */
static void put_equal_ranks(struct mcp_text *out, const struct mcp_timeline *timeline)
{
    int count = timeline->num_ranks;
    int *next = MCP_ARRAY(out->arena, count, int), *last = MCP_ARRAY(out->arena, count, int);
    const char *comma = "";
    for (int rank = 0; rank < count; rank++)
        next[rank] = last[rank] = -1;
    for (int rank = 0; rank < count; rank++) {
        int like = timeline->like[rank];
        if (like < 0 || like == rank)
            continue;
        next[last[like] < 0 ? like : last[like]] = rank;
        last[like] = rank;
    }
    mcp_text_add(out, ",\"equal_ranks\":[");
    for (int rank = 0; rank < count; rank++) {
        if (timeline->like[rank] != rank)
            continue;
        mcp_text_add(out, "%s[%d", comma, rank);
        for (int other = next[rank]; other >= 0; other = next[other])
            mcp_text_add(out, ",%d", other);
        mcp_text_add(out, "]");
        comma = ",";
    }
    mcp_text_add(out, "]");
}

void mcp_timeline_write(const struct mcp_timeline *timeline, bool lines, struct mcp_text *out)
{
    mcp_text_add(out, "{\"schema\":\"mcpplan.timeline/1\",\"kind\":\"%s\"",
                 mcp_timeline_kind_names[timeline->measured]);
    if (timeline->iteration_ns > 0)
        put_seconds(out, "iteration_s", timeline->iteration_ns);
    if (timeline->until_ns > 0)
        put_seconds(out, "until_s", timeline->until_ns);
    if (timeline->num_ranks > 0)
        put_equal_ranks(out, timeline);
    mcp_text_add(out, lines ? "}\n" : ",\"spans\":[");
    for (size_t i = 0; i < timeline->num_spans; i++) {
        mcp_text_add(out, "%s", lines ? "" : i > 0 ? ",\n" : "\n");
        put_span(out, &timeline->spans[i]);
        mcp_text_add(out, "%s", lines ? "\n" : "");
    }
    mcp_text_add(out, "%s", lines ? "" : "\n]}\n");
}
