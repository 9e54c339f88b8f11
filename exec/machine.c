/* exec/machine.c: planned and found, side by side. */
#include "exec/machine.h"

#include "core/cluster.h"
#include "core/text.h"

#include <stdbool.h>

/* What ranks are looked at for; ranks with one device are asked for its preset once. */
struct look {
    struct mcp_arena *arena;
    const struct mcp_machine_plan *plan;
    int world;
    const char *last_device;
    bool last_is_other;
};

static bool has_other_device(struct look *look, const struct mcp_machine *found)
{
    if (mcp_same(look->last_device, found->device))
        return look->last_is_other;
    const char *preset = mcp_gpu_preset(look->arena, found->device);
    look->last_device = found->device;
    look->last_is_other =
        !mcp_same(preset, look->plan->gpu) && !mcp_same(found->device, look->plan->gpu);
    return look->last_is_other;
}

static bool has_less_memory(struct look *look, const struct mcp_machine *found)
{
    return (double)found->memory_bytes < 0.95 * (double)look->plan->memory_bytes;
}

static bool has_others_beside(struct look *look, const struct mcp_machine *found)
{
    int64_t node = look->plan->gpus_per_node, planned = look->world < node ? look->world : node;
    return found->ranks_beside > 0 && found->ranks_beside != planned;
}

static void say_device(struct mcp_text *text, const struct mcp_machine_plan *plan,
                       const struct mcp_machine *found)
{
    mcp_text_add(text, "have a %s, and the plan is for %s", found->device, plan->gpu);
}

static void say_memory(struct mcp_text *text, const struct mcp_machine_plan *plan,
                       const struct mcp_machine *found)
{
    mcp_text_add(text, "have %.1f GiB of memory on the device, and the plan is for %.1f GiB",
                 (double)found->memory_bytes / 0x1p30, (double)plan->memory_bytes / 0x1p30);
}

static void say_beside(struct mcp_text *text, const struct mcp_machine_plan *plan,
                       const struct mcp_machine *found)
{
    mcp_text_add(text, "share a machine of %lld ranks, and the plan is for %lld a node",
                 (long long)found->ranks_beside, (long long)plan->gpus_per_node);
}

static const struct difference {
    bool (*is_found)(struct look *look, const struct mcp_machine *found);
    void (*say)(struct mcp_text *text, const struct mcp_machine_plan *plan,
                const struct mcp_machine *found);
} differences[] = {
    {has_other_device, say_device},
    {has_less_memory, say_memory},
    {has_others_beside, say_beside},
};

const char *mcp_machine_differences(struct mcp_arena *arena, const struct mcp_machine_plan *plan,
                                    const struct mcp_machine *ranks, int count)
{
    struct mcp_text text = mcp_text_new(arena);
    struct look look = {.arena = arena, .plan = plan, .world = count};
    for (size_t d = 0; d < sizeof differences / sizeof *differences; d++) {
        int first = -1, found = 0;
        for (int r = 0; r < count; r++) {
            if (!differences[d].is_found(&look, &ranks[r]))
                continue;
            first = first < 0 ? r : first;
            found++;
        }
        if (found == 0)
            continue;
        mcp_text_add(&text, "%s%d of %d ranks, the first of them rank %d, ",
                     text.length > 0 ? "; " : "", found, count, first);
        differences[d].say(&text, plan, &ranks[first]);
    }
    return text.length > 0 ? text.data : NULL;
}

static bool is_same_device(const struct mcp_machine *a, const struct mcp_machine *b)
{
    return a->pci_address[0] != '\0' && mcp_same(a->pci_address, b->pci_address) &&
           mcp_same(a->host, b->host);
}

enum mcp_status mcp_machine_check_devices(const struct mcp_machine *ranks, int count,
                                          struct mcp_error *err)
{
    for (int b = 1; b < count; b++)
        for (int a = 0; a < b; a++)
            if (is_same_device(&ranks[a], &ranks[b]))
                return mcp_fail(err, MCP_INVALID,
                                "ranks %d and %d both have the device at %s of %s: a device runs "
                                "one rank, so start fewer on that machine",
                                a, b, ranks[a].pci_address, ranks[a].host);
    return MCP_OK;
}
