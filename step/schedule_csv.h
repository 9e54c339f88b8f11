/* step/schedule_csv.h: schedules in PyTorch's CSV form, read and written.
 *
 * torch.distributed.pipelining: one line a rank, one action a cell, no header; lines may
 * differ in length and an empty cell is idle time. An action is the stage (our virtual
 * stage), its type, and for most types the microbatch:
 *
 *     F forward   B whole backward   I input half   W weight half
 *     UNSHARD RESHARD REDUCE_GRAD SEND_F RECV_F SEND_B RECV_B    communication
 *     (0F3;7B1)OVERLAP_F_B                                       actions side by side
 *
 * Communication is read, counted and left out: a program here derives its own from the
 * compute. Actions side by side are taken one after the other. Unlike PyTorch's parser,
 * which stops at the first match, this one refuses what follows an action. */
#ifndef MCP_STEP_SCHEDULE_CSV_H
#define MCP_STEP_SCHEDULE_CSV_H

#include "core/arena.h"
#include "core/error.h"
#include "core/plan.h"

#include <stddef.h>

enum mcp_csv_action { /* those that are ignored */
                      MCP_CSV_UNSHARD,
                      MCP_CSV_RESHARD,
                      MCP_CSV_REDUCE_GRAD,
                      MCP_CSV_SEND_F,
                      MCP_CSV_RECV_F,
                      MCP_CSV_SEND_B,
                      MCP_CSV_RECV_B,
                      MCP_NUM_CSV_ACTIONS
};
extern const char *const mcp_csv_action_names[MCP_NUM_CSV_ACTIONS];

struct mcp_schedule_file {
    int pipeline_parallel;         /* lines */
    int virtual_stages;            /* of each rank */
    int num_microbatches;          /* the largest named, and one */
    enum mcp_placement placement;  /* the one that has each stage where the file has it */
    struct mcp_schedule_row *rows; /* [pipeline_parallel] */
    int *lines;                    /* [pipeline_parallel] of the file, from 1: rows' */
    int ignored[MCP_NUM_CSV_ACTIONS];
    int num_side_by_side;
};

/* Refused with line, column and value: what is no action, a stage on two ranks or on one
 * where neither placement has it. Whether each microbatch passes each stage and whether the
 * rows can be played is asked of mcp_legal(). */
enum mcp_status mcp_schedule_csv_read(struct mcp_arena *arena, const char *path,
                                      struct mcp_schedule_file *out, struct mcp_error *err);
enum mcp_status mcp_schedule_csv_parse(struct mcp_arena *arena, const char *name, const char *text,
                                       size_t length, struct mcp_schedule_file *out,
                                       struct mcp_error *err);

/* The text of rows[pipeline_parallel], lines ending as Python's csv module ends them. */
const char *mcp_schedule_csv_text(struct mcp_arena *arena, enum mcp_placement placement,
                                  int pipeline_parallel, const struct mcp_schedule_row *rows);

#endif
