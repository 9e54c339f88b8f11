/* cli/sim_gantt.c: the pipeline on character cells: one line a stage. */
#include "cli/sim_view.h"

#include <string.h>

enum { LABEL = 11, MOST_LINES = 16, LEAST_CELLS = 40, GAP = 3 };

/* Cells [0, count) show the step from `start_ns` on. */
struct window {
    int64_t start_ns, cell_ns;
    int count;
};

static int64_t shortest_slot_ns(const struct mcp_sim_result *result)
{
    int64_t shortest = result->step_ns;
    for (int s = 0; s < result->num_stages; s++)
        for (int i = 0; i < result->stages[s].num_slots; i++) {
            const struct mcp_sim_slot_time *time = &result->stages[s].times[i];
            int64_t ns = time->end_ns - time->start_ns;
            if (result->stages[s].slots[i].microbatch >= 0 && ns > 0 && ns < shortest)
                shortest = ns;
        }
    return shortest;
}

/* A forward is its microbatch's last digit, a backward a letter. */
static char mark_of(const struct mcp_slot *slot)
{
    return (char)((slot->pass == MCP_FORWARD ? '0' : 'a') + slot->microbatch % 10);
}

/* What runs at the middle of each cell; two slots in one cell: the one at its middle. */
static void fill_cells(const struct mcp_sim_stage *stage, const struct mcp_sim_result *result,
                       const struct window *window, char *cells)
{
    memset(cells, '.', (size_t)window->count);
    cells[window->count] = '\0';
    int slot = 0;
    for (int i = 0; i < window->count; i++) {
        int64_t at = window->start_ns + i * window->cell_ns + window->cell_ns / 2;
        while (slot < stage->num_slots && stage->times[slot].end_ns <= at)
            slot++;
        if (slot < stage->num_slots && stage->times[slot].start_ns <= at &&
            stage->slots[slot].microbatch >= 0)
            cells[i] = mark_of(&stage->slots[slot]);
        else if (at >= result->end_ns)
            cells[i] = at < result->step_ns ? '#' : ' ';
    }
}

/* Runs of one kind share their colour. */
static void write_cells(struct mcp_text *out, const struct mcp_style *style, const char *cells)
{
    const char digits[] = "0123456789", letters[] = "abcdefghij";
    while (*cells != '\0') {
        size_t forward = strspn(cells, digits), backward = strspn(cells, letters);
        size_t length = forward + backward > 0 ? forward + backward : 1;
        enum mcp_color color = forward > 0 ? MCP_BLUE : backward > 0 ? MCP_GREEN : MCP_DIM;
        const char *part = mcp_strndup(out->arena, cells, length);
        mcp_text_add(out, "%s", mcp_paint(out->arena, style, color, part));
        cells += length;
    }
}

static void write_stage(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_sim_result *result, int stage,
                        const struct window windows[2])
{
    char *cells = MCP_ARRAY(out->arena, windows[0].count + windows[1].count + 1, char);
    mcp_text_add(out, "  %-*s", LABEL - 2, mcp_format(out->arena, "stage %d", stage));
    for (int i = 0; i < 2 && windows[i].count > 0; i++) {
        fill_cells(&result->stages[stage], result, &windows[i], cells);
        mcp_text_add(out, "%s", i > 0 ? " ~ " : "");
        write_cells(out, style, cells);
    }
    mcp_text_add(out, "\n");
}

/* The whole step where a slot then still fills a cell, else its beginning and end. */
static void choose_windows(const struct mcp_style *style, const struct mcp_sim_result *result,
                           struct window windows[2])
{
    int cells = style->width - LABEL;
    cells = cells < LEAST_CELLS ? LEAST_CELLS : cells;
    int64_t shortest = shortest_slot_ns(result), whole = (result->step_ns + cells - 1) / cells;
    if (whole <= shortest) {
        windows[0] = (struct window){0, whole > 0 ? whole : 1, cells};
        windows[1] = (struct window){0, 1, 0};
        return;
    }
    int first = (cells - GAP) / 2, second = cells - GAP - first;
    windows[0] = (struct window){0, shortest, first};
    windows[1] = (struct window){result->step_ns - second * shortest, shortest, second};
}

void mcp_sim_gantt_text(struct mcp_text *out, const struct mcp_style *style,
                        const struct mcp_sim_view *view)
{
    const struct mcp_sim_result *result = view->result;
    struct window windows[2];
    int stages = result->num_stages;
    choose_windows(style, result, windows);
    mcp_heading(out, style, windows[1].count > 0 ? "Pipeline, beginning and end" : "Pipeline");
    for (int s = 0; s < stages; s++) {
        if (stages > MOST_LINES && s == MOST_LINES / 2) {
            mcp_text_add(out, "  ... %d stages more\n", stages - MOST_LINES);
            s = stages - MOST_LINES / 2;
        }
        write_stage(out, style, result, s, windows);
    }
    mcp_text_add(out, "  0-9 forward, a-j backward (last digit of the microbatch), . waiting, "
                      "# update\n");
}
