/* reports/gantt.c: sums of rows, and the windows of time to show. */
#include "reports/gantt.h"

#include "core/minmax.h"

struct mcp_gantt_sum mcp_gantt_sum(const struct mcp_gantt *gantt, int row)
{
    struct mcp_gantt_sum sum = {0};
    for (int i = 0; i < gantt->num_spans; i++) {
        const struct mcp_gantt_span *span = &gantt->spans[i];
        if (span->row != row)
            continue;
        if (sum.num_spans++ == 0)
            sum.first_ns = span->start_ns;
        sum.last_ns = span->end_ns;
        sum.busy_ns += span->end_ns - span->start_ns;
    }
    return sum;
}

bool mcp_gantt_in_window(const struct mcp_gantt_span *span, const struct mcp_gantt_window *window,
                         struct mcp_gantt_window *part)
{
    part->from_ns = mcp_max_int64(span->start_ns, window->from_ns);
    part->to_ns = mcp_min_int64(span->end_ns, window->to_ns);
    return part->from_ns < part->to_ns;
}

static struct mcp_gantt_fold windows_of(int64_t end_ns, int64_t length_ns)
{
    int64_t middle_ns = (end_ns - length_ns) / 2;
    return (struct mcp_gantt_fold){
        MCP_MOST_GANTT_WINDOWS,
        {{0, length_ns}, {middle_ns, middle_ns + length_ns}, {end_ns - length_ns, end_ns}}};
}

static int count_spans(const struct mcp_gantt *gantt, const struct mcp_gantt_fold *fold)
{
    struct mcp_gantt_window part;
    int count = 0;
    for (int i = 0; i < gantt->num_spans; i++)
        for (int w = 0; w < fold->count; w++)
            count += mcp_gantt_in_window(&gantt->spans[i], &fold->windows[w], &part);
    return count;
}

struct mcp_gantt_fold mcp_gantt_fold(const struct mcp_gantt *gantt, int most_spans)
{
    int64_t low = 1, high = gantt->end_ns / MCP_MOST_GANTT_WINDOWS;
    if (gantt->num_spans <= most_spans || high <= low)
        return (struct mcp_gantt_fold){1, {{0, gantt->end_ns}}};
    while (high - low > 1) {
        int64_t length = low + (high - low) / 2;
        const struct mcp_gantt_fold fold = windows_of(gantt->end_ns, length);
        if (count_spans(gantt, &fold) <= most_spans)
            low = length;
        else
            high = length;
    }
    return windows_of(gantt->end_ns, low);
}
