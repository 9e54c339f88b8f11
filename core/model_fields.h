/* core/model_fields.h: the numbers of a model and of a kind of layer, as one table.
 * Private to core/: it serves reading, writing, comparing and the ranges. */
#ifndef MCP_CORE_MODEL_FIELDS_H
#define MCP_CORE_MODEL_FIELDS_H

#include "core/model.h"

#include <stddef.h>

struct mcp_model_field {
    const char *key;
    size_t offset;
    bool is_bool;
    int low, high;
};

#define MCP_NUM_KIND_FIELDS 36
#define MCP_NUM_MODEL_FIELDS 9
extern const struct mcp_model_field mcp_kind_fields[MCP_NUM_KIND_FIELDS];
extern const struct mcp_model_field mcp_model_fields[MCP_NUM_MODEL_FIELDS];

int mcp_field_int(const void *object, const struct mcp_model_field *field);
bool mcp_field_bool(const void *object, const struct mcp_model_field *field);
enum mcp_status mcp_fields_check(const void *object, const struct mcp_model_field *fields,
                                 size_t count, struct mcp_error *err);

#endif
