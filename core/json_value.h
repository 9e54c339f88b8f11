/* core/json_value.h: what reading and writing JSON share; private to core/json*.c,
 * the only files that see jansson. */
#ifndef MCP_CORE_JSON_VALUE_H
#define MCP_CORE_JSON_VALUE_H

#include "core/json.h"

#include <jansson.h>

/* One entry of an object or element of an array. */
struct member {
    const char *key; /* NULL in arrays */
    json_t *value;
    struct mcp_json *child; /* made when a container is first asked for */
    bool read;
};

struct mcp_json {
    struct mcp_arena *arena;
    const char *file;
    const struct mcp_json *parent;
    const char *key; /* in the parent; NULL at the root and in arrays */
    size_t index;    /* in the parent, when it is an array */
    json_t *value;   /* borrowed from the root's, which the arena releases; NULL when absent */
    struct member *members; /* NULL until one is asked for */
    size_t num_members;
    const char **asked; /* absent keys that getters asked for: they are known keys too */
    size_t num_asked;
    size_t asked_capacity;
};

/* The arena releases `value` and all below it. */
struct mcp_json *mcp_json_new_root(struct mcp_arena *arena, const char *file, json_t *value);
/* A value inside `parent`, which stays its owner. */
struct mcp_json mcp_json_view(const struct mcp_json *parent, const char *key, size_t index,
                              json_t *value);

#endif
