/* tests/step/test_verify.c: one thing is changed in a good program; the verifier says
 * which. */
#include "step/verify.h"

#include "step/build.h"
#include "tests/step/edit.h"
#include "tests/step/setup.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* --- blocks --- */

static void drop_waits(struct bench *bench)
{
    struct mcp_block *block = block_of(bench, 1, MCP_FORWARD);
    for (int i = 0; i < block->num_ops; i++)
        block->ops[i].num_waits = 0;
}

static void wait_for_later(struct bench *bench)
{
    struct mcp_op *op = &block_of(bench, 1, MCP_FORWARD)->ops[2];
    op->num_waits = 1;
    op->waits[0] = 3;
}

static void wait_for_itself(struct bench *bench)
{
    struct mcp_op *op = &block_of(bench, 1, MCP_FORWARD)->ops[2];
    op->num_waits = 1;
    op->waits[0] = 2;
}

static void read_foreign_scratch(struct bench *bench)
{
    struct mcp_op *op = &block_of(bench, 1, MCP_BACKWARD)->ops[0];
    op->reads[0] = (struct mcp_operand){MCP_SPACE_BLOCK, 0, 0};
}

static void overwrite_gradients(struct bench *bench)
{
    op_of(bench, 1, MCP_BACKWARD, MCP_FN_MATMUL_TN_ACCUMULATE)->function = MCP_FN_MATMUL_TN;
}

static void overwrite_state(struct bench *bench)
{
    struct mcp_op *op = op_of(bench, 1, MCP_FORWARD, MCP_FN_NORM_FORWARD);
    op->writes[0] = (struct mcp_operand){MCP_SPACE_LAYER, 0, MCP_LAYER_OPTIMIZER};
}

static void recompute_changes_gradients(struct bench *bench)
{
    struct mcp_block *block = block_of(bench, 1, MCP_RECOMPUTE);
    struct mcp_op *op = &block->ops[block->num_ops - 1];
    op->reads[0] = op->writes[0] = (struct mcp_operand){MCP_SPACE_LAYER, 0, MCP_LAYER_GRADIENTS};
}

static void send_on_wrong_stream(struct bench *bench)
{
    op_of(bench, 1, MCP_SEND_FORWARD, MCP_FN_SEND)->stream = MCP_STREAM_SEND_PREVIOUS;
}

static void send_too_far(struct bench *bench)
{
    op_of(bench, 1, MCP_SEND_FORWARD, MCP_FN_SEND)->delta = 2;
}

static void gather_on_compute(struct bench *bench)
{
    op_of(bench, 1, MCP_FORWARD, MCP_FN_ALL_GATHER)->stream = MCP_STREAM_COMPUTE;
}

static void gather_nowhere(struct bench *bench)
{
    op_of(bench, 1, MCP_FORWARD, MCP_FN_ALL_GATHER)->group = 0;
}

static void multiply_on_send_stream(struct bench *bench)
{
    op_of(bench, 1, MCP_FORWARD, MCP_FN_MATMUL_NT)->stream = MCP_STREAM_SEND_NEXT;
}

static void read_beyond_table(struct bench *bench)
{
    op_of(bench, 1, MCP_FORWARD, MCP_FN_MATMUL_NT)->reads[0].index = 900;
}

static void read_scratch_of_next_layer(struct bench *bench)
{
    op_of(bench, 1, MCP_FORWARD, MCP_FN_MATMUL_NT)->reads[0].layer_offset = 1;
}

static void negative_dimension(struct bench *bench)
{
    op_of(bench, 1, MCP_FORWARD, MCP_FN_MATMUL_NT)->dims[0] = -1;
}

/* --- messages --- */

static void drop_receive(struct bench *bench)
{
    take_entry(list_of(bench, 1, MCP_FORWARD, 2), MCP_RECEIVE_FORWARD, 3);
}

static void drop_last_send(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_FORWARD, 3), MCP_SEND_FORWARD, 2);
}

static void drop_first_send(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_FORWARD, 0), MCP_SEND_FORWARD, 2);
}

