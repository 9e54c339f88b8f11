/* step/schedule_check.c: can rows be played? Everything once, in order, and no message
 * waited for in vain. */
#include "step/schedule.h"

#include "core/text.h"

#include <string.h>

/* What a rank has on its way from a neighbour: first in, first out. */
struct queue {
    const struct mcp_action **items; /* of the sender */
    int *stages;                     /* ... its virtual stage */
    int posted, read;
};
enum { NUM_QUEUES = 4 }; /* from the previous and the next rank; again of mirrored chunks */

struct check {
    struct mcp_arena *arena;
    const struct mcp_plan *plan;
    int m;
    unsigned char *ran;   /* [p v][m] bits by pass */
    int *next;            /* [p] */
    struct queue *queues; /* [p][NUM_QUEUES] */
};

static const char *name_of(const struct check *check, int stage, const struct mcp_action *a)
{
    return mcp_format(check->arena, "%d%c%d", stage, mcp_pass_letters[a->pass], a->microbatch);
}

static int stage_of(const struct check *check, int rank, const struct mcp_action *a)
{
    return mcp_plan_virtual_stage(check->plan, rank, a->chunk);
}

static const char *fault_at(const struct check *check, int rank, int index, const char *why)
{
    const struct mcp_action *a = &check->plan->rows[rank].actions[index];
    bool placed = a->chunk >= 0 && a->chunk < check->plan->virtual_stages &&
                  (unsigned)a->pass < MCP_NUM_PASSES;
    return mcp_format(
        check->arena, "schedule.rows[%d]: action %d%s%s%s %s", rank, index, placed ? " \"" : "",
        placed ? name_of(check, stage_of(check, rank, a), a) : "", placed ? "\"" : "", why);
}

/* --- everything once, in order --- */

static const char *repeat_of(unsigned ran, enum mcp_pass pass)
{
    unsigned parts = 1u << MCP_PASS_BACKWARD_INPUT | 1u << MCP_PASS_BACKWARD_WEIGHT;
    unsigned whole = 1u << MCP_PASS_BACKWARD;
    if (ran & 1u << pass)
        return "comes a second time";
    if (pass != MCP_PASS_FORWARD && !(ran & 1u << MCP_PASS_FORWARD))
        return "comes before its forward";
    if (pass == MCP_PASS_BACKWARD_WEIGHT && !(ran & 1u << MCP_PASS_BACKWARD_INPUT))
        return "comes before its backward for inputs";
    if ((pass == MCP_PASS_BACKWARD && (ran & parts)) || ((1u << pass & parts) && (ran & whole)))
        return "does what another action has done, whole or in part";
    return NULL;
}

static const char *order_fault(const struct check *check, int rank)
{
    const struct mcp_schedule_row *row = &check->plan->rows[rank];
    for (int i = 0; i < row->num_actions; i++) {
        const struct mcp_action *a = &row->actions[i];
        if (a->chunk < 0 || a->chunk >= check->plan->virtual_stages ||
            (unsigned)a->pass >= MCP_NUM_PASSES)
            return fault_at(check, rank, i, "is of no chunk or pass");
        if (a->microbatch < 0 || a->microbatch >= check->m)
            return fault_at(
                check, rank, i,
                mcp_format(check->arena, "is of microbatch %d of %d", a->microbatch, check->m));
        unsigned char *ran =
            &check
                 ->ran[(size_t)stage_of(check, rank, a) * (size_t)check->m + (size_t)a->microbatch];
        const char *why = repeat_of(*ran, a->pass);
        if (why != NULL)
            return fault_at(check, rank, i, why);
        *ran = (unsigned char)(*ran | 1u << a->pass);
    }
    return NULL;
}

static const char *missing_fault(const struct check *check)
{
    int stages = check->plan->pipeline_parallel * check->plan->virtual_stages;
    for (int k = 0; k < stages; k++)
        for (int b = 0; b < check->m; b++) {
            unsigned ran = check->ran[(size_t)k * (size_t)check->m + (size_t)b];
            const char *missing = NULL;
            if (!(ran & 1u << MCP_PASS_FORWARD))
                missing = "forward";
            else if (!(ran & (1u << MCP_PASS_BACKWARD | 1u << MCP_PASS_BACKWARD_INPUT)))
                missing = "backward";
            else if (!(ran & (1u << MCP_PASS_BACKWARD | 1u << MCP_PASS_BACKWARD_WEIGHT)))
                missing = "backward for weights";
            if (missing != NULL)
                return mcp_format(check->arena,
                                  "schedule.rows[%d]: no %s of virtual stage %d, microbatch %d",
                                  mcp_plan_rank_of(check->plan, k), missing, k, b);
        }
    return NULL;
}

/* --- messages --- */

/* The virtual stage whose result the action awaits, or -1. */
static int sender_of(const struct check *check, int stage, const struct mcp_action *a)
{
    int stages = check->plan->pipeline_parallel * check->plan->virtual_stages;
    int sender = a->pass == MCP_PASS_FORWARD ? stage - 1 : stage + 1;
    return a->pass != MCP_PASS_BACKWARD_WEIGHT && sender < stages ? sender : -1;
}

