/* planner/space.h: every plan that a search looks at, but for its split into stages.
 *
 * Two levels. A layout is a way to factor the GPUs: tensor, context, pipeline,
 * data, expert. Under a layout the other choices are independent lists, so a
 * candidate is a number: choices have a product, and an order that never changes.
 *
 *   tensor, context, pipeline   divisors of the GPUs; data is what remains
 *   expert_parallel             divisors of the experts that divide t c d
 *   virtual_stages              1, and for each size of chunk the fewest
 *                               that give it
 *   microbatch_size             divisors of global batch / data, at most 4,096
 *   zero_stage                  0 .. 3; 0 alone where nothing is replicated
 *   reshard_after_forward       on; with ZeRO-3 off too
 *   rank_order                  all orders of the four axes of which groups lie
 *                               otherwise on the links; the usual one first; on a
 *                               mixed cluster the first that has the pipeline last
 *   placement                   on a mixed cluster: its pools in every order
 *   sequence_parallel           off and on; off alone where tensor is 1
 *   context_parallel_kind       all; ring alone where context is 1
 *   schedule                    of those that the stack runs, or that were asked for: GPipe,
 *                               1F1B and those of zero bubble on one chunk a rank, those of
 *                               V placement on two, interleaved on more than one
 *   recompute                   none, selective, full: in a candidate the same for all
 *                               layers, in a tuple, which is a candidate without it,
 *                               those that a split may use
 *
 * What a stack can hide the plans ask it to hide, or nothing (overlap): a switch that
 * is on never costs (tests/planner/test_space.c).
 *
 * A knob can be bounded or pinned; a pinned value is a candidate even where it is
 * illegal, so that step/legal.h can say why. */
#ifndef MCP_PLANNER_SPACE_H
#define MCP_PLANNER_SPACE_H

#include "core/arena.h"
#include "core/error.h"
#include "core/plan.h"
#include "step/legal.h"

#include <stdbool.h>
#include <stdint.h>

enum mcp_knob {
    MCP_KNOB_TENSOR,
    MCP_KNOB_CONTEXT,
    MCP_KNOB_PIPELINE,
    MCP_KNOB_DATA,
    MCP_KNOB_EXPERT,
    MCP_KNOB_VIRTUAL_STAGES,
    MCP_KNOB_MICROBATCH,
    MCP_KNOB_ZERO_STAGE,
    MCP_KNOB_SEQUENCE_PARALLEL, /* 0, 1 */
    MCP_KNOB_CONTEXT_KIND,      /* enum mcp_context_kind */
    MCP_KNOB_SCHEDULE,          /* enum mcp_schedule */
    MCP_KNOB_RECOMPUTE,         /* enum mcp_recompute */
    MCP_KNOB_RESHARD,           /* 0, 1 */
    MCP_KNOB_RANK_ORDER,        /* mcp_rank_order_index() */
    MCP_NUM_KNOBS
};
/* The plan's JSON keys: an initialiser, for tables that begin with the knobs, and a table. */
#define MCP_KNOB_NAMES                                                                             \
    [MCP_KNOB_TENSOR] = "tensor_parallel", [MCP_KNOB_CONTEXT] = "context_parallel",                \
    [MCP_KNOB_PIPELINE] = "pipeline_parallel", [MCP_KNOB_DATA] = "data_parallel",                  \
    [MCP_KNOB_EXPERT] = "expert_parallel", [MCP_KNOB_VIRTUAL_STAGES] = "virtual_stages",           \
    [MCP_KNOB_MICROBATCH] = "microbatch_size", [MCP_KNOB_ZERO_STAGE] = "zero_stage",               \
    [MCP_KNOB_SEQUENCE_PARALLEL] = "sequence_parallel",                                            \
    [MCP_KNOB_CONTEXT_KIND] = "context_parallel_kind", [MCP_KNOB_SCHEDULE] = "schedule",           \
    [MCP_KNOB_RECOMPUTE] = "recompute", [MCP_KNOB_RESHARD] = "reshard_after_forward",              \
    [MCP_KNOB_RANK_ORDER] = "rank_order"
extern const char *const mcp_knob_names[MCP_NUM_KNOBS];

/* A plan's value of it, and that in words: "8", "full", "on". */
int mcp_knob_value(enum mcp_knob knob, const struct mcp_plan *plan);
const char *mcp_knob_text(struct mcp_arena *arena, enum mcp_knob knob, int value);

struct mcp_interval { /* pinned where low == high */
    bool given;
    int low, high;
};

struct mcp_plan_space {
    struct mcp_interval knobs[MCP_NUM_KNOBS];
    bool pipeline_rule, batch_rule; /* the article's, as asked for */
    bool overlap;                   /* plans ask their stack to hide what it can */
    bool usual_order;               /* no other rank order than the usual one */
    /* Unless the knob of schedules is pinned: bits of those to look at; 0: the stack's. */
    unsigned schedules;
    /* Of MCP_CUSTOM, which is pinned then, as are both degrees of the pipeline; else NULL. */
    const struct mcp_schedule_row *rows;
    enum mcp_placement placement;
    int num_microbatches; /* that the rows are made for */
};

