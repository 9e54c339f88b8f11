/* core/version.h: which mcpplan this is, of all its programs. */
#ifndef MCP_CORE_VERSION_H
#define MCP_CORE_VERSION_H

#define MCP_VERSION "0.1.0"

#endif
