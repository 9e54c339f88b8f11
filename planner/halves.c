/* planner/halves.c: each pool of a mixed cluster searched alone, and what that says. */
#include "planner/halves.h"

#include "core/text.h"
#include "core/units.h"

static void search_half(struct mcp_arena *arena, struct mcp_question question,
                        const struct mcp_plan_space *space,
                        const struct mcp_search_options *options, struct mcp_half *out)
{
    struct mcp_answer answer;
    struct mcp_error unused;
    question.cluster = &out->cluster;
    out->proven = true;
    if (mcp_space_check(&question, space, &unused) != MCP_OK)
        return;
    mcp_search(arena, &question, space, options, &answer);
    out->proven = answer.record.proven_optimal;
    out->found = answer.count > 0;
    if (out->found)
        out->best = answer.found[0];
}

void mcp_halves(struct mcp_arena *arena, const struct mcp_question *question,
                const struct mcp_plan_space *space, const struct mcp_search_options *options,
                struct mcp_halves *out)
{
    struct mcp_search_options alone = *options;
    alone.top = 1;
    alone.smallest = false;
    alone.progress = NULL;
    *out = (struct mcp_halves){.fastest = -1};
    if (question->cluster->next == NULL || options->objective != MCP_OBJECTIVE_TIME)
        return;
    for (int i = 0; i < mcp_cluster_num_pools(question->cluster); i++) {
        struct mcp_half *half = &out->items[out->count++];
        half->cluster = *mcp_cluster_pool(question->cluster, i);
        half->cluster.next = NULL;
        search_half(arena, *question, space, &alone, half);
        const struct mcp_found *fastest = &out->items[out->fastest < 0 ? i : out->fastest].best;
        if (half->found && half->best.iteration_s <= fastest->iteration_s)
            out->fastest = i;
    }
}

/* "8 nodes of dgx-h100". */
static const char *name_of(struct mcp_arena *arena, const struct mcp_half *half)
{
    int nodes = half->cluster.num_nodes;
    return mcp_format(arena, "%s node%s of %s", mcp_show_integer(arena, nodes),
                      nodes == 1 ? "" : "s", mcp_printable(arena, half->cluster.name));
}

static void add_half(struct mcp_text *text, const struct mcp_half *half, double together_s)
{
    struct mcp_arena *arena = text->arena;
    bool one = half->cluster.num_nodes == 1;
    mcp_text_add(text, "%s alone ", name_of(arena, half));
    if (!half->found) {
        mcp_text_add(text, "%s no plan that fits", one ? "has" : "have");
        return;
    }
    mcp_text_add(text, "%s %s", one ? "takes" : "take",
                 mcp_show(arena, half->best.iteration_s, MCP_SECONDS));
    if (together_s > 0)
        mcp_text_add(text, " (%+.1f %%)", 100 * (half->best.iteration_s / together_s - 1));
}

/* Alone is better: by how much, and where the time goes together. */
static void add_refusal(struct mcp_text *text, const struct mcp_half *best,
                        const struct mcp_prediction *together)
{
    struct mcp_arena *arena = text->arena;
    add_half(text, best, 0);
    mcp_text_add(text, ": the other nodes do not pay, ");
    if (together == NULL) {
        mcp_text_add(text, "as no plan was found for all together");
        return;
    }
    mcp_text_add(text,
                 "all together take %s, of which ranks wait %s in bubbles and %s for messages",
                 mcp_show(arena, together->iteration_s, MCP_SECONDS),
                 mcp_show(arena, together->cost_s[MCP_COST_BUBBLE], MCP_SECONDS),
                 mcp_show(arena, together->exposed_comm_frac * together->iteration_s, MCP_SECONDS));
}

const char *mcp_halves_text(struct mcp_arena *arena, const struct mcp_halves *halves,
                            const struct mcp_prediction *together)
{
    struct mcp_text text = mcp_text_new(arena);
    const struct mcp_half *best = halves->fastest < 0 ? NULL : &halves->items[halves->fastest];
    if (halves->count == 0 || (best == NULL && together == NULL))
        return NULL;
    if (best != NULL && (together == NULL || best->best.iteration_s <= together->iteration_s)) {
        add_refusal(&text, best, together);
        return text.data;
    }
    mcp_text_add(&text, "better than any part: ");
    for (int i = 0; i < halves->count; i++) {
        mcp_text_add(&text, "%s", i > 0 ? ", " : "");
        add_half(&text, &halves->items[i], together->iteration_s);
    }
    return text.data;
}
