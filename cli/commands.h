/* cli/commands.h: the commands; each lives in cli/cmd_NAME.c and opens with its
 * option table.
 *
 * argv[0] is the command's name. A command returns the program's exit code; when
 * it fails, ctx->err holds the sentence that main prints. */
#ifndef MCP_CLI_COMMANDS_H
#define MCP_CLI_COMMANDS_H

#include "cli/options.h"
#include "cli/output.h"
#include "core/error.h"
#include "core/version.h"

enum mcp_status mcp_cmd_plan(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_sim(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_model(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_topo(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_validate(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_compare(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_data(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_train(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_calibrate(struct mcp_context *ctx, int argc, char **argv);
enum mcp_status mcp_cmd_capacity(struct mcp_context *ctx, int argc, char **argv);

#endif
