/* exec/summary.h: the facts of a run, for who started it: docs/formats/training.md. */
#ifndef MCP_EXEC_SUMMARY_H
#define MCP_EXEC_SUMMARY_H

#include "core/json.h"
#include "exec/train.h"

struct mcp_summary { /* of the steps of this run; begin with zeros */
    int64_t first_step, steps, skipped_steps, tokens;
    double first_loss, loss;   /* of its first and last step */
    double eval_loss;          /* the last one; with `evaluated` */
    double seconds, fastest_s; /* of all its steps, waiting for data too; of one */
    double data_wait_s;        /* of those seconds */
    bool evaluated;
    /* set by the owner: */
    int64_t peak_memory_bytes; /* of the fullest rank, as planned */
    int64_t checkpoint;        /* steps of the newest one; -1: none */
    bool was_asked_to_end;
};
void mcp_summary_add(struct mcp_summary *summary, const struct mcp_step_report *report);
/* "mcpplan.run/1". What is not known, as of no steps, is null. */
struct mcp_json *mcp_summary_json(struct mcp_arena *arena, const struct mcp_summary *summary);

#endif
