/* tests/exec/ranks_cases.c: the layouts: a cover of pairs of axes. */
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
};
const int ranks_num_cases = sizeof ranks_cases / sizeof *ranks_cases;
