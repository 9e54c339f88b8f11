/* exec/evaluate.c: batches of other data through the program's forwards. */
#include "exec/evaluate.h"

#include "exec/run_data.h"

struct mcp_evaluation {
    const struct mcp_run_options *options;
    struct mcp_trainer *trainer;
    struct mcp_feed *feed;
    struct mcp_batch batch;
    int64_t steps, sequences; /* of one evaluation; of a step */
};

enum mcp_status mcp_evaluation_steps(const struct mcp_run_options *options, int64_t sequences,
                                     int64_t batch, int64_t *steps, struct mcp_error *err)
{
    const char *path = options->eval_data;
    const int64_t asked = options->eval_steps, there = sequences / batch;
    if (there == 0)
        return mcp_fail(err, MCP_INVALID,
                        "%s holds %lld sequences, and a step of evaluation takes %lld", path,
                        (long long)sequences, (long long)batch);
    if (asked > there)
        return mcp_fail(err, MCP_INVALID,
                        "%s holds %lld sequences of the %lld that --eval-steps %lld takes: at "
                        "most --eval-steps %lld",
                        path, (long long)sequences, (long long)(asked * batch), (long long)asked,
                        (long long)there);
    *steps = asked > 0 ? asked : there;
    return MCP_OK;
}

enum mcp_status mcp_evaluation_open(struct mcp_arena *arena, const struct mcp_run_setting *setting,
                                    struct mcp_trainer *trainer, struct mcp_evaluation **out,
                                    struct mcp_error *err)
{
    const struct mcp_run_source source = {setting->options->eval_data, 0, true};
    int64_t sequences = 0;
    *out = NULL;
    if (source.path == NULL)
        return MCP_OK;
    struct mcp_evaluation *e = *out = MCP_NEW(arena, struct mcp_evaluation);
    e->options = setting->options;
    e->trainer = trainer;
    e->sequences = mcp_batch_sequences(setting->program);
    MCP_TRY(mcp_run_feed_open(arena, setting, &source, &e->feed, &sequences, err));
    e->batch = (struct mcp_batch){mcp_feed_sequence, e->feed};
    return mcp_evaluation_steps(e->options, sequences, e->sequences, &e->steps, err);
}

bool mcp_evaluation_is_due(const struct mcp_evaluation *e, int64_t steps)
{
    if (e == NULL)
        return false;
    const int64_t every = e->options->eval_every;
    return steps == e->options->steps || (every > 0 && steps % every == 0);
}

enum mcp_status mcp_evaluation_run(struct mcp_evaluation *e, double *loss, struct mcp_error *err)
{
    double sum = 0, wait_s = 0;
    for (int64_t step = 0; step < e->steps; step++) {
        double mean = 0;
        MCP_TRY(mcp_feed_step(e->feed, step * e->sequences, &wait_s, err));
        MCP_TRY(mcp_trainer_evaluate(e->trainer, &e->batch, &mean, err));
        sum += mean;
    }
    *loss = sum / (double)e->steps;
    return MCP_OK;
}
