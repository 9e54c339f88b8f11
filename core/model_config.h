/* core/model_config.h: the sizes of a config.json under all their spellings. */
#ifndef MCP_CORE_MODEL_CONFIG_H
#define MCP_CORE_MODEL_CONFIG_H

#include "core/model_family.h"

static inline bool mcp_config_is(const struct mcp_config *config, unsigned trait)
{
    return (config->family->traits & trait) != 0;
}

/* Reads every size; those for which nothing may be assumed must be there. */
enum mcp_status mcp_config_read_sizes(struct mcp_config *config, struct mcp_error *err);

/* The same key in the text model or, without it there, outside; *out keeps what it
 * had when neither has it. "a.b" is b in a. */
enum mcp_status mcp_config_maybe_bool(const struct mcp_config *config, const char *key, bool *out,
                                      struct mcp_error *err);
enum mcp_status mcp_config_maybe_int(const struct mcp_config *config, const char *key, int *out,
                                     struct mcp_error *err);
/* A list with one entry for each layer, NULL when the key is absent or no list. */
enum mcp_status mcp_config_layer_list(const struct mcp_config *config, const char *key,
                                      struct mcp_json **out, struct mcp_error *err);
/* Element `i` of a list of layers' numbers. */
enum mcp_status mcp_config_layer_at(const struct mcp_config *config, struct mcp_json *list,
                                    size_t i, int *layer, struct mcp_error *err);
/* Appends a sentence to config->note. */
void mcp_config_note(struct mcp_config *config, const char *sentence);

#endif