/* Nothing bounded, both rules and overlap on. */
struct mcp_plan_space mcp_space_default(void);
void mcp_space_pin(struct mcp_plan_space *space, enum mcp_knob knob, int value);
bool mcp_space_pinned(const struct mcp_plan_space *space, enum mcp_knob knob);

/* Bits of schedules that the space holds. */
unsigned mcp_space_schedules(const struct mcp_plan_space *space, const struct mcp_stack *stack);
/* Schedules that are looked at with layers spread evenly and one recompute for all layers
 * alone: those of which no bound of uneven splits is known, since backwards come in two
 * parts or rows say the order. */
bool mcp_schedule_is_even(enum mcp_schedule schedule);
enum {
    MCP_UNEVEN_SCHEDULES = 1 << MCP_GPIPE | 1 << MCP_1F1B | 1 << MCP_INTERLEAVED,
    MCP_V_SCHEDULES = 1 << MCP_ZB_V | 1 << MCP_V_HALF | 1 << MCP_V_MIN | 1 << MCP_DUALPIPE_V
};
/* Is it looked at on such a pipeline, where it is not pinned? */
bool mcp_schedule_suits(enum mcp_schedule schedule, int pipeline_parallel, int virtual_stages);

/* Do the article's rules hold here? A pinned pipeline_parallel lifts the first, a
 * pinned microbatch_size the second. */
bool mcp_space_keeps_pipeline_rule(const struct mcp_plan_space *space);
bool mcp_space_keeps_batch_rule(const struct mcp_plan_space *space);

/* Pinned and bounded degrees that no number of the cluster's GPUs, or of the
 * batch, can mean: MCP_INVALID with the arithmetic and the nearest legal value. */
enum mcp_status mcp_space_check(const struct mcp_question *question,
                                const struct mcp_plan_space *space, struct mcp_error *err);

struct mcp_layout {
    int tensor_parallel, context_parallel, pipeline_parallel, data_parallel, expert_parallel;
};

/* All layouts, in ascending order of tensor, context, pipeline, expert. */
int mcp_space_layouts(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_plan_space *space, struct mcp_layout **out);

struct mcp_interleave {
    int virtual_stages;
    enum mcp_schedule schedule;
};

struct mcp_values {
    int count;
    int *items;
};

struct mcp_zero {
    int stage;
    bool reshard;
};

/* Orders of the four axes, the fastest first; 0 is the usual one. */
enum { MCP_NUM_RANK_ORDERS = 24 };
extern const char *const mcp_rank_order_names[MCP_NUM_RANK_ORDERS]; /* "tensor-context-..." */
void mcp_rank_order(int index, enum mcp_axis out[4]);
int mcp_rank_order_index(const enum mcp_axis order[4]); /* a permutation of the axes */

/* The independent lists under one layout. The last varies fastest. */
struct mcp_choices {
    struct mcp_plan base;
    struct mcp_values context_kinds;
    struct mcp_values sequence_parallel;
    int num_interleaves;
    struct mcp_interleave *interleaves;
    struct mcp_values microbatches;
    struct mcp_values zero_stages; /* as they are in zeros, each once */
    int num_zeros;
    struct mcp_zero *zeros;
    int num_placements;
    const int **placements; /* of each: pool by stage, NULL on a cluster of one kind */
    struct mcp_values rank_orders;
    struct mcp_values recomputes;
    struct mcp_chunk **chunks; /* [num_interleaves][recomputes.count]; NULL: too many stages */
};

void mcp_space_choices(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan_space *space, const struct mcp_layout *layout,
                       struct mcp_choices *out);
/* The same without chunks: plans have none. */
void mcp_space_tuples(struct mcp_arena *arena, const struct mcp_question *question,
                      const struct mcp_plan_space *space, const struct mcp_layout *layout,
                      struct mcp_choices *out);
int64_t mcp_choices_count(const struct mcp_choices *choices);
/* The two lists of space_order.c: where ranks lie. */
void mcp_choices_place(struct mcp_arena *arena, const struct mcp_question *question,
                       const struct mcp_plan_space *space, struct mcp_choices *out);
/* Candidate 0 <= index < count. Its chunks are shared: copy what is kept. */
void mcp_choices_plan(const struct mcp_choices *choices, int64_t index, struct mcp_plan *out);

/* Where candidate `index` stands in each list. */
struct mcp_choice_index {
    int context_kind, sequence_parallel, interleave, microbatch, zero, placement, rank_order,
        recompute;
};
struct mcp_choice_index mcp_choices_at(const struct mcp_choices *choices, int64_t index);

/* What recompute all layers do; MCP_NUM_RECOMPUTES where they differ. */
enum mcp_recompute mcp_uniform_recompute(const struct mcp_plan *plan);

#endif
