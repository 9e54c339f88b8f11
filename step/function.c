/* step/function.c: the traits table of step/function.h. */
#include "step/function.h"

const char *const mcp_code_names[MCP_NUM_CODES] = {
    "matmul",     "attention", "scan",    "map",   "reduce",
    "collective", "send",      "receive", "shift", "host",
};

#define CODE_MATMUL MCP_MATMUL
#define CODE_ATTENTION MCP_ATTENTION
#define CODE_SCAN MCP_SCAN
#define CODE_MAP MCP_MAP
#define CODE_REDUCTION MCP_REDUCTION
#define CODE_COLLECTIVE MCP_COLLECTIVE
#define CODE_SEND MCP_SEND
#define CODE_RECEIVE MCP_RECEIVE
#define CODE_SHIFT MCP_SHIFT
#define CODE_HOST MCP_HOST
#define TRAITS(id, text, kind, elements, bytes, count) {text, CODE_##kind, elements, bytes, count},

const struct mcp_function_traits mcp_functions[MCP_NUM_FUNCTIONS] = {MCP_FUNCTIONS(TRAITS)};
