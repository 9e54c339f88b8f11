/* tests/step/test_memory.c: lives of values in a block, the fullest moment of a schedule, and
 * the memory of plans against sums by hand. */
#include "step/estimate.h"

#include "step/schedule.h"
#include "step/stage_memory.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

/* --- one block --- */

/* Places: 0 .. 3 block values of 10, 20, 40 and 80 bytes; X 100, DX 200, further frames 400
 * and 800; NEXT is the X of the layer above; 0 ends a list. */
enum { A = 1, B, C, D, X, DX, F, G, NEXT };

struct case_block {
    char name[56];
    bool last_reader;
    unsigned char reads[5][3], writes[5][3]; /* by op */
    int num_ops;
    int64_t peak, end;
};

ParameterizedTestParameters(memory, block)
{
    static const struct case_block cases[] = {
        {"scratch lives from first to last mention",
         false,
         {{0}, {A}, {B}},
         {{A}, {B}, {C}},
         3,
         60,
         0},
        {"overlapping lives add up", false, {{0}, {0}, {A, B}}, {{A}, {B}, {C}}, 3, 70, 0},
        {"written again is one value", false, {{0}, {A}, {A}}, {{A}, {A}, {B}}, 3, 30, 0},
        {"what nobody reads dies at once", false, {{0}, {0}}, {{D}, {A}}, 2, 80, 0},
        {"forward leaves frames behind", false, {{X}, {F}}, {{F}, {G}}, 2, 1200, 1200},
        {"frames found are not counted", false, {{F}, {G}}, {{A}, {A}}, 2, 10, 0},
        {"backward gives frames back", true, {{F}, {A}}, {{A}, {B}}, 2, 10, -400},
        {"... as they die", true, {{F}, {A, G}}, {{A}, {D}}, 2, 10, -1200},
        {"the gradient of the input stays", true, {{F}, {A, X}}, {{A}, {DX}}, 2, 10, -300},
        {"the layer above owns its input", false, {{X}, {A}}, {{A}, {NEXT}}, 2, 10, 0},
        {"nothing", false, {{0}}, {{0}}, 0, 0, 0},
    };
    return cr_make_param_array(struct case_block, (struct case_block *)cases,
                               sizeof cases / sizeof *cases);
}

static struct mcp_operand operand_of(unsigned char place)
{
    struct mcp_operand at = {.space = place >= X ? MCP_SPACE_FRAME : MCP_SPACE_BLOCK};
    at.index = (unsigned short)(place >= X ? place - X : place - A);
    if (place == NEXT)
        at = (struct mcp_operand){MCP_SPACE_FRAME, 1, MCP_FRAME_X};
    return at;
}

ParameterizedTest(struct case_block *c, memory, block)
{
    struct mcp_buffer block[4] = {{.capacity_bytes = 10},
                                  {.capacity_bytes = 20},
                                  {.capacity_bytes = 40},
                                  {.capacity_bytes = 80}};
    struct mcp_buffer frame[4] = {{.capacity_bytes = 100},
                                  {.capacity_bytes = 200},
                                  {.capacity_bytes = 400},
                                  {.capacity_bytes = 800}};
    struct mcp_op ops[5] = {0};
    for (int i = 0; i < c->num_ops; i++)
        for (int k = 0; k < 3; k++) {
            if (c->reads[i][k] > 0)
                ops[i].reads[ops[i].num_reads++] = operand_of(c->reads[i][k]);
            if (c->writes[i][k] > 0)
                ops[i].writes[ops[i].num_writes++] = operand_of(c->writes[i][k]);
        }
    struct mcp_layer_type type = {0};
    type.buffers[MCP_SPACE_BLOCK] = block;
    type.buffers[MCP_SPACE_FRAME] = frame;
    type.num_buffers[MCP_SPACE_BLOCK] = type.num_buffers[MCP_SPACE_FRAME] = 4;
    type.blocks[MCP_FORWARD] = (struct mcp_block){c->num_ops, ops};
    struct mcp_block_memory memory;
    mcp_block_memory(&type, MCP_FORWARD, c->last_reader, &memory);
    cr_expect(eq(i64, memory.peak_bytes, c->peak), "%s", c->name);
    cr_expect(eq(i64, memory.end_bytes, c->end), "%s", c->name);
}

/* --- one rank --- */

enum { MAX_CHUNKS = 4, MAX_ACTIONS = 2 * MAX_CHUNKS * 64 };

