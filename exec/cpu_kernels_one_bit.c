/* exec/cpu_kernels_one_bit.c: signs and scales of 1-bit Adam: step/layer_data.h has the
 * arithmetic, step/function.h the dimensions.
 *
 * Bit i % 8 of byte i / 8 is 1 where element i is below 0. */
#include "exec/cpu_kernels_parts.h"

#include <math.h>

/* A step that moves no weight: nor does it move momenta and errors. `read` is of scalars. */
static bool is_skipped(const struct mcp_launch *launch, int read)
{
    return ((const float *)launch->reads[read])[MCP_SCALAR_SKIPPED] > 0;
}

/* reads a value, errors, scalars; writes errors: their sum */
void mcp_cpu_add_error(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    const struct mcp_span s = mcp_span_of(launch, launch->op->reads[1]);
    const float *value = (const float *)launch->reads[0] + d[3];
    float *error = (float *)launch->writes[0] + d[2];
    if (is_skipped(launch, 2))
        return;
#pragma omp parallel for simd schedule(static) if (s.real > MCP_SERIAL)
    for (int64_t i = 0; i < s.real; i++)
        error[i] += value[i];
}

struct sum {
    double squares;
    int64_t count;
};

static struct sum sum_of(const float *u, const float *variance, int64_t count)
{
    struct sum sum = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        sum.squares += variance[i] > 0 ? (double)u[i] * (double)u[i] : 0;
        sum.count += variance[i] > 0;
    }
    return sum;
}

/* ||u|| / sqrt(n) of what is not masked: pieces of a fixed size, added in their order
 * whatever the threads. */
static float scale_of(const float *u, const float *variance, int64_t count)
{
    enum { PIECE = 1 << 14, PIECES = 64 };
    struct sum all = {0, 0};
    for (int64_t from = 0; from < count; from += (int64_t)PIECE * PIECES) {
        struct sum sums[PIECES] = {{0, 0}};
        int64_t left = count - from, pieces = (left + PIECE - 1) / PIECE;
        pieces = pieces < PIECES ? pieces : PIECES;
#pragma omp parallel for schedule(static) if (pieces > 1)
        for (int64_t p = 0; p < pieces; p++) {
            int64_t at = from + p * PIECE;
            sums[p] = sum_of(u + at, variance + at, count - at < PIECE ? count - at : PIECE);
        }
        for (int64_t p = 0; p < pieces; p++) {
            all.squares += sums[p].squares;
            all.count += sums[p].count;
        }
    }
    return all.count == 0 ? 0 : (float)sqrt(all.squares / (double)all.count);
}

/* Eight elements: their signs, and their errors in place of themselves. */
static unsigned char sign_byte(float *u, const float *variance, int count, float scale)
{
    unsigned bits = 0;
    for (int i = 0; i < count; i++) {
        bool below = u[i] < 0;
        bits |= (unsigned)below << i;
        u[i] = variance[i] > 0 ? u[i] - (below ? -scale : scale) : 0;
    }
    return (unsigned char)bits;
}

/* reads errors with what they were added to, state, scalars; writes signs, scale, errors */
void mcp_cpu_compress_signs(const struct mcp_launch *launch)
{
    const int64_t *d = launch->op->dims;
    const struct mcp_span s = mcp_span_of(launch, launch->op->reads[0]);
    const float *variance = (const float *)launch->reads[1] + d[3] + s.first;
    float *u = (float *)launch->writes[2] + d[2];
    unsigned char *signs = launch->writes[0];
    if (is_skipped(launch, 2)) {
        memset(signs, 0, (size_t)launch->write_bytes[0]);
        *(float *)launch->writes[1] = 0;
        return;
    }
    float scale = scale_of(u, variance, s.real);
    *(float *)launch->writes[1] = scale;
#pragma omp parallel for schedule(static) if (s.real > MCP_SERIAL)
    for (int64_t i = 0; i < s.elements; i += 8) {
        int64_t left = s.real - i;
        int count = left < 0 ? 0 : left < 8 ? (int)left : 8;
        signs[i / 8] = sign_byte(u + i, variance + i, count, scale);
    }
}

static float signed_scale(const unsigned char *signs, int64_t i, float scale)
{
    return (signs[i / 8] >> (i % 8) & 1) != 0 ? -scale : scale;
}

/* reads signs [ranks][own / 8], scales [ranks]; writes their mean [own], in the members' order */
void mcp_cpu_average_signs(const struct mcp_launch *launch)
{
    int64_t own = launch->op->dims[0], ranks = launch->op->dims[1];
    const unsigned char *signs = launch->reads[0];
    const float *scales = launch->reads[1];
    float *average = launch->writes[0];
#pragma omp parallel for schedule(static) if (own > MCP_SERIAL)
    for (int64_t i = 0; i < own; i++) {
        float sum = 0;
        for (int64_t r = 0; r < ranks; r++)
            sum += signed_scale(signs + r * (own / 8), i, scales[r]);
        average[i] = sum / (float)ranks;
    }
}

/* reads signs of all averages, a scale from each rank, state, scalars; writes the state's first
 * moments */
void mcp_cpu_decompress_signs(const struct mcp_launch *launch)
{
    int64_t elements = launch->op->dims[0];
    int64_t ranks = launch->read_bytes[1] / 4, own = launch->read_bytes[0] * 8 / ranks;
    const unsigned char *signs = launch->reads[0];
    const float *scales = launch->reads[1];
    float *moment = (float *)launch->writes[0] + launch->op->dims[2];
    if (is_skipped(launch, 3))
        return;
#pragma omp parallel for schedule(static) if (elements > MCP_SERIAL)
    for (int64_t i = 0; i < elements; i++)
        moment[i] = signed_scale(signs, i, scales[i / own]);
}
