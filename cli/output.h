/* cli/output.h: what a command knows about its caller, and how it answers.
 *
 * Results go to stdout, checked to the last byte; notes go to stderr. */
#ifndef MCP_CLI_OUTPUT_H
#define MCP_CLI_OUTPUT_H

#include "core/arena.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "reports/style.h"

#include <stdbool.h>

struct mcp_usage; /* cli/options.h */

/* One run of one command. */
struct mcp_context {
    struct mcp_arena *arena; /* lives until the process ends */
    struct mcp_error err;    /* a failing command's sentence; main prints it */
    struct mcp_style style;  /* of stdout */
    bool json;               /* --json */
    const char *output_path; /* -o FILE, or NULL */
    int num_operands;        /* what is no option */
    char **operands;
    enum mcp_status status; /* to return when mcp_options_parse() says false */
    /* Not NULL: commands do not run, their usage is described to this text. */
    void (*describe)(struct mcp_text *out, const struct mcp_usage *usage);
    struct mcp_text *description;
};

/* Colours unless NO_COLOR (not empty), TERM=dumb or no terminal; UTF-8 as LC_ALL,
 * LC_CTYPE or LANG say; the width from COLUMNS, the terminal, else 100. */
struct mcp_style mcp_style_of_stdout(void);

/* A descriptor 0..2 that the caller closed is opened such that using it fails,
 * so that no file of ours becomes stdout. */
void mcp_output_guard_descriptors(void);

/* The answer: `json` on stdout under --json, else `text`; and `json` into -o
 * FILE when given. MCP_IO when a byte could not be written. */
enum mcp_status mcp_output_result(struct mcp_context *ctx, const struct mcp_text *text,
                                  const struct mcp_json *json);

/* Before work that takes long: MCP_IO where -o FILE could not be written after it. */
enum mcp_status mcp_output_check_place(struct mcp_context *ctx);

/* The parts of it, for commands whose -o FILE is another document. */
enum mcp_status mcp_output_text(const struct mcp_text *text, struct mcp_error *err);
enum mcp_status mcp_output_file(struct mcp_context *ctx, const char *path,
                                const struct mcp_json *json);

/* A new folder for files that this run needs and removes, below TMPDIR or /tmp. */
enum mcp_status mcp_temporary_folder(struct mcp_context *ctx, const char **out);

/* A word of the user's for a message: printable, its end cut off when long. */
const char *mcp_shown(struct mcp_arena *arena, const char *word);

/* Seconds since some moment, for what is told while work goes on. */
double mcp_now_s(void);

/* "mcpplan: note: SENTENCE" on stderr. */
void mcp_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
