/* tests/core/test_calibration.c: measured ops, and what lies between and beyond them. */
#include "core/calibration.h"

#include "core/stack.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* One size; the time for a unit of work is 1, 3 and 2; another dtype and function. */
static struct mcp_sample samples[] = {
    {"product", "f32", {1024, 1, 1, 1, 1}, 1024, 2 * 1024},
    {"product", "f32", {64, 1, 1, 1, 1}, 64, 64},
    {"product", "bf16", {64, 1, 1, 1, 1}, 64, 7 * 64},
    {"product", "f32", {256, 1, 1, 1, 1}, 256, 3 * 256},
    {"add", "f32", {8, 8, 1, 1, 1}, 64, 5 * 64},
};

struct case_between {
    char name[40], function[12], dtype[8];
    double size;
    double rate; /* expected; 0: not measured */
};
ParameterizedTestParameters(calibration, between)
{
    static struct case_between cases[] = {
        {"a size that was measured", "product", "f32", 256, 3},
        {"the smallest", "product", "f32", 64, 1},
        {"another dtype has its own", "product", "bf16", 1024, 7},
        /* octaves from 64, 256, 1024: 1, 1, 3; weights 1, 1, 1/81 */
        {"between two", "product", "f32", 128, (1 + 3 + 2.0 / 81) / (2 + 1.0 / 81)},
        /* 5, 3, 1 octaves away */
        {"above all, near", "product", "f32", 2048,
         (1 / 625.0 + 3 / 81.0 + 2) / (1 / 625.0 + 1 / 81.0 + 1)},
        {"above all, far: the best", "product", "f32", 1024 * 17, 1},
        {"below all, far: the best", "product", "f32", 3, 1},
        {"a dtype that was not measured", "product", "f16", 64, 0},
        {"a function that was not", "zero", "f32", 64, 0},
        {"a function before all", "Add", "f32", 64, 0},
    };
    return cr_make_param_array(struct case_between, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_between *c, calibration, between)
{
    struct mcp_calibration calibration = {MCP_COUNT_OF(samples), samples};
    struct mcp_sample wanted = {c->function, c->dtype, {c->size, 1, 1, 1, 1}, c->size, 0};
    double seconds = -1;
    mcp_calibration_sort(&calibration);
    bool found = mcp_calibration_seconds(&calibration, &wanted, &seconds);
    cr_expect(eq(int, found, c->rate > 0), "%s", c->name);
    cr_expect(found == false || fabs(seconds / c->size - c->rate) <= 1e-12 * c->rate,
              "%s: %g, not %g", c->name, seconds / c->size, c->rate);
}

struct case_file {
    char name[40], text[160], says[60];
};
ParameterizedTestParameters(calibration, files)
{
    static struct case_file cases[] = {
        {"whole",
         "[{\"function\":\"f\",\"dtype\":\"f32\",\"sizes\":[1,2],\"work\":3,\"seconds\":4e-6}]",
         ""},
        {"none", "[]", ""},
        {"no time at all",
         "[{\"function\":\"f\",\"dtype\":\"f32\",\"sizes\":[1,2],\"work\":3,\"seconds\":0}]",
         "seconds=0 is no positive number"},
        {"negative work",
         "[{\"function\":\"f\",\"dtype\":\"f32\",\"sizes\":[1],\"work\":-3,\"seconds\":1}]",
         "work=-3 is no positive number"},
        {"a size of nothing",
         "[{\"function\":\"f\",\"dtype\":\"f32\",\"sizes\":[0],\"work\":3,\"seconds\":1}]",
         "size=0 is no positive number"},
        {"too many sizes",
         "[{\"function\":\"f\",\"dtype\":\"\",\"sizes\":[1,1,1,1,1,1],\"work\":3,\"seconds\":1}]",
         "6 sizes; an op has at most 5"},
        {"no function", "[{\"dtype\":\"f32\",\"sizes\":[1],\"work\":3,\"seconds\":1}]", "function"},
        {"no list", "{}", "array"},
    };
    return cr_make_param_array(struct case_file, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_file *c, calibration, files)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_json *json, *list;
    struct mcp_calibration calibration = {0};
    struct mcp_error err = {""};
    const char *text = mcp_format(arena, "{\"samples\": %s}", c->text);
    cr_assert(mcp_json_parse(arena, "c.json", text, strlen(text), &json, &err) == MCP_OK);
    enum mcp_status got = mcp_json_array(json, "samples", &list, &err);
    got = got == MCP_OK ? mcp_calibration_from_json(arena, list, &calibration, &err) : got;
    cr_expect(eq(int, (int)got, *c->says ? MCP_FORMAT : MCP_OK), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

/* A stack's file keeps its samples, to the last digit. */
Test(calibration, a_stack_keeps_it)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_calibration calibration = {MCP_COUNT_OF(samples), samples};
    struct mcp_stack stack, again;
    struct mcp_error err = {""};
    struct mcp_json *json = mcp_json_new_object(arena), *read;
    cr_assert(mcp_stack_load(arena, "mcpplan-cpu", &stack, &err) == MCP_OK, "%s", err.text);
    cr_expect(stack.calibration == NULL);
    samples[0].seconds = 0.1 + 0.2;
    mcp_calibration_sort(&calibration);
    stack.calibration = &calibration;
    mcp_stack_to_json(&stack, json);
    const char *text = mcp_json_text(arena, json);
    cr_assert(mcp_json_parse(arena, "s", text, strlen(text), &read, &err) == MCP_OK);
    cr_assert(mcp_stack_from_json(arena, read, &again, &err) == MCP_OK, "%s", err.text);
    cr_assert(mcp_json_done(read, &err) == MCP_OK, "%s", err.text);
    cr_assert(again.calibration != NULL);
    cr_assert(eq(int, again.calibration->num_samples, calibration.num_samples));
    for (int i = 0; i < calibration.num_samples; i++) {
        const struct mcp_sample *a = &calibration.samples[i], *b = &again.calibration->samples[i];
        cr_expect(eq(str, (char *)a->function, (char *)b->function));
        cr_expect(eq(str, (char *)a->dtype, (char *)b->dtype));
        cr_expect(memcmp(a->sizes, b->sizes, sizeof a->sizes) == 0);
        cr_expect(a->work == b->work && a->seconds == b->seconds);
    }
    mcp_arena_free(arena);
}

struct case_reduce {
    char name[40];
    int count;
    double seconds[12];
    double want, spread;
};
ParameterizedTestParameters(calibration, times_of_an_op)
{
    static struct case_reduce cases[] = {
        {"one", 1, {5}, 5, 0},
        {"two: the lower", 2, {6, 4}, 4, 0.5},
        {"the third of eleven",
         11,
         {30, 11, 12, 13, 14, 15, 16, 17, 18, 19, 10},
         12,
         15.0 / 12 - 1},
    };
    return cr_make_param_array(struct case_reduce, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct case_reduce *c, calibration, times_of_an_op)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_sample taken[24];
    struct mcp_calibration times = {0, taken};
    struct mcp_calibration calibration;
    double spread = -1;
    for (int i = 0; i < c->count; i++) /* another op between them, twice as slow */
        for (int k = 0; k < 2; k++)
            taken[times.num_samples++] = (struct mcp_sample){.function = k ? "b" : "a",
                                                             .dtype = "f32",
                                                             .sizes = {3, 1, 1, 1, 1},
                                                             .work = 3,
                                                             .seconds = c->seconds[i] * (k + 1)};
    mcp_calibration_reduce(arena, &times, &calibration, &spread);
    cr_assert(eq(int, calibration.num_samples, 2));
    cr_expect(eq(str, (char *)calibration.samples[0].function, "a"));
    cr_expect(calibration.samples[0].seconds == c->want);
    cr_expect(calibration.samples[1].seconds == 2 * c->want);
    cr_expect(fabs(spread - c->spread) <= 1e-12, "%g", spread);
    mcp_arena_free(arena);
}
