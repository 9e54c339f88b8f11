/* cli/plan_options.h: what mcpplan plan is asked. */
#ifndef MCP_CLI_PLAN_OPTIONS_H
#define MCP_CLI_PLAN_OPTIONS_H

#include "cli/options.h"
#include "planner/search.h"

enum mcp_plan_method { MCP_METHOD_SEARCH, MCP_METHOD_RULE, MCP_METHOD_EXHAUSTIVE, MCP_NUM_METHODS };
extern const char *const mcp_plan_method_names[MCP_NUM_METHODS];

struct mcp_schedule_file;

struct mcp_plan_args {
    const char *model, *cluster, *stack, *attention, *dump_program, *report, *placement,
        *calibration;
    int gpus, top, refine;
    int64_t global_batch_size, sequence_length;
    double memory_limit_frac;
    int64_t freeze_step, num_steps, fp32_embedding_steps;
    int saved_activation_bits;
    bool dropout, uniform_stages, sensitivity, memory_waterfall, savings;
    struct mcp_choice precision, optimizer, phase, clip_global_norm;
    struct mcp_range degrees[MCP_KNOB_MICROBATCH + 1]; /* by knob */
    struct mcp_choice zero_stage, sequence_parallel, context_parallel_kind, recompute;
    /* --schedule, and what mcp_plan_schedule_read() made of it: bits of schedules, or a file */
    const char *schedule;
    unsigned schedules;
    const struct mcp_schedule_file *schedule_file;
    struct mcp_choice overlap, method, objective, pipeline_rule, batch_rule;
    struct mcp_strings require, against;
};

struct mcp_plan_args mcp_plan_args_default(void);
/* False: return ctx->status. */
bool mcp_plan_args_parse(struct mcp_context *ctx, struct mcp_plan_args *args, int argc,
                         char **argv);

/* Options that pin or bound what a search may choose, for tables of other commands: at most
 * MCP_MOST_DEGREE_OPTIONS from `at` on. Returns what follows the last. */
enum { MCP_MOST_DEGREE_OPTIONS = 24 };
struct mcp_option *mcp_plan_degree_options(struct mcp_plan_args *args, struct mcp_option *at);

/* The question with what it points to. */
struct mcp_plan_question {
    struct mcp_model model;
    struct mcp_cluster cluster;
    struct mcp_job job;
    struct mcp_stack stack;
    struct mcp_question asked; /* points to the four */
};
enum mcp_status mcp_plan_load_question(struct mcp_context *ctx, const struct mcp_plan_args *args,
                                       struct mcp_plan_question *out);

/* Pins and bounds; without what --require says. */
struct mcp_plan_space mcp_plan_space_of(const struct mcp_plan_args *args);

#endif