/* ... and its layer takes X for the gradient, so that nobody misses the message. */
static void drop_last_backward_receive(struct bench *bench)
{
    struct mcp_block *backward = block_of(bench, 2, MCP_BACKWARD);
    take_entry(list_of(bench, 0, MCP_BACKWARD, 3), MCP_RECEIVE_BACKWARD, 2);
    for (int i = 0; i < backward->num_ops; i++)
        for (int r = 0; r < backward->ops[i].num_reads; r++)
            if (backward->ops[i].reads[r].layer_offset == 1)
                backward->ops[i].reads[r] = (struct mcp_operand){MCP_SPACE_FRAME, 0, MCP_FRAME_X};
}

static void swap_sends(struct bench *bench)
{
    struct mcp_entry send = take_entry(list_of(bench, 0, MCP_FORWARD, 0), MCP_SEND_FORWARD, 2);
    struct mcp_entry_list *list = list_of(bench, 0, MCP_FORWARD, 1);
    send.microbatch_offset = -1;
    put_entry(list, list->num_entries, send);
}

static void receive_more_than_sent(struct bench *bench)
{
    op_of(bench, 3, MCP_RECEIVE_FORWARD, MCP_FN_RECEIVE)->dims[0]++;
}

static void receive_another_format(struct bench *bench)
{
    op_of(bench, 3, MCP_RECEIVE_FORWARD, MCP_FN_RECEIVE)->dtype = MCP_F32;
}

/* The first two sends are issued after a host function that waits for what their
 * receiver must send back. */
static void send_too_late(struct bench *bench)
{
    list_of(bench, 0, MCP_FORWARD, 2);
    for (int microbatch = 0; microbatch < 2; microbatch++) {
        struct mcp_entry_list *from = list_of(bench, 0, MCP_FORWARD, microbatch);
        struct mcp_entry send = take_entry(from, MCP_SEND_FORWARD, 2);
        struct mcp_entry_list *list =
            &bench->program.lists[slot_of(bench, 0, MCP_FORWARD, 2)->list];
        send.microbatch_offset = microbatch - 2;
        put_entry(list, list->num_entries - 1, send);
    }
}

/* --- values over the slots --- */

static void read_after_life(struct bench *bench)
{
    struct mcp_entry send = entry_at(bench, 0, MCP_FORWARD, MCP_SEND_FORWARD, 2);
    struct mcp_entry_list *list = list_of(bench, 0, MCP_BACKWARD, 3);
    send.microbatch_offset = -3;
    put_entry(list, list->num_entries, send);
}

static void backward_twice(struct bench *bench)
{
    struct mcp_entry_list *list = list_of(bench, 0, MCP_BACKWARD, 1);
    int at = entry_of(list, MCP_BACKWARD, 1);
    put_entry(list, at + 1, list->entries[at]);
}

static void backward_first(struct bench *bench)
{
    struct mcp_slot *forward = slot_of(bench, 1, MCP_FORWARD, 0);
    struct mcp_slot *backward = slot_of(bench, 1, MCP_BACKWARD, 0);
    struct mcp_slot swap = *forward;
    *forward = *backward;
    *backward = swap;
}

static void drop_forward(struct bench *bench)
{
    take_entry(list_of(bench, 1, MCP_FORWARD, 1), MCP_FORWARD, 4);
}

static void drop_last_backward(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_BACKWARD, 3), MCP_BACKWARD, 0);
}

static void drop_recompute(struct bench *bench)
{
    take_entry(list_of(bench, 1, MCP_BACKWARD, 2), MCP_RECOMPUTE, 3);
}

static void recompute_too_early(struct bench *bench)
{
    struct mcp_entry_list *list = list_of(bench, 1, MCP_BACKWARD, 2);
    put_entry(list, 0, take_entry(list, MCP_RECOMPUTE, 3));
}

static void lead_too_long(struct bench *bench)
{
    struct mcp_slot *slot = slot_of(bench, 0, MCP_BACKWARD, 1);
    slot->lead = entry_of(&bench->program.lists[slot->list], MCP_BACKWARD, 2) + 1;
}

static void lead_beyond_list(struct bench *bench)
{
    slot_of(bench, 0, MCP_BACKWARD, 1)->lead = 1000;
}

static void foreign_microbatch(struct bench *bench)
{
    struct mcp_entry_list *list = list_of(bench, 0, MCP_FORWARD, 3);
    list->entries[entry_of(list, MCP_FORWARD, 1)].microbatch_offset = 1;
}

