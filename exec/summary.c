/* exec/summary.c: sums over steps, as JSON. */
#include "exec/summary.h"

#include <math.h>

void mcp_summary_add(struct mcp_summary *summary, const struct mcp_step_report *report)
{
    if (summary->steps == 0) {
        summary->first_step = report->step;
        summary->first_loss = report->loss;
        summary->fastest_s = report->step_s;
    }
    summary->steps++;
    summary->skipped_steps += report->skipped;
    summary->tokens += report->tokens;
    summary->loss = report->loss;
    summary->seconds += report->step_s + report->data_wait_s;
    summary->data_wait_s += report->data_wait_s;
    summary->fastest_s = fmin(summary->fastest_s, report->step_s);
    if (report->evaluated) {
        summary->evaluated = true;
        summary->eval_loss = report->eval_loss;
    }
}

struct mcp_json *mcp_summary_json(struct mcp_arena *arena, const struct mcp_summary *summary)
{
    struct mcp_json *json = mcp_json_new_object(arena);
    const bool ran = summary->steps > 0;
    const double unknown = NAN;
    mcp_json_set_string(json, "schema", "mcpplan.run/1");
    mcp_json_set_int(json, "first_step", summary->first_step);
    mcp_json_set_int(json, "steps", summary->steps);
    mcp_json_set_int(json, "skipped_steps", summary->skipped_steps);
    mcp_json_set_int(json, "tokens", summary->tokens);
    mcp_json_set_double(json, "first_loss", ran ? summary->first_loss : unknown);
    mcp_json_set_double(json, "loss", ran ? summary->loss : unknown);
    mcp_json_set_double(json, "eval_loss", summary->evaluated ? summary->eval_loss : unknown);
    mcp_json_set_double(json, "seconds", summary->seconds);
    mcp_json_set_double(json, "data_wait_s", summary->data_wait_s);
    mcp_json_set_double(json, "fastest_step_s", ran ? summary->fastest_s : unknown);
    mcp_json_set_double(json, "tokens_per_s",
                        ran ? (double)summary->tokens / summary->seconds : unknown);
    mcp_json_set_int(json, "peak_memory_bytes", summary->peak_memory_bytes);
    if (summary->checkpoint >= 0)
        mcp_json_set_int(json, "checkpoint_step", summary->checkpoint);
    else
        mcp_json_set_null(json, "checkpoint_step");
    mcp_json_set_bool(json, "asked_to_end", summary->was_asked_to_end);
    return json;
}
