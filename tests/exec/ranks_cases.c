/* tests/exec/ranks_cases.c: the layouts: a cover of pairs of axes, and the product of all. */
#include "tests/exec/ranks.h"

#define G RANKS_GPT2
#define L RANKS_LLAMA
#define E RANKS_MOE
#define RING MCP_CONTEXT_RING
#define GATHER MCP_CONTEXT_ALL_GATHER
#define ULYSSES MCP_CONTEXT_ALL_TO_ALL
#define NONE MCP_RECOMPUTE_NONE
#define SELECTIVE MCP_RECOMPUTE_SELECTIVE
#define FULL MCP_RECOMPUTE_FULL

/* model, t c p d e, SP, context kind, ZeRO, reshard, schedule, v, b, recompute */
const struct ranks_case ranks_cases[] = {
    {G, 1, 1, 1, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 2, NONE},
    {L, 1, 1, 1, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 1, SELECTIVE},
    {E, 1, 1, 1, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 4, FULL},
    {G, 1, 1, 1, 1, 1, false, RING, 3, true, MCP_1F1B, 1, 2, FULL},
    {G, 1, 1, 1, 2, 1, false, RING, 0, false, MCP_1F1B, 1, 2, NONE},
    {L, 1, 1, 1, 2, 1, false, RING, 1, false, MCP_1F1B, 1, 1, NONE},
    {G, 1, 1, 1, 2, 1, false, RING, 2, false, MCP_1F1B, 1, 2, NONE},
    {L, 1, 1, 1, 2, 1, false, RING, 3, true, MCP_1F1B, 1, 2, FULL},
    {G, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 2, NONE},
    {L, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_GPIPE, 1, 1, NONE},
    {L, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_INTERLEAVED, 2, 1, SELECTIVE},
    {G, 2, 1, 1, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 2, NONE},
    {L, 2, 1, 1, 1, 1, true, RING, 0, false, MCP_1F1B, 1, 1, FULL},
    {G, 2, 1, 1, 1, 1, true, RING, 0, false, MCP_1F1B, 1, 2, SELECTIVE},
    {L, 1, 2, 1, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 2, NONE},
    {G, 1, 2, 1, 1, 1, false, GATHER, 1, false, MCP_1F1B, 1, 1, NONE},
    {L, 1, 2, 1, 1, 1, false, ULYSSES, 2, false, MCP_1F1B, 1, 2, FULL},
    {E, 1, 1, 1, 2, 2, false, RING, 0, false, MCP_1F1B, 1, 2, NONE},
    {E, 1, 1, 1, 2, 1, false, RING, 2, false, MCP_1F1B, 1, 1, FULL},
    {E, 2, 1, 1, 1, 2, true, RING, 0, false, MCP_1F1B, 1, 2, SELECTIVE},
    {G, 2, 1, 2, 1, 1, true, RING, 0, false, MCP_1F1B, 1, 1, FULL},
    {L, 2, 2, 1, 1, 1, true, RING, 3, false, MCP_1F1B, 1, 2, NONE},
    {G, 1, 2, 2, 1, 1, false, ULYSSES, 0, false, MCP_GPIPE, 1, 2, SELECTIVE},
    {L, 1, 1, 2, 2, 1, false, RING, 3, true, MCP_INTERLEAVED, 2, 1, NONE},
    {G, 1, 1, 2, 2, 1, false, RING, 1, false, MCP_1F1B, 1, 1, SELECTIVE},
    {G, 1, 1, 2, 2, 1, false, RING, 2, false, MCP_1F1B, 1, 1, NONE},
    {G, 2, 1, 1, 2, 1, false, RING, 3, true, MCP_1F1B, 1, 2, NONE},
    {L, 4, 1, 1, 1, 1, true, RING, 0, false, MCP_1F1B, 1, 2, NONE},
    {L, 1, 4, 1, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 2, FULL},
    {G, 1, 4, 1, 1, 1, false, RING, 2, false, MCP_1F1B, 1, 2, NONE},
    {L, 1, 4, 1, 1, 1, false, GATHER, 0, false, MCP_1F1B, 1, 1, SELECTIVE},
    {L, 1, 4, 1, 1, 1, false, ULYSSES, 1, false, MCP_1F1B, 1, 2, NONE},
    {G, 1, 1, 4, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 1, FULL},
    {L, 1, 1, 1, 4, 1, false, RING, 1, false, MCP_1F1B, 1, 2, SELECTIVE},
    {G, 1, 1, 1, 4, 1, false, RING, 3, true, MCP_1F1B, 1, 1, FULL},
    {E, 2, 1, 1, 2, 4, true, RING, 1, false, MCP_1F1B, 1, 1, NONE},
    {E, 1, 2, 1, 2, 2, false, GATHER, 2, false, MCP_1F1B, 1, 2, SELECTIVE},
    {E, 1, 1, 2, 2, 2, false, RING, 3, true, MCP_1F1B, 1, 1, FULL},
    {E, 1, 2, 2, 1, 2, false, RING, 1, false, MCP_INTERLEAVED, 2, 1, NONE},
    {E, 1, 1, 1, 4, 4, false, RING, 3, false, MCP_1F1B, 1, 2, NONE},
    {E, 1, 1, 1, 4, 2, false, RING, 1, false, MCP_1F1B, 1, 1, NONE},
    {G, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_ZB_H1, 1, 1, NONE},
    {L, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_ZB_H2, 1, 1, FULL},
    {L, 2, 1, 2, 1, 1, true, RING, 0, false, MCP_ZB_H1, 1, 1, NONE},
    {E, 1, 1, 2, 2, 2, false, RING, 1, false, MCP_ZB_H1, 1, 1, SELECTIVE},
    {G, 1, 1, 2, 2, 1, false, RING, 2, false, MCP_ZB_H1, 1, 1, NONE},
    {L, 1, 1, 4, 1, 1, false, RING, 0, false, MCP_ZB_H2, 1, 1, NONE},
    {G, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_ZB_V, 2, 1, NONE},
    {L, 1, 1, 2, 1, 1, false, RING, 0, false, MCP_V_MIN, 2, 1, SELECTIVE},
    {E, 1, 1, 2, 2, 2, false, RING, 1, false, MCP_V_HALF, 2, 1, NONE},
    {L, 2, 1, 2, 1, 1, true, RING, 0, false, MCP_ZB_V, 2, 2, NONE},
    {G, 2, 2, 2, 1, 1, true, RING, 1, false, MCP_1F1B, 1, 1, NONE},
    {L, 2, 1, 2, 2, 1, true, RING, 3, true, MCP_INTERLEAVED, 2, 1, NONE},
    {E, 2, 2, 1, 2, 4, true, ULYSSES, 2, false, MCP_1F1B, 1, 2, SELECTIVE},
    {G, 1, 2, 2, 2, 1, false, GATHER, 3, false, MCP_ZB_H1, 1, 1, FULL},
    {L, 4, 1, 2, 1, 1, true, RING, 0, false, MCP_GPIPE, 1, 2, SELECTIVE},
    {G, 8, 1, 1, 1, 1, false, RING, 0, false, MCP_1F1B, 1, 2, FULL},
    {L, 1, 8, 1, 1, 1, false, RING, 1, false, MCP_1F1B, 1, 4, NONE},
    {E, 1, 1, 4, 2, 2, false, RING, 1, false, MCP_1F1B, 1, 1, NONE},
    {L, 1, 1, 1, 8, 1, false, RING, 2, false, MCP_1F1B, 1, 1, FULL},
};
const int ranks_num_cases = sizeof ranks_cases / sizeof *ranks_cases;

