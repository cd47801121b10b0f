# Penstock's build. `make help` lists the targets.
#   stages/NAME.c or stages/NAME/*.c   -> build/lib/penstock/stages/NAME.so
#   stages/lib/**.c                    -> build/lib/libpenstock-stages.so (algorithms that stages and tools use)
#   kernels/*.c, kernels/cpu/**.c      -> build/lib/libpenstock-cpu.so
#   kernels/cuda/**.cu                 -> build/lib/libpenstock-cuda.so, where nvcc is found
#   kernels/cuda/**.cu, kernels/cuda/host/* -> build/tests/libpenstock-cuda-host.so: the same for tests, without a GPU
#   common/**.c                        -> build/lib/libpenstock.so (the SDK and its plumbing), but
#   common/store/*/**.c but dataset/   -> build/lib/libpenstock-data.so (importing, sorting, exporting: for the command)
#   tools/penstock/**.c, tools/penstock-*.c -> build/bin
#   tests/*/test_*.c                   -> build/tests
SHELL := /bin/bash
CC ?= gcc
PREFIX ?= /usr/local
SAN ?=
BUILD ?= build$(if $(SAN),-$(SAN))
PYTHON ?= /usr/bin/python3

# Both in one, so that the tests run once; objects' sizes are AddressSanitizer's, who says more about them. Undefined
# behaviour traps: AddressSanitizer shows the call and the line (tests/run), and SAN=ubsan also says what it was. Its texts
# would be 230,000 relocations, which every process makes when it starts.
san_flags_asan := -fsanitize=address,undefined -fsanitize-undefined-trap-on-error -fno-sanitize=object-size -fno-omit-frame-pointer
san_flags_ubsan := -fsanitize=undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
san_flags_tsan := -fsanitize=thread -fno-omit-frame-pointer
ifneq ($(SAN),)
ifeq ($(san_flags_$(SAN)),)
$(error SAN=$(SAN): expected asan, ubsan or tsan)
endif
endif

# Messages are cut to their buffers on purpose, hence -Wno-format-truncation; paths are checked where they matter.
WARN := -Wall -Wextra -Werror -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wno-format-truncation
# A sanitizer's reports need lines and names of functions only. With -O1 its builds take two thirds of the time.
CFLAGS ?= $(if $(SAN),-O1 -g1,-O2 -g)
ALL_CFLAGS := -std=c17 -D_GNU_SOURCE $(WARN) $(CFLAGS) -fPIC -fvisibility=hidden -pthread -fno-math-errno -ffp-contract=off $(san_flags_$(SAN)) -MMD -MP -I.
# Without traps, compilers may compute both sides of a choice, so that a loop with one becomes vectors. No bit changes.
KERNEL_CFLAGS := -O3 -fno-trapping-math
ALL_LDFLAGS := $(LDFLAGS) $(san_flags_$(SAN)) -pthread -Wl,--as-needed -Wl,-rpath-link,$(BUILD)/lib
CORE_LIBS := -lzmq -ljansson -luring -lxxhash -lm -ldl
DATA_LIBS := -ljansson -lxxhash -lz -lzstd -lyaml -lm
CMD_LIBS := -lnvme -lhwloc
# RPATH, not RUNPATH: it also holds for what stages built out of tree need.
RPATH_BIN := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib'
RPATH_STAGE := -Wl,-rpath,'$$ORIGIN/../..'

