/* exec/run_options.c: the table of a run's options. */
#include "exec/run_options.h"

#include "core/minmax.h"

#include <stddef.h>
#include <string.h>

/* PATH: of a file or folder; DECAY_RATE: of an average over steps; POSITIVE: what is divided
 * by. */
enum kind { WORD, PATH, COUNT, NUMBER, POSITIVE, DECAY_RATE, FLAG, DECAY };

struct entry {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define ENTRY(name, kind, field)                                                                   \
    {                                                                                              \
        name, kind, offsetof(struct mcp_run_options, field)                                        \
    }
static const struct entry entries[] = {
    ENTRY("program", PATH, program),
    ENTRY("frozen-program", PATH, frozen_program),
    ENTRY("data", PATH, data),
    ENTRY("eval-program", PATH, eval_program),
    ENTRY("eval-data", PATH, eval_data),
    ENTRY("metrics", PATH, metrics),
    ENTRY("timeline", PATH, timeline),
    ENTRY("summary", PATH, summary),
    ENTRY("tensorboard-dir", PATH, tensorboard_dir),
    ENTRY("checkpoint-dir", PATH, checkpoint_dir),
    ENTRY("export", PATH, export_path),
    ENTRY("init-from", PATH, init_from),
    ENTRY("steps", COUNT, steps),
    ENTRY("freeze-step", COUNT, freeze_step),
    ENTRY("checkpoint-every", COUNT, checkpoint_every),
    ENTRY("eval-every", COUNT, eval_every),
    ENTRY("eval-steps", COUNT, eval_steps),
    ENTRY("watch-every", COUNT, watch_every),
    ENTRY("resume", FLAG, resume),
    ENTRY("no-verify", FLAG, no_verify),
    ENTRY("seed", COUNT, seed),
    ENTRY("learning-rate", NUMBER, learning_rate),
    ENTRY("min-learning-rate", NUMBER, min_learning_rate),
    ENTRY("warmup-steps", COUNT, warmup_steps),
    ENTRY("decay-steps", COUNT, decay_steps),
    ENTRY("decay", DECAY, decay),
    ENTRY("beta1", DECAY_RATE, beta1),
    ENTRY("beta2", DECAY_RATE, beta2),
    ENTRY("epsilon", POSITIVE, epsilon),
    ENTRY("weight-decay", NUMBER, weight_decay),
    ENTRY("clip-norm", NUMBER, clip_norm),
    ENTRY("initial-loss-scale", POSITIVE, initial_loss_scale),
    ENTRY("loss-scale-window", COUNT, loss_scale_window),
    ENTRY("residual-init-scale", NUMBER, residual_init_scale),
    ENTRY("timeout-s", NUMBER, timeout_s),
    ENTRY("flops-per-token", NUMBER, flops_per_token),
    ENTRY("peak-flops-per-s", NUMBER, peak_flops_per_s),
    ENTRY("planned-gpu", WORD, planned_gpu),
    ENTRY("planned-memory-bytes", COUNT, planned_memory_bytes),
    ENTRY("planned-gpus-per-node", COUNT, planned_gpus_per_node),
};
enum { NUM_ENTRIES = sizeof entries / sizeof *entries };

struct mcp_run_options mcp_run_options_default(void)
{
    struct mcp_train_options train = mcp_train_options_default();
    return (struct mcp_run_options){.steps = 1,
                                    .learning_rate = train.rate.peak,
                                    .warmup_steps = train.rate.warmup_steps,
                                    .beta1 = train.beta1,
                                    .beta2 = train.beta2,
                                    .epsilon = train.epsilon,
                                    .weight_decay = train.weight_decay,
                                    .clip_norm = train.clip_norm,
                                    .initial_loss_scale = train.initial_loss_scale,
                                    .loss_scale_window = train.loss_scale_window,
                                    .residual_init_scale = 1,
                                    .timeout_s = 300,
                                    .watch_every = 10};
}

/* Both of the structs' fields begin at `entry->offset`. */
static void *field_of(struct mcp_run_options *options, const struct entry *entry)
{
    return (char *)options + entry->offset;
}

static const void *const_field_of(const struct mcp_run_options *options, const struct entry *entry)
{
    return (const char *)options + entry->offset;
}

static enum mcp_status read_decay(const char *text, int64_t *out, struct mcp_error *err)
{
    for (int i = 0; i < MCP_NUM_DECAYS; i++)
        if (mcp_same(text, mcp_decay_names[i])) {
            *out = i;
            return MCP_OK;
        }
    return mcp_fail(err, MCP_USAGE, "--decay %s: it is constant, linear or cosine", text);
}

static const char *range_of(enum kind kind)
{
    return kind == POSITIVE     ? "above 0"
           : kind == DECAY_RATE ? "of 0 or more, below 1"
                                : "of 0 or more";
}

static bool is_within(enum kind kind, double value)
{
    return value >= 0 && (kind != POSITIVE || value > 0) && (kind != DECAY_RATE || value < 1);
}

static const struct entry *find(const char *word)
{
    for (int i = 0; i < NUM_ENTRIES && mcp_starts_with(word, "--"); i++)
        if (mcp_same(word + 2, entries[i].name))
            return &entries[i];
    return NULL;
}

static enum mcp_status read_path(const struct entry *entry, const char *text, const char **out,
                                 struct mcp_error *err)
{
    if (*text == '\0')
        return mcp_fail(err, MCP_USAGE, "--%s: '' is empty", entry->name);
    if (find(text) != NULL)
        return mcp_fail(err, MCP_USAGE,
                        "--%s: '%s' is an option and no value; a file of that name is ./%s",
                        entry->name, text, text);
    *out = text;
    return MCP_OK;
}

static enum mcp_status read_value(const struct entry *entry, const char *text,
                                  struct mcp_run_options *out, struct mcp_error *err)
{
    void *field = field_of(out, entry);
    if (entry->kind == DECAY)
        return read_decay(text, field, err);
    if (entry->kind == PATH)
        return read_path(entry, text, field, err);
    if (entry->kind == WORD) {
        *(const char **)field = text;
        return MCP_OK;
    }
    bool good = entry->kind == COUNT
                    ? mcp_parse_int64(text, field) && *(int64_t *)field >= 0
                    : mcp_parse_double(text, field) && is_within(entry->kind, *(double *)field);
    return good ? MCP_OK
                : mcp_fail(err, MCP_USAGE, "--%s %s: not a number %s", entry->name, text,
                           range_of(entry->kind));
}

enum mcp_status mcp_run_options_parse(int argc, char **argv, struct mcp_run_options *out,
                                      struct mcp_error *err)
{
    bool seen[NUM_ENTRIES] = {false};
    for (int i = 1; i < argc; i++) {
        const struct entry *entry = find(argv[i]);
        if (entry == NULL)
            return mcp_fail(err, MCP_USAGE, "there is no option '%s'", argv[i]);
        if (seen[entry - entries])
            return mcp_fail(err, MCP_USAGE, "--%s is there twice", entry->name);
        seen[entry - entries] = true;
        if (entry->kind == FLAG) {
            *(bool *)field_of(out, entry) = true;
            continue;
        }
        if (i + 1 == argc)
            return mcp_fail(err, MCP_USAGE, "--%s needs a value", entry->name);
        MCP_TRY(read_value(entry, argv[++i], out, err));
    }
    if (out->program == NULL || out->data == NULL)
        return mcp_fail(err, MCP_USAGE, "--program and --data are needed");
    if (out->decay != MCP_DECAY_CONSTANT && out->decay_steps == 0)
        out->decay_steps = mcp_max_int64(1, out->steps - out->warmup_steps);
    if ((out->eval_program != NULL) != (out->eval_data != NULL))
        return mcp_fail(err, MCP_USAGE, "--eval-program and --eval-data go together");
    if ((out->frozen_program != NULL) != (out->freeze_step > 0))
        return mcp_fail(
            err, MCP_USAGE,
            "--frozen-program and --freeze-step go together: the variance of 1-bit Adam "
            "freezes after 1 step or more");
    return mcp_run_options_check(out, err);
}

enum mcp_status mcp_run_options_check(const struct mcp_run_options *o, struct mcp_error *err)
{
    const bool saves = o->checkpoint_every > 0 || o->resume || o->export_path != NULL;
    const struct {
        bool is_so;
        const char *says;
    } faults[] = {
        {o->steps == 0, "--steps is 1 or more"},
        {saves && o->checkpoint_dir == NULL,
         "--checkpoint-every, --resume and --export need --checkpoint-dir"},
        {o->eval_data == NULL && (o->eval_every > 0 || o->eval_steps > 0),
         "--eval-every and --eval-steps need --eval-data"},
        {o->decay == MCP_DECAY_CONSTANT && (o->decay_steps > 0 || o->min_learning_rate > 0),
         "--decay-steps and --min-learning-rate are of --decay linear or cosine"},
        {o->min_learning_rate > o->learning_rate, "--min-learning-rate is above --learning-rate"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i].is_so)
            return mcp_fail(err, MCP_USAGE, "%s", faults[i].says);
    return MCP_OK;
}

static bool is_default(const struct entry *entry, const struct mcp_run_options *options,
                       const struct mcp_run_options *standard)
{
    const void *a = const_field_of(options, entry), *b = const_field_of(standard, entry);
    switch (entry->kind) {
    case WORD:
    case PATH:
        return mcp_same(*(const char *const *)a, *(const char *const *)b);
    case FLAG:
        return *(const bool *)a == *(const bool *)b;
    case NUMBER:
    case POSITIVE:
    case DECAY_RATE:
        return *(const double *)a == *(const double *)b;
    default:
        return *(const int64_t *)a == *(const int64_t *)b;
    }
}

static const char *value_text(struct mcp_arena *arena, const struct entry *entry,
                              const struct mcp_run_options *options)
{
    const void *field = const_field_of(options, entry);
    switch (entry->kind) {
    case WORD:
    case PATH:
        return *(const char *const *)field;
    case NUMBER:
    case POSITIVE:
    case DECAY_RATE:
        return mcp_format(arena, "%.17g", *(const double *)field);
    case DECAY:
        return mcp_decay_names[*(const int64_t *)field];
    default:
        return mcp_format(arena, "%lld", (long long)*(const int64_t *)field);
    }
}

int mcp_run_options_words(struct mcp_arena *arena, const struct mcp_run_options *options,
                          const char ***words)
{
    const struct mcp_run_options standard = mcp_run_options_default();
    int count = 0;
    *words = MCP_ARRAY(arena, 2 * NUM_ENTRIES, const char *);
    for (int i = 0; i < NUM_ENTRIES; i++) {
        if (is_default(&entries[i], options, &standard))
            continue;
        (*words)[count++] = mcp_format(arena, "--%s", entries[i].name);
        if (entries[i].kind != FLAG)
            (*words)[count++] = value_text(arena, &entries[i], options);
    }
    return count;
}

static const char *value_word(enum kind kind)
{
    switch (kind) {
    case WORD:
        return " TEXT";
    case PATH:
        return " FILE";
    case FLAG:
        return "";
    case DECAY:
        return " constant|linear|cosine";
    default:
        return " N";
    }
}

void mcp_run_options_list(struct mcp_text *out)
{
    for (int i = 0; i < NUM_ENTRIES; i++)
        mcp_text_add(out, "  --%s%s\n", entries[i].name, value_word(entries[i].kind));
}

struct mcp_train_options mcp_run_train_options(const struct mcp_run_options *options)
{
    struct mcp_train_options train = mcp_train_options_default();
    train.rate = (struct mcp_learning_rate){.peak = options->learning_rate,
                                            .floor = options->min_learning_rate,
                                            .warmup_steps = options->warmup_steps,
                                            .decay_steps = options->decay_steps,
                                            .decay = (enum mcp_decay)options->decay};
    train.beta1 = options->beta1;
    train.beta2 = options->beta2;
    train.epsilon = options->epsilon;
    train.weight_decay = options->weight_decay;
    train.clip_norm = options->clip_norm;
    train.initial_loss_scale = options->initial_loss_scale;
    train.loss_scale_window = options->loss_scale_window;
    train.seed = (uint64_t)options->seed;
    train.freeze_step = options->freeze_step;
    train.interpret.timeline = true; /* what a step's seconds were is told of every step */
    return train;
}