/* Every slot in order. */
static int64_t walk_all(const struct mcp_plan *plan, int m, int rank,
                        const struct mcp_chunk_memory *chunks)
{
    struct mcp_action actions[MAX_ACTIONS];
    int64_t live = 0, peak = 0;
    int length = mcp_schedule_length(plan->virtual_stages, m);
    mcp_schedule_actions(plan->schedule, plan->pipeline_parallel, plan->virtual_stages, m, rank,
                         actions);
    for (int i = 0; i < length; i++) {
        const struct mcp_chunk_memory *chunk = &chunks[actions[i].chunk];
        live -= actions[i].pass == MCP_PASS_BACKWARD ? chunk->kept_bytes : 0;
        int64_t now = live + (actions[i].pass == MCP_PASS_BACKWARD ? chunk->backward_bytes
                                                                   : chunk->forward_bytes);
        peak = now > peak ? now : peak;
        live += actions[i].pass == MCP_PASS_BACKWARD ? 0 : chunk->kept_bytes;
    }
    cr_assert(eq(i64, live, 0));
    return peak;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 20;
}

/* Skipping periods of the schedule loses no moment. */
Test(memory, fullest_moment_is_exact)
{
    uint64_t state = 88172645463325252u;
    for (int number = 0; number < 3000; number++) {
        struct mcp_plan plan = mcp_plan_default();
        struct mcp_chunk_memory chunks[MAX_CHUNKS];
        plan.virtual_stages = 1 + (int)(next_random(&state) % MAX_CHUNKS);
        plan.pipeline_parallel = 1 + (int)(next_random(&state) % 8);
        int m = 1 + (int)(next_random(&state) % 60);
        plan.schedule = number & 1 ? MCP_GPIPE : MCP_1F1B;
        if (plan.virtual_stages > 1) {
            plan.schedule = MCP_INTERLEAVED;
            plan.pipeline_parallel += plan.pipeline_parallel == 1;
            m = plan.pipeline_parallel * (1 + m % 7);
        }
        for (int c = 0; c < plan.virtual_stages; c++) {
            chunks[c].kept_bytes = 1 + (int64_t)(next_random(&state) % 100);
            chunks[c].forward_bytes = chunks[c].kept_bytes + (int64_t)(next_random(&state) % 50);
            chunks[c].backward_bytes = chunks[c].kept_bytes + (int64_t)(next_random(&state) % 50);
        }
        int rank = (int)(next_random(&state) % (uint64_t)plan.pipeline_parallel);
        int64_t kept = -1, peak = mcp_stage_peak(&plan, m, rank, chunks, &kept);
        cr_assert(eq(i64, peak, walk_all(&plan, m, rank, chunks)), "case %d: p=%d v=%d m=%d r=%d",
                  number, plan.pipeline_parallel, plan.virtual_stages, m, rank);
        cr_assert(kept > 0 && kept <= peak, "case %d", number);
    }
}

/* Frames in flight: min(m, p - r), and (2 (p - 1 - r) + (v - 1) p + 1) chunks interleaved. */
struct case_flight {
    enum mcp_schedule schedule;
    int p, v, m, rank, frames;
};

ParameterizedTestParameters(memory, in_flight)
{
    static const struct case_flight cases[] = {
        {MCP_1F1B, 8, 1, 64, 0, 8},         {MCP_1F1B, 8, 1, 64, 7, 1},
        {MCP_1F1B, 8, 1, 3, 0, 3},          {MCP_GPIPE, 8, 1, 64, 7, 64},
        {MCP_INTERLEAVED, 8, 2, 64, 0, 23}, {MCP_INTERLEAVED, 8, 2, 64, 7, 9},
        {MCP_INTERLEAVED, 4, 4, 16, 0, 19}, {MCP_INTERLEAVED, 8, 2, 8, 0, 16},
        {MCP_1F1B, 1, 1, 9, 0, 1},
    };
    return cr_make_param_array(struct case_flight, (struct case_flight *)cases,
                               sizeof cases / sizeof *cases);
}

ParameterizedTest(struct case_flight *c, memory, in_flight)
{
    struct mcp_plan plan = mcp_plan_default();
    struct mcp_chunk_memory chunks[MAX_CHUNKS];
    int64_t kept;
    plan.schedule = c->schedule;
    plan.pipeline_parallel = c->p;
    plan.virtual_stages = c->v;
    for (int i = 0; i < c->v; i++)
        chunks[i] = (struct mcp_chunk_memory){
            .kept_bytes = 100, .forward_bytes = 100, .backward_bytes = 100};
    cr_expect(eq(i64, mcp_stage_peak(&plan, c->m, c->rank, chunks, &kept), 100 * c->frames));
    cr_expect(eq(i64, kept, 100 * c->frames));
}

