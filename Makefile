# mcpplan. `make help` lists the targets; every variable below can be set on the
# command line or in config.mk.
-include config.mk

CONFIG       ?= release
BUILD        ?= build/$(CONFIG)
PREFIX       ?= /usr/local
V            ?= 0
WERROR       ?= 0
FUZZ_SECONDS ?= 10
KILLS        ?= 50
MCP_SHARED   ?= ../shared
export MCP_SHARED
Q            := $(if $(filter 0,$(V)),@)

CPPFLAGS += -I. -D_XOPEN_SOURCE=700
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wvla -Wdouble-promotion -Wformat=2 -Wwrite-strings -Wundef \
            $(if $(filter 1,$(WERROR)),-Werror) \
            $(if $(findstring clang,$(CC)),-Wno-double-promotion) # its INFINITY is a float
CFLAGS_release := -O2 -g
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all \
                  -Wno-format-truncation # its checks mislead gcc
CFLAGS_tsan    := -O1 -g -fsanitize=thread
CFLAGS_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
CFLAGS   ?= $(CFLAGS_$(CONFIG))
override CFLAGS += -std=c11 $(WARNINGS)

CLANG_DEPS := clang libclang-rt-dev libomp-dev

FOLDERS   := core step topologies planner sim exec reports cli
# What a backend's libraries are wanted for is in the executors alone; its kernels are tested.
CPU_SRC   := $(wildcard exec/cpu_*.c)
KERNELS   := $(wildcard exec/cpu_kernel*.c exec/cpu_blas.c)
CUDA_SRC  := $(wildcard exec/cuda_*.c)
LIB_SRC   := $(filter-out $(CPU_SRC) $(CUDA_SRC) exec/main_%,$(wildcard $(addsuffix /*.c,$(filter-out cli,$(FOLDERS)))))
CLI_SRC   := $(wildcard cli/*.c)
HEADERS   := $(wildcard $(addsuffix /*.h,$(FOLDERS)))
BENCH_SRC := $(wildcard tests/bench/*.c)
FUZZ_SRC  := $(wildcard tests/fuzz/fuzz_*.c)
RANKS_SRC := $(wildcard tests/exec/ranks*.c)
CUDA_RANKS := $(wildcard tests/cuda/ranks_*.c)
CUDA_EXECUTOR := tests/cuda/executor.c
FAKE_SRC  := $(wildcard tests/cuda/fake/*.c)
DOOR_SRC  := $(addprefix exec/cuda_,$(addsuffix .c,runtime blas nccl wait streams))
TEST_SRC  := $(filter-out tests/bench/% tests/fuzz/% $(CUDA_RANKS) $(CUDA_EXECUTOR) $(filter-out %_cases.c,$(RANKS_SRC)), \
               $(wildcard tests/*/*.c))
PRESETS   := $(wildcard models/*.json topologies/*.json topologies/gpus/*.json stacks/*.json \
                        reports/page.*)
MAIN_SRC  := $(wildcard exec/main_*.c)
ALL_C     := $(LIB_SRC) $(CLI_SRC) $(CPU_SRC) $(CUDA_SRC) $(MAIN_SRC) $(TEST_SRC) $(RANKS_SRC) \
             $(CUDA_RANKS) $(CUDA_EXECUTOR) $(FAKE_SRC) $(BENCH_SRC) $(FUZZ_SRC)
obj        = $(patsubst %,$(BUILD)/%.o,$(1))

# Each library is wanted by one file alone.
LDLIBS += -ljansson $(if $(wildcard planner/ilp.c),-lglpk) \
          $(if $(wildcard topologies/hwloc.c),-lhwloc) $(if $(wildcard topologies/xml.c),-lexpat) \
          $(if $(wildcard topologies/nvml.c),-ldl) -lm
OPENMP := $(if $(wildcard planner/search.c),-fopenmp)
# The executor is a program of its own: mcpplan links neither MPI nor BLAS.
BLAS   := -lopenblas
MPI_CC := $(shell command -v mpicc 2> /dev/null)
MPI_LIBS := $(if $(MPI_CC),$(shell $(MPI_CC) --showme:link 2> /dev/null))
# CUDA=0: nothing of CUDA's toolkit, though it may be here. Kernels are played by the host in tests.
CUDA      ?= 1
NVCC      ?= $(if $(filter-out 0,$(CUDA)),$(firstword $(shell command -v nvcc 2> /dev/null) $(wildcard /usr/local/cuda/bin/nvcc)))
CUDA_HOME := $(if $(NVCC),$(patsubst %/bin/nvcc,%,$(realpath $(NVCC))))
CUDA_LIBS  = $(addprefix -L,$(wildcard $(CUDA_HOME)/lib64 $(CUDA_HOME)/lib)) -lcublasLt -lnccl -lcudart -lstdc++ -lpthread
CUDA_ARCH := 80 90 100
CUDA_PROGRAM := $(if $(and $(NVCC),$(filter exec/main_cuda.c,$(MAIN_SRC)),$(filter release,$(CONFIG))),$(BUILD)/mcpplan-exec-cuda)
MPI_INCLUDES := $(if $(MPI_CC),$(patsubst -I%,-isystem %,$(shell $(MPI_CC) --showme:compile 2> /dev/null)))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.PHONY: all executors cuda-gate gpu-check mutants man deps check check-full tests asan tsan fuzz fuzzers torture report-check tensorboard-check bench bench-train predict validate demo \
        tidy format rules headers install help clean

all: $(BUILD)/mcpplan executors      ## build the programs and the library
# Without MPI on the machine there is nothing to run plans with; make deps installs it.
executors: $(if $(MPI_CC),$(BUILD)/mcpplan-exec-cpu) $(CUDA_PROGRAM)
	$(if $(MPI_CC),,@echo "  NOTE  no mpicc here: mcpplan-exec-cpu is not built (make deps installs it)")

$(BUILD)/libmcpplan.a: $(call obj,$(LIB_SRC)) $(BUILD)/presets.o $(BUILD)/files
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
$(BUILD)/mcpplan: $(call obj,$(CLI_SRC)) $(BUILD)/libmcpplan.a $(BUILD)/files
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(OPENMP) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(LDLIBS)
$(BUILD)/mcpplan-exec-cpu: $(call obj,exec/main_cpu.c exec/main_shared.c $(CPU_SRC)) $(BUILD)/libmcpplan.a $(BUILD)/files
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(OPENMP) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(BLAS) $(MPI_LIBS) $(LDLIBS)
$(BUILD)/tests/unit: $(call obj,$(TEST_SRC) $(FAKE_SRC) $(DOOR_SRC) $(KERNELS)) $(BUILD)/libmcpplan.a $(BUILD)/files \
                     $(BUILD)/tests/fake_nvml.so $(BUILD)/tests/cuda/executor $(if $(MPI_CC),$(patsubst %,$(BUILD)/tests/ranks,$(firstword $(RANKS_SRC))) $(BUILD)/tests/cuda/ranks)
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(OPENMP) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) -lcriterion $(BLAS) $(LDLIBS)
# What tests start through mpirun: one world, many plans.
$(BUILD)/tests/ranks: $(call obj,$(RANKS_SRC) $(CPU_SRC)) $(BUILD)/libmcpplan.a $(BUILD)/files
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(OPENMP) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(BLAS) $(MPI_LIBS) $(LDLIBS)
# Kernels of GPUs, played by the host: tests/cuda/shim. ThreadSanitizer must not watch the shim.
KERNELS_CU   := $(wildcard exec/cuda_kernels*.cu)
KERNELS_TEST := $(wildcard tests/cuda/kernels_*.cc tests/cuda/kit.cc)
CUDA_TEXT    := $(KERNELS_CU) $(KERNELS_TEST) $(wildcard exec/*.cuh tests/cuda/*.h tests/cuda/shim/*)
SHIM_CXXFLAGS := -std=c++17 -Wall -Wextra -Wno-unknown-pragmas $(if $(filter 1,$(WERROR)),-Werror) \
                 -Itests/cuda -Itests/cuda/shim $(filter-out -Wno-format-truncation,$(CFLAGS_$(CONFIG)))
$(BUILD)/tests/cuda/kernels: $(call obj,$(KERNELS_CU) $(KERNELS_TEST) tests/cuda/shim/shim.cc) $(BUILD)/files
	@echo "  LINK  $@"
	$(Q)$(CXX) $(CFLAGS_$(CONFIG)) $(LDFLAGS) -o $@ $(filter %.o,$^)
$(BUILD)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D); echo "  CXX   $<"
	$(Q)$(CXX) $(CPPFLAGS) $(SHIM_CXXFLAGS) -MMD -MP -x c++ -c -o $@ $<
$(BUILD)/%.cc.o: %.cc $(BUILD)/flags
	@mkdir -p $(@D); echo "  CXX   $<"
	$(Q)$(CXX) $(CPPFLAGS) $(SHIM_CXXFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/tests/cuda/shim/shim.cc.o: override SHIM_CXXFLAGS := $(if $(filter tsan,$(CONFIG)),$(subst -fsanitize=thread,-DMCP_SHIM_TSAN,$(SHIM_CXXFLAGS)),$(SHIM_CXXFLAGS))
# The backend of GPUs on fakes of CUDA, cuBLASLt and NCCL: ranks are threads.
RANKS_KIT := tests/exec/ranks_cases.c tests/exec/ranks_run.c
$(BUILD)/tests/cuda/ranks: $(call obj,$(CUDA_RANKS) $(RANKS_KIT) $(CUDA_SRC) $(CPU_SRC) $(FAKE_SRC) $(KERNELS_CU) \
                             tests/cuda/shim/shim.cc) $(BUILD)/libmcpplan.a $(BUILD)/files
	@echo "  LINK  $@"
	$(Q)$(CXX) $(CFLAGS_$(CONFIG)) $(OPENMP) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(BLAS) $(MPI_LIBS) $(LDLIBS)
# The executor of GPUs on one fake, as train starts it.
$(BUILD)/tests/cuda/executor: $(call obj,exec/main_cuda.c exec/main_rooflines.c exec/main_shared.c $(CUDA_EXECUTOR) $(CUDA_SRC) $(FAKE_SRC) \
                                $(KERNELS_CU) tests/cuda/shim/shim.cc) $(BUILD)/libmcpplan.a $(BUILD)/files
	@echo "  LINK  $@"
	$(Q)$(CXX) $(CFLAGS_$(CONFIG)) $(OPENMP) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(BLAS) $(LDLIBS)
$(call obj,$(CUDA_SRC) $(CUDA_RANKS) $(FAKE_SRC) $(wildcard tests/cuda/*.c)): override CPPFLAGS += -Itests/cuda/fake/include
# The same against the toolkit: no warning, no spilled register. tools/cuda_gate.sh reads the logs.
CUDA_OBJ := $(patsubst %,$(BUILD)/cuda/%.o,$(CUDA_SRC) $(KERNELS_CU))
$(BUILD)/cuda/%.c.o: %.c $(BUILD)/flags
	@mkdir -p $(@D); echo "  CC    $< (CUDA)"
	$(Q)$(CC) $(CPPFLAGS) -isystem $(CUDA_HOME)/include $(CFLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/cuda/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D); echo "  NVCC  $<"
	$(Q)$(NVCC) -std=c++17 -O3 -I. $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
	  -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH)) \
	  -Xptxas -v,-warn-spills -Werror all-warnings -MMD -MP -c -o $@ $< 2> $@.log || { cat $@.log; exit 1; }
$(BUILD)/mcpplan-exec-cuda: $(BUILD)/cuda/exec/main_cuda.c.o $(BUILD)/exec/main_rooflines.c.o $(BUILD)/exec/main_shared.c.o $(CUDA_OBJ) $(BUILD)/libmcpplan.a $(BUILD)/files
	@echo "  LINK  $@"
	$(Q)$(CC) $(CFLAGS) $(OPENMP) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(CUDA_LIBS) $(LDLIBS)
# What the tests open in the place of NVIDIA's library.
$(BUILD)/tests/fake_nvml.so: tests/topologies/fake/nvml.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -std=c11 $(WARNINGS) -g -shared -fPIC -o $@ $<
$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.c.o $(BUILD)/libmcpplan.a
	$(Q)$(CC) $(CFLAGS) $(OPENMP) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/fuzz/%: $(BUILD)/tests/fuzz/%.c.o $(BUILD)/libmcpplan.a
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer $(OPENMP) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/%.c.o: %.c $(BUILD)/flags
	@mkdir -p $(@D); echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
# The data files travel inside the program.
$(BUILD)/presets.c: $(PRESETS) tools/presets.sh $(BUILD)/files
	$(Q)tools/presets.sh $(PRESETS) > $@
$(BUILD)/presets.o: $(BUILD)/presets.c core/preset.h $(BUILD)/flags
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
-include $(patsubst %.o,%.d,$(call obj,$(ALL_C) $(KERNELS_CU) $(KERNELS_TEST)) $(CUDA_OBJ))
.SECONDARY: $(call obj,$(BENCH_SRC) $(FUZZ_SRC))

# Two stamps for what make cannot see: other flags recompile, a file come or gone relinks.
define stamp
$(shell mkdir -p $(BUILD); echo '$(2)' | cmp -s - $(BUILD)/$(1) || echo '$(2)' > $(BUILD)/$(1))
endef
$(call stamp,files,$(LDFLAGS) $(LDLIBS) $(ALL_C) $(KERNELS_CU) $(KERNELS_TEST) $(PRESETS))
$(BUILD)/planner/search.c.o: override CFLAGS += -fopenmp
$(BUILD)/exec/cpu_%.c.o: override CFLAGS += -fopenmp
# Loops of the kernels are made vectors for the machine that builds them. NaN and infinity
# keep their meaning; sums are reordered only where a loop says so.
KERNEL_CFLAGS ?= -O3 -march=native
$(call stamp,flags,$(CC) $(CPPFLAGS) $(CFLAGS) $(KERNEL_CFLAGS) $(MPI_INCLUDES))
$(BUILD)/exec/cpu_kernels%.c.o: override CFLAGS += $(if $(filter release,$(CONFIG)),$(KERNEL_CFLAGS)) \
  -ffp-contract=fast -fno-math-errno -fno-trapping-math
$(BUILD)/exec/cpu_mpi.c.o $(BUILD)/tests/exec/ranks_sent.c.o: override CPPFLAGS += $(MPI_INCLUDES)
# Criterion's macros trip these two in gcc.
$(BUILD)/tests/%.c.o: override CFLAGS := $(filter-out -Wconversion -Wwrite-strings,$(CFLAGS))

deps:                                ## install the Debian packages that are missing
	$(Q)tools/deps.sh
check: deps                          ## set up, build and run every test
	$(Q)$(MAKE) --no-print-directory tests
tests: all rules headers $(BUILD)/tests/unit $(BUILD)/tests/cuda/kernels    ## the same without set-up
	$(Q)$(BUILD)/tests/cuda/kernels
	$(Q)MCPPLAN=$(abspath $(BUILD)/mcpplan) $(BUILD)/tests/unit $(TESTFLAGS)
# MCP_RANKS_EVERY=n: every n-th combination.
check-full: deps                     ## train every legal layout of up to 8 ranks: many hours
	$(Q)$(MAKE) --no-print-directory all $(BUILD)/tests/unit
	$(Q)MCP_RANKS_FULL=1 MCPPLAN=$(abspath $(BUILD)/mcpplan) $(BUILD)/tests/unit --jobs 1 \
	  --filter 'ranks/*' $(TESTFLAGS)

# A leak alone does not fail a Criterion test, so look for sanitizer logs too.
asan:                                ## tests under AddressSanitizer and UBSan; kernels under TSan too
	$(Q)rm -f build/asan/log.*; mkdir -p build/asan
	$(Q)MCP_RANKS_EVERY=12 ASAN_OPTIONS=log_path=$(CURDIR)/build/asan/log UBSAN_OPTIONS=print_stacktrace=1:log_path=$(CURDIR)/build/asan/log \
	  $(MAKE) --no-print-directory CONFIG=asan BUILD=build/asan tests || { cat build/asan/log.* 2>/dev/null; exit 1; }
	$(Q)! cat build/asan/log.* 2>/dev/null
	$(Q)$(MAKE) --no-print-directory CONFIG=tsan BUILD=build/tsan build/tsan/tests/cuda/kernels
	$(Q)build/tsan/tests/cuda/kernels
# Criterion does not start under TSan, so run the program; clang's OpenMP is understood.
tsan:                                ## a parallel search under ThreadSanitizer
	$(Q)tools/deps.sh $(CLANG_DEPS)
	$(Q)$(MAKE) --no-print-directory CONFIG=tsan BUILD=build/tsan CC=clang all
	$(Q)TSAN_OPTIONS=ignore_noninstrumented_modules=1 build/tsan/mcpplan plan --model gpt3-175b \
	  --cluster dgx-a100:16 --global-batch-size 512 --sequence-length 2048 > build/tsan/plan.txt
fuzz:                                ## run each fuzzer for FUZZ_SECONDS
	$(Q)tools/deps.sh $(CLANG_DEPS)
	$(Q)$(MAKE) --no-print-directory CONFIG=fuzz BUILD=build/fuzz CC=clang fuzzers
	$(Q)for f in $(basename $(notdir $(FUZZ_SRC))); do \
	  tools/fuzz.sh build/fuzz/tests/fuzz/$$f tests/fuzz/seeds $(FUZZ_SECONDS) || exit 1; done
fuzzers: $(patsubst %.c,$(BUILD)/%,$(FUZZ_SRC))
torture: deps                        ## kill ranks of a run at random moments, KILLS times
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/torture.sh $(BUILD)/mcpplan $(KILLS)
# In the sanitizers' folders of asan, so that little is built twice; MUTANTS names some of them.
gpu-check: all                       ## the CUDA backend on a machine with a GPU; else says "not run"
	$(Q)tools/gpu_check.sh $(BUILD)
mutants:                             ## are kernels that are made wrong found? three minutes
	$(Q)tools/mutants.sh build $(MUTANTS)
cuda-gate: $(if $(NVCC),$(CUDA_OBJ) $(CUDA_PROGRAM))  ## kernels by nvcc: no warning, no spill; registers listed
	$(if $(NVCC),$(Q)tools/cuda_gate.sh $(CUDA_HOME) $(BUILD)/cuda,@echo "cuda-gate: not run: no nvcc here, or CUDA=0")
# What users see: reports in the browser that Debian has.
report-check:                        ## open reports in a headless Chromium
	$(Q)tools/deps.sh chromium fonts-dejavu-core
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/browser/check.sh $(BUILD)/mcpplan $(BUILD)/reports
tensorboard-check: all               ## have TensorBoard read a run's event files
	$(Q)tests/tensorboard/check.sh $(BUILD)/mcpplan $(BUILD)/tensorboard
bench: $(patsubst %.c,$(BUILD)/%,$(BENCH_SRC))  ## how fast we are: min and median
	$(Q)for b in $^; do $$b || exit 1; done
	$(Q)$(MAKE) --no-print-directory bench-train
bench-train: all                     ## how fast this machine's cores train: three minutes
	$(Q)tools/bench_train.sh $(BUILD)/mcpplan $(BUILD)/bench
predict: all                         ## predicted and measured steps of three models: 15 minutes
	$(Q)tools/predict_sizes.sh $(BUILD)/mcpplan $(BUILD)/predict
validate: all                        ## predict the measured runs in MCP_SHARED
	$(Q)for f in $(wildcard $(MCP_SHARED)/measured/runs*.csv); do $(BUILD)/mcpplan validate $$f || exit 1; done
	$(Q)[ -n "$(wildcard $(MCP_SHARED)/measured/runs*.csv)" ] || echo "no $(MCP_SHARED)/measured/runs*.csv: set MCP_SHARED"
demo: deps                           ## measure, plan, play, train and compare on this machine
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tools/demo.sh $(BUILD)/mcpplan $(BUILD)/demo

format:                              ## lay the code out
	$(Q)clang-format -i $(ALL_C) $(HEADERS) $(CUDA_TEXT)
# One file a run: clang-tidy 14 has a false valist warning when files share one.
tidy:                                ## clang-format and clang-tidy, changing nothing
	$(Q)clang-format --dry-run -Werror $(ALL_C) $(HEADERS) $(CUDA_TEXT)
	$(Q)for f in $(LIB_SRC) $(CLI_SRC) $(CPU_SRC) $(CUDA_SRC) $(MAIN_SRC); do clang-tidy --quiet $$f -- $(CPPFLAGS) \
	  $(MPI_INCLUDES) -Itests/cuda/fake/include -std=c11 || exit 1; done
rules:                               ## who may include whom, banned calls, long files
	$(Q)tools/rules.sh
headers:                             ## each header compiles alone
	$(Q)for h in $(HEADERS); do $(CC) $(CPPFLAGS) -std=c11 -Wall -Werror -fsyntax-only -x c $$h || exit 1; done
install: all                         ## DESTDIR and PREFIX are honoured
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(BUILD)/mcpplan $(wildcard $(BUILD)/mcpplan-exec-cpu $(BUILD)/mcpplan-exec-cuda) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(BUILD)/libmcpplan.a $(DESTDIR)$(PREFIX)/lib
	for h in $(filter-out core/json_value.h,$(HEADERS)); do \
	  install -D -m 644 $$h $(DESTDIR)$(PREFIX)/include/mcpplan/$$h; done
	for m in $(wildcard docs/man/*.1); do install -D -m 644 $$m $(DESTDIR)$(PREFIX)/share/man/man1/$${m##*/}; done
man: all                             ## write docs/man/mcpplan.1 from the options
	$(Q)$(BUILD)/mcpplan --man > docs/man/mcpplan.1
help:                                ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /  \1	/p' Makefile | expand -t 16
clean:                               ## remove build/
	rm -rf build
