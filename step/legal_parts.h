/* step/legal_parts.h: what a rule of legality is. Private to step/. */
#ifndef MCP_STEP_LEGAL_PARTS_H
#define MCP_STEP_LEGAL_PARTS_H

#include "step/legal.h"

#include <stddef.h>

/* What a rule looks at. */
struct ask {
    const struct mcp_model *model;
    const struct mcp_cluster *cluster;
    const struct mcp_job *job;
    const struct mcp_stack *stack;
    const struct mcp_plan *plan;
};

/* A rule judges one value of the plan, in the light of all others. */
typedef bool legal_value(const struct ask *ask, int value);

struct rule {
    const char *name;
    const char *key; /* of the value it judges */
    size_t offset;   /* in struct mcp_plan */
    legal_value *holds;
    const char *(*say)(struct mcp_arena *arena, const struct ask *ask, int value);
    legal_value *also; /* what a better value has to be; NULL: the sentence says it */
};

/* step/legal_extra.c. */
bool mcp_hold_zero(const struct ask *ask, int stage);
const char *mcp_say_zero(struct mcp_arena *arena, const struct ask *ask, int stage);
/* 1-bit Adam averages all of the momentum on every rank: no ZeRO. */
bool mcp_hold_whole_state(const struct ask *ask, int stage);
const char *mcp_say_whole_state(struct mcp_arena *arena, const struct ask *ask, int stage);

/* ... nor a global norm to clip by. */
bool mcp_hold_clip(const struct ask *ask, int value);
const char *mcp_say_clip(struct mcp_arena *arena, const struct ask *ask, int value);
/* Who casts operands for real has one scale for each. */
bool mcp_hold_casts(const struct ask *ask, int value);
const char *mcp_say_casts(struct mcp_arena *arena, const struct ask *ask, int value);
bool mcp_hold_rank_map(const struct ask *ask, int data_parallel);
const char *mcp_say_rank_map(struct mcp_arena *arena, const struct ask *ask, int data_parallel);

/* step/legal_schedule.c. */
/* Does the pipeline go there and back, on two chunks a rank? */
bool mcp_folds(const struct ask *ask);
/* Where it does, no other number of chunks would do, but fewer stages. */
const char *mcp_say_virtual_stages(struct mcp_arena *arena, const struct ask *ask, int v);
bool mcp_hold_schedule(const struct ask *ask, int v);
const char *mcp_say_schedule(struct mcp_arena *arena, const struct ask *ask, int v);
/* DualPipeV's own order begins with 2 microbatches a rank. */
bool mcp_hold_dualpipe(const struct ask *ask, int p);
const char *mcp_say_dualpipe(struct mcp_arena *arena, const struct ask *ask, int p);
bool mcp_hold_named_rows(const struct ask *ask, int p);
const char *mcp_say_named_rows(struct mcp_arena *arena, const struct ask *ask, int p);
bool mcp_hold_rows(const struct ask *ask, int p);
const char *mcp_say_rows(struct mcp_arena *arena, const struct ask *ask, int p);

/* The value of `plan` that the rule judges. */
int mcp_judged(const struct rule *rule, const struct mcp_plan *plan);
/* The rule's sentence about the plan, with the nearest legal value. */
struct mcp_refusal mcp_refuse(struct mcp_arena *arena, const struct ask *ask,
                              const struct rule *rule);

#endif
