/* reports/html_gantt.c: spans of time as a drawing, and as data for the page's script.
 *
 * The drawing has a path for each row and kind, not an element for each span, so that
 * thousands of spans cost little. The script (reports/page.js) draws it anew when the
 * reader zooms, from the same windows with the same mapping of time. */
#include "core/units.h"
#include "reports/html_parts.h"

#include <math.h>

enum {
    MOST_SPANS = 6000,
    MOST_IN_A_ROW = 320, /* more could not be told apart */
    GAP = 26,            /* pixels between windows */
    GANTT_LEFT = 84,
    GANTT_RIGHT = MCP_HTML_WIDTH - 8,
    TOP = 22
};

struct gantt_plot {
    const struct mcp_gantt *gantt;
    struct mcp_gantt_fold fold;
    double pitch, height, pixels_per_ns;
};

static struct gantt_plot plot_of(const struct mcp_gantt *gantt)
{
    int most = gantt->num_rows * MOST_IN_A_ROW;
    most = most < MOST_SPANS ? most : MOST_SPANS;
    struct gantt_plot plot = {gantt, mcp_gantt_fold(gantt, most), 0, 0, 0};
    double shown = 0;
    for (int w = 0; w < plot.fold.count; w++)
        shown += (double)(plot.fold.windows[w].to_ns - plot.fold.windows[w].from_ns);
    plot.pixels_per_ns = (GANTT_RIGHT - GANTT_LEFT - GAP * (plot.fold.count - 1)) / fmax(shown, 1);
    plot.pitch = fmax(3, fmin(26, 460.0 / gantt->num_rows));
    plot.height = plot.pitch * (plot.pitch > 8 ? 0.84 : 0.92);
    return plot;
}

/* Left edge of a window. */
static double window_x(const struct gantt_plot *plot, int window)
{
    double x = GANTT_LEFT;
    for (int w = 0; w < window; w++)
        x += plot->pixels_per_ns *
                 (double)(plot->fold.windows[w].to_ns - plot->fold.windows[w].from_ns) +
             GAP;
    return x;
}

/* One path: spans of a kind and chunk. Where rows are thin they touch. */
static void put_path(struct mcp_text *out, const struct gantt_plot *plot, int kind, int chunk)
{
    const struct mcp_gantt *gantt = plot->gantt;
    struct mcp_text path = mcp_text_new(out->arena);
    for (int w = 0; w < plot->fold.count; w++) {
        const struct mcp_gantt_window *window = &plot->fold.windows[w];
        double left = window_x(plot, w);
        for (int i = 0; i < gantt->num_spans; i++) {
            struct mcp_gantt_window part;
            const struct mcp_gantt_span *span = &gantt->spans[i];
            if (span->kind != kind || span->chunk != chunk ||
                !mcp_gantt_in_window(span, window, &part))
                continue;
            double width = plot->pixels_per_ns * (double)(part.to_ns - part.from_ns);
            mcp_text_add(&path, "M%.1f %.1fh%.2fv%.1fH%.1f",
                         left + plot->pixels_per_ns * (double)(part.from_ns - window->from_ns),
                         TOP + span->row * plot->pitch, width - (width > 3 ? 0.7 : 0), plot->height,
                         left + plot->pixels_per_ns * (double)(part.from_ns - window->from_ns));
        }
    }
    if (path.length > 0)
        mcp_text_add(out, "<path class=\"k%d\"%s d=\"%s\"/>\n", gantt->kinds[kind].ink,
                     chunk % 2 == 1 ? " fill-opacity=\".62\"" : "", path.data);
}