/* --- whole plans --- */

/* h 256, two layers, 4 and 2 heads of 64, f 512, 4096 words, 128 tokens:
 * a layer 512 x 256 + 256 x 256 + 3 x 512 x 256 + 2 x 256 weights. */
enum {
    LAYER = 131072 + 65536 + 393216 + 512,
    TABLE = 4096 * 256,
    PARAMETERS = 2 * LAYER + 2 * TABLE + 256
};

static void tiny(struct setup *s, bool tied)
{
    setup_load(s, "llama-3.1-8b", "dgx-h100", "megatron-core");
    s->model.num_layers = 2;
    s->model.hidden_size = 256;
    s->model.vocab_size = 4096;
    s->model.tied_embeddings = tied;
    s->model.kinds[0].num_attention_heads = 4;
    s->model.kinds[0].num_kv_heads = 2;
    s->model.kinds[0].head_dim = s->model.kinds[0].value_head_dim = 64;
    s->model.kinds[0].ffn_hidden_size = 512;
    s->job.sequence_length = 128;
    s->stack.gradient_bytes = 4;
    s->stack.optimizer_bytes = 12;
    s->stack.logits_bytes = 8;
    s->stack.dummy_gradient_bytes = 2;
    s->stack.activation_memory_factor = 1;
    s->stack.reserve_bytes = 1000000;
    s->stack.fragmentation_frac = 0.25;
}

static void predict(struct setup *s, int num_microbatches, enum mcp_recompute recompute,
                    struct mcp_prediction *out)
{
    setup_finish(s, num_microbatches, recompute);
    mcp_estimate(mcp_pricer_new(s->arena, &s->question), &s->plan, out);
}

Test(memory, tiny_model_by_hand)
{
    struct setup s;
    static struct mcp_prediction p;
    tiny(&s, false);
    predict(&s, 2, MCP_RECOMPUTE_NONE, &p);
    cr_expect(eq(i64, p.memory.weights_bytes, 2LL * PARAMETERS));
    cr_expect(eq(i64, p.memory.gradients_bytes, 4LL * PARAMETERS));
    cr_expect(eq(i64, p.memory.optimizer_bytes, 12LL * PARAMETERS));
    int64_t x = 2 * 128 * 256, ids = 4 * 128, logits = 2 * 128 * 4096;
    int64_t layer = 128 * 256 * (12 + 2 + 12) + 4 * 4 * 128;
    int64_t head = x + ids + x + logits; /* its input, targets, norm, logits */
    cr_expect(eq(i64, p.memory.activations_bytes, ids + 2 * layer + head));
    /* the fullest moment is the loss: an fp32 copy of the logits and three numbers a token;
     * besides, the stack's stand-in for a layer's gradients */
    int64_t buffers = 2 * logits + 12 * 128 + 2 * LAYER;
    cr_expect(eq(i64, p.memory.buffers_bytes, buffers));
    int64_t allocated = mcp_memory_allocated(&p.memory);
    cr_expect(eq(i64, allocated, 18LL * PARAMETERS + ids + 2 * layer + head + buffers));
    cr_expect(eq(i64, p.memory.reserve_bytes, 1000000 + allocated / 4));
    cr_expect(eq(i64, p.peak_memory_bytes, allocated + p.memory.reserve_bytes));
    cr_expect(eq(i64, p.stages[0].static_bytes, 18LL * PARAMETERS));
    mcp_arena_free(s.arena);
}

struct copies_case {
    char name[40];
    int pipeline_parallel, virtual_stages, num_microbatches;
    bool copies;
    int want[4]; /* of each stage, in messages */
};

