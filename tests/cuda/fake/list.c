/* tests/cuda/fake/list.c: what a test says when ranks are stuck, or have asked for nonsense. */
#include "tests/cuda/fake/parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static size_t add_text(char *text, size_t size, size_t used, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = used < size ? vsnprintf(text + used, size - used, format, args) : 0;
    va_end(args);
    return used + (more > 0 ? (size_t)more : 0);
}

static void tell_op(const struct fake_op *op, char *text, size_t size)
{
    if (op->calls == NULL)
        snprintf(text, size, "%s place %ld of device %d stream %d", op->waits ? "waits for" : "is",
                 op->mark->position, op->mark->stream->device, op->mark->stream->index);
    else if (op->calls->tell != NULL)
        op->calls->tell(op, text, size);
    else
        snprintf(text, size, "%s", op->name);
}

void fake_list(char *text, size_t size)
{
    size_t used = 0;
    char what[160];
    *text = '\0';
    const struct CUstream_st *s;
    for (int i = 0; (s = fake_stream_at(i)) != NULL; i++) {
        if (s->head == NULL)
            continue;
        tell_op(s->head, what, sizeof what);
        used = add_text(text, size, used,
                        "device %d stream %d: %ld ops, the first (place %ld): %s\n", s->device,
                        s->index, s->pushed - s->head->position + 1, s->head->position, what);
    }
    for (const struct waiter *w = fake_waiters(); w != NULL; w = w->next)
        used =
            add_text(text, size, used, "rank of device %d %s place %ld of stream %d\n", w->device,
                     w->asks ? "asks for" : "waits for", w->mark->position, w->mark->stream->index);
}

_Noreturn void fake_stop(const char *format, ...)
{
    static char text[16384];
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake GPU: ");
    vfprintf(stderr, format, args);
    va_end(args);
    fake_list(text, sizeof text);
    fprintf(stderr, "\n%s", text);
    abort();
}
