/* tests/exec/test_machine.c: what of the machine is not as planned is named, and nothing else. */
#include "core/arena.h"
#include "exec/machine.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

enum { GIB = 1 << 30, MAX_RANKS = 4 };

struct found {
    char device[40];
    double memory_gib;
    int beside;
};
struct case_machine {
    char name[40];
    int ranks;
    struct found found[MAX_RANKS];
    char says[3][96]; /* "": no more; says[0] "": nothing is different */
};
ParameterizedTestParameters(machine, differences)
{
    static struct case_machine cases[] = {
        {"as planned",
         2,
         {{"NVIDIA H100 80GB HBM3", 79.1, 2}, {"NVIDIA H100 80GB HBM3", 79.1, 2}},
         {""}},
        {"nobody knows who is beside", 1, {{"NVIDIA H100 80GB HBM3", 80, 0}}, {""}},
        {"another GPU",
         2,
         {{"NVIDIA H100 80GB HBM3", 80, 2}, {"NVIDIA A100-SXM4-80GB", 80, 2}},
         {"1 of 2 ranks, the first of them rank 1, have a NVIDIA A100-SXM4-80GB",
          "the plan is for h100-sxm-80gb"}},
        {"no preset's name", 1, {{"Some Thing", 80, 1}}, {"have a Some Thing"}},
        {"less memory, on fewer machines",
         4,
         {{"NVIDIA H100 80GB HBM3", 80, 4},
          {"NVIDIA H100 80GB HBM3", 75, 4},
          {"NVIDIA H100 80GB HBM3", 40, 4},
          {"NVIDIA H100 80GB HBM3", 80, 4}},
         {"2 of 4 ranks, the first of them rank 1, have 75.0 GiB", "4 of 4 ranks",
          "share a machine of 4 ranks, and the plan is for 2 a node"}},
    };
    return cr_make_param_array(struct case_machine, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_machine *c, machine, differences)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_machine_plan plan = {"h100-sxm-80gb", 80 * (int64_t)GIB, 2};
    struct mcp_machine ranks[MAX_RANKS] = {{"", 0, 0}};
    for (int i = 0; i < c->ranks; i++) {
        memcpy(ranks[i].device, c->found[i].device, sizeof c->found[i].device);
        ranks[i].memory_bytes = (int64_t)(c->found[i].memory_gib * GIB);
        ranks[i].ranks_beside = c->found[i].beside;
    }
    const char *text = mcp_machine_differences(arena, &plan, ranks, c->ranks);
    if (c->says[0][0] == '\0')
        cr_expect(eq(ptr, (void *)text, NULL), "%s: %s", c->name, text);
    for (int i = 0; i < 3 && c->says[i][0] != '\0'; i++)
        cr_expect(text != NULL && strstr(text, c->says[i]) != NULL, "%s: %s: %s", c->name,
                  c->says[i], text == NULL ? "(nothing)" : text);
    mcp_arena_free(arena);
}
