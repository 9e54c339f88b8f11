/* step/dump_names.h: words that writing and reading a program share; private to
 * step/dump.c and step/load.c. */
#ifndef MCP_STEP_DUMP_NAMES_H
#define MCP_STEP_DUMP_NAMES_H

#include "step/program.h"

#include <stddef.h>

#define MCP_PROGRAM_SCHEMA "mcpplan.program/1"

/* Rows of the file are arrays; these are the names of their columns. */
enum mcp_row {
    MCP_ROW_BUFFER,
    MCP_ROW_WEIGHT,
    MCP_ROW_OP,
    MCP_ROW_ENTRY,
    MCP_ROW_SLOT,
    MCP_NUM_ROWS
};
#define MCP_OP_COLUMNS 10     /* before the dimensions */
#define MCP_WEIGHT_COLUMNS 12 /* before the bands */
#define MCP_MAX_COLUMNS (MCP_OP_COLUMNS + MCP_MAX_DIMS)
extern const char *const mcp_row_names[MCP_NUM_ROWS];
/* NULL-terminated unless full. */
extern const char *const mcp_row_columns[MCP_NUM_ROWS][MCP_MAX_COLUMNS];

/* By enum mcp_hiding. */
#define MCP_NUM_HIDINGS 3
extern const char *const mcp_hiding_names[MCP_NUM_HIDINGS];

/* By bit of enum mcp_axis. */
#define MCP_NUM_GROUP_AXES 7
extern const char *const mcp_group_axis_names[MCP_NUM_GROUP_AXES];

/* The key of a layer type's buffers in a space; NULL for rank. */
extern const char *const mcp_space_keys[MCP_NUM_SPACES];

/* A column of names: those of buffers or weights. Names may repeat; then the
 * first is plain and a later one is NAME#INDEX. */
struct mcp_name_list {
    const char *first; /* char[24] at the start of each item */
    size_t stride;
    int count;
};
struct mcp_name_list mcp_buffer_names(const struct mcp_buffer *buffers, int count);
struct mcp_name_list mcp_weight_names(const struct mcp_weight *weights, int count);
const char *mcp_name_at(const struct mcp_name_list *list, int index);
/* The first item of that name, or -1. */
int mcp_name_find(const struct mcp_name_list *list, const char *name, size_t length);

/* The buffers an operand of `type` can mean in `space`. */
struct mcp_name_list mcp_space_buffers(const struct mcp_program *program,
                                       const struct mcp_layer_type *type, int space);

#endif
