/* cli/capacity_jobs.h: what the answer of mcpplan capacity --jobs is made of. */
#ifndef MCP_CLI_CAPACITY_JOBS_H
#define MCP_CLI_CAPACITY_JOBS_H

#include "cli/capacity_view.h"
#include "cli/plan_options.h"
#include "planner/jobs.h"

enum { MCP_MOST_JOB_POOLS = 8, MCP_MOST_JOBS = 32 };

struct mcp_jobs_machines {
    const char *cluster;
    struct mcp_cluster machines; /* all nodes of the pool */
};

struct mcp_jobs_asked {
    struct mcp_plan_args plan;
    int64_t tokens;
};

struct mcp_jobs_view {
    struct mcp_context *ctx;
    struct mcp_capacity_ask ask;
    struct mcp_plan_args given; /* what the command line says of all jobs */
    struct mcp_jobs_machines pools[MCP_MOST_JOB_POOLS];
    struct mcp_jobs_asked jobs[MCP_MOST_JOBS];
    struct mcp_jobs_pool pool_facts[MCP_MOST_JOB_POOLS];
    struct mcp_jobs_job job_facts[MCP_MOST_JOBS];
    struct mcp_jobs_option *options;
    struct mcp_capacity_row *rows;         /* [num_options] what the options were planned as */
    const struct mcp_question **questions; /* [num_options] and of what */
    struct mcp_jobs_problem problem;
    struct mcp_jobs_answer answer;
    bool interrupted;
};

/* What the text, the JSON and the report say alike (capacity_jobs_text.c). */
double mcp_jobs_start_s(const struct mcp_jobs_view *j, int job);
double mcp_jobs_due_s(const struct mcp_jobs_view *j, int job);
/* Price of a pool's reserved nodes over the horizon; NaN: unknown. */
double mcp_jobs_pool_price(const struct mcp_jobs_view *j, int pool);
/* Share of the reserved nodes' time that jobs use; 0 where nothing is reserved. */
double mcp_jobs_pool_busy_frac(const struct mcp_jobs_view *j, int pool);
/* "nodes 518K, energy 24.8K"; "of all that is reserved; a price is unknown". */
const char *mcp_jobs_cost_text(struct mcp_arena *arena, const struct mcp_jobs_view *j);
/* "2 of 2 jobs within 60.0 days for a price of 1.2M; nothing is better ..." */
const char *mcp_jobs_summary(struct mcp_arena *arena, const struct mcp_jobs_view *j);
struct mcp_table *mcp_jobs_table(struct mcp_arena *arena, const struct mcp_jobs_view *j);
struct mcp_table *mcp_jobs_pools_table(struct mcp_arena *arena, const struct mcp_jobs_view *j);
struct mcp_capacity_lines mcp_jobs_assumptions(struct mcp_arena *arena,
                                               const struct mcp_jobs_view *j);
void mcp_jobs_text(struct mcp_text *out, const struct mcp_style *style,
                   const struct mcp_jobs_view *j);
struct mcp_json *mcp_jobs_json(struct mcp_arena *arena, const struct mcp_jobs_view *j);

/* capacity_jobs_report.c: --report FILE.html or FILE.md, where no job is left out. */
enum mcp_status mcp_jobs_report_write(struct mcp_context *ctx, const char *path,
                                      const struct mcp_jobs_view *j);

#endif
