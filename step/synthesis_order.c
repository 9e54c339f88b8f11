/* step/synthesis_order.c: in which order may a rank run forwards and backwards? By patterns. */
#include "step/synthesis_parts.h"

#include <assert.h>

int64_t mcp_synth_change_bytes(const struct mcp_synth *s, int stage, int pass)
{
    const struct mcp_synthesis_stage *costs = &s->problem->stages[stage];
    if (pass == MCP_SYNTH_F)
        return costs->kept_bytes;
    if (pass == MCP_SYNTH_B)
        return costs->kept_for_weight_bytes - costs->kept_bytes;
    return -costs->kept_for_weight_bytes;
}

/* One rank's sequences, one for each pass and chunk, merged by date. */
struct merge {
    const struct mcp_synth *s;
    int rank, m;       /* microbatches looked at */
    int64_t *date;     /* [2 v] of the next microbatch */
    int *next;         /* [2 v] */
    int64_t kept, top; /* bytes, each W run at once */
};

/* The earliest sequence, -1 at the end. */
static int earliest(const struct merge *merge)
{
    int best = -1;
    for (int i = 0; i < 2 * merge->s->v; i++)
        if (merge->next[i] < merge->m && (best < 0 || merge->date[i] < merge->date[best]))
            best = i;
    return best;
}

/* Takes the slot; returns what is kept while it runs. */
static int64_t take(struct merge *merge, int sequence)
{
    const struct mcp_synth *s = merge->s;
    int stage = mcp_synth_stage(s, merge->rank, sequence % s->v), pass = sequence / s->v;
    int64_t change = mcp_synth_change_bytes(s, stage, pass), level = merge->kept;
    merge->next[sequence]++;
    if (change > 0)
        level += change;
    merge->kept += pass == MCP_SYNTH_F ? change : -s->problem->stages[stage].kept_bytes;
    merge->top = level > merge->top ? level : merge->top;
    return level;
}

static void begin(struct merge *merge)
{
    for (int i = 0; i < 2 * merge->s->v; i++)
        merge->next[i] = 0;
    merge->kept = merge->top = 0;
}

/* Dates of the first microbatch on the rank. */
static void pattern_dates(const struct mcp_synth_pattern *pattern, const struct merge *merge)
{
    const struct mcp_synth *s = merge->s;
    for (int c = 0; c < s->v; c++) {
        int stage = mcp_synth_stage(s, merge->rank, c);
        int64_t down = 0, up = pattern->gap;
        for (int k = 0; k < s->p * s->v; k++) {
            int parity = k / s->p % 2;
            down += k < stage ? pattern->stay[0][parity] : 0;
            up += pattern->stay[0][parity];
            up += k > stage ? pattern->stay[1][parity] : 0;
        }
        merge->date[c] = down;
        merge->date[s->v + c] = up;
    }
}

/* A pattern repeats, so once the first microbatches have left nothing new is kept. */
static int enough_microbatches(const struct mcp_synth *s, const struct mcp_synth_pattern *pattern)
{
    int64_t stay = pattern->gap;
    for (int k = 0; k < s->p * s->v; k++)
        stay += pattern->stay[0][k / s->p % 2] + pattern->stay[1][k / s->p % 2];
    int64_t enough = stay / pattern->period + 2;
    return enough < s->m ? (int)enough : s->m;
}

bool mcp_synth_pattern_fits(struct mcp_synth *s, const struct mcp_synth_pattern *pattern)
{
    struct mcp_mark mark = mcp_arena_mark(s->scratch);
    struct merge merge = {.s = s, .m = enough_microbatches(s, pattern)};
    merge.date = MCP_ARRAY(s->scratch, 2 * s->v, int64_t);
    merge.next = MCP_ARRAY(s->scratch, 2 * s->v, int);
    bool fits = true;
    for (merge.rank = 0; merge.rank < s->p && fits; merge.rank++) {
        begin(&merge);
        pattern_dates(pattern, &merge);
        for (int i = earliest(&merge); i >= 0 && fits; i = earliest(&merge)) {
            fits = take(&merge, i) <= s->problem->limit_bytes[merge.rank];
            merge.date[i] += pattern->period;
        }
        s->work += (int64_t)s->v * merge.m;
    }
    mcp_arena_rewind(s->scratch, mark);
    return fits;
}