ParameterizedTestParameters(memory, message_copies)
{
    static struct copies_case cases[] = {
        {"ends send one way", 4, 1, 8, true, {4, 8, 8, 4}},
        {"no more than there are messages", 4, 1, 2, true, {2, 4, 4, 2}},
        {"interleaved, both ways and twice", 2, 2, 4, true, {8, 8}},
        {"no stages, no messages", 1, 1, 8, true, {0}},
        {"a stack that keeps none", 4, 1, 8, false, {0}},
    };
    return cr_make_param_array(struct copies_case, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct copies_case *c, memory, message_copies)
{
    static struct mcp_prediction p;
    struct setup s;
    tiny(&s, false);
    s.model.num_layers = 4;
    s.stack.fragmentation_frac = 0;
    s.stack.message_copies = c->copies;
    s.plan.pipeline_parallel = c->pipeline_parallel;
    s.plan.virtual_stages = c->virtual_stages;
    s.plan.schedule = c->virtual_stages > 1 ? MCP_INTERLEAVED : MCP_1F1B;
    predict(&s, c->num_microbatches, MCP_RECOMPUTE_NONE, &p);
    for (int r = 0; r < c->pipeline_parallel; r++)
        cr_expect(eq(i64, p.stages[r].memory.reserve_bytes, 1000000 + c->want[r] * 2LL * 128 * 256),
                  "%s, stage %d", c->name, r);
    mcp_arena_free(s.arena);
}

/* Full recompute: inputs of both layers, then one layer's values anew at once. */
Test(memory, recompute_works_on_one_layer)
{
    struct setup s;
    static struct mcp_prediction p;
    tiny(&s, false);
    s.model.vocab_size = 128;
    s.stack.dummy_gradient_bytes = 0;
    predict(&s, 2, MCP_RECOMPUTE_FULL, &p);
    int64_t x = 2 * 128 * 256, ids = 4 * 128, logits = 2 * 128 * 128;
    int64_t layer = 128 * 256 * (12 + 2 + 12) + 4 * 4 * 128;
    int64_t kept = ids + 2 * x + x + ids + x + logits; /* ids, layers; head as above */
    cr_expect(eq(i64, p.memory.activations_bytes, kept));
    /* at the top layer the head's frames are gone, its gradient has come */
    cr_expect(p.memory.activations_bytes + p.memory.buffers_bytes >= ids + x + layer + x);
    cr_expect(p.memory.activations_bytes + p.memory.buffers_bytes < ids + x + 2 * layer);
    mcp_arena_free(s.arena);
}

/* Each stage shards one thing more over four ranks; 2 and 3 hold two layers whole, 3 the
 * weights of one where none is gathered ahead. */
Test(memory, zero_shards_exactly)
{
    struct setup s;
    static struct mcp_prediction p[4];
    tiny(&s, false);
    s.plan.data_parallel = 4;
    s.plan.overlap.gather = true;
    for (int zero = 0; zero < 4; zero++) {
        s.plan.zero_stage = zero;
        predict(&s, 2, MCP_RECOMPUTE_NONE, &p[zero]);
        int64_t n = PARAMETERS;
        cr_expect(eq(i64, p[zero].memory.optimizer_bytes, zero >= 1 ? 3 * n : 12 * n));
        cr_expect(eq(i64, p[zero].memory.gradients_bytes, zero >= 2 ? n : 4 * n));
        cr_expect(eq(i64, p[zero].memory.weights_bytes, zero >= 3 ? n / 2 : 2 * n));
        cr_expect(eq(i64, p[zero].memory.activations_bytes, p[0].memory.activations_bytes));
    }
    int64_t largest = TABLE + 256; /* the head */
    cr_expect(eq(i64, p[1].memory.buffers_bytes, p[0].memory.buffers_bytes));
    cr_expect(eq(i64, p[2].memory.buffers_bytes, p[0].memory.buffers_bytes + 2 * 4 * largest));
    cr_expect(eq(i64, p[3].memory.buffers_bytes, p[2].memory.buffers_bytes + 2 * 2 * largest));
    s.plan.overlap.gather = false;
    predict(&s, 2, MCP_RECOMPUTE_NONE, &p[3]);
    cr_expect(eq(i64, p[3].memory.buffers_bytes, p[2].memory.buffers_bytes + 2 * largest));
    mcp_arena_free(s.arena);
}

/* On one rank a tied table is held once, on two stages twice; its optimizer likewise. */
Test(memory, tied_tables)
{
    struct setup s;
    static struct mcp_prediction p;
    tiny(&s, true);
    predict(&s, 2, MCP_RECOMPUTE_NONE, &p);
    cr_expect(eq(i64, p.memory.weights_bytes, 2LL * (PARAMETERS - TABLE)));
    cr_expect(eq(i64, p.memory.gradients_bytes, 4LL * (PARAMETERS - TABLE)));
    cr_expect(eq(i64, p.memory.optimizer_bytes, 12LL * (PARAMETERS - TABLE)));
    s.plan.pipeline_parallel = 2;
    predict(&s, 2, MCP_RECOMPUTE_NONE, &p);
    cr_expect(eq(i64, p.stages[0].memory.weights_bytes, 2LL * (LAYER + TABLE)));
    cr_expect(eq(i64, p.stages[1].memory.weights_bytes, 2LL * (LAYER + TABLE + 256)));
    cr_expect(eq(i64, p.stages[1].memory.optimizer_bytes, 12LL * (LAYER + TABLE + 256)));
    mcp_arena_free(s.arena);
}

/* Stage 0 of two keeps two microbatches; it has no logits. */
Test(memory, stages_keep_what_is_in_flight)
{
    struct setup s;
    static struct mcp_prediction p;
    tiny(&s, false);
    s.plan.pipeline_parallel = 2;
    predict(&s, 4, MCP_RECOMPUTE_NONE, &p);
    int64_t ids = 4 * 128, layer = 128 * 256 * (12 + 2 + 12) + 4 * 4 * 128;
    cr_expect(eq(i64, p.stages[0].memory.activations_bytes, 2 * (ids + layer)));
    mcp_arena_free(s.arena);
}

/* Llama 3.1 70B, TP 8 with sequence parallelism, four stages. */
static void large(struct setup *s)
{
    setup_load(s, "llama-3.1-70b", "dgx-h100:16", "megatron-core");
    s->job.sequence_length = 8192;
    s->plan.tensor_parallel = 8;
    s->plan.sequence_parallel = true;
    s->plan.pipeline_parallel = 4;
    s->plan.data_parallel = 2;
    s->plan.zero_stage = 1;
}

Test(memory, full_recompute_halves_activations_for_a_third_more_compute)
{
    struct setup s;
    static struct mcp_prediction none, selective, full;
    large(&s);
    predict(&s, 16, MCP_RECOMPUTE_NONE, &none);
    predict(&s, 16, MCP_RECOMPUTE_FULL, &full);
    predict(&s, 16, MCP_RECOMPUTE_SELECTIVE, &selective);
    cr_expect(2 * full.memory.activations_bytes <= none.memory.activations_bytes);
    cr_expect(full.peak_memory_bytes < none.peak_memory_bytes);
    cr_expect(selective.memory.activations_bytes < none.memory.activations_bytes);
    cr_expect(selective.memory.activations_bytes > full.memory.activations_bytes);
    double compute[2] = {none.cost_s[MCP_COST_MATMUL] + none.cost_s[MCP_COST_ATTENTION],
                         full.cost_s[MCP_COST_MATMUL] + full.cost_s[MCP_COST_ATTENTION]};
    double more = compute[1] / compute[0] - 1;
    cr_expect(more > 0.28 && more < 1.0 / 3, "%.3f more", more);
    cr_expect(eq(i64, full.memory.weights_bytes, none.memory.weights_bytes));
    cr_expect(eq(i64, full.memory.optimizer_bytes, none.memory.optimizer_bytes));
    mcp_arena_free(s.arena);
}

Test(memory, larger_microbatches_need_more)
{
    for (int recompute = 0; recompute < MCP_NUM_RECOMPUTES; recompute++)
        for (int virtual_stages = 1; virtual_stages <= 5; virtual_stages += 4) {
            struct setup s;
            static struct mcp_prediction p;
            large(&s);
            s.plan.virtual_stages = virtual_stages;
            s.plan.schedule = virtual_stages > 1 ? MCP_INTERLEAVED : MCP_1F1B;
            int64_t last = 0;
            for (int b = 1; b <= 8; b *= 2) {
                s.plan.microbatch_size = b;
                predict(&s, 64 / b, (enum mcp_recompute)recompute, &p);
                cr_expect(p.peak_memory_bytes > last, "microbatch %d", b);
                last = p.peak_memory_bytes;
            }
            mcp_arena_free(s.arena);
        }
}

/* Does it fit? The limit is a share of the device. */
Test(memory, limit_is_a_share_of_the_device)
{
    struct setup s;
    static struct mcp_prediction p;
    tiny(&s, false);
    s.cluster.gpu.memory_bytes = 100000000;
    s.job.memory_limit_frac = 0.5;
    predict(&s, 2, MCP_RECOMPUTE_NONE, &p);
    cr_expect(eq(i64, p.memory_limit_bytes, 50000000));
    cr_expect(not(p.fits), "%lld bytes", (long long)p.peak_memory_bytes);
    s.job.memory_limit_frac = 1;
    predict(&s, 2, MCP_RECOMPUTE_NONE, &p);
    cr_expect(p.fits);
    mcp_arena_free(s.arena);
}
