/* step/timeline.h: what each rank did when: mcpplan.timeline/1, predicted or measured.
 *
 * A span is one op of the step program on its stream; (rank, slot, entry, op) names it,
 * whoever wrote it, so that any two timelines of a program compare op by op. Times are
 * nanoseconds from the start of the step. What an op is (function, pass, layer) may stand
 * in the file, which then needs no program to be understood. docs/FORMATS.md has both
 * forms: one JSON object, and JSON lines for large ones. */
#ifndef MCP_STEP_TIMELINE_H
#define MCP_STEP_TIMELINE_H

#include "core/text.h"
#include "step/program.h"

struct mcp_timeline_span {
    int rank, slot, entry, op;
    unsigned char stream;   /* enum mcp_stream */
    unsigned char function; /* enum mcp_function; MCP_NUM_FUNCTIONS: not stated */
    unsigned char pass;     /* enum mcp_block_role of the entry; MCP_NUM_BLOCK_ROLES: not stated */
    int layer, microbatch;  /* -1: none, or not stated */
    int64_t start_ns, end_ns;
};

struct mcp_timeline {
    bool measured;
    int64_t iteration_ns; /* of the whole step; 0: not stated, the last span's end counts */
    int64_t until_ns;     /* ops that begin then or later are left out; 0: all are here */
    int num_ranks;        /* 0: every rank has spans of its own */
    int *like;            /* [num_ranks] the rank whose spans are this one's too; -1: not there */
    size_t num_spans, capacity;
    struct mcp_timeline_span *spans; /* as read: by rank, slot, entry, op, each key once */
};

extern const char *const mcp_timeline_kind_names[2]; /* "predicted", "measured" */

void mcp_timeline_add(struct mcp_arena *arena, struct mcp_timeline *timeline,
                      const struct mcp_timeline_span *span);

/* By rank, slot, entry, op. */
void mcp_timeline_sort(struct mcp_timeline *timeline);

/* Fills function, pass, layer and microbatch from the program, of whose class `class` the
 * span's rank is. */
void mcp_timeline_tell(const struct mcp_program *program, int class,
                       struct mcp_timeline_span *span);

/* "it.jsonl": its name says that a file has JSON lines. */
bool mcp_timeline_is_lines(const char *path);
/* Spans in their order, one a line; seconds with nine digits. */
void mcp_timeline_write(const struct mcp_timeline *timeline, bool lines, struct mcp_text *out);

/* Either form. MCP_FORMAT, naming the line: what is no timeline, unknown keys, spans that
 * end before they begin; MCP_INVALID: a key twice, a rank that has spans and is like another. */
enum mcp_status mcp_timeline_parse(struct mcp_arena *arena, const char *name, const char *text,
                                   size_t length, struct mcp_timeline *out, struct mcp_error *err);
enum mcp_status mcp_timeline_read(struct mcp_arena *arena, const char *path,
                                  struct mcp_timeline *out, struct mcp_error *err);

#endif
