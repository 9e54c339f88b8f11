/* tests/cuda/kit.cc: kit.h, and the program: kernels [NAME]. */
#include "kit.h"

static int failures;

std::vector<kit_test> &kit_tests()
{
    static std::vector<kit_test> tests;
    return tests;
}

std::vector<kit_test> &kit_faults()
{
    static std::vector<kit_test> faults;
    return faults;
}

static void fail(const std::string &text)
{
    if (failures++ < 20)
        fprintf(stderr, "%s\n", text.c_str());
}

static std::string text_of(const char *format, va_list arguments)
{
    char text[2400];
    vsnprintf(text, sizeof text, format, arguments);
    return text;
}

void kit_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fail(text_of(format, arguments));
    va_end(arguments);
}

double kit_rounding(mcp_cuda_format format)
{
    return format == MCP_CUDA_F32 ? 6e-8 : format == MCP_CUDA_BF16 ? 1.0 / 256 : 1.0 / 2048;
}

static int64_t size_of(mcp_cuda_format format)
{
    return format == MCP_CUDA_F32 ? 4 : 2;
}

kit_array::kit_array(mcp_cuda_format format_, int64_t elements_, int64_t offset_)
    : format(format_), elements(elements_), offset(offset_)
{
    const auto bytes = static_cast<size_t>((elements + offset) * size_of(format));
    memory = static_cast<unsigned char *>(malloc(bytes + (bytes == 0)));
    memset(memory, 0xff, bytes);
}

kit_array::~kit_array()
{
    free(memory);
}

mcp_cuda_array kit_array::at(int64_t element) const
{
    return {memory + (offset + element) * size_of(format), format};
}

double kit_array::get(int64_t i) const
{
    const void *from = at(i).data;
    float value;
    __nv_bfloat16 bf16;
    __half half;
    switch (format) {
    case MCP_CUDA_F32:
        memcpy(&value, from, sizeof value);
        return static_cast<double>(value);
    case MCP_CUDA_BF16:
        memcpy(&bf16, from, sizeof bf16);
        return static_cast<double>(__bfloat162float(bf16));
    default:
        memcpy(&half, from, sizeof half);
        return static_cast<double>(__half2float(half));
    }
}

void kit_array::set(int64_t i, double value)
{
    void *to = at(i).data;
    const auto single = static_cast<float>(value);
    const __nv_bfloat16 bf16 = __float2bfloat16_rn(single);
    const __half half = __float2half_rn(single);
    switch (format) {
    case MCP_CUDA_F32:
        memcpy(to, &single, sizeof single);
        return;
    case MCP_CUDA_BF16:
        memcpy(to, &bf16, sizeof bf16);
        return;
    default:
        memcpy(to, &half, sizeof half);
    }
}

void kit_array::fill(double mean, double spread, unsigned seed)
{
    for (int64_t i = 0; i < elements; i++)
        set(i, mean + spread * kit_random(&seed));
}

std::vector<double> kit_array::values() const
{
    std::vector<double> out(static_cast<size_t>(elements));
    for (int64_t i = 0; i < elements; i++)
        out[static_cast<size_t>(i)] = get(i);
    return out;
}

double kit_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    unsigned x = *state;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 13;
    return static_cast<double>(x) / 2147483648.0 - 1;
}

const mcp_cuda_queue *kit_queue()
{
    static kit_memory<unsigned char> scratch(MCP_CUDA_SCRATCH_BYTES);
    static const mcp_cuda_queue queue = {nullptr, scratch};
    return &queue;
}

void kit_compare(const std::vector<double> &got, const std::vector<double> &want,
                 kit_tolerance tolerance, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const std::string what = text_of(format, arguments);
    va_end(arguments);
    if (got.size() != want.size())
        fail(what + ": sizes differ");
    for (size_t i = 0; i < got.size() && i < want.size(); i++) {
        const double limit = tolerance.absolute + tolerance.relative * std::fabs(want[i]);
        const bool same = std::isnan(want[i])
                              ? std::isnan(got[i])
                              : got[i] == want[i] || std::fabs(got[i] - want[i]) <= limit;
        if (same)
            continue;
        char numbers[120];
        snprintf(numbers, sizeof numbers, ": [%zu] %.9g, not %.9g", i, got[i], want[i]);
        fail(what + numbers);
        return;
    }
}

/* A race shows in any order; ThreadSanitizer is slow. */
#if defined(__SANITIZE_THREAD__)
constexpr int first_order = MCP_SHIM_SHUFFLED;
#else
constexpr int first_order = MCP_SHIM_ASCENDING;
#endif

static int run_fault(const char *name)
{
    for (const kit_test &fault : kit_faults())
        if (strcmp(fault.name, name) == 0)
            fault.run();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return run_fault(argv[2]);
    static const char *const names[] = {"ascending", "descending", "shuffled"};
    const char *begins = argc > 1 ? argv[1] : "";
    const int orders = MCP_SHIM_SHUFFLED + 1 - first_order;
    int run = 0, failed = 0;
    for (const kit_test &test : kit_tests()) {
        if (strncmp(test.name, begins, strlen(begins)) != 0)
            continue;
        for (int order = first_order; order <= MCP_SHIM_SHUFFLED; order++) {
            mcp_shim_set_order(static_cast<mcp_shim_order>(order));
            failures = 0;
            test.run();
            run++;
            failed += failures > 0;
            if (failures > 0)
                fprintf(stderr, "FAILED %s, threads %s\n", test.name, names[order]);
        }
    }
    printf("kernels: %d tests in %d orders of threads, %d failed\n", run / orders, orders, failed);
    return failed > 0 || run == 0;
}
