/* reports/predict.c: predicts one published run; counts why others were left out. */
#include "reports/predict.h"

#include "reports/table.h"

#include <ctype.h>
#include <string.h>

/* What the plan breaks, or NULL. Published pipelines may give the embedding and
 * the head stages of their own, and so have more stages than layers. */
static const char *refusal(struct mcp_arena *arena, const struct mcp_question *question,
                           const struct mcp_plan *plan)
{
    struct mcp_refusals refusals = {0};
    struct mcp_text text = mcp_text_new(arena);
    if (mcp_legal(arena, question, plan, &refusals))
        return NULL;
    for (int i = 0; i < refusals.count; i++)
        if (!mcp_ends_with(refusals.items[i].rule, "_within_layers"))
            mcp_text_add(&text, "%s%s", text.length > 0 ? "; " : "", refusals.items[i].text);
    return text.length > 0 ? text.data : NULL;
}

const char *mcp_run_predict(struct mcp_arena *arena, const struct mcp_run *run,
                            struct mcp_prediction *out)
{
    const struct mcp_question question = {&run->model, &run->cluster, &run->job, &run->stack};
    const char *reason = refusal(arena, &question, &run->plan);
    if (reason == NULL)
        mcp_estimate(mcp_pricer_new(arena, &question), &run->plan, out);
    return reason;
}

/* Up to the first parenthesis, comma or number, without a dangling "v". */
const char *mcp_source_family(struct mcp_arena *arena, const char *source)
{
    static const char *const tails[] = {" v", " release", ",", " "};
    size_t length = 0;
    while (source[length] != '\0' && strchr("(,", source[length]) == NULL &&
           !(isdigit((unsigned char)source[length]) && length > 0 &&
             strchr(" v", source[length - 1]) != NULL))
        length++;
    char *family = mcp_strndup(arena, source, length);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (mcp_ends_with(family, tails[i]))
            family[strlen(family) - strlen(tails[i])] = '\0';
    return family;
}

struct mcp_reasons {
    struct mcp_arena *arena;
    int room, count;
    const char **texts;
    int *rows;
};

struct mcp_reasons *mcp_reasons_new(struct mcp_arena *arena, int room)
{
    struct mcp_reasons *reasons = MCP_NEW(arena, struct mcp_reasons);
    *reasons = (struct mcp_reasons){arena, room, 0, MCP_ARRAY(arena, room, const char *),
                                    MCP_ARRAY(arena, room, int)};
    return reasons;
}

/* "gbs=1204 is no multiple" becomes "gbs=# is no multiple". */
static const char *without_numbers(struct mcp_arena *arena, const char *text)
{
    char *out = mcp_strdup(arena, text);
    size_t length = 0;
    for (size_t i = 0; text[i] != '\0'; i++)
        if (!isdigit((unsigned char)text[i]))
            out[length++] = text[i];
        else if (i == 0 || !isdigit((unsigned char)text[i - 1]))
            out[length++] = '#';
    out[length] = '\0';
    return out;
}

void mcp_reasons_add(struct mcp_reasons *reasons, const char *text)
{
    const char *plain = without_numbers(reasons->arena, mcp_printable(reasons->arena, text));
    int i = 0;
    while (i < reasons->count && !mcp_same(reasons->texts[i], plain))
        i++;
    if (i == reasons->room)
        return;
    if (i == reasons->count)
        reasons->texts[reasons->count++] = plain;
    reasons->rows[i]++;
}

static int most_rows(const struct mcp_reasons *reasons)
{
    int best = -1;
    for (int i = 0; i < reasons->count; i++)
        if (reasons->rows[i] > 0 && (best < 0 || reasons->rows[i] > reasons->rows[best]))
            best = i;
    return best;
}

void mcp_reasons_write(struct mcp_reasons *reasons, const struct mcp_style *style,
                       struct mcp_text *out)
{
    static const struct mcp_column columns[] = {{"rows", "", MCP_RIGHT}, {"because", "", MCP_LEFT}};
    struct mcp_table *table = mcp_table_new(reasons->arena, columns, 2);
    if (reasons->count == 0)
        return;
    for (int i; (i = most_rows(reasons)) >= 0; reasons->rows[i] = 0) {
        mcp_table_cell(table, "%d", reasons->rows[i]);
        mcp_table_cell(table, "%s", reasons->texts[i]);
    }
    mcp_heading(out, style, "Not compared");
    mcp_table_write(table, MCP_SKIN_TERMINAL, style, out);
}
