# CART's commands. `make` lists them; `make test` is all that CI runs. Needs Go, Python 3 with pip or venv, and make;
# everything fetched or built lands in .cache/ or in Go's own caches.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

GO       ?= go
PYTHON   ?= python3
ENGINE   ?=
RUN      ?=
KEEP     ?=
FUZZTIME ?= 30s
COUNT    ?= 6
OLD      ?= HEAD
BENCH    ?=
VERSION  ?= $(shell git describe --tags --match 'v*' --always 2>/dev/null)
REPLAY   ?=

MODULE  := github.com/cart-llm/cart
ENGINES := $(or $(ENGINE),compiled yaegi traefik)
# The modules beside the root, as far as they exist.
NESTED  := $(patsubst %/go.mod,%,$(wildcard cmd/go.mod e2e/go.mod deploy/check/go.mod tools/go.mod))
CACHE   := $(CURDIR)/.cache
BIN     := $(CACHE)/bin
GOPATHS := $(CACHE)/gopath
# The race detector links with a C compiler; without one the tests run all the same.
RACE    := $(if $(shell command -v $$($(GO) env CC)),-race)
PHASE   := $(BIN)/phase -state $(CACHE)
LINT    := $(BIN)/golangci-lint run --allow-parallel-runners

export GOWORK := off
export GOFLAGS := $(GOFLAGS) -buildvcs=false
export GOLANGCI_LINT_CACHE := $(CACHE)/golangci-lint
export ENGINE RUN KEEP PYTHON

# --- everyday ---------------------------------------------------------------------------------------------------------

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make e2e ENGINE=compiled|yaegi|traefik RUN=regexp     make fuzz FUZZTIME=$(FUZZTIME)     make demo KEEP=1"

.PHONY: test check
test: tools ## all checks and all tests: what CI runs
	@$(PHASE) -reset
	@{ $(MAKE) --no-print-directory vet && \
	   $(MAKE) --no-print-directory --keep-going fmt-check lint subset vendor-check unit yaegi nested packaging e2e; } \
	  2>$(CACHE)/make.log; rc=$$?; grep -v '^make' $(CACHE)/make.log; $(PHASE) -total && exit $$rc
check: test ## the same as test

.PHONY: fmt fmt-check vet lint
fmt: ## format all Go files
	@$(GO_FILES) | xargs -0 gofmt -w
fmt-check: $(BIN)/phase ## fail on a Go file that is not formatted
	@$(PHASE) fmt-check -- bash -c 'bad=$$($(GO_FILES) | xargs -0 gofmt -l) && echo "$$bad" && test -z "$$bad"'
vet: $(BIN)/phase ## go vet in all modules
	@$(PHASE) vet -- bash -c 'for m in . $(NESTED); do $(GO) -C $$m vet ./... || bad=1; done; exit $${bad:-0}'
lint: $(BIN)/phase $(BIN)/golangci-lint ## golangci-lint in all modules
	@$(PHASE) lint -- bash -c '$(LINT) || bad=1; \
	  for m in $(NESTED); do (cd $$m && $(LINT) -c $(CURDIR)/.golangci.e2e.yml) || bad=1; done; exit $${bad:-0}'

GO_FILES := find . \( -name .cache -o -name vendor -o -name testdata -o -name node_modules \) -prune -o -name '*.go' -print0

# --- tests ------------------------------------------------------------------------------------------------------------

TESTS    := $(PHASE) -tests $(if $(RUN),-none-ok)
RUN_FLAG := $(if $(RUN),-run '$(RUN)')

.PHONY: subset unit yaegi nested
subset: $(BIN)/phase ## the root's Go stays within what Yaegi runs
	@$(PHASE) -tests subset -- $(GO) test -json $(RACE) -run '^TestSubset' .
unit: $(BIN)/phase ## the root's tests, compiled with -race
	@$(TESTS) 'unit $(RACE)' -- $(GO) test -json $(RACE) -skip '^TestSubset' $(RUN_FLAG) .
yaegi: $(BIN)/phase $(BIN)/yaegi gopath ## the root's tests, interpreted
	@$(TESTS) yaegi -- env GOPATH=$(GOPATHS) timeout -k 10 600 \
	  $(BIN)/yaegi test -v $(RUN_FLAG) $(MODULE)
nested: $(BIN)/phase ## the tests of the modules beside the root, without e2e and packaging
	@$(PHASE) -tests nested -- bash -c 'for m in $(filter-out e2e deploy/check,$(NESTED)); do $(GO) -C $$m test -json ./... || bad=1; done; \
	  exit $${bad:-0}'

.PHONY: packaging
packaging: traefik $(BIN)/helm $(BIN)/hadolint ## image, Compose files, Helm chart, release archive and examples, in the official Traefik where they start
	@$(TESTS) packaging -- $(GO) -C deploy/check test -json -count=1 -timeout 5m $(RUN_FLAG) ./...

E2E_TEST := $(GO) -C e2e test -json -count=1 -timeout 5m $(RUN_FLAG)

