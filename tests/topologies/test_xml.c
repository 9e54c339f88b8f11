/* tests/topologies/test_xml.c: XML as a tree, and what of XML is refused. */
#include "core/text.h"
#include "topologies/xml.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

static struct mcp_arena *arena;
static void begin(void)
{
    arena = mcp_arena_new();
}
static void end(void)
{
    mcp_arena_free(arena);
}
TestSuite(xml, .init = begin, .fini = end);

static enum mcp_status parse(const char *text, struct mcp_xml **root, struct mcp_error *err)
{
    return mcp_xml_parse(arena, "f.xml", text, strlen(text), root, err);
}

Test(xml, is_a_tree_with_places)
{
    struct mcp_error err = {""};
    struct mcp_xml *root;
    static const char text[] = "<?xml version=\"1.0\"?>\n<!DOCTYPE a SYSTEM \"a.dtd\">\n"
                               "<a k=\"1 &lt; 2\">\n  <b> x &amp; y <!-- no --></b><c/>\n"
                               "  <b><d>deep</d></b>\n</a>\n";
    cr_assert(eq(int, (int)parse(text, &root, &err), MCP_OK), "%s", err.text);
    cr_expect(eq(str, (char *)mcp_xml_attribute(root, "k"), "1 < 2"));
    cr_expect(eq(ptr, (void *)mcp_xml_attribute(root, "none"), NULL));
    cr_expect(eq(str, (char *)mcp_xml_text(arena, root, "b"), "x & y"));
    const struct mcp_xml *second = mcp_xml_named(mcp_xml_child(root, "b")->next, "b");
    cr_expect(eq(str, (char *)mcp_xml_text(arena, second, "d"), "deep"));
    cr_expect(eq(ptr, (void *)mcp_xml_text(arena, root, "b/none"), NULL));
    cr_expect(second->line == 5 && second->column == 3, "%d:%d", second->line, second->column);
    int count = 0;
    for (const struct mcp_xml *at = root; at != NULL; at = mcp_xml_next(at, root))
        count++;
    cr_expect(eq(int, count, 5));
}

struct case_refused {
    char name[32];
    char text[260];
    char says[90];
};
ParameterizedTestParameters(xml, refused)
{
    static struct case_refused cases[] = {
        {"nothing", "", "line 1, column 1: no element found"},
        {"not closed", "<a>\n <b>\n", "line 3, column 1: no element found; <b> of line 2 is not"},
        {"closed by another", "<a>\n<b></a>", "line 2, column 6: mismatched tag"},
        {"two roots", "<a/>\n<b/>", "line 2, column 1: junk after document element"},
        {"an attribute twice", "<a k=\"1\" k=\"2\"/>", "duplicate attribute"},
        {"an entity bomb",
         "<!DOCTYPE a [<!ENTITY b \"bbbb\"><!ENTITY c \"&b;&b;&b;&b;\">"
         "<!ENTITY d \"&c;&c;&c;&c;\">]><a>&d;</a>",
         "line 1, column 13: a DOCTYPE with declarations"},
        {"a file as entity", "<!DOCTYPE a [<!ENTITY b SYSTEM \"file:///etc/passwd\">]><a>&b;</a>",
         "a DOCTYPE with declarations"},
        {"an entity that a DTD may define", "<!DOCTYPE a SYSTEM \"a.dtd\"><a>&b;</a>",
         "an entity that XML does not define"},
        {"an unknown entity", "<a>&b;</a>", "undefined entity"},
        {"no UTF-8", "<a>\xff\xfe</a>", "not well-formed"},
        {"a NUL byte's name", "<a>&#0;</a>", "reference to invalid character"},
    };
    return cr_make_param_array(struct case_refused, cases, sizeof cases / sizeof *cases);
}
ParameterizedTest(struct case_refused *c, xml, refused)
{
    struct mcp_error err = {""};
    struct mcp_xml *root;
    cr_expect(eq(int, (int)parse(c->text, &root, &err), MCP_FORMAT), "%s", c->name);
    cr_expect(ne(ptr, (void *)strstr(err.text, c->says), NULL), "%s: %s", c->name, err.text);
    cr_expect(mcp_starts_with(err.text, "f.xml: line "), "%s: %s", c->name, err.text);
}

static const char *repeat(const char *text, int count)
{
    struct mcp_text out = mcp_text_new(arena);
    for (int i = 0; i < count; i++)
        mcp_text_append(&out, text, strlen(text));
    return out.data;
}

Test(xml, limits)
{
    struct mcp_error err = {""};
    struct mcp_xml *root;
    struct mcp_text many = mcp_text_new(arena);
    const char *deep = mcp_format(arena, "%s%s", repeat("<a>", 128), repeat("</a>", 128));
    cr_expect(eq(int, (int)parse(deep, &root, &err), MCP_OK), "%s", err.text);
    deep = mcp_format(arena, "%s%s", repeat("<a>", 129), repeat("</a>", 129));
    cr_expect(eq(int, (int)parse(deep, &root, &err), MCP_FORMAT));
    cr_expect(strstr(err.text, "column 385: more than 128 levels") != NULL, "%s", err.text);
    mcp_text_add(&many, "<a");
    for (int i = 0; i < 257; i++)
        mcp_text_add(&many, " k%d=\"\"", i);
    mcp_text_add(&many, "/>");
    cr_expect(eq(int, (int)parse(many.data, &root, &err), MCP_FORMAT));
    cr_expect(strstr(err.text, "more than 256 attributes") != NULL, "%s", err.text);
}

/* What stood before the mistake is there all the same. */
Test(xml, a_broken_file_leaves_what_was_read)
{
    struct mcp_error err = {""};
    struct mcp_xml *root;
    cr_assert(eq(int, (int)parse("<a><b k=\"1\"/><c>", &root, &err), MCP_FORMAT));
    cr_assert(root != NULL && mcp_xml_child(root, "b") != NULL);
    cr_expect(eq(int, (int)parse("nothing", &root, &err), MCP_FORMAT));
    cr_expect(eq(ptr, root, NULL));
}
