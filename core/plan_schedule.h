/* core/plan_schedule.h: the key "schedule" of plan.json. Private to core/plan*.c. */
#ifndef MCP_CORE_PLAN_SCHEDULE_H
#define MCP_CORE_PLAN_SCHEDULE_H

#include "core/plan.h"

/* Well-formed, but wrong: a message with the place, and MCP_INVALID. */
enum mcp_status mcp_plan_contradicts(const struct mcp_json *json, struct mcp_error *err,
                                     const char *format, ...) __attribute__((format(printf, 3, 4)));

/* {"name", "placement", "rows"} of `file`; the plan's degrees are known. */
enum mcp_status mcp_plan_schedule_from_json(struct mcp_arena *arena, struct mcp_json *file,
                                            struct mcp_plan *plan, struct mcp_error *err);
void mcp_plan_schedule_to_json(const struct mcp_plan *plan, struct mcp_json *object);

#endif
