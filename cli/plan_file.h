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

/* Loaded, legal, built and verified. `schedule`: an enum mcp_schedule to play instead of the
 * plan's; -1: none. */
enum mcp_status mcp_plan_file_load(struct mcp_context *ctx, const char *path, int schedule,
                                   struct mcp_plan_file *out);

#endif
