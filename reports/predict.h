/* reports/predict.h: what comparisons of runs and of memory readings share. */
#ifndef MCP_REPORTS_PREDICT_H
#define MCP_REPORTS_PREDICT_H

#include "core/text.h"
#include "reports/runs.h"
#include "reports/style.h"
#include "step/estimate.h"

/* NULL and the prediction, or the rules that the run's plan breaks. */
const char *mcp_run_predict(struct mcp_arena *arena, const struct mcp_run *run,
                            struct mcp_prediction *out);

/* "NVIDIA DGX Cloud benchmarking recipes v25.04" without release and date. */
const char *mcp_source_family(struct mcp_arena *arena, const char *source);

/* Why rows were left out: alike sentences, their numbers apart, are counted
 * together. At most `room` different ones. */
struct mcp_reasons;
struct mcp_reasons *mcp_reasons_new(struct mcp_arena *arena, int room);
void mcp_reasons_add(struct mcp_reasons *reasons, const char *text);
/* Headed table, most frequent first; nothing when there is none. */
void mcp_reasons_write(struct mcp_reasons *reasons, const struct mcp_style *style,
                       struct mcp_text *out);

#endif
