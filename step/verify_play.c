/* step/verify_play.c: do the classes fit together? Messages channel by channel,
 * spanning collectives group by group, and whether all of it can come to an end. */
#include "step/verify_parts.h"

#include <stdint.h>

static const struct mcp_event_list *list_of(const struct mcp_verify *verify, int class, int channel)
{
    return &verify->events[class].channels[channel];
}

/* The class that a channel of `class` leads to, and its channel there. */
static int peer_of(const struct mcp_verify *verify, int class, int channel)
{
    int p = verify->program->num_classes;
    return mcp_channel_is_next(channel) ? (class + 1) % p : (class + p - 1) % p;
}

static int channel_there(int channel)
{
    return channel ^ 1;
}

static enum mcp_status fail_at(const struct mcp_verify *verify, int class,
                               const struct mcp_event *event, const char *text)
{
    return mcp_fail(verify->err, MCP_INVALID, "class %d slot %d entry %d op %d (%s): %s", class,
                    event->slot, event->entry, event->op, mcp_functions[event->function].name,
                    text);
}

static const char *describe(const struct mcp_verify *verify, const struct mcp_event *event)
{
    return mcp_format(verify->arena, "%s of layer %d microbatch %d",
                      event->index == MCP_FRAME_X ? "X" : "DX", event->layer, event->microbatch);
}

/* --- messages --- */

static enum mcp_status match_message(const struct mcp_verify *verify, int class, int channel,
                                     size_t i)
{
    int peer = peer_of(verify, class, channel);
    const struct mcp_event *sent = &list_of(verify, class, channel)->items[i];
    const struct mcp_event *got = &list_of(verify, peer, channel_there(channel))->items[i];
    if (sent->layer != got->layer || sent->microbatch != got->microbatch ||
        sent->index != got->index)
        return fail_at(verify, class, sent,
                       mcp_format(verify->arena,
                                  "sends %s, but message %zu from here that class %d "
                                  "receives (slot %d entry %d) is %s",
                                  describe(verify, sent), i, peer, got->slot, got->entry,
                                  describe(verify, got)));
    if (sent->elements != got->elements || sent->dtype != got->dtype)
        return fail_at(verify, class, sent,
                       mcp_format(verify->arena,
                                  "sends %lld elements of %s, but class %d (slot %d "
                                  "entry %d) receives %lld of %s",
                                  (long long)sent->elements, mcp_dtype_names[sent->dtype], peer,
                                  got->slot, got->entry, (long long)got->elements,
                                  mcp_dtype_names[got->dtype]));
    return MCP_OK;
}

static enum mcp_status match_channel(const struct mcp_verify *verify, int class, int channel)
{
    int peer = peer_of(verify, class, channel);
    const struct mcp_event_list *sent = list_of(verify, class, channel);
    const struct mcp_event_list *got = list_of(verify, peer, channel_there(channel));
    size_t both = sent->count < got->count ? sent->count : got->count;
    for (size_t i = 0; i < both; i++)
        MCP_TRY(match_message(verify, class, channel, i));
    if (sent->count > both)
        return fail_at(verify, class, &sent->items[both],
                       mcp_format(verify->arena, "sends %s, which class %d never receives",
                                  describe(verify, &sent->items[both]), peer));
    if (got->count > both)
        return fail_at(verify, peer, &got->items[both],
                       mcp_format(verify->arena, "receives %s, which class %d never sends",
                                  describe(verify, &got->items[both]), class));
    return MCP_OK;
}

/* --- collectives that span classes --- */

static bool is_member(const struct mcp_verify *verify, unsigned group, int class)
{
    if (group & MCP_PIPELINE)
        return true;
    return class == 0 || class == verify->program->num_classes - 1;
}

static const struct mcp_event *nth_of_group(const struct mcp_event_list *list, unsigned group,
                                            size_t *next)
{
    while (*next < list->count && list->items[*next].group != group)
        (*next)++;
    return *next < list->count ? &list->items[(*next)++] : NULL;
}

/* Class 0 is a member of every such group; `class` must run what it runs. */
static enum mcp_status match_group(const struct mcp_verify *verify, unsigned group, int class)
{
    size_t here = 0, there = 0;
    for (size_t i = 0;; i++) {
        const struct mcp_event *a =
            nth_of_group(list_of(verify, 0, MCP_CHANNEL_SPAN), group, &here);
        const struct mcp_event *b =
            nth_of_group(list_of(verify, class, MCP_CHANNEL_SPAN), group, &there);
        if (a == NULL && b == NULL)
            return MCP_OK;
        if (a == NULL || b == NULL)
            return fail_at(verify, b == NULL ? 0 : class, b == NULL ? a : b,
                           mcp_format(verify->arena, "class %d takes no part in this collective",
                                      b == NULL ? class : 0));
        if (a->function != b->function || a->elements != b->elements || a->dtype != b->dtype)
            return fail_at(verify, class, b,
                           mcp_format(verify->arena,
                                      "collective %zu of its group is over %lld "
                                      "elements; on class 0 (slot %d entry %d op %d) it is %s over "
                                      "%lld",
                                      i, (long long)b->elements, a->slot, a->entry, a->op,
                                      mcp_functions[a->function].name, (long long)a->elements));
    }
}

