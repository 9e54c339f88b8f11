/* cli/plan_file.h: a plan.json with all that it was made for, ready to be played. */
#ifndef MCP_CLI_PLAN_FILE_H
#define MCP_CLI_PLAN_FILE_H

#include "cli/output.h"
#include "core/plan.h"
#include "step/legal.h"
#include "step/program.h"

struct mcp_plan_file {
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question question; /* points to the four */
    struct mcp_plan plan;
    struct mcp_program program;
};

/* In the place of custom, which no plan can be changed to: DualPipe with two copies of the weights,
 * which is played as the DualPipeV of half the ranks that it is (step/schedule.h). */
enum { MCP_DUALPIPE_TWICE = MCP_CUSTOM };

/* What is to be otherwise than the file says; see cli/switches.h. */
struct mcp_plan_changes {
    int schedule, optimizer, phase;  /* enums of the plan and the job; -1: as it says */
    const char *overlap, *placement; /* NULL: as it says */
};
struct mcp_plan_changes mcp_plan_unchanged(void);

/* Loaded, changed, legal, built and verified. */
enum mcp_status mcp_plan_file_load(struct mcp_context *ctx, const char *path,
                                   const struct mcp_plan_changes *changes,
                                   struct mcp_plan_file *out);

#endif
