/* core/job.h: what one step must do, whoever runs it. */
#ifndef MCP_CORE_JOB_H
#define MCP_CORE_JOB_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/model.h"
#include "core/precision.h"

#include <stdbool.h>
#include <stdint.h>

struct mcp_job {
    int64_t global_batch_size; /* sequences per step */
    int64_t sequence_length;   /* tokens per sequence */
    enum mcp_precision precision;
    bool dropout;             /* masks are made, saved and applied */
    const char *attention;    /* a kernel of the GPU's list, or "unfused"; "" = stack's */
    double memory_limit_frac; /* of usable memory; default 0.94 */
};

struct mcp_job mcp_job_default(void);
enum mcp_status mcp_job_from_json(struct mcp_arena *arena, struct mcp_json *json,
                                  struct mcp_job *out, struct mcp_error *err);
void mcp_job_to_json(const struct mcp_job *job, struct mcp_json *object);
enum mcp_status mcp_job_check(const struct mcp_job *job, struct mcp_error *err);

#endif