data_src := $(sort $(filter-out common/store/dataset/%,$(shell find common/store -mindepth 2 -name '*.c')))
common_src := $(filter-out $(data_src),$(sort $(shell find common -name '*.c')))
onednn_src := $(wildcard kernels/cpu/onednn/*.c)
kernel_src := $(filter-out $(onednn_src),$(sort $(wildcard kernels/*.c kernels/cpu/*.c kernels/cpu/*/*.c)))
cuda_src := $(sort $(shell find kernels/cuda -name '*.cu'))
stagelib_src := $(sort $(wildcard stages/lib/*/*.c stages/lib/*/*/*.c))
stage_files := $(sort $(wildcard stages/*.c))
stage_dirs := $(patsubst stages/%/,%,$(sort $(dir $(wildcard stages/*/*.c))))
stage_names := $(patsubst stages/%.c,%,$(stage_files)) $(stage_dirs)
cmd_src := $(sort $(wildcard tools/penstock/*.c tools/penstock/*/*.c))
# Runs on several machines need Open MPI. Without it, and with MPI=, there is no penstock-ranks.
MPI ?= $(shell pkg-config --exists ompi-c 2>/dev/null && echo ompi-c)
helper_src := $(filter-out $(if $(MPI),,tools/penstock-ranks.c),$(sort $(wildcard tools/penstock-*.c)))
test_src := $(sort $(wildcard tests/*/test_*.c tests/*/test_*.cpp))

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
stage_so := $(patsubst %,$(BUILD)/lib/penstock/stages/%.so,$(stage_names))
libs := $(BUILD)/lib/libpenstock.so $(BUILD)/lib/libpenstock-data.so $(BUILD)/lib/libpenstock-cpu.so $(BUILD)/lib/libpenstock-onednn.so $(if $(stagelib_src),$(BUILD)/lib/libpenstock-stages.so)
# The CUDA twins need nvcc; without it, and under a sanitizer, there are none.
NVCC ?= $(firstword $(wildcard $(addsuffix /nvcc,$(subst :, ,$(PATH)) /usr/local/cuda/bin)))
cuda_so := $(if $(SAN),,$(if $(NVCC),$(BUILD)/lib/libpenstock-cuda.so))
helpers := $(patsubst tools/%.c,$(BUILD)/bin/%,$(helper_src))
tests_bin := $(patsubst tests/%,$(BUILD)/tests/%,$(basename $(test_src)))
# What tests/run leaves out need not be built either.
ifneq ($(TESTS_BUT),)
tests_bin := $(shell printf '%s\n' $(tests_bin) | TESTS_BUT='$(TESTS_BUT)' sh -c 'grep -vE "$$TESTS_BUT"')
endif

# A line for each file that is made. V=1 prints the commands, and -s nothing.
ifeq ($(V),)
.SILENT:
begin = mkdir -p $(@D)$(if $(findstring s,$(firstword -$(MAKEFLAGS))),, && echo '  $@')
else
begin = mkdir -p $(@D)
endif
# Objects are compiled once, where ccache is installed.
CCACHE ?= $(shell command -v ccache)

.PHONY: all
all: $(libs) $(cuda_so) $(stage_so) $(helpers) $(if $(cmd_src),$(BUILD)/bin/penstock)

# What `penstock --version` says. The file changes only when the commit does; a copy without .git keeps it.
version := 1
commit := $(if $(wildcard .git),$(shell git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null))
$(BUILD)/version: FORCE
	@mkdir -p $(@D)
	@[ -e $@ -a -z '$(commit)' ] || echo '$(version) $(commit)' | cmp -s - $@ || echo '$(version) $(commit)' >$@
$(BUILD)/obj/tools/penstock/cli/version.o: ALL_CFLAGS += -DPST_VERSION='"$(version)"' -DPST_COMMIT='"$(commit)"'
$(BUILD)/obj/tools/penstock/cli/version.o: $(BUILD)/version
.PHONY: FORCE

$(BUILD)/obj/%.o: %.c
	$(begin)
	$(CCACHE) $(CC) $(ALL_CFLAGS) $(if $(filter kernels/% stages/lib/embed/% stages/lib/links/% stages/lib/parts/parts.c,$<),$(KERNEL_CFLAGS)) -c -o $@ $<

$(BUILD)/lib/libpenstock.so: $(call obj,$(common_src))
	$(begin)
	$(CC) -shared -o $@ $^ $(ALL_LDFLAGS) $(CORE_LIBS)

$(BUILD)/lib/libpenstock-data.so: $(call obj,$(data_src)) $(BUILD)/lib/libpenstock.so
	$(begin)
	$(CC) -shared -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN' -L$(BUILD)/lib -lpenstock $(DATA_LIBS)

# kernels/cpu/products opens this library when the first product is made. It names oneDNN, in the installed version, so
# that loaders, packagers and `ldd` find it.
$(BUILD)/lib/libpenstock-onednn.so: $(call obj,$(onednn_src))
	$(begin)
	$(CC) -shared -o $@ $^ $(ALL_LDFLAGS) -Wl,--no-as-needed -ldnnl

# LeakSanitizer can crash on the thread-local data of a library that was opened late, so it is linked there.
$(BUILD)/lib/libpenstock-cpu.so: $(call obj,$(kernel_src))
	$(begin)
	$(CC) -shared -o $@ $^ $(ALL_LDFLAGS) $(if $(SAN),-Wl$(comma)--no-as-needed -ldnnl) -lgomp -lm