static enum mcp_status match_groups(const struct mcp_verify *verify)
{
    bool seen[256] = {false};
    int p = verify->program->num_classes;
    for (int class = 0; class < p; class ++) {
        const struct mcp_event_list *list = list_of(verify, class, MCP_CHANNEL_SPAN);
        for (size_t i = 0; i < list->count; i++) {
            if (!is_member(verify, list->items[i].group, class))
                return fail_at(verify, class, &list->items[i], "this class is not in its group");
            seen[list->items[i].group] = true;
        }
    }
    for (unsigned group = 0; group < 256; group++)
        for (int class = 1; seen[group] && class < p; class ++)
            if (is_member(verify, group, class))
                MCP_TRY(match_group(verify, group, class));
    return MCP_OK;
}

/* --- play: each queue in order; both ends of a message at once --- */

struct play {
    const struct mcp_verify *verify;
    struct mcp_clock *heads; /* [class] events over, per channel */
};

static const struct mcp_event *head(const struct play *play, int class, int channel)
{
    const struct mcp_event_list *list = list_of(play->verify, class, channel);
    size_t next = (size_t)play->heads[class].done[channel];
    return next < list->count ? &list->items[next] : NULL;
}

static bool is_ready(const struct play *play, int class, const struct mcp_event *event)
{
    const struct mcp_clock *needs = &play->verify->clocks.items[event->needs];
    for (int i = 0; i < MCP_NUM_CHANNELS; i++)
        if (play->heads[class].done[i] < needs->done[i])
            return false;
    return true;
}

static bool pass_message(struct play *play, int class, int channel)
{
    int peer = peer_of(play->verify, class, channel), there = channel_there(channel);
    const struct mcp_event *here = head(play, class, channel);
    const struct mcp_event *other = head(play, peer, there);
    if (here == NULL || other == NULL || !is_ready(play, class, here) ||
        !is_ready(play, peer, other))
        return false;
    play->heads[class].done[channel]++;
    play->heads[peer].done[there]++;
    return true;
}

static bool pass_collective(struct play *play, int class)
{
    const struct mcp_event *event = head(play, class, MCP_CHANNEL_SPAN);
    int p = play->verify->program->num_classes;
    if (event == NULL)
        return false;
    for (int c = 0; c < p; c++) {
        const struct mcp_event *other = head(play, c, MCP_CHANNEL_SPAN);
        if (is_member(play->verify, event->group, c) &&
            (other == NULL || other->group != event->group || !is_ready(play, c, other)))
            return false;
    }
    for (int c = 0; c < p; c++)
        play->heads[c].done[MCP_CHANNEL_SPAN] += is_member(play->verify, event->group, c);
    return true;
}

/* Everything that can happen at `class` now; true if something did. */
static bool advance(struct play *play, int class)
{
    bool moved = false;
    for (int channel = 0; channel < MCP_CHANNEL_SPAN; channel++)
        while (pass_message(play, class, channel))
            moved = true;
    while (pass_collective(play, class))
        moved = true;
    return moved;
}

static enum mcp_status fail_blocked(const struct play *play)
{
    int p = play->verify->program->num_classes;
    for (int class = 0; class < p; class ++)
        for (int channel = 0; channel < MCP_NUM_CHANNELS; channel++) {
            const struct mcp_event *event = head(play, class, channel);
            if (event != NULL && is_ready(play, class, event))
                return fail_at(play->verify, class, event,
                               channel == MCP_CHANNEL_SPAN
                                   ? "waits for ever for the other ranks of its group"
                                   : mcp_format(play->verify->arena,
                                                "%s waits for ever for class %d",
                                                describe(play->verify, event),
                                                peer_of(play->verify, class, channel)));
        }
    return MCP_OK;
}

enum mcp_status mcp_verify_play(const struct mcp_verify *verify)
{
    int p = verify->program->num_classes;
    struct play play = {verify, MCP_ARRAY(verify->arena, p, struct mcp_clock)};
    for (int class = 0; class < p; class ++) {
        for (int channel = 0; channel < MCP_CHANNEL_SPAN; channel++)
            if (mcp_channel_sends(channel))
                MCP_TRY(match_channel(verify, class, channel));
    }
    MCP_TRY(match_groups(verify));
    for (bool moved = true; moved;) {
        moved = false;
        for (int class = 0; class < p; class ++)
            moved = advance(&play, class) || moved;
    }
    return fail_blocked(&play);
}