bool mcp_synth_order_by_date(struct mcp_synth *s)
{
    struct mcp_mark mark = mcp_arena_mark(s->scratch);
    struct merge merge = {.s = s, .m = s->m};
    merge.date = MCP_ARRAY(s->scratch, 2 * s->v, int64_t);
    merge.next = MCP_ARRAY(s->scratch, 2 * s->v, int);
    bool fits = true;
    for (merge.rank = 0; merge.rank < s->p && fits; merge.rank++) {
        const int64_t *dates = s->date + (size_t)merge.rank * (size_t)s->ordered;
        int *positions = s->position + (size_t)merge.rank * (size_t)s->ordered;
        int64_t *levels = s->level + (size_t)merge.rank * (size_t)s->ordered;
        begin(&merge);
        for (int i = 0; i < 2 * s->v; i++)
            merge.date[i] = dates[(size_t)i * (size_t)s->m];
        for (int n = 0; n < s->ordered; n++) {
            int i = earliest(&merge);
            size_t at = (size_t)i * (size_t)s->m + (size_t)merge.next[i];
            positions[at] = n;
            levels[n] = take(&merge, i);
            merge.date[i] = merge.next[i] < s->m ? dates[at + 1] : 0;
        }
        fits = merge.top <= s->problem->limit_bytes[merge.rank];
    }
    mcp_arena_rewind(s->scratch, mark);
    return fits;
}

bool mcp_synth_order_by_pattern(struct mcp_synth *s, const struct mcp_synth_pattern *pattern)
{
    struct mcp_mark mark = mcp_arena_mark(s->scratch);
    struct merge merge = {.s = s, .date = MCP_ARRAY(s->scratch, 2 * s->v, int64_t)};
    for (merge.rank = 0; merge.rank < s->p; merge.rank++) {
        int64_t *dates = s->date + (size_t)merge.rank * (size_t)s->ordered;
        pattern_dates(pattern, &merge);
        for (int i = 0; i < 2 * s->v; i++)
            for (int b = 0; b < s->m; b++)
                dates[(size_t)i * (size_t)s->m + (size_t)b] = merge.date[i] + b * pattern->period;
    }
    mcp_arena_rewind(s->scratch, mark);
    return mcp_synth_order_by_date(s);
}

/* --- the published order of ZB-V --- */

struct writer {
    int m;
    struct mcp_synth_slot *slots;
    int count;
    int next[MCP_SYNTH_PASSES][2];
};

/* The next microbatch of that pass and chunk, if there is one. */
static void write(struct writer *writer, int pass, int chunk)
{
    int *next = &writer->next[pass][chunk];
    int ready = pass == MCP_SYNTH_F ? writer->m : writer->next[pass - 1][chunk];
    if (*next < ready)
        writer->slots[writer->count++] = (struct mcp_synth_slot){pass, chunk, (*next)++};
}

static void write_backward(struct writer *writer, int chunk)
{
    write(writer, MCP_SYNTH_B, chunk);
    write(writer, MCP_SYNTH_W, chunk);
}

/* Rank r of p: 2 (p - r) - 1 forwards down; r pairs of forwards up and down; p - r of
 * forward and backward up; both in turn while there are forwards; then backwards,
 * weights last. */
static void write_zb_v(struct writer *writer, int p, int r)
{
    for (int i = 0; i < 2 * (p - r) - 1; i++)
        write(writer, MCP_SYNTH_F, 0);
    for (int i = 0; i < r; i++) {
        write(writer, MCP_SYNTH_F, 1);
        write(writer, MCP_SYNTH_F, 0);
    }
    for (int i = 0; i < p - r; i++) {
        write(writer, MCP_SYNTH_F, 1);
        write_backward(writer, 1);
    }
    while (writer->next[MCP_SYNTH_F][0] < writer->m || writer->next[MCP_SYNTH_F][1] < writer->m) {
        write(writer, MCP_SYNTH_F, 0);
        write_backward(writer, 0);
        write(writer, MCP_SYNTH_F, 1);
        write_backward(writer, 1);
    }
    for (int i = 0; i < r; i++) {
        write(writer, MCP_SYNTH_B, 0);
        write(writer, MCP_SYNTH_B, 1);
    }
    while (writer->next[MCP_SYNTH_B][0] < writer->m || writer->next[MCP_SYNTH_B][1] < writer->m) {
        write(writer, MCP_SYNTH_B, 1);
        write_backward(writer, 0);
    }
    for (int chunk = 1; chunk >= 0; chunk--)
        while (writer->next[MCP_SYNTH_W][chunk] < writer->m)
            write(writer, MCP_SYNTH_W, chunk);
}

void mcp_synth_zb_v(const struct mcp_synth *s, struct mcp_synth_slot *rows)
{
    assert(s->v == 2);
    for (int r = 0; r < s->p; r++) {
        struct writer writer = {.m = s->m, .slots = rows + (size_t)r * (size_t)s->length};
        write_zb_v(&writer, s->p, r);
        assert(writer.count == s->length);
    }
}