$(BUILD)/lib/libpenstock-stages.so: $(call obj,$(stagelib_src)) $(BUILD)/lib/libpenstock.so $(BUILD)/lib/libpenstock-cpu.so
	$(begin)
	$(CC) -shared -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) -Wl,-rpath,'$$ORIGIN' -Wl,-Bsymbolic -L$(BUILD)/lib -lpenstock -lpenstock-cpu -luring -lxxhash -lmetis -lm

# The CUDA twins. Each architecture gets its machine code, what comes after it PTX. No contraction, as on the CPU. Object and
# log appear whole: an nvcc that was killed, or a second make, leaves no half of either.
CUDA_ARCHS := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
NVCC_FLAGS := -std=c++17 -O3 -lineinfo --fmad=false -Werror all-warnings -Xcompiler -fPIC,-Wall,-Wextra -I. $(CUDA_ARCHS)
comma := ,
cuda_exports := -Wl,--version-script=kernels/cuda/exports.map
$(BUILD)/obj/kernels/cuda/%.nvcc.o: kernels/cuda/%.cu
	$(begin)
	new=$(@:.o=).$$$$ && trap 'rm -f '$$new.o' '$$new.log EXIT && \
	  { $(NVCC) $(NVCC_FLAGS) -Xptxas -v -MMD -MT $@ -MF $(@:.o=.d) -c -o $$new.o $< 2>$$new.log || { cat $$new.log; exit 1; }; } && \
	  mv $$new.log $(@:.o=.log) && mv $$new.o $@
$(BUILD)/lib/libpenstock-cuda.so: $(patsubst kernels/cuda/%.cu,$(BUILD)/obj/kernels/cuda/%.nvcc.o,$(cuda_src)) kernels/cuda/exports.map
	$(begin)
	$(NVCC) -shared -o $@ $(filter %.o,$^) -Xlinker --version-script=kernels/cuda/exports.map,-z,defs

# What each kernel takes of a multiprocessor, as the compiler reports it.
.PHONY: resources
resources: $(cuda_so)
	kernels/cuda/resources.py $(NVCC) $(patsubst kernels/cuda/%.cu,$(BUILD)/obj/kernels/cuda/%.nvcc.log,$(cuda_src)) >kernels/cuda/resources.txt

# The same sources with the threads of a block as fibers: kernels/cuda/host.
CXX ?= g++
host_flags := -std=c++17 -Wall -Wextra -Werror -Wconversion -Wpointer-arith -Wno-unknown-pragmas $(CFLAGS) -fPIC -fvisibility=hidden -pthread -ffp-contract=off $(san_flags_$(SAN)) -MMD -MP -I. -Ikernels/cuda/host
host_obj := $(patsubst kernels/cuda/%.cu,$(BUILD)/obj/kernels/cuda/%.host.o,$(cuda_src)) $(patsubst %.cpp,$(BUILD)/obj/%.o,$(sort $(wildcard kernels/cuda/host/*.cpp)))
$(BUILD)/obj/kernels/cuda/%.host.o: kernels/cuda/%.cu
	$(begin)
	$(CCACHE) $(CXX) $(host_flags) -x c++ -c -o $@ $<
$(BUILD)/obj/kernels/cuda/host/%.o: kernels/cuda/host/%.cpp
	$(begin)
	$(CCACHE) $(CXX) $(host_flags) -Wshadow -c -o $@ $<
$(BUILD)/tests/libpenstock-cuda-host.so: $(host_obj) kernels/cuda/exports.map
	$(begin)
	$(CXX) -shared -o $@ $(host_obj) $(ALL_LDFLAGS) $(cuda_exports) $(if $(SAN),,-Wl$(comma)-z$(comma)defs)

STAGE_LIBS = -L$(BUILD)/lib -lpenstock-stages -lpenstock -lpenstock-cpu -luring -ljansson -lxxhash -lm
# Debian wants it of each library, also of one that only calls ours.
NEEDS_LIBC := -Wl,--no-as-needed -lc
define stage_rule
$(BUILD)/lib/penstock/stages/$(1).so: $(2) $(libs)
	$$(begin)
	$$(CC) -shared -o $$@ $$(filter %.o,$$^) $$(ALL_LDFLAGS) -Wl,-Bsymbolic $$(RPATH_STAGE) $$(STAGE_LIBS) $$(NEEDS_LIBC)
endef
$(foreach f,$(stage_files),$(eval $(call stage_rule,$(patsubst stages/%.c,%,$(f)),$(call obj,$(f)))))
$(foreach d,$(stage_dirs),$(eval $(call stage_rule,$(d),$(call obj,$(sort $(wildcard stages/$(d)/*.c))))))

$(BUILD)/bin/penstock: $(call obj,$(cmd_src)) $(libs)
	$(begin)
	$(CC) -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) $(RPATH_BIN) $(STAGE_LIBS) -lpenstock-data $(CORE_LIBS) $(CMD_LIBS)

ranks_obj := $(if $(MPI),$(call obj,$(sort $(wildcard tools/ranks/*.c))))
$(BUILD)/obj/tools/penstock-ranks.o $(ranks_obj): ALL_CFLAGS += $(if $(MPI),$(shell pkg-config --cflags-only-I $(MPI) | sed 's/-I/-isystem /g'))
$(BUILD)/bin/penstock-ranks: CORE_LIBS += $(if $(MPI),$(shell pkg-config --libs $(MPI)))
$(BUILD)/bin/penstock-ranks: $(ranks_obj)
$(BUILD)/bin/penstock-%: $(BUILD)/obj/tools/penstock-%.o $(libs)
	$(begin)
	$(CC) -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) $(RPATH_BIN) -L$(BUILD)/lib -lpenstock $(CORE_LIBS)

# A test may #include the .c file that it looks into. If that is part of a stage or of the command, this archive has
# the rest of it: the linker takes what the test lacks.
inside := $(call obj,$(sort $(wildcard stages/*/*.c)) $(filter-out tools/penstock/main.c,$(cmd_src)))
$(BUILD)/tests/libinside.a: $(inside)
	$(begin)
	rm -f $@ && ar rcs $@ $^
