/* planner/explain_remedy.c: the nearest questions that have an answer. */
#include "planner/explain.h"

#include "core/units.h"
#include "planner/answer.h"

#include <math.h>

enum { STEPS_TO_TWICE = 8 };

/* A question that may be changed. */
struct trial {
    struct mcp_arena *arena;
    struct mcp_cluster pools[MCP_MAX_POOLS];
    struct mcp_job job;
    struct mcp_question question; /* points to the two */
    struct mcp_plan_space space;
    struct mcp_search_options options;
};

static void begin(struct trial *trial, struct mcp_arena *arena, const struct mcp_question *question,
                  const struct mcp_plan_space *space, const struct mcp_search_options *options)
{
    *trial =
        (struct trial){.arena = arena, .job = *question->job, .space = *space, .options = *options};
    mcp_explain_copy_pools(question->cluster, trial->pools);
    trial->question =
        (struct mcp_question){question->model, trial->pools, &trial->job, question->stack};
    trial->options.top = trial->options.num_threads = 1; /* short searches, and many */
    trial->options.exhaustive = trial->options.smallest = false;
    /* That something fits is the answer; the best of its splits is another question. */
    trial->options.uniform = true;
}

static void ask(struct trial *trial, struct mcp_answer *answer)
{
    mcp_search(trial->arena, &trial->question, &trial->space, &trial->options, answer);
}

static bool fits(struct trial *trial, struct mcp_found *found)
{
    struct mcp_answer answer;
    ask(trial, &answer);
    if (answer.count > 0)
        *found = answer.found[0];
    return answer.count > 0;
}

/* Every pool's devices get `more` bytes on top of what they have. */
static bool fits_with(struct trial *trial, const struct mcp_question *question, int64_t more,
                      struct mcp_found *found)
{
    mcp_explain_copy_pools(question->cluster, trial->pools);
    for (int i = 0; i < mcp_cluster_num_pools(trial->pools); i++)
        trial->pools[i].gpu.memory_bytes += more;
    return fits(trial, found);
}

/* What the plan that needs least has to find, in whole GiB above `now`. */
static int64_t missing_gib(const struct trial *trial, int64_t now, int64_t least_bytes)
{
    const int64_t gib = INT64_C(1) << 30;
    double more = (double)least_bytes / trial->job.memory_limit_frac - (double)now;
    return more > (double)gib ? (int64_t)ceil(more / (double)gib) : 1;
}

/* Memory: what the smallest plan needs; more until some plan fits, then less until none
 * does, then halved between. More never hurts. */
static bool more_memory(struct trial *trial, const struct mcp_question *question,
                        int64_t least_bytes, struct mcp_remedy *out)
{
    const int64_t gib = INT64_C(1) << 30;
    int64_t now = question->cluster->gpu.memory_bytes, low = 0;
    int64_t high = missing_gib(trial, now, least_bytes);
    struct mcp_found found;
    for (int i = 0; !fits_with(trial, question, high * gib, &out->found); i++) {
        if (i == MCP_MOST_DOUBLINGS)
            return false;
        low = high;
        high *= 2;
    }
    for (int64_t step = 1; high - low > 1; step *= 2) {
        int64_t next = low == 0 && high - step > 0 ? high - step : low + (high - low) / 2;
        if (fits_with(trial, question, next * gib, &found)) {
            high = next;
            out->found = found;
        } else {
            low = next;
        }
    }
    out->name = "memory_bytes";
    out->value = (double)(now + high * gib);
    out->text = mcp_format(trial->arena, "%lld GiB more memory on each device", (long long)high);
    return true;
}

/* Times that `*value` can be halved so that the question can still be asked. */
static int most_halvings(const struct trial *trial, int64_t *value)
{
    int64_t now = *value;
    struct mcp_error unused;
    int most = 0;
    while (most < MCP_MOST_DOUBLINGS && *value % 2 == 0) {
        *value /= 2;
        if (mcp_space_check(&trial->question, &trial->space, &unused) != MCP_OK)
            break;
        most++;
    }
    *value = now;
    return most;
}

/* The first half, quarter ... of `now` of which a plan fits, 0 when none. Where memory
 * refuses the last of them, it refuses all. */
static int64_t find_half(struct trial *trial, int64_t *value, struct mcp_found *found)
{
    struct mcp_answer last;
    int64_t now = *value;
    int most = most_halvings(trial, value);
    *value = now >> most;
    if (most > 0)
        ask(trial, &last);
    if (most == 0 || (last.count == 0 && mcp_binding_rule(&last.record) == mcp_rule_memory))
        return 0;
    for (int i = 1; i < most; i++) {
        *value = now >> i;
        if (fits(trial, found))
            return *value;
    }
    if (last.count > 0)
        *found = last.found[0];
    return last.count > 0 ? now >> most : 0;
}

static bool halve(struct trial *trial, const char *name, int64_t *value, struct mcp_remedy *out)
{
    int64_t now = *value, half = find_half(trial, value, &out->found);
    if (half == 0)
        return false;
    out->name = name;
    out->value = (double)half;
    out->text =
        mcp_format(trial->arena, "%s=%s instead of %s", name, mcp_show_integer(trial->arena, half),
                   mcp_show_integer(trial->arena, now));
    return true;
}

static bool try_nodes(struct trial *trial, int64_t nodes, struct mcp_found *found)
{
    struct mcp_error unused;
    int64_t gpus = nodes * trial->pools->gpus_per_node;
    return gpus <= MCP_MAX_GPUS &&
           mcp_cluster_set_gpus(trial->pools, (int)gpus, &unused) == MCP_OK && fits(trial, found);
}

/* Between `few` nodes, which do not do, and twice as many, which do. */
static int64_t fewer_nodes(struct trial *trial, int64_t few, struct mcp_found *found)
{
    int64_t last = few;
    for (int step = 1; step < STEPS_TO_TWICE; step++) {
        int64_t nodes = few + (few * step + STEPS_TO_TWICE - 1) / STEPS_TO_TWICE;
        if (nodes != last && nodes < 2 * few && try_nodes(trial, nodes, found))
            return nodes;
        last = nodes;
    }
    return 2 * few;
}

static bool more_nodes(struct trial *trial, struct mcp_remedy *out)
{
    int64_t few = trial->pools->num_nodes, before = mcp_cluster_gpus(trial->pools);
    int64_t each = trial->pools->gpus_per_node;
    trial->space.knobs[MCP_KNOB_DATA].given = false;
    for (int i = 1; !try_nodes(trial, 2 * few, &out->found); i++, few *= 2)
        if (i == MCP_MOST_DOUBLINGS)
            return false;
    out->name = "gpus";
    out->value = (double)(fewer_nodes(trial, few, &out->found) * each);
    out->text =
        mcp_format(trial->arena, "gpus=%.0f instead of %lld", out->value, (long long)before);
    return true;
}

int mcp_remedies(struct mcp_arena *arena, const struct mcp_question *question,
                 const struct mcp_plan_space *space, const struct mcp_search_options *options,
                 int64_t least_bytes, struct mcp_remedy out[MCP_MOST_REMEDIES])
{
    int count = 0;
    struct trial trial;
    begin(&trial, arena, question, space, options);
    count += halve(&trial, "sequence_length", &trial.job.sequence_length, &out[count]);
    begin(&trial, arena, question, space, options);
    count += halve(&trial, "global_batch_size", &trial.job.global_batch_size, &out[count]);
    begin(&trial, arena, question, space, options);
    count += more_nodes(&trial, &out[count]);
    begin(&trial, arena, question, space, options);
    count += more_memory(&trial, question, least_bytes, &out[count]);
    return count;
}