.PHONY: e2e e2e-support e2e-programs catalog clients
e2e: e2e-programs $(if $(ENGINE),,catalog e2e-support clients) $(addprefix e2e-,$(ENGINES)) ## the end-to-end tests on each engine, or on ENGINE
e2e-programs:
	@for p in prometheus promtool chromium; do \
	  command -v $$p >/dev/null || echo "  no $$p on the PATH: its tests are skipped (Debian: apt-get install prometheus chromium)"; done
	@command -v node npm >/dev/null && node -e 'process.exit(Number(process.versions.node.split(".")[0] < 20))' || \
	  echo "  no Node 20 or later with npm on the PATH: the tests of the SDKs for Node are skipped"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  echo "  $(PYTHON) is older than 3.11: the tests of the SDKs for Python are skipped"
e2e-support: $(BIN)/phase
	@$(TESTS) 'e2e support' -- $(E2E_TEST) $(RACE) $$(bash tools/e2e-packages other)
e2e-traefik: traefik
# One package after the other: they measure times.
e2e-%: $(BIN)/phase
	@$(TESTS) 'e2e $*' -- env ENGINE=$* $(E2E_TEST) -p 1 $(if $(filter compiled,$*),$(RACE)) \
	  $$(bash tools/e2e-packages engine)
clients: $(BIN)/phase traefik ## the official SDKs for Python and Node through Traefik and CART
	@$(TESTS) clients -- $(E2E_TEST) -skip '^TestReal' ./clients
catalog: $(BIN)/phase ## what Traefik's plugin catalogue checks
	@$(TESTS) catalog -- $(E2E_TEST) ./catalog

.PHONY: vendor-check
vendor-check: $(BIN)/phase ## vendor/ is what go.mod says, and go.mod is what the catalogue accepts
	@$(PHASE) vendor-check -- bash tools/vendor-check $(CACHE)/vendor

# --- deeper -----------------------------------------------------------------------------------------------------------

.PHONY: cover fuzz golden
cover: ## coverage of the root's tests, function by function
	@$(GO) test -coverprofile=$(CACHE)/cover.out . && $(GO) tool cover -func=$(CACHE)/cover.out
fuzz: $(BIN)/phase ## each fuzz target in turn, for FUZZTIME; finds are kept in testdata/fuzz
	@targets=$$($(GO) test -list '^Fuzz.*$(RUN)' . | grep '^Fuzz'); test -n "$$targets" || exit 1; \
	for f in $$targets; do $(PHASE) "$$f $(FUZZTIME)" -- \
	  $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s . || finds="$$finds $$f"; done; \
	test -z "$$finds" && echo "no find in" $$targets || { echo "finds in$$finds"; exit 1; }
golden: ## rewrite the golden files from what the code does now
	@$(GO) test . -update

# BENCH="-quick" takes less than a minute, BENCH="-h" tells the rest. The machine has to be idle.
.PHONY: bench bench-streams bench-memory bench-micro bench-yaegi bench-cmp
bench: traefik ## CART beside Traefik's balancer and the Rust routers, as Markdown (BENCH=-quick)
	@cd e2e && $(GO) run ./bench $(BENCH)
bench-streams: traefik ## 1,000 streams at once through CART and through Traefik's balancer
	@cd e2e && $(GO) run ./bench -streams $(BENCH)
bench-memory: traefik ## 2 GB of prompts through CART with a bounded tree
	@cd e2e && $(GO) run ./bench -memory $(BENCH)
bench-micro: ## micro-benchmarks, compiled
	@$(GO) test -run '^$$' -bench '$(or $(RUN),.)' -benchmem .
bench-yaegi: $(BIN)/yaegi gopath ## micro-benchmarks, interpreted
	@GOPATH=$(GOPATHS) $(BIN)/yaegi test -run '^$$' -bench '$(or $(RUN),.)' -benchmem $(MODULE)
bench-cmp: $(BIN)/benchstat ## micro-benchmarks of the commit OLD against the working tree
	@bash tools/bench-cmp '$(OLD)' '$(or $(RUN),.)' '$(COUNT)' $(CACHE)/bench $(BIN)/benchstat

.PHONY: replay
replay: ## recorded request traces through CART's policies to modelled replicas, as Markdown (REPLAY='-seeds 1 -only conversation')
	@cd e2e && $(GO) run ./replay $(REPLAY)

# Both take minutes and want the machine for themselves. A part of a run: SEEDS=1 WORKLOADS=even TARGETS=cart-cost,sglang-router,
# and for real PARTS=install, compare or restart, and VLLM=folder, which takes 6 GB.
COMPARED = $(if $(SEEDS),-seeds $(SEEDS)) $(if $(WORKLOADS),-workloads $(WORKLOADS)) $(if $(TARGETS),-targets $(TARGETS)) $(if $(OUT),-o $(OUT))
.PHONY: real fleet
real: traefik ## CART beside Traefik's balancers and the Rust routers before three real vLLM servers, and one of them restarted
	@cd e2e && $(GO) run ./real -vllm '$(or $(VLLM),$(CACHE)/vllm)' $(if $(PARTS),-parts $(PARTS)) $(COMPARED)