$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(libs) $(BUILD)/tests/libinside.a
	$(begin)
	$(CC) -o $@ $< $(BUILD)/tests/libinside.a $(ALL_LDFLAGS) \
	  -Wl,-rpath,$(abspath $(BUILD)/lib) $(STAGE_LIBS) -lpenstock-data $(CORE_LIBS) -lz -lcmocka

# *_f64.c tests run kernels and model in double precision, in place of those of the libraries.
f64_obj := $(patsubst %.c,$(BUILD)/obj-f64/%.o,$(filter-out %/bf16.c,$(kernel_src)) $(wildcard stages/lib/learning/*.c stages/lib/gnn/*.c stages/lib/links/*.c stages/lib/gnn/types/*.c stages/lib/gnn/spill/*.c stages/lib/embed/*.c stages/lib/device/*.c))
$(BUILD)/obj-f64/%.o: %.c
	$(begin)
	$(CCACHE) $(CC) $(ALL_CFLAGS) -DPST_REAL=double -c -o $@ $<
$(BUILD)/tests/libf64.a: $(f64_obj)
	$(begin)
	rm -f $@ && ar rcs $@ $^
$(BUILD)/tests/%_f64: $(BUILD)/obj-f64/tests/%_f64.o $(BUILD)/tests/libf64.a $(BUILD)/lib/libpenstock.so
	$(begin)
	$(CC) -o $@ $< $(BUILD)/tests/libf64.a $(ALL_LDFLAGS) \
	  -Wl,-rpath,$(abspath $(BUILD)/lib) -L$(BUILD)/lib -lpenstock -lgomp -lxxhash -ljansson -lm -lcmocka

# Programs that run in the guest.
guest_bin := $(patsubst tests/qemu/%.c,$(BUILD)/tests/qemu/%,$(wildcard tests/qemu/*.c))

# Tests of the host build, in C++.
$(BUILD)/tests/%: tests/%.cpp $(BUILD)/tests/libpenstock-cuda-host.so
	$(begin)
	$(CXX) $(host_flags) -MF $@.d -o $@ $< $(filter $(BUILD)/obj/kernels/cuda/host/%,$(host_obj)) $(ALL_LDFLAGS) -lcmocka

# A CUDA driver, a cuBLASLt and an NCCL for tests of what looks for one.
fakes := $(addprefix $(BUILD)/tests/gpu/fake/,libcuda.so.1 libnvidia-ml.so.1 libcublasLt.so.13 libnccl.so.2)
$(BUILD)/tests/gpu/fake/libcuda.so.1: tests/gpu/fake_libcuda.c
$(BUILD)/tests/gpu/fake/libnvidia-ml.so.1: tests/gpu/fake_libnvml.c
$(BUILD)/tests/gpu/fake/libcublasLt.so.13: tests/gpu/fake_libcublaslt.c
$(BUILD)/tests/gpu/fake/libnccl.so.2: tests/gpu/fake_libnccl.c
$(fakes):
	$(begin)
	$(CC) $(filter-out -fsanitize% -fvisibility%,$(ALL_CFLAGS)) -MF $@.d -shared -o $@ $<

# Stages that only tests use.
test_stages := $(patsubst tests/stages/%.c,$(BUILD)/tests/stages/%.so,$(wildcard tests/stages/*.c))
$(BUILD)/tests/stages/%.so: tests/stages/%.c $(libs)
	$(begin)
	$(CC) $(ALL_CFLAGS) -MF $@.d -shared -o $@ $< $(ALL_LDFLAGS) -Wl,-rpath,$(abspath $(BUILD)/lib) $(STAGE_LIBS)

$(BUILD)/bench/%: tools/bench/%.c $(libs)
	$(begin)
	$(CC) $(ALL_CFLAGS) -MF $@.d -o $@ $< $(ALL_LDFLAGS) -Wl,-rpath,$(abspath $(BUILD)/lib) $(STAGE_LIBS) $(CORE_LIBS)

# The GPU's: by nvcc for one, and by g++ over the host build, where it checks everything and times nothing.
gpu_bench := $(sort $(wildcard tools/bench/gpu/*.cu))
$(BUILD)/obj/tools/bench/gpu/%.nvcc.o: tools/bench/gpu/%.cu
	$(begin)
	$(NVCC) $(NVCC_FLAGS) -MMD -MF $(@:.o=.d) -c -o $@ $<
$(BUILD)/bench/gpu: $(patsubst %.cu,$(BUILD)/obj/%.nvcc.o,$(gpu_bench)) $(libs) $(cuda_so)
	$(begin)
	$(NVCC) -o $@ $(filter %.o,$^) -Xlinker -rpath,$(abspath $(BUILD)/lib) -L$(BUILD)/lib -lpenstock-stages -lpenstock -lpenstock-cpu
$(BUILD)/obj/tools/bench/gpu/%.host.o: tools/bench/gpu/%.cu
	$(begin)
	$(CCACHE) $(CXX) $(host_flags) -x c++ -c -o $@ $<
$(BUILD)/tests/gpu-bench: $(patsubst %.cu,$(BUILD)/obj/%.host.o,$(gpu_bench)) $(libs) $(BUILD)/tests/libpenstock-cuda-host.so
	$(begin)
	$(CXX) -o $@ $(filter %.o,$^) $(filter $(BUILD)/obj/kernels/cuda/host/%,$(host_obj)) $(ALL_LDFLAGS) -Wl,-rpath,$(abspath $(BUILD)/lib) -L$(BUILD)/lib -lpenstock-stages -lpenstock -lpenstock-cpu

# The benches: tools/bench/README.md. Without what --bench installs, the benches that need it are skipped.
peers_so := $(BUILD)/bench/libpeers.so
bench_bin := $(patsubst tools/bench/%.c,$(BUILD)/bench/%,$(wildcard tools/bench/*.c)) $(peers_so)
# Python of others loads it, so it has no sanitizer.
$(peers_so): tools/bench/peers/sampler.c
	$(begin)
	$(CC) $(filter-out -fsanitize%,$(ALL_CFLAGS)) -O3 -MF $@.d -shared -o $@ $< $(NEEDS_LIBC)
.PHONY: bench bench-smallest bench-peers bench-gpu bench-deps
bench-deps: deps-test
	@tools/install-deps --bench || echo "bench: not everything could be installed: benches that need what is missing are skipped"
bench: bench-deps
	@$(MAKE) --no-print-directory all tests $(bench_bin)
	@BUILD=$(BUILD) $(PYTHON) tools/bench/bench.py $(BENCH)
bench-smallest: bench-deps
	@$(MAKE) --no-print-directory all tests $(bench_bin)
	@BUILD=$(BUILD) $(PYTHON) tools/bench/bench.py --smallest $(BENCH)
# Beside other libraries, whose environments it makes below $(BUILD)/peers: tools/bench/peers/README.md.
bench-peers: bench-deps
	@tools/install-deps --peers || echo "bench-peers: not everything could be installed: peers that need what is missing are skipped"
	@$(MAKE) --no-print-directory all $(peers_so)
	@BUILD=$(BUILD) $(PYTHON) tools/bench/bench.py $(if $(PEERS),--peers "$(PEERS)") $(if $(RETUNE),--retune) $(if $(SAVE),--save) $(or $(BENCH),peers-memory peers-outofcore)
bench-gpu: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all $(BUILD)/tests/gpu-bench $(if $(cuda_so),$(BUILD)/bench/gpu)
	@BUILD=$(BUILD) $(PYTHON) tools/bench/bench.py gpu-kernels gpu-epoch --save

# tests/run runs what it finds, so programs of tests that are no longer there must go.
stale_bin := $(filter-out $(tests_bin) $(guest_bin) %.d,$(wildcard $(BUILD)/tests/*/test_*))
.PHONY: tests
tests: $(tests_bin) $(test_stages) $(guest_bin) $(BUILD)/tests/libpenstock-cuda-host.so $(BUILD)/tests/gpu-bench $(fakes) $(peers_so)
	$(if $(stale_bin),@rm -f $(stale_bin))

