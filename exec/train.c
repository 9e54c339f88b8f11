/* exec/train.c: learning rates, and one step after the other. */
#include "exec/train.h"

#include "exec/init.h"

#include <math.h>

const char *const mcp_decay_names[MCP_NUM_DECAYS] = {"constant", "linear", "cosine"};

enum { WARM, FROZEN, EVALUATION }; /* programs of a trainer's interpreter */

struct mcp_trainer {
    struct mcp_rank rank;
    const struct mcp_backend_calls *calls;
    struct mcp_backend *backend;
    struct mcp_train_options options;
    struct mcp_interpreter *interpreter;
    struct mcp_trainer_state state;
    bool is_frozen;
    bool is_scaled; /* the program stores fp16 */
};

double mcp_learning_rate_at(const struct mcp_learning_rate *rate, int64_t step)
{
    const double pi = 3.14159265358979323846;
    if (step < rate->warmup_steps)
        return rate->peak * (double)(step + 1) / (double)rate->warmup_steps;
    if (rate->decay == MCP_DECAY_CONSTANT)
        return rate->peak;
    double done = rate->decay_steps > 0
                      ? fmin(1, (double)(step - rate->warmup_steps) / (double)rate->decay_steps)
                      : 1;
    double left = rate->decay == MCP_DECAY_LINEAR ? 1 - done : 0.5 * (1 + cos(pi * done));
    return rate->floor + (rate->peak - rate->floor) * left;
}

struct mcp_train_options mcp_train_options_default(void)
{
    return (struct mcp_train_options){.rate = {.peak = 5e-5, .warmup_steps = 5000},
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.01,
                                      .clip_norm = 2,
                                      .initial_loss_scale = 65536,
                                      .loss_scale_window = 2000};
}

/* Where gradients of activations can overflow, or vanish. */
static bool stores_fp16(const struct mcp_program *program)
{
    for (int t = 0; t < program->num_types; t++)
        for (int i = 0; i < program->types[t].num_buffers[MCP_SPACE_FRAME]; i++)
            if (program->types[t].buffers[MCP_SPACE_FRAME][i].dtype == MCP_F16)
                return true;
    return false;
}

enum mcp_status mcp_trainer_new(struct mcp_arena *arena, const struct mcp_program *program,
                                int rank, const struct mcp_backend_calls *calls,
                                struct mcp_backend *backend, const struct mcp_batch *batch,
                                const struct mcp_train_options *options, struct mcp_trainer **out,
                                struct mcp_error *err)
{
    struct mcp_trainer *trainer = MCP_NEW(arena, struct mcp_trainer);
    trainer->rank = (struct mcp_rank){.program = program,
                                      .rank = rank,
                                      .at = mcp_mesh_coordinate(&program->plan, rank),
                                      .batch = batch};
    trainer->calls = calls;
    trainer->backend = backend;
    trainer->options = *options;
    trainer->options.interpret.others[FROZEN - 1] = options->frozen;
    trainer->options.interpret.others[EVALUATION - 1] = options->evaluation;
    MCP_TRY(mcp_interpreter_new(arena, &trainer->rank, calls, backend, &trainer->options.interpret,
                                &trainer->interpreter, err));
    struct mcp_arena *scratch = mcp_arena_new();
    mcp_init_rank(scratch, trainer->interpreter, &trainer->rank, calls, backend, options->seed);
    mcp_arena_free(scratch);
    trainer->is_scaled = stores_fp16(program);
    trainer->state.loss_scale = trainer->is_scaled ? options->initial_loss_scale : 1;
    *out = trainer;
    return MCP_OK;
}

struct mcp_trainer_state mcp_trainer_state(const struct mcp_trainer *trainer)
{
    struct mcp_trainer_state state = trainer->state;
    if (!trainer->is_scaled)
        state.loss_scale = 0;
    return state;
}

void mcp_trainer_go_on(struct mcp_trainer *trainer, const struct mcp_trainer_state *state)
{
    trainer->state = *state;
    if (!trainer->is_scaled)
        trainer->state.loss_scale = 1;
    else if (state->loss_scale == 0)
        trainer->state.loss_scale = trainer->options.initial_loss_scale;
}

static void set_inputs(struct mcp_trainer *trainer)
{
    const struct mcp_train_options *options = &trainer->options;
    const struct mcp_program *program = trainer->rank.program;
    trainer->rank.outputs = (struct mcp_step_outputs){0};
    trainer->rank.inputs = (struct mcp_step_inputs){
        .step = trainer->state.step,
        .updates = trainer->state.updates,
        .variance_updates = trainer->state.variance_updates,
        .learning_rate = mcp_learning_rate_at(&options->rate, trainer->state.step),
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->epsilon,
        .weight_decay = options->weight_decay,
        .clip_norm = options->clip_norm,
        .loss_scale = trainer->state.loss_scale,
        .tokens = mcp_batch_sequences(program) * mcp_sequence_tokens(program)};
}

