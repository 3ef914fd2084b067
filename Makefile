# Everything here needs Go alone. `make help` lists the targets.
GO        ?= go
BIN       := bin/nearside
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X main.version=$(VERSION)
DATA      ?= nearside-data
FUZZTIME  ?= 10s
ENVOY_VERSION ?= 1.36.2
ENVOY_CACHE ?= $(or $(NEARSIDE_CI_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nearside-ci)
STATICCHECK := $(GO) tool -modfile=.ci/tools/go.mod staticcheck

.DEFAULT_GOAL := help
.PHONY: help build run demo test race fuzz traffic traffic-fuzz envoy envoy-fuzz lint vuln bench golden ci clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/nearside, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/agent

run: build ## run the agent on examples/quickstart, everything below ./nearside-data
	@sh examples/quickstart/run.sh $(BIN) $(DATA)

demo: build ## show the main job with real xDS clients, and with the Envoy of "make envoy"
	$(GO) run ./examples/demo $(BIN) $(wildcard $(ENVOY_CACHE)/envoy-$(ENVOY_VERSION)/lib/python*/site-packages/envoy/_bin/envoy)

test: ## run all tests
	$(GO) test ./...

race: ## run the tests of the packages that start goroutines under the race detector
	$(GO) test -race $$(bash .ci/goroutine-packages)

fuzz: ## run every fuzz target for FUZZTIME (10s)
	bash .ci/fuzz $(FUZZTIME)

N         ?= 500
SEED      ?= 1
envoy-fuzz: ## compare the check with the Envoy of ENVOY_BIN (or the PATH) on N (500) generated inputs
	ENVOY_FUZZ_N=$(N) ENVOY_FUZZ_SEED=$(SEED) $(GO) test -count=1 -timeout 30m -v -run TestEnvoyFuzz ./agent/envoybin

TRAFFIC   = PATH="$$PATH:$$(dirname "$$(bash .ci/install-envoy $(ENVOY_VERSION))")" $(GO) test -count=1 -timeout 30m
traffic: ## send real connections through real Envoys, and compare them with what is explained (needs root)
	$(TRAFFIC) ./agent/traffictest

TRAFFIC_N ?= 200
traffic-fuzz: ## the same for TRAFFIC_N (200) random connections under random policies, from SEED (1) on
	TRAFFIC_FUZZ_N=$(TRAFFIC_N) TRAFFIC_FUZZ_SEED=$(SEED) $(TRAFFIC) -run TestTrafficFuzz ./agent/traffictest

envoy: ## install an Envoy (ENVOY_VERSION, 1.36.2) below the cache, and print where it is
	@bash .ci/install-envoy $(ENVOY_VERSION)

lint: ## gofmt, go vet and staticcheck
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...

vuln: ## look for known weaknesses (needs the network)
	$(GO) tool -modfile=.ci/tools/go.mod govulncheck ./...

bench: ## run the benchmarks and show them beside the reference figures
	bash .ci/bench

golden: ## write the expected output of tests anew; read the difference before you commit it
	UPDATE_GOLDEN=1 $(GO) test ./...

ci: ## what has to be green before a change goes in
	bash .ci/run

clean: ## remove what build and run leave behind
	rm -rf bin $(DATA)