.PHONY: deps deps-test
deps:
	@tools/install-deps
deps-test:
	@tools/install-deps --test

.PHONY: run
run: deps
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) tools/demo

.PHONY: check check-long
check check-long: deps-test
	@$(MAKE) --no-print-directory all tests
	@BUILD=$(BUILD) SAN=$(SAN) tests/run $(if $(filter check-long,$@),long,check)

.PHONY: check-qemu
check-qemu: deps-test
	@tools/install-deps --qemu || echo "check-qemu: not all of it could be installed: tests that need what is missing are skipped"
	@$(MAKE) --no-print-directory all tests
	@BUILD=$(BUILD) tests/run qemu

# The tests on this machine's GPU, or on virtual ones if it has none.
.PHONY: check-gpu
check-gpu: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all tests
	@BUILD=$(BUILD) PENSTOCK_TWIN_SHAPES=$${PENSTOCK_TWIN_SHAPES:-1000} PENSTOCK_GPU_LIMIT_S=$${PENSTOCK_GPU_LIMIT_S:-3600} tools/gpu/check-gpu

# What a machine with a GPU needs to run check-gpu and the benches, in one archive.
.PHONY: gpu-pack
gpu-pack: deps-test
	@$(MAKE) --no-print-directory -j$$(nproc) all tests $(if $(cuda_so),$(BUILD)/bench/gpu)
	@BUILD=$(BUILD) tools/gpu-pack $(PACK)

