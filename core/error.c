/* core/error.c: how every function that can fail says so. */
#include "core/error.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum mcp_status mcp_fail(struct mcp_error *err, enum mcp_status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}

void mcp_error_prefix(struct mcp_error *err, const char *prefix)
{
    if (err == NULL)
        return;
    size_t room = sizeof err->text - 1;
    size_t added = strlen(prefix) + 2;
    if (added > room)
        return; /* a sentence without its place beats a place without sentence */
    size_t kept = strlen(err->text);
    if (kept > room - added)
        kept = room - added;
    memmove(err->text + added, err->text, kept);
    memcpy(err->text, prefix, added - 2);
    memcpy(err->text + added - 2, ": ", 2);
    err->text[added + kept] = '\0';
}

bool mcp_error_names_rank(const char *sentence)
{
    static const char word[] = "rank ";
    const size_t length = strlen(word);
    if (strncmp(sentence, word, length) != 0)
        return false;
    const size_t digits = strspn(sentence + length, "0123456789");
    const char after = sentence[length + digits];
    return digits > 0 && strchr(" ,:'", after) != NULL; /* the end too */
}