fleet: traefik ## CART beside Traefik's balancers and sglang-router before eight simulated replicas, in real time
	@cd e2e && $(GO) run ./fleet $(COMPARED)

.PHONY: cases
cases: traefik ## the public cases by id on each engine, or on ENGINE (RUN=regexp of ids, FULL=1: no wait scaled down)
	@cd e2e && FULL='$(FULL)' GO='$(GO)' $(GO) run ./cmd/cases

.PHONY: soak
soak: traefik ## Traefik with CART under load while things break, with a verdict (DUR=20s: shorter than 3m)
	@cd e2e && DUR='$(DUR)' $(GO) run ./soak

.PHONY: churn
churn: traefik ## 1,000 changes of a Traefik service in 100 s under load, with a verdict (DUR=10s: shorter)
	@cd e2e && DUR='$(DUR)' $(GO) run ./cmd/churn

.PHONY: symptoms
symptoms: traefik ## five planted faults, and what the page and the metrics say of each (RUN=part of a name)
	@cd e2e && $(GO) run ./operate symptoms '$(RUN)'

.PHONY: demo
demo: ## Traefik with CART before simulated replicas, explained as it runs (KEEP=1: leave it running)
	@mkdir -p $(BIN) && $(GO) -C e2e build -o $(BIN)/demo ./demo
	@cd e2e && { $(BIN)/demo || { rc=$$?; test $$rc -eq 130; }; } # Ctrl-C is a way to end it

.PHONY: dist
dist: ## a release in dist/: the plugin laid out for plugins-local, as tar.gz and zip, with checksums (VERSION=v1.2.3)
	@$(GO) -C tools run ./dist -root .. -version '$(VERSION)' -o $(CURDIR)/dist

.PHONY: clients-real load
clients-real: $(BIN)/phase traefik ## the official SDKs with llama.cpp behind CART in place of simulated replicas
	@$(TESTS) clients-real -- $(GO) -C e2e test -json -count=1 -timeout 10m -run TestReal ./clients
load: traefik ## load on the demo from AIPerf, as docs/load-testing.md tells (fetches 900 MB of Python packages)
	@mkdir -p $(BIN) && $(GO) -C e2e build -o $(BIN)/demo ./demo
	@bash e2e/clients/load/load.sh $(BIN)/demo $(CACHE)/load

.PHONY: cart settings screenshots
cart: ## build .cache/bin/cart, which checks and migrates configurations
	@mkdir -p $(BIN) && $(GO) -C cmd build -o $(BIN)/cart ./cart && echo $(BIN)/cart
settings: ## write what is made of config.go: the tables in README.md and docs/settings.md, the schema of the Helm chart
	@$(GO) -C cmd run ./settings $(CURDIR) && $(GO) -C deploy/check test -count=1 -run TestHelm_schema -update . >/dev/null
screenshots: traefik ## take the pictures in docs/images anew (needs Chromium: apt-get install chromium)
	@cd e2e && $(GO) run ./cmd/screenshots && $(GO) run ./operate screenshots $(CURDIR)/docs/images

# --- tools ------------------------------------------------------------------------------------------------------------

.PHONY: tools gopath traefik
tools: $(BIN)/phase $(BIN)/golangci-lint $(BIN)/yaegi ## build the pinned tools into .cache/bin
traefik: $(BIN)/phase ## fetch the official Traefik into .cache
	@test -x "$$TRAEFIK_BIN" -o -x $(CACHE)/traefik-3.7.15/bin/traefik || \
	  $(PHASE) 'fetch traefik' -- bash tools/fetch-traefik $(CACHE)/traefik-3.7.15
gopath:
	@mkdir -p $(GOPATHS)/src/$(dir $(MODULE)) && ln -sfn $(CURDIR) $(GOPATHS)/src/$(MODULE)

$(BIN)/phase: $(wildcard tools/phase/*.go)
	@$(GO) -C tools build -o $@ ./phase
$(BIN)/golangci-lint: tools/go.mod tools/go.sum | $(BIN)/phase
	@$(PHASE) 'build golangci-lint' -- $(GO) -C tools build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/yaegi: tools/go.mod tools/go.sum | $(BIN)/phase
	@$(PHASE) 'build yaegi' -- $(GO) -C tools build -o $@ github.com/traefik/yaegi/cmd/yaegi
$(BIN)/helm $(BIN)/hadolint: tools/fetch-program | $(BIN)/phase
	@$(PHASE) 'fetch $(@F)' -- bash tools/fetch-program $(@F) $@
$(BIN)/benchstat: tools/go.mod tools/go.sum | $(BIN)/phase
	@$(PHASE) 'build benchstat' -- $(GO) -C tools build -o $@ golang.org/x/perf/cmd/benchstat

.PHONY: ci clean
ci: ## what CI runs, its set-up included
	@bash .ci/run
clean: ## remove .cache
	@chmod -R u+w .cache 2>/dev/null; rm -rf .cache
