/* planner/capacity.h: how many of which machines train so many tokens, in what time.
 *
 * Each size of each kind of machine is planned (planner/search.h); then
 *
 *     steps = ceil(tokens / (global_batch_size sequence_length))
 *     time  = steps iteration_s / ETTR                    (planner/goodput.h)
 *
 * which is work / (GPUs x peak x MFU x ETTR), as MFU is work over time. The interval
 * of the time has the plan's stated uncertainty and the failures' own interval.
 * Price and energy are NaN where the cluster file does not know what they need. */
#ifndef MCP_PLANNER_CAPACITY_H
#define MCP_PLANNER_CAPACITY_H

#include "planner/goodput.h"
#include "planner/search.h"

/* What is asked of every size. Limits are NaN where there are none. */
struct mcp_capacity_ask {
    int64_t tokens;
    double deadline_s, budget, power_watts; /* of the site */
    struct mcp_failures failures;
    double checkpoint_bytes_per_s; /* NaN: MCP_CHECKPOINT_BYTES_PER_S_PER_GPU for each */
    double stall_s;                /* of one checkpoint; NaN: the time to write it */
    int checkpoint_keep;           /* how many lie in storage */
    double recovery_s, repair_s;
    double spare_quantile;    /* < 1 */
    double site_power_factor; /* watts of the site per watt of its devices */
    double knee_frac;
    double batch_slack_frac; /* how far a size may move the batch that it cannot divide */
};

/* Llama 3 (arXiv 2407.21783): 2 TB/s sustained of 16,384 GPUs; BLOOM wrote 57.5 GB/s
 * from 384, 0.15 GB/s each. */
#define MCP_CHECKPOINT_BYTES_PER_S_PER_GPU (2e12 / 16384)

/* No limits, a slack of 5 %, failures of the population "dedicated", 10 minutes of recovery (the
 * lower end is 2), 3 days of repair, (700 + 575) x 1.1 / 700 = 2.0 watts a watt (H100). */
struct mcp_capacity_ask mcp_capacity_ask_default(void);

/* A kind of machine, or a mix in the ratio of its nodes, and the sizes to try. */
struct mcp_capacity_machine {
    const char *name;
    struct mcp_question question; /* its cluster is of any size */
    int most_gpus;                /* there are no more; 0: no limit */
    int num_sizes;
    const int *sizes; /* GPUs, ascending */
    bool refine;      /* look between sizes where a limit begins or ceases to hold */
};

enum mcp_limit { MCP_LIMIT_DEADLINE, MCP_LIMIT_BUDGET, MCP_LIMIT_POWER, MCP_NUM_LIMITS };
extern const char *const mcp_limit_names[MCP_NUM_LIMITS];

struct mcp_capacity_row {
    int machine; /* index */
    int gpus, nodes;
    const char *reason; /* why there is no plan; NULL: there is one */

    struct mcp_plan plan; /* without chunks */
    int64_t global_batch_size;
    bool proven;
    double iteration_s, tokens_per_s, model_flops_utilization, uncertainty_frac;
    int64_t peak_memory_bytes;

    struct mcp_restart restart;
    double ettr, ettr_short; /* at the rate planned with; its short form */
    int spares;              /* nodes to hold, of all pools */
    double checkpoint_bytes, checkpoint_bytes_per_s;
    double storage_bytes; /* of those kept */

    int64_t steps;
    double busy_s; /* without failures */
    double time_s, low_s, high_s;
    double device_watts, site_watts, energy_joules, price; /* NaN: unknown */

    bool breaks[MCP_NUM_LIMITS]; /* an unknown price or power breaks its limit */
    double next_frac;            /* of what more GPUs should bring, what the last step to this size
                         brought, along the sizes that divide best: the upper hull of
                         speed over GPUs; NaN: not on it, or its first */
    bool knee;                   /* the last size before steps pay too little */
    bool answer;                 /* the best of its machine that meets the limits; without
                                       limits the knee, or the fastest where there is none */
};
bool mcp_capacity_meets(const struct mcp_capacity_row *row);

enum mcp_capacity_order { /* by what answers of several machines are compared */
                          MCP_BY_PRICE,
                          MCP_BY_ENERGY,
                          MCP_BY_GPUS,
                          MCP_BY_TIME, /* where there is no deadline */
                          MCP_NUM_CAPACITY_ORDERS
};

struct mcp_capacity {
    int num_rows;
    struct mcp_capacity_row *rows; /* by machine, then ascending in GPUs */
    int best;                      /* row; -1: none meets the limits */
    enum mcp_capacity_order order;
    bool interrupted; /* rows are missing */
};

/* Sizes between `low` and `high` GPUs: units times 4, 5, 6, 7 x 2^k, all below four
 * units; halves of a unit below one. `*out` in the arena; returns how many. */
int mcp_capacity_ladder(struct mcp_arena *arena, int unit, int low, int high, int **out);

/* From what must fit, at 16 bytes a parameter, and from the limits: where to look when
 * no sizes are given. Not empty. */
struct mcp_capacity_range {
    int low, high;
};
struct mcp_capacity_range mcp_capacity_range(const struct mcp_capacity_ask *ask,
                                             const struct mcp_capacity_machine *machine);

/* The smallest number of its GPUs that sizes are multiples of: a node, or the smallest
 * mix of its ratio. */
int mcp_capacity_unit(const struct mcp_cluster *cluster);
/* The cluster in `gpus` GPUs. MCP_INVALID where that is no size of it. */
enum mcp_status mcp_capacity_size(struct mcp_arena *arena, const struct mcp_cluster *cluster,
                                  int gpus, struct mcp_cluster *out, struct mcp_error *err);

/* From row->iteration_s and the like to all that follows from them. */
void mcp_capacity_finish(const struct mcp_capacity_ask *ask, const struct mcp_question *question,
                         struct mcp_capacity_row *row);
/* Marks knees and answers, and chooses the best. `arena`: scratch. */
void mcp_capacity_judge(struct mcp_arena *arena, const struct mcp_capacity_ask *ask,
                        struct mcp_capacity *capacity);

struct mcp_capacity_sweep {
    const struct mcp_capacity_ask *ask;
    int num_machines;
    const struct mcp_capacity_machine *machines;
    const struct mcp_plan_space *space;
    const struct mcp_search_options *options;
    /* Called before each size is planned. NULL: nobody listens. */
    void (*planning)(void *context, const char *what);
    void *context;
};
/* Plans one size of machine `index`: where no layout divides the batch, with the nearest
 * multiple of its nodes, or of a part of them, that the slack allows. False: stopped
 * before there was an answer. */
bool mcp_capacity_plan(struct mcp_arena *arena, const struct mcp_capacity_sweep *sweep, int index,
                       int gpus, struct mcp_capacity_row *row);
void mcp_capacity_sweep(struct mcp_arena *arena, const struct mcp_capacity_sweep *sweep,
                        struct mcp_capacity *out);

#endif