static void optimizer_in_forward(struct bench *bench)
{
    struct mcp_entry optimizer = entry_at(bench, 0, MCP_EPILOGUE, MCP_OPTIMIZER, 1);
    put_entry(list_of(bench, 0, MCP_FORWARD, 3), 0, optimizer);
}

static void drop_weight_gradient(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_BACKWARD_WEIGHT, 1), MCP_BACKWARD_WEIGHT, 1);
}

static void weights_first(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_BACKWARD_INPUT, 1), MCP_BACKWARD_INPUT, 1);
}

static void whole_and_in_parts(struct bench *bench)
{
    struct mcp_slot *slot = slot_of(bench, 0, MCP_BACKWARD_WEIGHT, 1);
    struct mcp_entry_list *list = list_of(bench, 0, MCP_BACKWARD_WEIGHT, 1);
    slot->pass = MCP_BACKWARD;
    list->entries[0] = list->entries[entry_of(list, MCP_BACKWARD_WEIGHT, 1)];
    list->entries[0].role = MCP_BACKWARD;
    list->num_entries = 1;
}

/* Gradients that every microbatch's reduction empties, while a second one's come. */
static void reduce_later(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_BACKWARD_WEIGHT, 1), MCP_REDUCE, 1);
}

static void prologue_last(struct bench *bench)
{
    struct mcp_program_class *class = &bench->program.classes[0];
    struct mcp_slot swap = class->slots[0];
    class->slots[0] = class->slots[1];
    class->slots[1] = swap;
}

/* --- once a step --- */

static void drop_clear(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_PROLOGUE, -1), MCP_PROLOGUE, 1);
}

static void drop_clear_of_loss(struct bench *bench)
{
    take_entry(list_of(bench, 1, MCP_PROLOGUE, -1), MCP_PROLOGUE, bench->program.num_layers);
}

static void drop_optimizer(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_EPILOGUE, -1), MCP_OPTIMIZER, 2);
}

static void optimizer_twice(struct bench *bench)
{
    struct mcp_entry_list *list = list_of(bench, 0, MCP_EPILOGUE, -1);
    put_entry(list, list->num_entries, entry_at(bench, 0, MCP_EPILOGUE, MCP_OPTIMIZER, 2));
}

static void drop_reduce(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_BACKWARD, 3), MCP_REDUCE, 1);
}

static void reduce_too_early(struct bench *bench)
{
    struct mcp_entry reduce = take_entry(list_of(bench, 0, MCP_BACKWARD, 3), MCP_REDUCE, 1);
    struct mcp_entry_list *list = list_of(bench, 0, MCP_BACKWARD, 2);
    put_entry(list, list->num_entries, reduce);
}

static void drop_early_reduce(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_BACKWARD, 1), MCP_REDUCE, 1);
}

static void gather_into_used_copy(struct bench *bench)
{
    struct mcp_entry_list *list = list_of(bench, 0, MCP_FORWARD, 1);
    list->entries[entry_of(list, MCP_GATHER, 2)].copy ^= 1;
}

static void drop_gather(struct bench *bench)
{
    take_entry(list_of(bench, 0, MCP_FORWARD, 1), MCP_GATHER, 2);
}

/* Class 1 gets a step type of its own, whose epilogue runs two collectives over the
 * whole pipeline in another order than class 0's. */
static void reorder_collectives(struct bench *bench)
{
    struct mcp_program *program = &bench->program;
    int last = program->num_types++;
    struct mcp_layer_type *types = MCP_ARRAY(bench->arena, last + 1, struct mcp_layer_type);
    memcpy(types, program->types, (size_t)last * sizeof *types);
    types[last] = types[0];
    for (int i = 0; i < 2; i++) {
        struct mcp_block *block = &types[i == 0 ? 0 : last].blocks[MCP_EPILOGUE];
        struct mcp_op *ops = MCP_ARRAY(bench->arena, block->num_ops + 1, struct mcp_op);
        memcpy(ops + 1, block->ops, (size_t)block->num_ops++ * sizeof *ops);
        ops[0] = ops[1];
        for (int op = 1; op < block->num_ops; op++)
            for (int w = 0; w < ops[op].num_waits; w++)
                ops[op].waits[w]++;
        ops[i].function = MCP_FN_ALL_REDUCE_MAX;
        block->ops = ops;
    }
    program->types = types;
    struct mcp_entry_list *list = list_of(bench, 1, MCP_EPILOGUE, -1);
    list->entries[entry_of(list, MCP_EPILOGUE, program->num_layers)].type = (unsigned short)last;
}

