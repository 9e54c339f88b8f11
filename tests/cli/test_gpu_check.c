/* tests/cli/test_gpu_check.c: make gpu-check's script: whole, with the executor on a fake GPU,
 * whose figures mean nothing; and with scripts in the place of programs, each failing in turn. */
#include "core/text.h"
#include "tests/cli/place.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* What is said lies in @/out and @/said. */
static int shell(const struct place *at, const char *commands)
{
    return place_shell(at, mcp_format(at->arena, "{ %s\n} > @/out 2> @/said", commands));
}

/* --- on a fake GPU --- */

static const char fake_settings[] =
    "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 OMP_NUM_THREADS=1\n"
    "export GPU_CHECK_CLUSTER=dgx-h200 GPU_CHECK_DEVICE='echo fake GPU, 1.2'\n"
    "export GPU_CHECK_SMALL='@/model.json 2 16 3' GPU_CHECK_LARGE='@/model.json 4 16 2 2'\n"
    "export GPU_CHECK_ROOFLINES='--repeats 2 --product-size 32 --copy-bytes 65536 "
    "--flush-bytes 4096'\n"
    "tools/gpu_check.sh @";

/* False: there is no executor for CPUs here. */
static bool copy_programs(const struct place *at)
{
    const int status = shell(at, mcp_format(at->arena,
                                            "b=$(dirname %s); [ -x $b/mcpplan-exec-cpu ] || exit 9;"
                                            "cp $b/mcpplan $b/mcpplan-exec-cpu @ && "
                                            "cp $b/tests/cuda/executor @/mcpplan-exec-cuda",
                                            at->program));
    cr_assert(status == 0 || status == 9, "%s", place_content(at, "said"));
    return status == 0;
}

Test(gpu_check, all_parts_run_on_a_fake)
{
    static const char *const found[] = {
        "fake GPU, 1.2;",
        "fp32 losses of 3 steps beside a CPU, apart",
        "Fake H100 reaches",
        "matmul_tn_accumulate    bf16",
        "share of the roofline",
        "memory-bound kernels",
        "attention, backward",
        "  MFU of the fastest step, bf16                    0.0 %     45 %  not met\n",
        "tokens/s of it",
        "as predicted by what calibrate measured",
        "as predicted by the stack mcpplan-cuda alone",
        "32 x 32 x 32 in f8\n",
        "\n  matmul_nt               f8  ",
        "\n  cast_both               bf16",
        "  losses in 8 bits beside a CPU, apart",
        "  products of a plan in 8 bits  ",
        "tokens/s in 8 bits"};
    const struct place at = place_new();
    if (!copy_programs(&at)) {
        cr_log_warn("mcpplan-exec-cpu is not built here: gpu-check is not run");
    } else {
        cr_expect(eq(int, shell(&at, fake_settings), 0), "%s", place_content(&at, "said"));
        const char *out = place_content(&at, "out");
        for (size_t i = 0; i < MCP_COUNT_OF(found); i++)
            cr_expect(strstr(out, found[i]) != NULL, "no '%s' in:\n%s", found[i], out);
    }
    place_leave(&at);
}

/* --- scripts in the place of programs --- */

/* Fails where $BREAK says so, else leaves what a run leaves. */
static const char scripts[] =
    "cat > @/mcpplan << 'END'\n"
    "#!/bin/sh\n"
    "case \"${0##*/} $*\" in *$BREAK*) echo before >&2; echo \"why: $1$WHY\" >&2; exit 7; esac\n"
    "while [ $# -gt 0 ]; do\n"
    "    [ $1 = --backend ] && [ $2 = cuda ] && LOSS=$CUDA_LOSS\n"
    "    [ $1 = --metrics ] && echo \"{\\\"loss\\\": $LOSS}\" > $2\n"
    "    [ $1 = -o ] && echo '\"microbatch_size\": 1' > $2\n"
    "    shift\n"
    "done\n"
    "exit 0\n"
    "END\n"
    "chmod +x @/mcpplan && cp @/mcpplan @/mcpplan-exec-cuda\n"
    "export GPU_CHECK_DEVICE='echo GPU' GPU_CHECK_SMALL='m 1 1 1' LOSS=2\n";

struct check_case {
    char name[48];
    char settings[96];
    int status;
    char says[96];
};

