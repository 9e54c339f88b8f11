/* tests/cuda/kit.h: what tests of kernels share: numbers of either format in memory of exact
 * size, and comparison with a reference in double precision.
 *
 * A test is a function of no arguments; TEST(name) makes it one of the program's. The program
 * runs all of them, or those that its argument is the beginning of, in each order of threads. */
#ifndef MCP_TESTS_CUDA_KIT_H
#define MCP_TESTS_CUDA_KIT_H

#include "exec/cuda_kernels.h"
#include "shim.h"

#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

struct kit_test {
    const char *name;
    void (*run)();
};
std::vector<kit_test> &kit_tests();
std::vector<kit_test> &kit_faults(); /* kernels that end their process: kernels fault NAME */
struct kit_registered {
    kit_registered(std::vector<kit_test> &where, const char *name, void (*run)())
    {
        where.push_back({name, run});
    }
};
#define TEST(name)                                                                                 \
    static void test_##name();                                                                     \
    static const kit_registered registered_##name(kit_tests(), #name, test_##name);                \
    static void test_##name()

/* The test goes on; at most a few are printed. */
void kit_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

constexpr mcp_cuda_format kit_formats[] = {MCP_CUDA_F32, MCP_CUDA_BF16, MCP_CUDA_F16};
/* Relative error of one rounding. */
double kit_rounding(mcp_cuda_format format);

/* Device memory: of exact size, so that AddressSanitizer sees its bounds; NaNs at first. */
class kit_array
{
  public:
    kit_array(mcp_cuda_format format, int64_t elements, int64_t offset = 0);
    ~kit_array();
    kit_array(const kit_array &) = delete;
    kit_array &operator=(const kit_array &) = delete;

    operator mcp_cuda_array() const
    {
        return at(0);
    }
    mcp_cuda_array at(int64_t element) const;
    double get(int64_t i) const;
    void set(int64_t i, double value);
    /* Numbers of a fixed sequence, of this mean and spread, rounded as they are stored. */
    void fill(double mean, double spread, unsigned seed);
    std::vector<double> values() const;

    const mcp_cuda_format format;
    const int64_t elements;

  private:
    unsigned char *memory;
    const int64_t offset; /* elements before the first: breaks its alignment */
};

template <class T> class kit_memory
{
  public:
    explicit kit_memory(int64_t count)
        : data(static_cast<T *>(malloc(static_cast<size_t>(count) * sizeof(T) + (count == 0)))),
          count(count)
    {
        memset(data, 0xff, static_cast<size_t>(count) * sizeof(T));
    }
    ~kit_memory()
    {
        free(data);
    }
    kit_memory(const kit_memory &) = delete;
    kit_memory &operator=(const kit_memory &) = delete;
    operator T *() const
    {
        return data;
    }
    std::vector<double> values() const
    {
        return std::vector<double>(data, data + count);
    }
    T *const data;
    const int64_t count;
};

double kit_random(unsigned *state); /* in [-1, 1) */
/* The queue that tests use. */
const mcp_cuda_queue *kit_queue();

/* |got - want| <= absolute + relative |want| everywhere; NaN only where NaN is wanted. */
struct kit_tolerance {
    double relative, absolute;
};
void kit_compare(const std::vector<double> &got, const std::vector<double> &want,
                 kit_tolerance tolerance, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
