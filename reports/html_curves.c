/* reports/html_curves.c: curves over x, both scales in powers, as inline SVG. */
#include "core/units.h"
#include "reports/html_parts.h"

#include <math.h>
#include <string.h>

enum { LEFT = 76, RIGHT = MCP_HTML_WIDTH - 24, TOP = 26, HEIGHT = 300, MOST_TICKS = 40 };

/* Powers of ten at the ends of a scale. */
struct scale {
    double from, to;
};

struct curve_plot {
    const struct mcp_report_curves *curves;
    struct scale x, y;
};

static void widen(struct scale *scale, double value)
{
    if (!(value > 0) || !isfinite(value))
        return;
    scale->from = fmin(scale->from, log10(value));
    scale->to = fmax(scale->to, log10(value));
}

/* A twentieth more at each end, and never nothing. */
static void settle(struct scale *scale)
{
    if (!(scale->to >= scale->from))
        *scale = (struct scale){0, 1};
    double margin = fmax((scale->to - scale->from) / 20, 0.03);
    scale->from -= margin;
    scale->to += margin;
}

static struct curve_plot plot_of(const struct mcp_report_curves *curves)
{
    struct curve_plot plot = {curves, {INFINITY, -INFINITY}, {INFINITY, -INFINITY}};
    for (int c = 0; c < curves->num_curves; c++)
        for (int i = 0; i < curves->curves[c].num_points; i++) {
            const struct mcp_report_point *point = &curves->curves[c].points[i];
            widen(&plot.x, point->x);
            widen(&plot.y, point->y);
            widen(&plot.y, point->low);
            widen(&plot.y, point->high);
        }
    widen(&plot.y, curves->limit);
    settle(&plot.x);
    settle(&plot.y);
    return plot;
}

static double x_of(const struct curve_plot *plot, double value)
{
    double frac = (log10(value) - plot->x.from) / (plot->x.to - plot->x.from);
    return LEFT + (RIGHT - LEFT) * fmin(fmax(frac, 0), 1);
}

static double y_of(const struct curve_plot *plot, double value)
{
    double frac = (log10(value) - plot->y.from) / (plot->y.to - plot->y.from);
    return TOP + HEIGHT * (1 - fmin(fmax(frac, 0), 1));
}

/* 1, 2, 5 x 10^n within the scale; powers of ten alone where those are too many. */
static int ticks_of(const struct scale *scale, double ticks[MOST_TICKS])
{
    static const double steps[] = {1, 2, 5};
    size_t each = scale->to - scale->from > 4 ? 1 : MCP_COUNT_OF(steps);
    int count = 0;
    for (int ten = (int)floor(scale->from); ten <= (int)ceil(scale->to); ten++)
        for (size_t i = 0; i < each && count < MOST_TICKS; i++) {
            double value = steps[i] * pow(10, ten);
            if (log10(value) >= scale->from && log10(value) <= scale->to)
                ticks[count++] = value;
        }
    return count;
}

/* "16,384", "0.05". */
static const char *tick_text(struct mcp_arena *arena, double value)
{
    return value >= 1 && value < 1e15 ? mcp_show_integer(arena, llround(value))
                                      : mcp_format(arena, "%.3g", value);
}

