/* topologies/xml.c: an XML file as a tree of elements, through expat. */
#include "topologies/xml.h"

#include "core/text.h"

#include <expat.h>
#include <limits.h>
#include <string.h>

#define MAX_DEPTH 128
#define MAX_ATTRIBUTES 256
#define MAX_ELEMENTS 1000000

struct reader {
    struct mcp_arena *arena;
    XML_Parser parser;
    struct mcp_xml *root;
    struct mcp_xml *open; /* the innermost element without its end */
    struct mcp_text text; /* of the element that gets some */
    int depth;
    int num_elements;
    const char *refusal;        /* our own reason to stop */
    unsigned long line, column; /* of it */
};

static void mark_place(struct reader *r)
{
    r->line = (unsigned long)XML_GetCurrentLineNumber(r->parser);
    r->column = (unsigned long)XML_GetCurrentColumnNumber(r->parser) + 1;
}

static void refuse(struct reader *r, const char *reason)
{
    if (r->refusal == NULL) {
        r->refusal = reason;
        mark_place(r);
    }
    XML_StopParser(r->parser, XML_FALSE);
}

static bool within_limits(struct reader *r, int num_attributes)
{
    if (r->refusal != NULL)
        return false;
    if (r->depth == MAX_DEPTH)
        refuse(r, "more than 128 levels of elements");
    else if (num_attributes > MAX_ATTRIBUTES)
        refuse(r, "more than 256 attributes");
    else if (r->num_elements == MAX_ELEMENTS)
        refuse(r, "more than 1,000,000 elements");
    return r->refusal == NULL;
}

/* The first run of text: machines write no other. */
static void keep_text(struct reader *r)
{
    if (r->open == NULL || r->text.length == 0)
        return;
    if (r->open->text[0] == '\0')
        r->open->text = mcp_strndup(r->arena, r->text.data, r->text.length);
    r->text.length = 0;
    r->text.data[0] = '\0';
}

static void link_child(struct reader *r, struct mcp_xml *element)
{
    element->parent = r->open;
    if (r->open == NULL)
        r->root = element;
    else if (r->open->first_child == NULL)
        r->open->first_child = element;
    else
        r->open->last_child->next = element;
    if (r->open != NULL)
        r->open->last_child = element;
}

static void XMLCALL on_start(void *data, const XML_Char *name, const XML_Char **attributes)
{
    struct reader *r = (struct reader *)data;
    int count = 0;
    while (count <= MAX_ATTRIBUTES && attributes[2 * (size_t)count] != NULL)
        count++;
    if (!within_limits(r, count))
        return;
    keep_text(r);
    struct mcp_xml *element = MCP_NEW(r->arena, struct mcp_xml);
    *element = (struct mcp_xml){
        .name = mcp_strdup(r->arena, name),
        .line = (int)XML_GetCurrentLineNumber(r->parser),
        .column = (int)XML_GetCurrentColumnNumber(r->parser) + 1,
        .num_attributes = count,
        .attributes = MCP_ARRAY(r->arena, count, struct mcp_xml_attribute),
        .text = "",
    };
    for (int i = 0; i < count; i++)
        element->attributes[i] =
            (struct mcp_xml_attribute){mcp_strdup(r->arena, attributes[2 * (size_t)i]),
                                       mcp_strdup(r->arena, attributes[2 * (size_t)i + 1])};
    link_child(r, element);
    r->open = element;
    r->depth++;
    r->num_elements++;
}

static void XMLCALL on_end(void *data, const XML_Char *name)
{
    struct reader *r = (struct reader *)data;
    (void)name;
    if (r->refusal != NULL || r->open == NULL)
        return;
    keep_text(r);
    r->open = r->open->parent;
    r->depth--;
}

/* Blanks alone between elements are layout. */
static void XMLCALL on_text(void *data, const XML_Char *text, int length)
{
    struct reader *r = (struct reader *)data;
    bool blank = true;
    for (int i = 0; i < length && blank; i++)
        blank = strchr(" \t\r\n", text[i]) != NULL;
    if (r->refusal == NULL && r->open != NULL && !(blank && r->text.length == 0))
        mcp_text_append(&r->text, text, (size_t)length);
}