.PHONY: fuzz
fuzz:
	@tools/install-deps --fuzz || echo "fuzz: clang and libFuzzer could not be installed: without them all targets are skipped"
	@tests/fuzz/run

.PHONY: accept
accept: deps-test
	@$(MAKE) --no-print-directory all tests
	@BUILD=$(BUILD) tests/run accept

.PHONY: valgrind
valgrind: deps-test
	@$(MAKE) --no-print-directory all tests
	@BUILD=$(BUILD) tests/run accept test_valgrind

format_src = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' '*.cpp')
.PHONY: format lint
format:
	@clang-format -i $(format_src)
lint: deps-test
	@BUILD=$(BUILD) tests/lint

# The headers that stages outside the tree include, and all that these include.
public := common/stage.h common/wire.h common/slots/minibatch.h common/slots/request.h common/store/array_id.h common/store/store.h common/util/rng.h \
  kernels/twin.h stages/lib/device/device.h stages/lib/sampling/sampling.h stages/lib/sampling/fill_device.h
public_headers = $(shell $(CC) -std=c17 -D_GNU_SOURCE -I. -MM -x c $(public) | grep -oE '[a-z0-9_/]+\.h' | sort -u)
# What else a user of an installation reads.
rooms := common kernels pipelines stages tests tools
sdk_examples := stages/passthrough.c tests/pipeline/outside/favour.c tests/stages/times.py
# `make install` makes the tree of files below $(BUILD), and copies it. The list of what was new is for `make uninstall`.
tree := $(BUILD)/tree-$(shell echo $$PPID)# of this make, as others may run
share := $(tree)/share
installed := share/penstock/installed
.PHONY: tree install uninstall
tree: all
	rm -rf $(tree)
	install -d $(tree)/bin $(tree)/lib/penstock/stages $(share)/pkgconfig $(share)/man/man1
	install -m755 $(BUILD)/bin/penstock $(helpers) $(tree)/bin
	install -m755 $(libs) $(cuda_so) $(tree)/lib
	install -m755 $(stage_so) $(tree)/lib/penstock/stages
	for h in $(public_headers); do install -D -m644 $$h $(tree)/include/penstock/$$h; done
	for f in $$(find pipelines -name '*.json') $$(find tools/python/penstock -name '*.py' -o -name '*.pyi' -o -name py.typed -o -name 'page.[cj]s*') stages/examples/*.py; do \
	  install -D -m$$([ -x $$f ] && echo 755 || echo 644) $$f $(share)/penstock/$${f#tools/}; done
	for f in $$(find README.md $(rooms) -name README.md); do install -D -m644 $$f $(share)/doc/penstock/$$f; done
	for f in $(sdk_examples); do install -D -m644 $$f $(share)/doc/penstock/examples/$${f##*/}; done
	install -D -m644 tools/penstock/about/completion.bash $(share)/bash-completion/completions/penstock
	install -D -m644 tools/penstock/about/completion.zsh $(share)/zsh/site-functions/_penstock
	install -D -m644 tools/penstock/about/completion.fish $(share)/fish/vendor_completions.d/penstock.fish
	$(BUILD)/bin/penstock man $(share)/man/man1
	printf '%s\n' 'prefix=$${pcfiledir}/../..' 'Name: penstock' 'Description: out-of-core graph learning: the stage SDK' \
	  'Version: $(version)' 'Cflags: -I$${prefix}/include -I$${prefix}/include/penstock -I$${prefix}/include/penstock/common' \
	  'Libs: -L$${prefix}/lib -lpenstock-stages -lpenstock -lpenstock-cpu' >$(share)/pkgconfig/penstock.pc
