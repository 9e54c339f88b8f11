/* core/calibration_file.c: calibration.json, written and read. */
#include "core/calibration_file.h"

#include "core/text.h"

static const char schema[] = "mcpplan.calibration/1";

struct mcp_json *mcp_calibration_file_json(struct mcp_arena *arena,
                                           const struct mcp_cluster *cluster,
                                           const struct mcp_stack *stack)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    mcp_json_set_string(json, "schema", schema);
    mcp_cluster_to_json(cluster, mcp_json_set_object(json, "cluster"));
    mcp_stack_to_json(stack, mcp_json_set_object(json, "stack"));
    return json;
}

enum mcp_status mcp_calibration_file_load(struct mcp_arena *arena, const char *path,
                                          struct mcp_cluster *cluster, struct mcp_stack *stack,
                                          struct mcp_error *err)
{
    struct mcp_json *json, *part;
    const char *found;
    MCP_TRY(mcp_json_read(arena, path, &json, err));
    MCP_TRY(mcp_json_string(json, "schema", &found, err));
    if (!mcp_same(found, schema))
        return mcp_json_fail(json, err, "schema is not \"%s\"; mcpplan calibrate writes such files",
                             schema);
    MCP_TRY(mcp_json_object(json, "cluster", &part, err));
    MCP_TRY(mcp_cluster_from_json(arena, part, cluster, err));
    MCP_TRY(mcp_json_object(json, "stack", &part, err));
    MCP_TRY(mcp_stack_from_json(arena, part, stack, err));
    MCP_TRY(mcp_cluster_check(cluster, err));
    return mcp_json_done(json, err);
}
