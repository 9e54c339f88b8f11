/* tests/step/test_timeline.c: timelines written, read and refused. */
#include "step/timeline.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

#define HEAD "{\"schema\":\"mcpplan.timeline/1\",\"kind\":\"measured\""
#define SPAN                                                                                       \
    "{\"rank\":0,\"stream\":\"compute\",\"slot\":1,\"entry\":2,\"op\":3,\"start_s\":1,\"end_s\":2"
#define OTHER                                                                                      \
    "{\"rank\":1,\"stream\":\"data\",\"slot\":0,\"entry\":0,\"op\":0,\"start_s\":0,\"end_s\":1e-9"

struct case_timeline {
    char name[40];
    char text[400];
    enum mcp_status want;
    char says[88];
};

ParameterizedTestParameters(step_timeline, read)
{
    static struct case_timeline cases[] = {
        {"an object", HEAD ",\"spans\":[" SPAN "},\n" OTHER "}]}", MCP_OK, ""},
        {"lines", HEAD "}\n" SPAN "}\n\n" OTHER "}\n", MCP_OK, ""},
        {"a byte order mark", "\xef\xbb\xbf" HEAD "}\n" SPAN "}\n", MCP_OK, ""},
        {"no spans", HEAD ",\"spans\":[]}", MCP_OK, ""},
        {"the spans in front",
         "{\"spans\":[" SPAN "}],\"kind\":\"predicted\",\"schema\":\"mcpplan.timeline/1\"}", MCP_OK,
         ""},
        {"what an op is", HEAD "}\n" SPAN ",\"function\":\"adam\",\"pass\":\"optimizer\"}", MCP_OK,
         ""},
        {"nothing", "", MCP_FORMAT, "it: empty"},
        {"no JSON", "hello", MCP_FORMAT, "it: line 1, column 1"},
        {"another schema", "{\"schema\":\"mcpplan.plan/1\"}", MCP_FORMAT,
         "it: schema is \"mcpplan.plan/1\", expected \"mcpplan.timeline/1\""},
        {"no kind", "{\"schema\":\"mcpplan.timeline/1\",\"spans\":[]}", MCP_FORMAT, "kind"},
        {"another kind", "{\"schema\":\"mcpplan.timeline/1\",\"kind\":\"predicte\",\"spans\":[]}",
         MCP_FORMAT, "did you mean \"predicted\""},
        {"an unknown key of the head", HEAD ",\"spam\":1,\"spans\":[]}", MCP_FORMAT,
         "unknown key 'spam' (did you mean 'spans'?)"},
        {"an unknown key of a span", HEAD "}\n" SPAN "}\n" OTHER ",\"layr\":3}", MCP_FORMAT,
         "it: line 3: unknown key 'layr' (did you mean 'layer'?)"},
        {"a key that is missing", HEAD ",\"spans\":[\n" SPAN "},\n{\"rank\":1}]}", MCP_FORMAT,
         "it: line 3: stream: missing"},
        {"a stream that is none",
         HEAD "}\n{\"rank\":0,\"stream\":\"comput\",\"slot\":1,\"entry\":2,\"op\":3}", MCP_FORMAT,
         "did you mean \"compute\""},
        {"a function that is none", HEAD "}\n" SPAN ",\"function\":\"matmul\"}", MCP_FORMAT,
         "line 2: function: got \"matmul\""},
        {"an end before the start",
         HEAD "}\n{\"rank\":0,\"stream\":\"compute\",\"slot\":1,\"entry\":2,\"op\":3,\"start_s\":2,"
              "\"end_s\":1}",
         MCP_FORMAT, "ends before it begins, at 1.000000000 and 2.000000000 s"},
        {"a start before the step",
         HEAD
         "}\n{\"rank\":0,\"stream\":\"compute\",\"slot\":1,\"entry\":2,\"op\":3,\"start_s\":-2,"
         "\"end_s\":1}",
         MCP_FORMAT, "start_s is -2, expected 0 to 1e+06 seconds"},
        {"a key twice", HEAD "}\n" SPAN "}\n" SPAN "}\n", MCP_INVALID,
         "it: two spans have rank 0, slot 1, entry 2, op 3"},
        {"no comma", HEAD ",\"spans\":[" SPAN "}\n" OTHER "}]}", MCP_FORMAT,
         "it: line 2: expected ',' or ']' after a span"},
        {"a comma too many", HEAD ",\"spans\":[" SPAN "},]}", MCP_FORMAT, "expected a span"},
        {"half a list", HEAD ",\"spans\":[" SPAN "}", MCP_FORMAT, "expected ',' or ']'"},
        {"half a span", HEAD "}\n" SPAN, MCP_FORMAT, "it: line 2: line 1, column"},
        {"two lists", HEAD ",\"spans\":[],\"spans\":[]}", MCP_FORMAT, "duplicate"},
        {"words after it", HEAD ",\"spans\":[]} more", MCP_FORMAT, "end of file expected"},
        {"a list of numbers", HEAD ",\"spans\":[1]}", MCP_FORMAT, "expected a span, an object"},
        {"equal ranks", HEAD ",\"equal_ranks\":[[0,2],[1,3]],\"spans\":[" SPAN "}]}", MCP_OK, ""},
        {"equal to two", HEAD ",\"equal_ranks\":[[0,2],[1,2]]}\n" SPAN "}", MCP_FORMAT,
         "equal_ranks[1]: rank 2 is there twice"},
        {"equal to nobody", HEAD ",\"equal_ranks\":[[]]}\n" SPAN "}", MCP_FORMAT,
         "equal_ranks[0]: expected a list of ranks"},
        {"spans of its own", HEAD ",\"equal_ranks\":[[2,0]]}\n" SPAN "}", MCP_INVALID,
         "rank 0 has spans, but equal_ranks says that those of rank 2 are its own"},
        {"a rank beyond all", HEAD ",\"equal_ranks\":[[1048576]]}\n" SPAN "}", MCP_FORMAT,
         "rank 1048576 is beyond the last possible, 1048575"},
    };
    return cr_make_param_array(struct case_timeline, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_timeline *c, step_timeline, read)
{
    struct mcp_arena *arena = mcp_arena_new();
    struct mcp_timeline timeline;
    struct mcp_error err = {""};
    enum mcp_status status =
        mcp_timeline_parse(arena, "it", c->text, strlen(c->text), &timeline, &err);
    cr_expect(eq(int, (int)status, (int)c->want), "%s: %s", c->name, err.text);
    cr_expect(ne(ptr, strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    mcp_arena_free(arena);
}

static struct mcp_timeline sample(struct mcp_arena *arena)
{
    struct mcp_timeline timeline = {.iteration_ns = 7654321, .until_ns = 54321, .num_ranks = 6};
    static const int like[6] = {0, 0, 2, -1, 2, 0};
    timeline.like = MCP_ARRAY(arena, 6, int);
    memcpy(timeline.like, like, sizeof like);
    for (int i = 0; i < 3000; i++) { /* more than one scratch holds */
        struct mcp_timeline_span span = {.rank = i % 2 * 2,
                                         .slot = 3000 - i,
                                         .entry = i % 5,
                                         .op = i % 7,
                                         .stream = (unsigned char)(i % MCP_NUM_STREAMS),
                                         .function = (unsigned char)(i % (MCP_NUM_FUNCTIONS + 1)),
                                         .pass = (unsigned char)(i % (MCP_NUM_BLOCK_ROLES + 1)),
                                         .layer = i % 4 - 1,
                                         .microbatch = i % 3 - 1,
                                         .start_ns = 999999999LL * i,
                                         .end_ns = 999999999LL * i + i};
        mcp_timeline_add(arena, &timeline, &span);
    }
    return timeline;
}

static int ordered(const struct mcp_timeline_span *a, const struct mcp_timeline_span *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->slot < b->slot);
}

/* Both forms say the same; read, spans stand in the order of their keys. */
Test(step_timeline, both_forms_are_read_as_written)
{
    struct mcp_arena *arena = mcp_arena_new();
    const struct mcp_timeline timeline = sample(arena);
    for (int lines = 0; lines < 2; lines++) {
        struct mcp_text text = mcp_text_new(arena), again = mcp_text_new(arena);
        struct mcp_timeline read, twice;
        struct mcp_error err = {""};
        mcp_timeline_write(&timeline, lines, &text);
        cr_assert(eq(int, mcp_timeline_parse(arena, "it", text.data, text.length, &read, &err), 0),
                  "%s", err.text);
        cr_assert(eq(sz, read.num_spans, timeline.num_spans));
        cr_expect(eq(i64, read.iteration_ns, 7654321));
        cr_expect(eq(i64, read.until_ns, 54321));
        cr_assert(eq(int, read.num_ranks, 6));
        cr_expect(eq(int, memcmp(read.like, timeline.like, 6 * sizeof(int)), 0));
        for (size_t i = 1; i < read.num_spans; i++)
            cr_assert(ordered(&read.spans[i - 1], &read.spans[i]));
        const struct mcp_timeline_span *first = &read.spans[0];
        const struct mcp_timeline_span *same = &timeline.spans[3000 - first->slot];
        cr_expect(eq(i64, first->start_ns, same->start_ns));
        cr_expect(eq(i64, first->end_ns, same->end_ns));
        cr_expect(eq(int, first->function, same->function));
        cr_expect(eq(int, first->pass, same->pass));
        cr_expect(eq(int, first->layer, same->layer));
        cr_expect(eq(int, first->microbatch, same->microbatch));
        mcp_timeline_write(&read, !lines, &again);
        cr_assert(
            eq(int, mcp_timeline_parse(arena, "it", again.data, again.length, &twice, &err), 0));
        struct mcp_text same_text = mcp_text_new(arena);
        mcp_timeline_write(&twice, !lines, &same_text);
        cr_expect(eq(str, again.data, same_text.data));
    }
    mcp_arena_free(arena);
}