static void XMLCALL on_doctype(void *data, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int has_internal_subset)
{
    (void)name, (void)system, (void)public;
    if (has_internal_subset)
        refuse((struct reader *)data, "a DOCTYPE with declarations; entities are not read");
}

static void XMLCALL on_skipped_entity(void *data, const XML_Char *name, int is_parameter)
{
    (void)name, (void)is_parameter;
    refuse((struct reader *)data, "an entity that XML does not define itself");
}

static void set_handlers(struct reader *r)
{
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, on_start, on_end);
    XML_SetCharacterDataHandler(r->parser, on_text);
    XML_SetStartDoctypeDeclHandler(r->parser, on_doctype);
    XML_SetSkippedEntityHandler(r->parser, on_skipped_entity);
}

static enum mcp_status fail(struct reader *r, const char *name, struct mcp_error *err)
{
    const char *problem =
        r->refusal != NULL ? r->refusal : XML_ErrorString(XML_GetErrorCode(r->parser));
    const char *open = "";
    if (r->refusal == NULL)
        mark_place(r);
    if (r->refusal == NULL && r->open != NULL)
        open = mcp_format(r->arena, "; <%.40s> of line %d is not closed",
                          mcp_printable(r->arena, r->open->name), r->open->line);
    return mcp_fail(err, MCP_FORMAT, "%s: line %lu, column %lu: %s%s", name, r->line, r->column,
                    problem, open);
}

enum mcp_status mcp_xml_parse(struct mcp_arena *arena, const char *name, const char *text,
                              size_t length, struct mcp_xml **out, struct mcp_error *err)
{
    struct reader r = {.arena = arena, .text = mcp_text_new(arena)};
    enum mcp_status status = MCP_OK;
    *out = NULL;
    if (length > MCP_MAX_FILE_BYTES || length > INT_MAX)
        return mcp_fail(err, MCP_FORMAT, "%s: larger than 256 MiB", name);
    r.parser = XML_ParserCreate(NULL);
    if (r.parser == NULL)
        return mcp_fail(err, MCP_IO, "%s: expat cannot start", name);
    set_handlers(&r);
    if (XML_Parse(r.parser, text, (int)length, XML_TRUE) != XML_STATUS_OK)
        status = fail(&r, name, err);
    XML_ParserFree(r.parser);
    *out = r.root;
    return status;
}

const char *mcp_xml_attribute(const struct mcp_xml *element, const char *name)
{
    for (int i = 0; i < element->num_attributes; i++)
        if (mcp_same(element->attributes[i].name, name))
            return element->attributes[i].value;
    return NULL;
}

const struct mcp_xml *mcp_xml_named(const struct mcp_xml *element, const char *name)
{
    while (element != NULL && !mcp_same(element->name, name))
        element = element->next;
    return element;
}

const struct mcp_xml *mcp_xml_child(const struct mcp_xml *element, const char *name)
{
    return element == NULL ? NULL : mcp_xml_named(element->first_child, name);
}

const char *mcp_xml_text(struct mcp_arena *arena, const struct mcp_xml *element, const char *path)
{
    while (element != NULL && *path != '\0') {
        size_t length = strcspn(path, "/");
        element = mcp_xml_child(element, mcp_strndup(arena, path, length));
        path += length + (path[length] == '/');
    }
    if (element == NULL)
        return NULL;
    const char *begin = element->text + strspn(element->text, " \t\r\n");
    size_t length = strlen(begin);
    while (length > 0 && strchr(" \t\r\n", begin[length - 1]) != NULL)
        length--;
    return mcp_strndup(arena, begin, length);
}

const struct mcp_xml *mcp_xml_next(const struct mcp_xml *element, const struct mcp_xml *top)
{
    if (element->first_child != NULL)
        return element->first_child;
    while (element != top && element->next == NULL)
        element = element->parent;
    return element == top ? NULL : element->next;
}
