/* topologies/cpuinfo.c: how fast a core can multiply, from /proc/cpuinfo's text. */
#include "topologies/cpuinfo.h"

#include "core/text.h"

#include <string.h>

struct vectors {
    const char *flags[2]; /* all of them must be there */
    const char *name;
    int flops_per_cycle;
};

/* Widest first. */
static const struct vectors known[] = {
    {{"avx512f", NULL}, "AVX-512", 64}, {{"avx2", "fma"}, "AVX2", 32},  {{"avx", NULL}, "AVX", 16},
    {{"sse2", NULL}, "SSE2", 8},        {{"asimd", NULL}, "ASIMD", 16},
};

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void read_flags(const char *flags, struct mcp_cpuinfo *out)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct vectors *v = &known[i];
        if (!has_word(flags, v->flags[0]) || (v->flags[1] != NULL && !has_word(flags, v->flags[1])))
            continue;
        out->vectors = v->name;
        out->flops_per_cycle = v->flops_per_cycle;
        return;
    }
}

static void read_line(const char *key, const char *value, struct mcp_cpuinfo *out)
{
    double megahertz;
    if (mcp_starts_with(key, "model name") && out->model == NULL)
        out->model = value;
    else if ((mcp_starts_with(key, "flags") || mcp_starts_with(key, "Features")) &&
             out->vectors == NULL)
        read_flags(value, out);
    else if (mcp_starts_with(key, "cpu MHz") && mcp_parse_double(value, &megahertz) &&
             megahertz * 1e6 > out->clock_hz)
        out->clock_hz = megahertz * 1e6;
}

struct mcp_cpuinfo mcp_cpuinfo_parse(struct mcp_arena *arena, const char *text)
{
    struct mcp_cpuinfo out = {0};
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        char *line = mcp_strndup(arena, text, length);
        char *colon = strchr(line, ':');
        if (colon != NULL) {
            const char *value = colon + 1 + strspn(colon + 1, " \t");
            *colon = '\0';
            read_line(line, value, &out);
        }
        text += length + (text[length] == '\n');
    }
    return out;
}
