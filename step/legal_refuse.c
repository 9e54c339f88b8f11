/* step/legal_refuse.c: a broken rule as a sentence, with the nearest legal value. */
#include "step/legal_parts.h"

#include "core/text.h"

#include <limits.h>

int mcp_judged(const struct rule *rule, const struct mcp_plan *plan)
{
    return *(const int *)((const char *)plan + rule->offset);
}

enum { MOST_SHOWN = 12, FARTHEST = 16384 };

static int nearest_value(const struct ask *ask, legal_value *legal, int value)
{
    for (int distance = 1; distance < FARTHEST; distance++) {
        if (value > distance && legal(ask, value - distance))
            return value - distance;
        if (value < INT_MAX - distance && legal(ask, value + distance))
            return value + distance;
    }
    return legal(ask, 1) ? 1 : 0;
}

/* "; nearest legal tensor_parallel=4 (of 1, 2, 4, 28)", or nothing. */
static void add_nearest(struct mcp_text *text, const struct ask *ask, const struct rule *rule)
{
    int best = nearest_value(ask, rule->also, mcp_judged(rule, ask->plan)), shown = 0;
    if (best == 0)
        return;
    mcp_text_add(text, "; nearest legal %s=%d (of ", rule->key, best);
    for (int i = 1; i < FARTHEST && shown <= MOST_SHOWN; i++)
        if (rule->also(ask, i) && shown++ < MOST_SHOWN)
            mcp_text_add(text, "%s%d", shown > 1 ? ", " : "", i);
    mcp_text_add(text, "%s)", shown > MOST_SHOWN ? " ..." : "");
}

struct mcp_refusal mcp_refuse(struct mcp_arena *arena, const struct ask *ask,
                              const struct rule *rule)
{
    struct mcp_text text = mcp_text_new(arena);
    mcp_text_add(&text, "%s", rule->say(arena, ask, mcp_judged(rule, ask->plan)));
    if (rule->also)
        add_nearest(&text, ask, rule);
    return (struct mcp_refusal){rule->name, text.data};
}
