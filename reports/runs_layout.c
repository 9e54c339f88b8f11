/* reports/runs_layout.c: layers of uneven pipelines. */
#include "reports/runs_layout.h"

#include "core/text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MAX_ITEMS = 1 << 16, MAX_DEPTH = 8 };

struct layout {
    const char *at;
    struct mcp_text out; /* items without groups and repeats */
};

static bool repeat_tail(struct layout *layout, size_t begin)
{
    const size_t length = layout->out.length - begin;
    int times = 0;
    for (; isdigit((unsigned char)*layout->at) && times < MAX_ITEMS; layout->at++)
        times = 10 * times + (*layout->at - '0');
    if (times < 1 || length * (size_t)times > MAX_ITEMS)
        return false;
    const char *tail = mcp_strndup(layout->out.arena, layout->out.data + begin, length);
    for (int i = 1; i < times; i++)
        mcp_text_append(&layout->out, tail, length);
    return layout->out.length <= MAX_ITEMS;
}

/* Items up to ')' or the end, groups and repeats written out. */
static bool expand(struct layout *layout, int depth)
{
    while (*layout->at != '\0' && *layout->at != ')') {
        const size_t begin = layout->out.length;
        const char item = *layout->at++;
        if (item == '(') {
            if (depth == MAX_DEPTH || !expand(layout, depth + 1) || *layout->at++ != ')')
                return false;
        } else if (strchr("EtmL|", item) != NULL) {
            mcp_text_append(&layout->out, &item, 1);
        } else {
            return false;
        }
        if (*layout->at == '*') {
            layout->at++;
            if (!repeat_tail(layout, begin))
                return false;
        }
    }
    return true;
}

/* Only the ends, which hold the embedding and the head, can do without. */
static int empty_stage(const int *counts, int stages)
{
    for (int k = 1; k + 1 < stages; k++)
        if (counts[k] == 0)
            return k;
    return -1;
}

enum mcp_status mcp_layout_parse(struct mcp_arena *arena, const char *text, int layers, int stages,
                                 int *counts, struct mcp_error *err)
{
    struct layout layout = {text, mcp_text_new(arena)};
    int stage = 0, total = 0;
    if (!expand(&layout, 0) || *layout.at != '\0')
        return mcp_fail(err, MCP_INVALID, "layout \"%.60s\" is not understood at \"%.20s\"", text,
                        layout.at);
    memset(counts, 0, (size_t)stages * sizeof *counts);
    for (const char *item = layout.out.data; *item != '\0' && stage < stages; item++) {
        stage += *item == '|';
        if (*item == 't' && stage < stages)
            counts[stage]++, total++;
    }
    if (stage != stages - 1 || total != layers)
        return mcp_fail(err, MCP_INVALID,
                        "layout \"%.60s\" has %d layers in %d stages, not %d in %d", text, total,
                        stage + 1, layers, stages);
    if (empty_stage(counts, stages) >= 0)
        return mcp_fail(err, MCP_INVALID, "layout \"%.60s\": stage %d holds no layer", text,
                        empty_stage(counts, stages));
    return MCP_OK;
}

/* Filled from the front, the stages before the last all hold a layer. */
static bool fills(int layers, int stages, int most)
{
    return layers > (int64_t)most * (stages - 2) || layers < stages;
}

void mcp_layout_spread(int layers, int stages, int *counts)
{
    const bool slots = layers % stages != 0 && (layers + 2) % stages == 0;
    const int most = slots ? (layers + 2) / stages : (layers + stages - 1) / stages;
    const bool even = !slots && !fills(layers, stages, most);
    int left = layers;
    for (int k = 0; k < stages; k++) {
        int room = most - (slots && k == 0) - (slots && k == stages - 1);
        if (even)
            room = layers / stages + (k < layers % stages);
        counts[k] = room < left ? room : left;
        left -= counts[k];
    }
}