install: tree
	tools/install-tree install $(tree) $(DESTDIR)$(PREFIX) $(installed)
	rm -rf $(tree)
uninstall:
	tools/install-tree uninstall $(DESTDIR)$(PREFIX) $(installed)

# What others install: tools/packages.
.PHONY: wheel deb site
wheel deb: tree
	tools/packages/$@.py $(tree) $(BUILD)/packages
	rm -rf $(tree)
site: all
	tools/site/build_site.py $(BUILD) $(BUILD)/site

.PHONY: clean help
clean:
	rm -rf build build-asan build-ubsan build-tsan build-fuzz
help:
	@echo 'make               build into build/ (SAN=asan|ubsan|tsan: into build-SAN/; V=1: print all commands)'
	@echo 'make run           install what is missing, build, make the demo dataset, train on it'
	@echo 'make check         quick tests'
	@echo 'make check-long    the tests that take longer'
	@echo 'make check-qemu    our NVMe driver against QEMU'"'"'s controllers, in a virtual machine'
	@echo 'make check-gpu      the CUDA twins on this machine'"'"'s GPU (needs nvcc), or on virtual GPUs'
	@echo 'make gpu-pack      an archive of all that check-gpu and bench-gpu need on another machine; PACK=FILE: its name'
	@echo 'make bench         every bench; BENCH="memory io-4096": only these'
	@echo 'make bench-smallest  every bench in a form that takes seconds, to see that it works'
	@echo 'make bench-peers   PyTorch, PyG and DGL from PyPI beside Penstock; PEERS="torch dgl": only these, RETUNE=1, SAVE=1'
	@echo 'make bench-gpu      what its kernels reach, and hand-over and disk kernels; check-gpu bench-gpu is all of it'
	@echo 'make resources      registers and shared memory of each CUDA kernel, into kernels/cuda/resources.txt'
	@echo 'make fuzz          each fuzz target for FUZZ_SECONDS=20, with ASan and UBSan'
	@echo 'make valgrind       memcheck over the unit tests and small pipelines'
	@echo 'make accept        long tests: real data, memory limits, a fresh root'
	@echo 'make install PREFIX=DIR   make uninstall PREFIX=DIR'
	@echo 'make wheel deb      packages for pip and for Debian, into build/packages (tools/packages)'
	@echo 'make site          the documentation as web pages, into build/site (tools/site)'
	@echo 'make format lint clean'

-include $(shell find $(BUILD) \( -path '$(BUILD)/tree-*' -o -path '$(BUILD)/peers' \) -prune -o -name '*.d' -print 2>/dev/null)
.SECONDARY:
