/* topologies/xml.h: an XML file as a tree of elements, through expat (the only door
 * to it).
 *
 * What no machine description needs and an attacker does is refused: DTDs with
 * declarations inside the file, and so all entities of one's own; more than 128
 * levels, 256 attributes of an element, a million elements. Files that a DOCTYPE
 * names are never opened. Time and memory are linear in the text. */
#ifndef MCP_TOPOLOGIES_XML_H
#define MCP_TOPOLOGIES_XML_H

#include "core/arena.h"
#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

struct mcp_xml_attribute {
    const char *name;
    const char *value;
};

struct mcp_xml {
    const char *name;
    int line, column; /* of its tag, from 1 */
    int num_attributes;
    struct mcp_xml_attribute *attributes; /* [num_attributes] */
    const char *text;                     /* the first run within it, "": none */
    struct mcp_xml *parent;
    struct mcp_xml *first_child;
    struct mcp_xml *last_child;
    struct mcp_xml *next; /* of the same parent */
};

/* `name` stands for the file in messages, which name line and column. On failure *out
 * is what was read before the mistake, NULL when that is nothing. */
enum mcp_status mcp_xml_parse(struct mcp_arena *arena, const char *name, const char *text,
                              size_t length, struct mcp_xml **out, struct mcp_error *err);

/* NULL when there is none. */
const char *mcp_xml_attribute(const struct mcp_xml *element, const char *name);
const struct mcp_xml *mcp_xml_child(const struct mcp_xml *element, const char *name);
/* The next sibling of that name, from `element` on, itself included. */
const struct mcp_xml *mcp_xml_named(const struct mcp_xml *element, const char *name);
/* Text without blanks around it of the element at a path "a/b/c"; NULL: no such. */
const char *mcp_xml_text(struct mcp_arena *arena, const struct mcp_xml *element, const char *path);

/* The next element of the whole tree below `top`, depth first; NULL at the end. */
const struct mcp_xml *mcp_xml_next(const struct mcp_xml *element, const struct mcp_xml *top);

#endif