static void agree_alone(struct bench *bench)
{
    struct mcp_entry_list *list = list_of(bench, 0, MCP_EPILOGUE, -1);
    int at = entry_of(list, MCP_EPILOGUE, bench->program.num_layers);
    put_entry(list, at, list->entries[at]);
}

static void lose_a_class(struct bench *bench)
{
    bench->program.num_classes = 1;
}

static void leave_alone(struct bench *bench)
{
    (void)bench;
}

/* --- the table --- */

#define NONE MCP_RECOMPUTE_NONE
#define SELECTIVE MCP_RECOMPUTE_SELECTIVE
#define FULL MCP_RECOMPUTE_FULL
static const struct {
    const char *name;
    void (*change)(struct bench *bench);
    struct variant variant;
    const char *says; /* "" when the program stays good */
} cases[] = {
    {"nothing is changed", leave_alone, {0, NONE, MCP_1F1B}, ""},
    {"nothing, GPipe and ZeRO-1", leave_alone, {1, FULL, MCP_GPIPE}, ""},
    {"nothing, ZeRO-2", leave_alone, {2, SELECTIVE, MCP_1F1B}, ""},
    {"nothing, ZeRO-3", leave_alone, {3, FULL, MCP_1F1B}, ""},
    {"a block's waits are dropped", drop_waits, {0, NONE, MCP_1F1B}, "and does not wait for it"},
    {"an op waits for a later one",
     wait_for_later,
     {0, NONE, MCP_1F1B},
     "block forward op 2 (matmul_nt): waits for op 3, which is not issued before it"},
    {"an op waits for itself",
     wait_for_itself,
     {0, NONE, MCP_1F1B},
     "waits for op 2, which is not issued before it"},
    {"another entry's scratch is read",
     read_foreign_scratch,
     {0, NONE, MCP_1F1B},
     "which no earlier op of the block writes"},
    {"gradients are overwritten",
     overwrite_gradients,
     {0, NONE, MCP_1F1B},
     "overwrites layer 'gradients'; forward and backward may only add to it"},
    {"forward writes optimizer state",
     overwrite_state,
     {0, NONE, MCP_1F1B},
     "overwrites layer 'optimizer'"},
    {"recompute adds to gradients",
     recompute_changes_gradients,
     {0, FULL, MCP_1F1B},
     "changes layer 'gradients' a second time"},
    {"a send on the other stream",
     send_on_wrong_stream,
     {0, NONE, MCP_1F1B},
     "runs on stream send_previous; its messages go by send_next"},
    {"a send over two stages", send_too_far, {0, NONE, MCP_1F1B}, "one stage along the pipeline"},
    {"a gather on the compute stream",
     gather_on_compute,
     {0, NONE, MCP_1F1B},
     "collectives of its group go by tensor"},
    {"a collective without a group", gather_nowhere, {0, NONE, MCP_1F1B}, "has no group"},
    {"a product on a message stream",
     multiply_on_send_stream,
     {0, NONE, MCP_1F1B},
     "which carries messages only"},
    {"an operand out of its table", read_beyond_table, {0, NONE, MCP_1F1B}, "buffer 900 of"},
    {"scratch of the next layer",
     read_scratch_of_next_layer,
     {0, NONE, MCP_1F1B},
     "of another layer; only X and DX may"},
    {"a negative dimension", negative_dimension, {0, NONE, MCP_1F1B}, "dimension 0 is -1"},
    {"a receive is missing",
     drop_receive,
     {0, NONE, MCP_1F1B},
     "reads frame 'x' of layer 3 microbatch 2 before it is written"},
    {"the last send is missing",
     drop_last_send,
     {0, NONE, MCP_1F1B},
     "receives X of layer 3 microbatch 3, which class 0 never sends"},
    {"the first send is missing",
     drop_first_send,
     {0, NONE, MCP_1F1B},
     "sends X of layer 3 microbatch 1, but message 0 from here that class 1 receives"},
    {"a send that nobody receives",
     drop_last_backward_receive,
     {0, NONE, MCP_1F1B},
     "sends DX of layer 3 microbatch 3, which class 0 never receives"},
    {"two sends are swapped",
     swap_sends,
     {0, NONE, MCP_GPIPE},
     "sends X of layer 3 microbatch 1, but message 0"},
    {"a message has two sizes",
     receive_more_than_sent,
     {0, NONE, MCP_1F1B},
     "elements of bf16, but"},
    {"a message has two formats", receive_another_format, {0, NONE, MCP_1F1B}, "of f32"},
    {"a send comes too late", send_too_late, {0, NONE, MCP_1F1B}, "waits for ever"},
    {"a frame is read after its life",
     read_after_life,
     {0, NONE, MCP_1F1B},
     "reads frame 'x' of layer 3 microbatch 0 after its life"},
    {"a backward runs twice",
     backward_twice,
     {0, NONE, MCP_1F1B},
     "(backward): layer 1 microbatch 1 has run it before"},
    {"backward comes first", backward_first, {0, NONE, MCP_1F1B}, "has not run forward"},
    {"a forward is missing",
     drop_forward,
     {0, NONE, MCP_1F1B},
     "reads frame 'x' of layer 5 microbatch 1 before it is written"},
    {"the last backward is missing",
     drop_last_backward,
     {0, NONE, MCP_1F1B},
     "layer 0 has run backward for 3 of 4 microbatches"},
    {"nothing, ZB-H1 and ZeRO-3", leave_alone, {3, FULL, MCP_ZB_H1}, ""},
    {"nothing, ZB-H2 and ZeRO-2", leave_alone, {2, NONE, MCP_ZB_H2}, ""},
    {"a weight gradient is missing",
     drop_weight_gradient,
     {0, NONE, MCP_ZB_H1},
     "layer 1 has run backward for 3 of 4 microbatches"},
    {"a weight gradient comes first",
     weights_first,
     {0, NONE, MCP_ZB_H1},
     "layer 1 microbatch 1 has not run backward_input"},
    {"a backward runs whole and in parts",
     whole_and_in_parts,
     {0, NONE, MCP_ZB_H1},
     "layer 1 microbatch 1 runs backward whole and in parts"},
    {"a reduction between weight gradients is missing",
     reduce_later,
     {2, NONE, MCP_ZB_H1},
     "while it holds microbatch 1 unreduced"},
    {"a recompute is missing",
     drop_recompute,
     {0, FULL, MCP_1F1B},
     "(backward): layer 3 microbatch 2 is not recomputed right before"},
    {"a recompute comes too early",
     recompute_too_early,
     {0, FULL, MCP_1F1B},
     "is not recomputed right before"},
    {"a lead waits for its message",
     lead_too_long,
     {0, NONE, MCP_1F1B},
     "waits for a message of its slot within the lead"},
    {"a lead is longer than its list", lead_beyond_list, {0, NONE, MCP_1F1B}, "a lead of 1000"},
    {"a microbatch that does not exist",
     foreign_microbatch,
     {0, NONE, MCP_1F1B},
     "microbatch 4 is not one of 4"},
    {"an update before the end",
     optimizer_in_forward,
     {0, NONE, MCP_1F1B},
     "(optimizer): does not belong in a forward slot"},
    {"the prologue comes late", prologue_last, {0, NONE, MCP_1F1B}, "prologue comes too late"},
    {"an accumulator is not cleared",
     drop_clear,
     {0, NONE, MCP_1F1B},
     "adds to layer 'gradients' of layer 1, which has not been cleared"},
    {"the loss is not cleared",
     drop_clear_of_loss,
     {0, NONE, MCP_1F1B},
     "adds to rank 'loss', which has not been cleared"},
    {"a layer is not updated",
     drop_optimizer,
     {0, NONE, MCP_1F1B},
     "no class runs optimizer of layer 2"},
    {"a layer is updated twice", optimizer_twice, {0, NONE, MCP_1F1B}, "layer 2 has run it before"},
    {"gradients are not reduced",
     drop_reduce,
     {0, NONE, MCP_1F1B},
     "layer 'gradients' of layer 1 before it is reduced"},
    {"gradients are reduced too early",
     reduce_too_early,
     {0, NONE, MCP_1F1B},
     "(reduce): layer 1 has run backward for 3 of 4 microbatches"},
    {"a microbatch's gradients are lost",
     drop_early_reduce,
     {2, NONE, MCP_1F1B},
     "changes layer 'gradients' of layer 1 while it holds microbatch 1 unreduced"},
    {"a copy in use is overwritten",
     gather_into_used_copy,
     {3, NONE, MCP_1F1B},
     "which holds layer 2 by now"},
    {"a gather is missing", drop_gather, {3, NONE, MCP_1F1B}, "by now"},
    {"collectives in another order",
     reorder_collectives,
     {0, NONE, MCP_1F1B},
     "collective 0 of its group"},
    {"a collective one class runs alone",
     agree_alone,
     {0, NONE, MCP_1F1B},
     "class 1 takes no part in this collective"},
    {"a class is missing",
     lose_a_class,
     {0, NONE, MCP_1F1B},
     "1 classes where pipeline_parallel=2"},
};
#define NUM_CASES (sizeof cases / sizeof *cases)