/* Behind the spans: where a row waits. */
static void put_rows(struct mcp_text *out, const struct gantt_plot *plot)
{
    const struct mcp_gantt *gantt = plot->gantt;
    int every = 1 + (int)(11 / plot->pitch);
    for (int w = 0; w < plot->fold.count; w++) {
        double x = window_x(plot, w);
        double width = plot->pixels_per_ns *
                       (double)(plot->fold.windows[w].to_ns - plot->fold.windows[w].from_ns);
        mcp_text_add(out, "<path class=\"wait\" d=\"");
        for (int row = 0; row < gantt->num_rows; row++)
            mcp_text_add(out, "M%.1f %.1fh%.1fv%.1fh-%.1f", x, TOP + row * plot->pitch, width,
                         plot->height, width);
        mcp_text_add(out, "\"/>\n");
    }
    mcp_text_add(out, "<g class=\"rows\">");
    for (int row = 0; row < gantt->num_rows; row += every)
        mcp_html_label(out, "e", GANTT_LEFT - 8, TOP + row * plot->pitch + plot->height / 2 + 4.5,
                       gantt->rows[row]);
    mcp_text_add(out, "</g>\n");
}

/* Round times of one window, with their lines. */
static void put_window_times(struct mcp_text *out, const struct gantt_plot *plot, int w)
{
    const struct mcp_gantt_window *window = &plot->fold.windows[w];
    double from = 1e-9 * (double)window->from_ns, to = 1e-9 * (double)window->to_ns;
    double step = mcp_html_round_step(to - from, plot->fold.count > 1 ? 2 : 6, MCP_SECONDS);
    double bottom = TOP + plot->pitch * plot->gantt->num_rows;
    int first = (int)ceil(from / step), last = (int)floor(to / step + 1e-9);
    for (int i = first; i <= last; i++) {
        double at = window_x(plot, w) + plot->pixels_per_ns * 1e9 * (i * step - from);
        mcp_text_add(out, "<path class=\"tick\" d=\"M%.1f %dV%.1f\"/>", at, TOP - 4, bottom);
        mcp_html_label(out, "m small", at, TOP - 8,
                       mcp_html_round_text(out->arena, i * step, MCP_SECONDS));
    }
}

static void put_times(struct mcp_text *out, const struct gantt_plot *plot)
{
    double middle = TOP + plot->pitch * plot->gantt->num_rows / 2;
    mcp_text_add(out, "<g class=\"times\">");
    for (int w = 0; w < plot->fold.count; w++) {
        put_window_times(out, plot, w);
        if (w > 0)
            mcp_html_label(out, "m dim", window_x(plot, w) - GAP / 2.0, middle + 4, "…");
    }
    mcp_text_add(out, "</g>\n");
}

/* A JSON string that no tag can hide in. */
static void put_string(struct mcp_text *out, const char *text)
{
    mcp_text_add(out, "\"");
    for (const char *at = mcp_printable(out->arena, text); *at != '\0'; at++)
        if (*at == '"' || *at == '\\' || *at == '<')
            mcp_text_add(out, "\\u%04x", (unsigned)*at);
        else
            mcp_text_append(out, at, 1);
    mcp_text_add(out, "\"");
}

static void put_names(struct mcp_text *out, const struct gantt_plot *plot)
{
    const struct mcp_gantt *gantt = plot->gantt;
    mcp_text_add(out, "\"windows\":[");
    for (int w = 0; w < plot->fold.count; w++)
        mcp_text_add(out, "%s[%lld,%lld]", w > 0 ? "," : "",
                     (long long)plot->fold.windows[w].from_ns,
                     (long long)plot->fold.windows[w].to_ns);
    mcp_text_add(out, "],\"kinds\":[");
    for (int kind = 0; kind < gantt->num_kinds; kind++) {
        mcp_text_add(out, "%s[", kind > 0 ? "," : "");
        put_string(out, gantt->kinds[kind].name);
        mcp_text_add(out, ",%d]", gantt->kinds[kind].ink);
    }
    mcp_text_add(out, "],\"names\":[");
    for (int row = 0; row < gantt->num_rows; row++) {
        mcp_text_add(out, row > 0 ? "," : "");
        put_string(out, gantt->rows[row]);
    }
    mcp_text_add(out, "],\n");
}

static bool is_shown(const struct gantt_plot *plot, const struct mcp_gantt_span *span)
{
    struct mcp_gantt_window part;
    for (int w = 0; w < plot->fold.count; w++)
        if (mcp_gantt_in_window(span, &plot->fold.windows[w], &part))
            return true;
    return false;
}

