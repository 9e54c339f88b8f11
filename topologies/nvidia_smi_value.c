/* topologies/nvidia_smi_value.c: single values as nvidia-smi prints them. */
#include "topologies/nvidia_smi_parts.h"

#include "core/text.h"

#include <ctype.h>
#include <string.h>

const char *mcp_smi_known(const char *text)
{
    static const char *const unknown[] = {
        "N/A",           "Not Supported", "Requested functionality has been deprecated",
        "Unknown Error", "Unknown",       "Insufficient Permissions",
        "GPU is lost",   "None",
    };
    if (text == NULL || text[0] == '\0' || text[0] == '[')
        return NULL;
    for (size_t i = 0; i < MCP_COUNT_OF(unknown); i++)
        if (mcp_same(text, unknown[i]))
            return NULL;
    return text;
}

enum mcp_status mcp_smi_quantity(struct mcp_arena *arena, const char *text, const char *unit,
                                 enum mcp_dimension dimension, double *out, struct mcp_error *err)
{
    double number;
    if (mcp_smi_known(text) == NULL)
        return MCP_OK;
    if (mcp_parse_double(text, &number))
        text = mcp_format(arena, "%s %s", text, unit);
    MCP_TRY(mcp_quantity_parse(text, dimension, &number, err));
    if (number > 0x1p60)
        return mcp_fail(err, MCP_FORMAT, "'%.40s' is too large", mcp_printable(arena, text));
    *out = number;
    return MCP_OK;
}

int mcp_smi_read_number(const char **at)
{
    int number = 0;
    if (!isdigit((unsigned char)**at))
        return -1;
    for (; isdigit((unsigned char)**at); (*at)++)
        number = number < 100000 ? number * 10 + (**at - '0') : number;
    return number;
}

int mcp_smi_small_number(const char *text)
{
    int number = 0;
    if (text == NULL)
        return 0;
    text += *text == 'x';
    for (; isdigit((unsigned char)*text) && number < 1000; text++)
        number = number * 10 + (*text - '0');
    return number < 1000 ? number : 0;
}