/* --- the product: a case is a number, one digit for each axis --- */

static const struct {
    int zero_stage;
    bool reshard;
} shards[] = {{0, false}, {1, false}, {2, false}, {3, false}, {3, true}};
static const struct {
    int schedule, virtual_stages;
} orders[] = {{MCP_1F1B, 1},  {MCP_GPIPE, 1}, {MCP_INTERLEAVED, 2}, {MCP_ZB_H1, 1},
              {MCP_ZB_H2, 1}, {MCP_ZB_V, 2},  {MCP_V_MIN, 2},       {MCP_V_HALF, 2}};
enum {
    DEGREES = 4,
    EXPERT_DEGREES = 3,
    KINDS = 3,
    SHARDS = 5,
    ORDERS = 8,
    BATCHES = 3,
    RECOMPUTES = 3
};
const int ranks_product = RANKS_MODELS * DEGREES * DEGREES * DEGREES * DEGREES * EXPERT_DEGREES *
                          2 * KINDS * SHARDS * ORDERS * BATCHES * RECOMPUTES;

static int digit(int *number, int base)
{
    int value = *number % base;
    *number /= base;
    return value;
}

/* Values that say nothing where a degree is 1 are there once. */
static bool says_something(const struct ranks_case *c)
{
    return (c->model == E || c->expert == 1) && (c->tensor > 1 || !c->sequence_parallel) &&
           (c->context > 1 || c->context_kind == RING) &&
           (c->pipeline > 1 || c->schedule == MCP_1F1B) &&
           (c->data * c->context > 1 || c->zero_stage == 0);
}

bool ranks_of_product(int number, int world, struct ranks_case *out)
{
    out->model = digit(&number, RANKS_MODELS);
    out->tensor = 1 << digit(&number, DEGREES);
    out->context = 1 << digit(&number, DEGREES);
    out->pipeline = 1 << digit(&number, DEGREES);
    out->data = 1 << digit(&number, DEGREES);
    out->expert = 1 << digit(&number, EXPERT_DEGREES);
    out->sequence_parallel = digit(&number, 2) == 1;
    out->context_kind = (const int[KINDS]){RING, GATHER, ULYSSES}[digit(&number, KINDS)];
    int shard = digit(&number, SHARDS), order = digit(&number, ORDERS);
    out->zero_stage = shards[shard].zero_stage;
    out->reshard = shards[shard].reshard;
    out->schedule = orders[order].schedule;
    out->virtual_stages = orders[order].virtual_stages;
    out->microbatch_size = 1 << digit(&number, BATCHES);
    out->recompute = (const int[RECOMPUTES]){NONE, SELECTIVE, FULL}[digit(&number, RECOMPUTES)];
    return ranks_world(out) == world && says_something(out);
}