static struct queue *queue_to(const struct check *check, int from_stage, int to_stage)
{
    int rank = mcp_plan_rank_of(check->plan, to_stage);
    bool forward = to_stage > from_stage, mirrored = mcp_plan_is_mirrored(check->plan, to_stage);
    return &check->queues[rank * NUM_QUEUES + (forward == mirrored) + 2 * mirrored];
}

static bool has_run(const struct check *check, int stage, const struct mcp_action *a)
{
    unsigned bits = a->pass == MCP_PASS_FORWARD
                        ? 1u << MCP_PASS_FORWARD
                        : 1u << MCP_PASS_BACKWARD | 1u << MCP_PASS_BACKWARD_INPUT;
    return check->ran[(size_t)stage * (size_t)check->m + (size_t)a->microbatch] & bits;
}

/* Takes what the action awaits: false where it is not on its way; *fault where something
 * else comes first. */
static bool take(const struct check *check, int rank, const struct mcp_action *a,
                 const char **fault)
{
    int stage = stage_of(check, rank, a), sender = sender_of(check, stage, a);
    if (sender < 0)
        return true;
    if (mcp_plan_rank_of(check->plan, sender) == rank)
        return has_run(check, sender, a);
    struct queue *queue = queue_to(check, sender, stage);
    if (queue->read == queue->posted)
        return false;
    const struct mcp_action *first = queue->items[queue->read];
    if (queue->stages[queue->read] != sender || first->microbatch != a->microbatch)
        *fault =
            fault_at(check, rank, check->next[rank],
                     mcp_format(check->arena,
                                "awaits a message that %s overtakes: its sender sends it first",
                                name_of(check, queue->stages[queue->read], first)));
    queue->read++;
    return true;
}

static void send(const struct check *check, int rank, const struct mcp_action *a)
{
    int stages = check->plan->pipeline_parallel * check->plan->virtual_stages;
    int stage = stage_of(check, rank, a), to = a->pass == MCP_PASS_FORWARD ? stage + 1 : stage - 1;
    unsigned char *ran = &check->ran[(size_t)stage * (size_t)check->m + (size_t)a->microbatch];
    *ran = (unsigned char)(*ran | 1u << a->pass);
    if (a->pass == MCP_PASS_BACKWARD_WEIGHT || to < 0 || to >= stages ||
        mcp_plan_rank_of(check->plan, to) == rank)
        return;
    struct queue *queue = queue_to(check, stage, to);
    queue->items[queue->posted] = a;
    queue->stages[queue->posted++] = stage;
}

/* As far as the rank comes. */
static bool run_rank(const struct check *check, int rank, const char **fault)
{
    const struct mcp_schedule_row *row = &check->plan->rows[rank];
    int before = check->next[rank];
    for (; check->next[rank] < row->num_actions; check->next[rank]++) {
        const struct mcp_action *a = &row->actions[check->next[rank]];
        if (!take(check, rank, a, fault) || *fault != NULL)
            break;
        send(check, rank, a);
    }
    return check->next[rank] > before;
}

static void make_queues(struct check *check)
{
    int p = check->plan->pipeline_parallel, v = check->plan->virtual_stages;
    size_t most = (size_t)v * (size_t)check->m;
    memset(check->ran, 0, (size_t)p * most);
    check->next = MCP_ARRAY(check->arena, p, int);
    check->queues = MCP_ARRAY(check->arena, p * NUM_QUEUES, struct queue);
    for (int i = 0; i < p * NUM_QUEUES; i++) {
        check->queues[i].items = MCP_ARRAY(check->arena, most, const struct mcp_action *);
        check->queues[i].stages = MCP_ARRAY(check->arena, most, int);
    }
}

static const char *play_fault(struct check *check)
{
    int p = check->plan->pipeline_parallel;
    const char *fault = NULL;
    make_queues(check);
    for (bool moved = true; moved && fault == NULL;) {
        moved = false;
        for (int r = 0; r < p && fault == NULL; r++)
            moved |= run_rank(check, r, &fault);
    }
    for (int r = 0; r < p && fault == NULL; r++)
        if (check->next[r] < check->plan->rows[r].num_actions)
            fault = fault_at(check, r, check->next[r],
                             "waits for ever: what it needs comes later on its own rank, or waits "
                             "for it");
    return fault;
}

const char *mcp_rows_fault(struct mcp_arena *arena, const struct mcp_plan *plan,
                           int num_microbatches)
{
    struct check check = {.arena = arena, .plan = plan, .m = num_microbatches};
    size_t stages = (size_t)plan->pipeline_parallel * (size_t)plan->virtual_stages;
    int64_t actions = 0;
    for (int r = 0; r < plan->pipeline_parallel; r++)
        actions += plan->rows[r].num_actions;
    if (actions < 2 * (int64_t)stages * num_microbatches)
        return mcp_format(
            arena,
            "schedule.rows have %lld actions; %zu virtual stages need 2 or 3 for each "
            "of %d microbatches",
            (long long)actions, stages, num_microbatches);
    check.ran = mcp_alloc(arena, stages, (size_t)num_microbatches);
    for (int r = 0; r < plan->pipeline_parallel; r++) {
        const char *fault = order_fault(&check, r);
        if (fault != NULL)
            return fault;
    }
    const char *fault = missing_fault(&check);
    return fault != NULL ? fault : play_fault(&check);
}
