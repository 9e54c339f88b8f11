/* planner/search.h: the best plan with uniform stages, and the proof of it.
 *
 * Every candidate of planner/space.h is judged: refused by a rule of meaning
 * (step/legal.h), by one of the article's rules, or by memory; or priced in full
 * by step/estimate.h and compared. Short cuts that change no answer: a plan is not
 * priced where what it keeps between steps is known to be too much, where a smaller
 * microbatch did not fit (memory refuses it), or where its busy time alone is more
 * than the layout's best plan takes (it is bounded). The answer does not depend on
 * the number of threads. */
#ifndef MCP_PLANNER_SEARCH_H
#define MCP_PLANNER_SEARCH_H

#include "core/arena.h"
#include "planner/space.h"
#include "step/estimate.h"

#include <stdbool.h>
#include <stdint.h>

enum mcp_objective {
    MCP_OBJECTIVE_TIME,   /* seconds of an iteration */
    MCP_OBJECTIVE_MEMORY, /* peak bytes of the fullest GPU */
    MCP_OBJECTIVE_COST,   /* price of an iteration: GPUs x hours x price */
    MCP_NUM_OBJECTIVES
};
extern const char *const mcp_objective_names[MCP_NUM_OBJECTIVES];

/* The article's rules and memory, in the words of `refused`. */
extern const char mcp_rule_pipeline[]; /* "pipeline_rule" */
extern const char mcp_rule_batch[];    /* "batch_rule" */
extern const char mcp_rule_memory[];   /* "memory" */

struct mcp_search_options {
    enum mcp_objective objective;
    int top;         /* plans to keep, of different layouts; at least 1 */
    bool exhaustive; /* price also what cannot win */
    bool smallest;   /* price also what keeps too much: `smallest` is then exact */
    int num_threads; /* 0: as many as there are cores */
};

struct mcp_found {
    struct mcp_plan plan; /* with chunks of its own */
    double iteration_s;
    int64_t peak_memory_bytes;
};

struct mcp_refused {
    const char *rule;
    int64_t count;
};
#define MCP_MAX_REFUSED 32

/* candidates = refused + bounded + fitting. */
struct mcp_search_record {
    int64_t candidates;
    int num_refused;
    struct mcp_refused refused[MCP_MAX_REFUSED]; /* most frequent first */
    int64_t bounded;                             /* not priced: cannot win */
    int64_t priced;      /* in time and memory, of those that keep all rules; */
    int64_t fitting;     /* of these */
    int64_t milps;       /* integer programs solved */
    bool proven_optimal; /* over uniform stages */
    double gap_frac;     /* how much better an unseen plan of the space could be */
};

struct mcp_answer {
    int count;               /* 0: nothing fits */
    struct mcp_found *found; /* [count] best first, each of another layout */
    struct mcp_search_record record;
    bool has_smallest;
    struct mcp_found smallest; /* needs the least memory of those priced that keep all rules */
    bool has_beyond[2];
    struct mcp_found beyond[2]; /* the best that breaks the pipeline rule, the batch rule alone */
};

/* Plans refused by `rule` in the record. */
int64_t mcp_search_refused(const struct mcp_search_record *record, const char *rule);

void mcp_search(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_search_options *options,
                struct mcp_answer *out);

#endif