static void put_scales(struct mcp_text *out, const struct curve_plot *plot)
{
    double ticks[MOST_TICKS];
    int count = ticks_of(&plot->x, ticks);
    for (int i = 0; i < count; i++) {
        double x = x_of(plot, ticks[i]);
        mcp_text_add(out, "<path class=\"tick\" d=\"M%.1f %dV%d\"/>", x, TOP, TOP + HEIGHT);
        mcp_html_label(out, "m small", x, TOP + HEIGHT + 17, tick_text(out->arena, ticks[i]));
    }
    count = ticks_of(&plot->y, ticks);
    for (int i = 0; i < count; i++) {
        double y = y_of(plot, ticks[i]);
        mcp_text_add(out, "<path class=\"tick\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
        mcp_html_label(out, "e small", LEFT - 8, y + 4, tick_text(out->arena, ticks[i]));
    }
    mcp_html_label(out, "e small", RIGHT, TOP + HEIGHT + 34, plot->curves->x_name);
    mcp_html_label(out, "s small", LEFT - 40, TOP - 12, plot->curves->y_name);
    mcp_text_add(out, "\n");
}

/* What bounds the curve, there and back. */
static void put_band(struct mcp_text *out, const struct curve_plot *plot,
                     const struct mcp_report_curve *curve)
{
    mcp_text_add(out, "<path class=\"k%d\" fill-opacity=\".16\" d=\"", curve->ink);
    for (int i = 0; i < curve->num_points; i++)
        mcp_text_add(out, "%s%.1f %.1f", i > 0 ? "L" : "M", x_of(plot, curve->points[i].x),
                     y_of(plot, curve->points[i].high));
    for (int i = curve->num_points - 1; i >= 0; i--)
        mcp_text_add(out, "L%.1f %.1f", x_of(plot, curve->points[i].x),
                     y_of(plot, curve->points[i].low));
    mcp_text_add(out, "Z\"/>\n");
}

static void put_curve(struct mcp_text *out, const struct curve_plot *plot,
                      const struct mcp_report_curve *curve)
{
    mcp_text_add(out, "<path class=\"curve l%d\" d=\"", curve->ink);
    for (int i = 0; i < curve->num_points; i++)
        mcp_text_add(out, "%s%.1f %.1f", i > 0 ? "L" : "M", x_of(plot, curve->points[i].x),
                     y_of(plot, curve->points[i].y));
    mcp_text_add(out, "\"><title>");
    mcp_html_text(out, curve->name);
    mcp_text_add(out, "</title></path>\n");
}

static void put_points(struct mcp_text *out, const struct curve_plot *plot,
                       const struct mcp_report_curve *curve)
{
    struct mcp_arena *arena = out->arena;
    for (int i = 0; i < curve->num_points; i++) {
        const struct mcp_report_point *point = &curve->points[i];
        double x = x_of(plot, point->x), y = y_of(plot, point->y);
        mcp_text_add(out, "<circle class=\"k%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
                     curve->ink, x, y, *point->mark != '\0' ? "6" : "3.5");
        mcp_html_text(out, mcp_format(arena, "%s, %s %s: %.4g %s (%.4g to %.4g)%s%s", curve->name,
                                      tick_text(arena, point->x), plot->curves->x_name, point->y,
                                      plot->curves->y_name, point->low, point->high,
                                      *point->mark != '\0' ? ", " : "", point->mark));
        mcp_text_add(out, "</title></circle>");
        if (*point->mark != '\0')
            mcp_html_label(out, x > RIGHT - 120 ? "e" : "s", x + (x > RIGHT - 120 ? -8 : 8), y - 13,
                           point->mark);
        mcp_text_add(out, "\n");
    }
}

void mcp_html_curves(struct mcp_text *out, const struct mcp_report_curves *curves)
{
    const struct curve_plot plot = plot_of(curves);
    struct mcp_report_part *parts =
        MCP_ARRAY(out->arena, curves->num_curves, struct mcp_report_part);
    mcp_html_svg_begin(out, TOP + HEIGHT + 40, curves->title);
    put_scales(out, &plot);
    if (isfinite(curves->limit)) {
        double y = y_of(&plot, curves->limit);
        mcp_text_add(out, "<path class=\"limit\" d=\"M%d %.1fH%d\"/>", LEFT, y, RIGHT);
        mcp_html_label(out, "e small", RIGHT, y - 5, curves->limit_text);
    }
    for (int c = 0; c < curves->num_curves; c++) {
        put_band(out, &plot, &curves->curves[c]);
        put_curve(out, &plot, &curves->curves[c]);
        put_points(out, &plot, &curves->curves[c]);
        parts[c] = (struct mcp_report_part){curves->curves[c].name, curves->curves[c].ink};
    }
    mcp_html_svg_end(out);
    if (curves->num_curves > 1)
        mcp_html_legend(out, parts, curves->num_curves);
}