ParameterizedTestParameters(verify, one_change)
{
    static int indices[NUM_CASES];
    for (size_t i = 0; i < NUM_CASES; i++)
        indices[i] = (int)i;
    return cr_make_param_array(int, indices, NUM_CASES);
}

ParameterizedTest(int *index, verify, one_change)
{
    struct bench bench;
    struct mcp_error err = {""};
    edit_build(&bench, &cases[*index].variant);
    cases[*index].change(&bench);
    enum mcp_status status = mcp_program_verify(bench.arena, &bench.program, &err);
    bool good = cases[*index].says[0] == '\0';
    cr_expect(eq(int, (int)status, (int)(good ? MCP_OK : MCP_INVALID)), "%s: %s",
              cases[*index].name, err.text);
    cr_expect(ne(ptr, strstr(err.text, cases[*index].says), NULL), "%s: %s", cases[*index].name,
              err.text);
    mcp_arena_free(bench.arena);
}

/* While tables of both ends add up their gradients, squares are summed of what lies in front of
 * them in their buffer: positions, the last norm; squares of the table wait. */
Test(verify, what_lies_apart_does_not_wait)
{
    for (int zero = 0; zero <= 3; zero++) {
        struct setup s;
        struct mcp_program program;
        struct mcp_error err = {""};
        setup_load(&s, "gpt2", "dgx-a100", "megatron-core");
        s.plan.pipeline_parallel = s.plan.data_parallel = 2;
        s.plan.zero_stage = zero;
        setup_finish(&s, 4, NONE);
        mcp_program_build(s.arena, &s.question, &s.plan, &program);
        const struct mcp_layer_type *first = mcp_program_layer_type(&program, 0);
        const struct mcp_layer_type *last =
            mcp_program_layer_type(&program, program.num_layers - 1);
        struct mcp_op *squares = first->blocks[MCP_EPILOGUE].ops + 1;
        cr_assert(eq(int, first->blocks[MCP_EPILOGUE].num_ops, 3));
        cr_expect(eq(int, squares[0].num_waits, 0), "positions, ZeRO-%d", zero);
        cr_expect(eq(int, squares[1].num_waits, 1), "table, ZeRO-%d", zero);
        cr_assert(eq(int, last->blocks[MCP_EPILOGUE].num_ops, 2));
        cr_expect(eq(int, last->blocks[MCP_EPILOGUE].ops[1].num_waits, 0), "norm, ZeRO-%d", zero);
        cr_expect(eq(int, (int)mcp_program_verify(s.arena, &program, &err), 0), "%s", err.text);
        squares[0].dims[zero >= 2 ? 0 : 2]++; /* the table's first element too */
        cr_expect(eq(int, (int)mcp_program_verify(s.arena, &program, &err), (int)MCP_INVALID));
        cr_expect(ne(ptr, strstr(err.text, "op 1 (sum_squares): reads layer"), NULL), "%s",
                  err.text);
        mcp_arena_free(s.arena);
    }
}
