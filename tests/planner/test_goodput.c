/* tests/planner/test_goodput.c: published and worked values of failures' cost. */
#include "planner/goodput.h"

#include "core/text.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>

static bool near(double value, double want, double within)
{
    return fabs(value - want) <= within;
}

/* Three digits: the worked values are printed so. */
struct case_ettr {
    double nodes, rate, stall_s, recovery_s;
    double mttf_h, interval_min, short_form, renewal;
    double within_h, within_min;
};
ParameterizedTestParameters(goodput, ettr)
{
    static struct case_ettr cases[] = {
        {128, 6.5, 30, 120, 28.8, 41, 0.975, 0.975, 0.05, 0.5},
        {2048, 3.79, 30, 120, 3.09, 13, 0.919, 0.918, 0.005, 0.5},
        {2048, 3.79, 30, 600, 3.09, 13, 0.877, 0.880, 0.005, 0.5},
        {2048, 6.5, 120, 600, 1.80, 19.5, 0.740, 0.747, 0.005, 0.05},
        {12500, 6.5, 30, 120, 0.30, 3.9, 0.687, 0.698, 0.005, 0.05},
        {12500, 6.5, 30, 600, 0.30, 3.9, 0.283, 0.444, 0.005, 0.05},
    };
    return cr_make_param_array(struct case_ettr, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_ettr *c, goodput, ettr)
{
    double mttf_s = mcp_mttf_s(8 * c->nodes, c->rate);
    struct mcp_restart restart = {mttf_s, mcp_daly_interval_s(c->stall_s, mttf_s), c->stall_s,
                                  c->recovery_s};
    cr_expect(near(mttf_s / 3600, c->mttf_h, c->within_h), "MTTF %g h", mttf_s / 3600);
    cr_expect(near(restart.interval_s / 60, c->interval_min, c->within_min), "interval %g min",
              restart.interval_s / 60);
    cr_expect(near(mcp_ettr(&restart), c->renewal, 0.0005), "renewal %g", mcp_ettr(&restart));
    restart.interval_s = sqrt(2 * c->stall_s * mttf_s); /* Young's goes with the short form */
    cr_expect(near(mcp_ettr_short(&restart), c->short_form, 0.0005), "short %g",
              mcp_ettr_short(&restart));
}

/* Daly's interval is the best there is, to second order: no other is better by much. */
Test(goodput, interval_is_nearly_the_best)
{
    for (double mttf_s = 600; mttf_s < 1e6; mttf_s *= 3) {
        struct mcp_restart best = {mttf_s, mcp_daly_interval_s(30, mttf_s), 30, 300};
        for (double factor = 0.25; factor <= 4; factor *= 1.1) {
            struct mcp_restart other = best;
            other.interval_s *= factor;
            cr_expect(mcp_ettr(&other) <= mcp_ettr(&best) * 1.001, "M %g, x %g", mttf_s, factor);
        }
    }
}

/* A job played failure by failure, its times between failures drawn by inversion. */
static double played_ettr(const struct mcp_restart *r, int failures)
{
    unsigned long long state = 1;
    double useful_s = 0, all_s = 0;
    for (int i = 0; i < failures; i++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        double until_s = -r->mttf_s * log(((double)(state >> 11) + 1) / 9007199254740993.0);
        all_s += until_s;
        if (until_s > r->recovery_s)
            useful_s +=
                floor((until_s - r->recovery_s) / (r->interval_s + r->stall_s)) * r->interval_s;
    }
    return useful_s / all_s;
}

Test(goodput, renewal_is_what_playing_gives)
{
    static const struct mcp_restart cases[] = {
        {11000, 780, 30, 600}, {1060, 230, 30, 600}, {100000, 2460, 30, 120}};
    for (size_t i = 0; i < MCP_COUNT_OF(cases); i++) {
        double played = played_ettr(&cases[i], 400000);
        cr_expect(near(mcp_ettr(&cases[i]), played, 0.005), "%zu: %g, played %g", i,
                  mcp_ettr(&cases[i]), played);
    }
}

Test(goodput, edges_of_failures)
{
    double never = mcp_mttf_s(16384, 0);
    struct mcp_restart none = {never, mcp_daly_interval_s(30, never), 30, 600};
    struct mcp_restart free_saves = {3600, mcp_daly_interval_s(0, 3600), 0, 0};
    struct mcp_restart hopeless = {10, mcp_daly_interval_s(1000, 10), 1000, 1e6};
    cr_expect(isinf(never) && isinf(none.interval_s) && mcp_ettr(&none) == 1);
    cr_expect(free_saves.interval_s == 0 && near(mcp_ettr(&free_saves), 1, 1e-12));
    cr_expect(hopeless.interval_s == 10 && mcp_ettr(&hopeless) == 0);
    cr_expect(mcp_restart_leaks(&none).redo_frac == 0 && mcp_ettr_short(&none) == 1);
}

/* 128 nodes at 6.5 with 3 days of repair: 5 (95 %), 7 (99 %), and so on. */
struct case_spares {
    double nodes, rate, repair_days, mean;
    int at_95, at_99;
};
ParameterizedTestParameters(goodput, spares)
{
    static struct case_spares cases[] = {
        {128, 6.5, 3, 2.5, 5, 7},
        {2048, 3.79, 3, 23, 31, 35},
        {2048, 6.5, 7, 93, 109, 116},
    };
    return cr_make_param_array(struct case_spares, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_spares *c, goodput, spares)
{
    double mean = c->repair_days * 86400 / mcp_mttf_s(8 * c->nodes, c->rate);
    cr_expect(near(mean, c->mean, c->mean < 10 ? 0.05 : 0.5), "mean %g", mean);
    cr_expect(mcp_spares(mean, 0.95) == c->at_95, "%d", mcp_spares(mean, 0.95));
    cr_expect(mcp_spares(mean, 0.99) == c->at_99, "%d", mcp_spares(mean, 0.99));
}

Test(goodput, spares_of_none_and_of_very_many)
{
    cr_expect(mcp_spares(0, 0.99) == 0);
    cr_expect(mcp_spares(1e-9, 0.99) == 0);
    cr_expect(mcp_spares(0.5, 0.6) == 0 && mcp_spares(0.5, 0.61) == 1);
    int many = mcp_spares(1e6, 0.99); /* mean + 2.326 sqrt(mean) */
    cr_expect(many > 1002300 && many < 1002360, "%d", many);
}

/* 405B x 15.6T tokens at 6 N D on 16,384 H100, MFU 0.41, ETTR 0.90: about 73 days. */
Test(goodput, days_of_llama_405b)
{
    double days = mcp_training_days(6 * 405e9 * 15.6e12, 16384, 989e12, 0.41, 0.90);
    cr_expect(near(days, 73.4, 0.05), "%g", days);
}

struct case_failures {
    char text[24];
    double low, rate, high; /* rate < 0: refused */
    char says[48];
};
ParameterizedTestParameters(goodput, failures)
{
    static struct case_failures cases[] = {
        {"dedicated", 3.79, 3.79, 4.21, ""},
        {"shared", 2.34, 6.5, 6.5, ""},
        {"6.5", 6.5, 6.5, 6.5, ""},
        {"4..7", 4, 7, 7, ""},
        {"0", 0, 0, 0, ""},
        {"1000", 1000, 1000, 1000, ""},
        {"dedicatd", 0, -1, 0, "did you mean dedicated?"},
        {"7..4", 0, -1, 0, "nor a rate per 1,000 node-days"},
        {"-1", 0, -1, 0, "nor a rate"},
        {"1001", 0, -1, 0, "from 0 to 1000"},
        {"4..", 0, -1, 0, "nor a rate"},
        {"..", 0, -1, 0, "nor a rate"},
        {"nan", 0, -1, 0, "population of failures"},
    };
    return cr_make_param_array(struct case_failures, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_failures *c, goodput, failures)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_failures got = {.rate = -1};
    struct mcp_error err = {""};
    enum mcp_status status = mcp_failures_parse(arena, c->text, &got, &err);
    cr_expect(status == (c->rate < 0 ? MCP_USAGE : MCP_OK), "%s: %s", c->text, err.text);
    cr_expect(c->rate < 0 || (got.low == c->low && got.rate == c->rate && got.high == c->high));
    if (c->rate < 0)
        cr_expect(mcp_contains_ignoring_case(err.text, c->says), "%s: %s", c->text, err.text);
    mcp_arena_free(arena);
}

/* Every population is an interval around what is planned with, and has a source. */
Test(goodput, populations)
{
    for (int i = 0; i < MCP_NUM_FAILURES; i++) {
        const struct mcp_failures *f = &mcp_failure_populations[i];
        cr_expect(f->low <= f->rate && f->rate <= f->high && *f->source != '\0', "%s", f->name);
    }
    double llama = 419.0 / (16384 / 8.0) / 54 * 1000, all = 466.0 / (16384 / 8.0) / 54 * 1000;
    cr_expect(near(mcp_failure_populations[1].rate, llama, 0.005), "%g", llama);
    cr_expect(near(mcp_failure_populations[1].high, all, 0.005), "%g", all);
}
