/* planner/search.h: the best plan, and the proof of it.
 *
 * Every tuple of planner/space.h is judged: refused by a rule of meaning
 * (step/legal.h), by one of the article's rules, by dominance or by memory; or bounded
 * from below (planner/bound.h) by more than the best takes; or priced in full by
 * step/estimate.h. Best bound first, so that few are. The answer depends neither on
 * the number of threads nor on the order in which tuples are listed: of equal plans
 * the one that needs less memory, then that with the smaller value of the first knob
 * in which they differ. */
#ifndef MCP_PLANNER_SEARCH_H
#define MCP_PLANNER_SEARCH_H

#include "core/arena.h"
#include "planner/space.h"
#include "step/estimate.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum mcp_objective {
    MCP_OBJECTIVE_TIME,   /* seconds of an iteration */
    MCP_OBJECTIVE_MEMORY, /* peak bytes of the fullest GPU */
    MCP_OBJECTIVE_COST,   /* price of an iteration: GPUs x hours x price */
    MCP_NUM_OBJECTIVES
};
extern const char *const mcp_objective_names[MCP_NUM_OBJECTIVES];

/* The article's rules, memory and dominance, in the words of `refused`. */
extern const char mcp_rule_pipeline[]; /* "pipeline_rule" */
extern const char mcp_rule_batch[];    /* "batch_rule" */
extern const char mcp_rule_memory[];   /* "memory" */
extern const char mcp_rule_gpipe[];    /* "gpipe_is_never_better": than 1F1B */
extern const char mcp_rule_zb_v[];     /* "zb_v_fits_as_well": V-half, V-min are ZB-V with less
                                          memory, and ZB-V's rows are made for the memory that
                                          there is; not where memory is the objective */

struct mcp_found {
    struct mcp_plan plan; /* with chunks of its own */
    double iteration_s;
    int64_t peak_memory_bytes;
};

struct mcp_search_options {
    enum mcp_objective objective;
    int top;         /* plans to keep, of different layouts; at least 1: the first is
                        proven, the others are good splits of their tuples, not proven */
    bool exhaustive; /* price also what cannot win: planner/exhaustive.h */
    bool smallest;   /* find too what needs the least memory, whether it fits or not */
    int num_threads; /* 0: as many as are worth it, at most OMP_NUM_THREADS or the cores */
    bool uniform;    /* layers spread evenly, all with the same recompute; --objective memory
                        always is */
    /* Called by one thread, now and then. done_frac of what may have to be looked at;
     * best: NULL while nothing fits. NULL: nobody listens. */
    void (*progress)(void *context, double done_frac, const struct mcp_found *best);
    void *progress_context;
    const volatile sig_atomic_t *stop; /* not 0: give the best so far. NULL: never */
};

struct mcp_refused {
    const char *rule;
    int64_t count;
};
#define MCP_MAX_REFUSED 32

/* Of tuples: candidates = refused + bounded + fitting. */
struct mcp_search_record {
    int64_t candidates;
    int num_refused;
    struct mcp_refused refused[MCP_MAX_REFUSED]; /* most frequent first */
    int num_refuted;
    struct mcp_refused refuted[4]; /* of those that memory refused unpriced: by what alone */
    int64_t bounded;               /* cannot win */
    int64_t priced;                /* plans, in time and memory, of tuples that keep all rules */
    int64_t fitting;               /* tuples of which one fits */
    int64_t milps;                 /* integer programs solved */
    bool proven_optimal;           /* nothing in the space is better */
    double gap_frac;               /* how much better an unseen plan of it could be */
};

struct mcp_answer {
    int count;               /* 0: nothing fits */
    struct mcp_found *found; /* [count] best first, each of another layout */
    struct mcp_search_record record;
    bool has_smallest;
    struct mcp_found smallest; /* needs the least memory of uniform plans that keep all rules */
    bool has_beyond[2];
    struct mcp_found beyond[2]; /* the best that breaks the pipeline rule, the batch rule alone,
                                   where it takes no more than beyond_factor times as much */
    double beyond_factor;       /* 2; 1: only what is better, where no schedule asked for is split
                                   unevenly and time counts */
};

/* Plans refused by `rule` in the record. */
int64_t mcp_search_refused(const struct mcp_search_record *record, const char *rule);

void mcp_search(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_search_options *options,
                struct mcp_answer *out);

#endif
