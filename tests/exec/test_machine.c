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
    struct mcp_machine ranks[MAX_RANKS];
    memset(ranks, 0, sizeof ranks);
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

/* --- devices --- */

struct case_devices {
    char name[40];
    int ranks;
    char where[MAX_RANKS][2][16]; /* host, address */
    char says[80];                /* "": nothing */
};
ParameterizedTestParameters(machine, devices)
{
    static struct case_devices cases[] = {
        {"one machine", 2, {{"a", "0000:3b:00.0"}, {"a", "0000:5e:00.0"}}, ""},
        {"two of the same make", 2, {{"a", "0000:3b:00.0"}, {"b", "0000:3b:00.0"}}, ""},
        {"addresses unknown", 2, {{"a", ""}, {"a", ""}}, ""},
        {"one for two",
         4,
         {{"a", "0000:3b:00.0"},
          {"b", "0000:3b:00.0"},
          {"b", "0000:5e:00.0"},
          {"b", "0000:3b:00.0"}},
         "ranks 1 and 3 both have the device at 0000:3b:00.0 of b"},
    };
    return cr_make_param_array(struct case_devices, cases, sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_devices *c, machine, devices)
{
    struct mcp_machine ranks[MAX_RANKS];
    struct mcp_error err = {""};
    memset(ranks, 0, sizeof ranks);
    for (int i = 0; i < c->ranks; i++) {
        memcpy(ranks[i].host, c->where[i][0], sizeof c->where[i][0]);
        memcpy(ranks[i].pci_address, c->where[i][1], sizeof c->where[i][1]);
    }
    const enum mcp_status status = mcp_machine_check_devices(ranks, c->ranks, &err);
    cr_expect(eq(int, (int)status, c->says[0] == '\0' ? MCP_OK : MCP_INVALID), "%s", c->name);
    cr_expect(strstr(err.text, c->says) != NULL, "%s: %s", c->name, err.text);
}
