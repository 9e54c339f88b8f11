/* cli/options.h: one table per command: parser, --help and man page.
 *
 *     struct plan_args args = {.top = 5};
 *     const struct mcp_option options[] = {
 *         {"Search", MCP_OPT_HEADING, NULL, NULL},
 *         {"top", MCP_OPT_COUNT, &args.top, "plans to keep"},
 *     };
 *     const struct mcp_usage usage = {
 *         .command = "plan",
 *         .summary = "find the fastest legal way to split a model over a cluster",
 *         .synopsis = "--model M --cluster C --global-batch-size B [options]",
 *         .options = options,
 *         .num_options = MCP_COUNT_OF(options),
 *         .examples = "mcpplan plan --model llama-3.1-8b --cluster dgx-h100 --global-batch-size 256\n",
 *     };
 *     if (!mcp_options_parse(ctx, &usage, argc, argv))
 *         return ctx->status;
 *
 * The value an argument has before parsing is the default that help shows.
 * -h, --help, --json, -o FILE, --no-color and --version are understood by every
 * command and set in the context. Options and operands may mix; -- ends options;
 * an unambiguous beginning of a name will do. */
#ifndef MCP_CLI_OPTIONS_H
#define MCP_CLI_OPTIONS_H

#include "cli/output.h"
#include "core/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mcp_option_type {
    MCP_OPT_HEADING, /* begins a group in help; value and help are NULL */
    MCP_OPT_FLAG,    /* bool: given or not */
    MCP_OPT_INT,     /* int >= 0; a negative default means not given */
    MCP_OPT_COUNT,   /* int >= 1; a default of 0 means not given */
    MCP_OPT_INT64,   /* int64_t >= 0; a negative default means not given */
    MCP_OPT_COUNT64, /* int64_t >= 1; a default of 0 means not given */
    MCP_OPT_DOUBLE,  /* finite double >= 0; a NaN default means not given */
    MCP_OPT_FRAC,    /* double in 0..1; likewise */
    MCP_OPT_STRING,  /* const char *, never empty; NULL means not given */
    MCP_OPT_FILE,    /* the same, shown as FILE */
    MCP_OPT_LIST,    /* struct mcp_strings: may be repeated */
    MCP_OPT_RANGE,   /* struct mcp_range: "8" or "1..8" */
    MCP_OPT_CHOICE   /* struct mcp_choice: one of its names */
};

struct mcp_strings {
    int count;
    const char **items;
};

struct mcp_range { /* 1 <= low <= high; {0, 0} means not given */
    int low, high;
};

struct mcp_choice {
    int value; /* index in names; -1 means not given */
    const char *const *names;
    int count;
};

/* Names of a choice that is a switch: "off", "on". */
extern const char *const mcp_off_on[2];

struct mcp_option {
    const char *name; /* "tensor-parallel": the JSON key with '-' for '_' */
    enum mcp_option_type type;
    void *value;
    const char *help; /* a phrase without capital or full stop */
};

struct mcp_usage {
    const char *command;            /* "plan" */
    const char *summary;            /* a phrase */
    const char *synopsis;           /* what follows "mcpplan plan " */
    const char *description;        /* paragraphs for help and manual, or NULL */
    int min_operands, max_operands; /* max -1: any number */
    const struct mcp_option *options;
    size_t num_options;
    const char *examples; /* command lines, each with its newline, or NULL */
};

/* True: go on. False: return ctx->status; help or version was printed (MCP_OK),
 * or ctx->err says what is wrong (MCP_USAGE). */
bool mcp_options_parse(struct mcp_context *ctx, const struct mcp_usage *usage, int argc,
                       char **argv);

/* Fails with MCP_USAGE when the option `name` has no value. */
enum mcp_status mcp_options_need(const struct mcp_usage *usage, const char *name,
                                 struct mcp_error *err);

/* Fails with MCP_USAGE, saying `why`, when the option `name` has a value. */
enum mcp_status mcp_options_refuse(const struct mcp_usage *usage, const char *name, const char *why,
                                   struct mcp_error *err);

/* --version. */
enum mcp_status mcp_print_version(struct mcp_context *ctx);

/* The options of every command; their values are the parser's. */
enum { MCP_NUM_COMMON = 5 };
extern const struct mcp_option mcp_common_options[MCP_NUM_COMMON];

/* cli/help.c: --help. */
void mcp_options_help(struct mcp_text *out, const struct mcp_style *style,
                      const struct mcp_usage *usage);
void mcp_exit_codes_help(struct mcp_text *out, const struct mcp_style *style);
/* A command's part of mcpplan(1), and what follows the last one. */
void mcp_options_man(struct mcp_text *out, const struct mcp_usage *usage);
void mcp_man_end(struct mcp_text *out);

/* "a, b or c" for messages and help. */
const char *mcp_choice_names(struct mcp_arena *arena, const struct mcp_choice *choice);

#endif