ParameterizedTestParameters(gpu_check, ends)
{
    static struct check_case cases[] = {
        {"all is well", "BREAK=nothing CUDA_LOSS=2.0001", 0, "more in "},
        {"no executor", "rm @/mcpplan-exec-cuda", 0, "gpu-check: not run: mcpplan-exec-cuda is"},
        {"no GPU", "GPU_CHECK_DEVICE=false", 0, "gpu-check: not run: no GPU here"},
        {"no text", "BREAK=tokenize", 1, "gpu-check: data has failed: why: data"},
        {"no plan", "BREAK=fp32", 1, "gpu-check: losses has failed: why: plan"},
        {"no CPU", "BREAK='backend cpu'", 1, "gpu-check: losses has failed: why: train"},
        {"no steps on the GPU", "BREAK='small.json --backend cuda' CUDA_LOSS=2", 1,
         "gpu-check: losses has failed: why: train"},
        {"losses apart", "BREAK=nothing CUDA_LOSS=2.001", 1,
         "gpu-check: losses has failed: those of a CPU and of the GPU lie 5.0e-04 apart"},
        {"a looser limit", "BREAK=nothing CUDA_LOSS=2.001 GPU_CHECK_APART=1e-3", 0, "more in "},
        {"a limit that is no number", "BREAK=nothing CUDA_LOSS=2 GPU_CHECK_APART=nan", 2,
         "gpu-check: GPU_CHECK_APART=nan: not a number of 0 or more"},
        {"a limit below 0", "BREAK=nothing CUDA_LOSS=2 GPU_CHECK_APART=-1", 2,
         "gpu-check: GPU_CHECK_APART=-1: not a number of 0 or more"},
        {"too few words", "BREAK=nothing CUDA_LOSS=2 GPU_CHECK_SMALL='m 1'", 2,
         "gpu-check: GPU_CHECK_SMALL has 2 words, not 4: model"},
        {"too many words", "BREAK=nothing CUDA_LOSS=2 GPU_CHECK_LARGE='m 1 1 1 1 1'", 2,
         "gpu-check: GPU_CHECK_LARGE has 6 words, not 5: "},
        {"a loss that is none", "BREAK=nothing CUDA_LOSS=nan", 1, "losses has failed: those"},
        {"no losses", "BREAK=nothing CUDA_LOSS=", 1, "losses has failed: those"},
        {"no calibration", "BREAK=calibrate CUDA_LOSS=2", 1,
         "gpu-check: calibrate has failed: why: calibrate"},
        {"no plan by it", "BREAK=dump-program CUDA_LOSS=2", 1,
         "gpu-check: plan has failed: why: plan"},
        {"no rooflines", "BREAK=exec-cuda CUDA_LOSS=2", 1,
         "gpu-check: rooflines has failed: why: --rooflines"},
        {"no training", "BREAK='large.json --backend' CUDA_LOSS=2", 1,
         "gpu-check: training has failed: why: train"},
        {"no products in 8 bits",
         "BREAK=fp8 CUDA_LOSS=2 WHY=', with no known rate in precision fp8'", 0,
         "  in 8 bits                                            -           why: plan, with no"},
        {"another reason for none in 8 bits", "BREAK=fp8 CUDA_LOSS=2", 1,
         "gpu-check: losses has failed: why: plan"},
        {"losses in 8 bits apart", "BREAK=nothing CUDA_LOSS=2.03 GPU_CHECK_APART=1", 1,
         "lie 1.5e-02 apart, and may 1e-2"},
        {"a limit of 8 bits that is none", "BREAK=nothing CUDA_LOSS=2 GPU_CHECK_EIGHT=x", 2,
         "gpu-check: GPU_CHECK_EIGHT=x: not a number of 0 or more"},
        {"no plan in 8 bits", "BREAK=large-eight.program CUDA_LOSS=2", 1,
         "gpu-check: plan has failed: why: plan"},
        {"no rooflines in 8 bits", "BREAK='rooflines*large-eight' CUDA_LOSS=2", 1,
         "gpu-check: rooflines has failed: why: --rooflines"},
        {"no training in 8 bits", "BREAK='large-eight.json --backend' CUDA_LOSS=2", 1,
         "gpu-check: training has failed: why: train"},
        {"no comparison", "BREAK='mcpplan compare' CUDA_LOSS=2", 1,
         "gpu-check: compare has failed: why: compare"},
    };
    return cr_make_param_array(struct check_case, cases, MCP_COUNT_OF(cases));
}
ParameterizedTest(struct check_case *c, gpu_check, ends)
{
    const struct place at = place_new();
    const char *set = mcp_starts_with(c->settings, "rm ") ? "" : "export ";
    const int status =
        shell(&at, mcp_format(at.arena, "%s%s%s\ntools/gpu_check.sh @", scripts, set, c->settings));
    const char *said =
        mcp_format(at.arena, "%s%s", place_content(&at, "said"), place_content(&at, "out"));
    cr_expect(eq(int, status, c->status), "%s: %s", c->name, said);
    cr_expect(strstr(said, c->says) != NULL, "%s: %s", c->name, said);
    place_leave(&at);
}

Test(gpu_check, is_told_where)
{
    const struct place at = place_new();
    cr_expect(eq(int, shell(&at, "tools/gpu_check.sh"), 2));
    cr_expect(strstr(place_content(&at, "said"), "usage: tools/gpu_check.sh BUILD") != NULL);
    cr_expect(eq(
        int, shell(&at, mcp_format(at.arena, "%ss=$PWD/tools/gpu_check.sh; cd @ && $s @", scripts)),
        2));
    cr_expect(strstr(place_content(&at, "said"), "there is no examples/text here") != NULL);
    place_leave(&at);
}
