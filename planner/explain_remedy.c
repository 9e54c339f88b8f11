/* planner/explain_remedy.c: the nearest questions that have an answer. */
#include "planner/explain.h"

#include "core/units.h"

#include <math.h>

enum { MOST_DOUBLINGS = 6, STEPS_TO_TWICE = 8 };

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
}

static bool fits(struct trial *trial, struct mcp_found *found)
{
    struct mcp_answer answer;
    mcp_search(trial->arena, &trial->question, &trial->space, &trial->options, &answer);
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

/* What the plan that needs least would have to find, in whole GiB above `now`. */
static int64_t guess_gib(struct trial *trial, int64_t now)
{
    const int64_t gib = INT64_C(1) << 30;
    struct mcp_answer answer;
    struct mcp_search_options options = trial->options;
    options.objective = MCP_OBJECTIVE_MEMORY;
    options.smallest = true;
    mcp_search(trial->arena, &trial->question, &trial->space, &options, &answer);
    double bytes = (double)(answer.has_smallest ? answer.smallest.peak_memory_bytes : now);
    double more = bytes / trial->job.memory_limit_frac - (double)now;
    return more > (double)gib ? (int64_t)ceil(more / (double)gib) : 1;
}

/* Memory: what the smallest plan needs; more until some plan fits, then less until none
 * does, then halved between. More never hurts. */
static bool more_memory(struct trial *trial, const struct mcp_question *question,
                        struct mcp_remedy *out)
{
    const int64_t gib = INT64_C(1) << 30;
    int64_t now = question->cluster->gpu.memory_bytes, low = 0, high = guess_gib(trial, now);
    struct mcp_found found;
    for (int i = 0; !fits_with(trial, question, high * gib, &out->found); i++) {
        if (i == MOST_DOUBLINGS)
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

/* Halved until a plan fits; odd numbers have no half. */
static bool halve(struct trial *trial, const char *name, int64_t *value, struct mcp_remedy *out)
{
    int64_t now = *value;
    struct mcp_error unused;
    for (int i = 0; i < MOST_DOUBLINGS && *value % 2 == 0; i++) {
        *value /= 2;
        if (mcp_space_check(&trial->question, &trial->space, &unused) != MCP_OK)
            return false;
        if (!fits(trial, &out->found))
            continue;
        out->name = name;
        out->value = (double)*value;
        out->text =
            mcp_format(trial->arena, "%s=%s instead of %s", name,
                       mcp_show_integer(trial->arena, *value), mcp_show_integer(trial->arena, now));
        return true;
    }
    return false;
}

static bool try_nodes(struct trial *trial, int64_t nodes, struct mcp_found *found)
{
    struct mcp_error unused;
    int64_t gpus = nodes * trial->pools->gpus_per_node;
    return gpus <= MCP_MAX_GPUS &&
           mcp_cluster_set_gpus(trial->pools, (int)gpus, &unused) == MCP_OK && fits(trial, found);
}

static bool more_nodes(struct trial *trial, struct mcp_remedy *out)
{
    int64_t now = trial->pools->num_nodes, before = mcp_cluster_gpus(trial->pools);
    trial->space.knobs[MCP_KNOB_DATA].given = false;
    for (int i = 0; i < MOST_DOUBLINGS; i++, now *= 2) {
        int64_t last = now;
        for (int step = 1; step <= STEPS_TO_TWICE; step++) {
            int64_t nodes = now + (now * step + STEPS_TO_TWICE - 1) / STEPS_TO_TWICE;
            if (nodes == last || !try_nodes(trial, nodes, &out->found)) {
                last = nodes;
                continue;
            }
            out->name = "gpus";
            out->value = mcp_cluster_gpus(trial->pools);
            out->text = mcp_format(trial->arena, "gpus=%.0f instead of %lld", out->value,
                                   (long long)before);
            return true;
        }
    }
    return false;
}

int mcp_remedies(struct mcp_arena *arena, const struct mcp_question *question,
                 const struct mcp_plan_space *space, const struct mcp_search_options *options,
                 struct mcp_remedy out[MCP_MOST_REMEDIES])
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
    count += more_memory(&trial, question, &out[count]);
    return count;
}