static enum mcp_status find_first_bad(struct mcp_trainer *trainer, bool is_good, int *first_bad,
                                      struct mcp_error *err)
{
    const int world = mcp_plan_world(&trainer->rank.program->plan);
    double first = is_good ? world : trainer->rank.rank;
    MCP_TRY(trainer->calls->agree(trainer->backend, &first, 1, '<', err));
    *first_bad = first < world ? (int)first : -1;
    return MCP_OK;
}

/* Ranks have the loss of their own tokens, some of them of the same ones. */
static enum mcp_status agree_on_loss(struct mcp_trainer *trainer, int *first_bad,
                                     struct mcp_error *err)
{
    double loss = trainer->rank.outputs.loss / mcp_loss_copies(trainer->rank.program);
    const bool is_good = isfinite(loss);
    MCP_TRY(trainer->calls->agree(trainer->backend, &loss, 1, '+', err));
    trainer->rank.outputs.loss = loss;
    *first_bad = -1;
    return isfinite(loss) ? MCP_OK : find_first_bad(trainer, is_good, first_bad, err);
}

/* After a step; true: a smaller loss scale is tried. All ranks saw the same norm. */
static bool move_loss_scale(struct mcp_trainer *trainer)
{
    struct mcp_trainer_state *state = &trainer->state;
    if (!trainer->is_scaled)
        return false;
    if (trainer->rank.outputs.skipped) {
        const bool falls = state->loss_scale > 1;
        state->loss_scale = fmax(1, state->loss_scale / 2);
        state->steps_since_skip = 0;
        return falls;
    }
    if (++state->steps_since_skip == trainer->options.loss_scale_window) {
        state->loss_scale *= 2;
        state->steps_since_skip = 0;
    }
    return false;
}

static void count_updates(struct mcp_trainer *trainer)
{
    trainer->state.step++;
    if (trainer->rank.outputs.skipped)
        return;
    trainer->state.updates++;
    trainer->state.variance_updates += !trainer->is_frozen;
}

enum mcp_status mcp_trainer_step(struct mcp_trainer *trainer, struct mcp_step_report *report,
                                 struct mcp_error *err)
{
    double start_s = trainer->calls->clock(trainer->backend);
    const struct mcp_train_options *options = &trainer->options;
    if (options->frozen != NULL && !trainer->is_frozen &&
        trainer->state.step >= options->freeze_step) {
        mcp_interpreter_turn(trainer->interpreter, FROZEN);
        trainer->is_frozen = true;
    }
    set_inputs(trainer);
    MCP_TRY(mcp_interpret_step(trainer->interpreter, err));
    int first_bad = -1;
    MCP_TRY(agree_on_loss(trainer, &first_bad, err));
    const struct mcp_step_inputs *in = &trainer->rank.inputs;
    const struct mcp_step_outputs *out = &trainer->rank.outputs;
    *report = (struct mcp_step_report){.step = in->step,
                                       .tokens = in->tokens,
                                       .loss = out->loss,
                                       .grad_norm = out->grad_norm,
                                       .learning_rate = in->learning_rate,
                                       .loss_scale = in->loss_scale,
                                       .step_s = trainer->calls->clock(trainer->backend) - start_s,
                                       .skipped = out->skipped,
                                       .scaled_down = move_loss_scale(trainer),
                                       .first_bad_rank = first_bad};
    count_updates(trainer);
    return MCP_OK;
}

enum mcp_status mcp_trainer_evaluate(struct mcp_trainer *trainer, const struct mcp_batch *batch,
                                     double *loss, struct mcp_error *err)
{
    const struct mcp_batch *trained_on = trainer->rank.batch;
    int first_bad;
    mcp_interpreter_turn(trainer->interpreter, EVALUATION);
    set_inputs(trainer);
    trainer->rank.batch = batch;
    MCP_TRY(mcp_interpret_step(trainer->interpreter, err));
    MCP_TRY(agree_on_loss(trainer, &first_bad, err));
    *loss = trainer->rank.outputs.loss;
    trainer->rank.batch = trained_on;
    mcp_interpreter_turn(trainer->interpreter, trainer->is_frozen ? FROZEN : WARM);
    return MCP_OK;
}

const struct mcp_interpreter *mcp_trainer_interpreter(const struct mcp_trainer *trainer)
{
    return trainer->interpreter;
}

const struct mcp_rank *mcp_trainer_rank(const struct mcp_trainer *trainer)
{
    return &trainer->rank;
}