/* [gap, length, kind, microbatch, chunk, ...] of each row: nanoseconds, each gap from the
 * end of the span before. */
static void put_spans(struct mcp_text *out, const struct gantt_plot *plot)
{
    const struct mcp_gantt *gantt = plot->gantt;
    int i = 0;
    mcp_text_add(out, "\"rows\":[");
    for (int row = 0; row < gantt->num_rows; row++) {
        int64_t end = 0;
        const char *comma = "";
        mcp_text_add(out, row > 0 ? ",\n[" : "[");
        for (; i < gantt->num_spans && gantt->spans[i].row == row; i++) {
            const struct mcp_gantt_span *span = &gantt->spans[i];
            if (!is_shown(plot, span))
                continue;
            mcp_text_add(out, "%s%lld,%lld,%d,%d,%d", comma, (long long)(span->start_ns - end),
                         (long long)(span->end_ns - span->start_ns), span->kind, span->microbatch,
                         span->chunk);
            end = span->end_ns;
            comma = ",";
        }
        mcp_text_add(out, "]");
    }
    mcp_text_add(out, "]");
}

static void put_data(struct mcp_text *out, const struct gantt_plot *plot)
{
    mcp_text_add(out,
                 "<script type=\"application/json\">{\"left\":%d,\"right\":%d,\"top\":%d,"
                 "\"gap\":%d,\"pitch\":%.3f,\"height\":%.3f,\"chunks\":%d,\"end\":%lld,\n",
                 GANTT_LEFT, GANTT_RIGHT, TOP, GAP, plot->pitch, plot->height,
                 plot->gantt->num_chunks, (long long)plot->gantt->end_ns);
    put_names(out, plot);
    put_spans(out, plot);
    mcp_text_add(out, "}</script>\n");
}

static const char *fold_text(struct mcp_arena *arena, const struct gantt_plot *plot)
{
    const struct mcp_gantt_window *first = &plot->fold.windows[0];
    if (plot->fold.count == 1)
        return "";
    return mcp_format(
        arena,
        "The schedule is too long to draw whole: its beginning, its middle and its end are "
        "shown, %s each of %s.",
        mcp_show(arena, 1e-9 * (double)(first->to_ns - first->from_ns), MCP_SECONDS),
        mcp_show(arena, 1e-9 * (double)plot->gantt->end_ns, MCP_SECONDS));
}

void mcp_html_gantt(struct mcp_text *out, const struct mcp_gantt *gantt)
{
    struct gantt_plot plot = plot_of(gantt);
    struct mcp_report_part *parts =
        MCP_ARRAY(out->arena, gantt->num_kinds + 1, struct mcp_report_part);
    for (int kind = 0; kind < gantt->num_kinds; kind++)
        parts[kind] = (struct mcp_report_part){gantt->kinds[kind].name, gantt->kinds[kind].ink};
    parts[gantt->num_kinds] = (struct mcp_report_part){"waiting", 11};
    mcp_text_add(out, "<div class=\"gantt\">\n");
    mcp_html_svg_begin(out, TOP + plot.pitch * gantt->num_rows + 6, gantt->title);
    put_rows(out, &plot);
    put_times(out, &plot);
    mcp_text_add(out, "<g class=\"spans\">\n");
    for (int kind = 0; kind < gantt->num_kinds; kind++)
        for (int chunk = 0; chunk < gantt->num_chunks; chunk++)
            put_path(out, &plot, kind, chunk);
    mcp_text_add(out, "</g>\n");
    mcp_html_svg_end(out);
    put_data(out, &plot);
    mcp_text_add(out, "</div>\n");
    mcp_html_legend(out, parts, gantt->num_kinds + 1);
    if (plot.fold.count > 1) {
        mcp_text_add(out, "<p class=\"remark\">");
        mcp_html_text(out, fold_text(out->arena, &plot));
        mcp_text_add(out, "</p>\n");
    }
}
