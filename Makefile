# Everything here needs Go alone. `make help` lists the targets.
GO        ?= go
BIN       := bin/nearside
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X main.version=$(VERSION)
DATA      ?= nearside-data
FUZZTIME  ?= 10s
STATICCHECK := $(GO) tool -modfile=.ci/tools/go.mod staticcheck

.DEFAULT_GOAL := help
.PHONY: help build run demo test race fuzz lint vuln bench golden ci clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/nearside, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/agent

run: build ## run the agent on examples/quickstart, everything below ./nearside-data
	@sh examples/quickstart/run.sh $(BIN) $(DATA)

demo: build ## show the main job with real xDS clients
	$(GO) run ./examples/demo $(BIN)

test: ## run all tests
	$(GO) test ./...

race: ## run the tests of the packages that start goroutines under the race detector
	$(GO) test -race $$(bash .ci/goroutine-packages)

fuzz: ## run every fuzz target for FUZZTIME (10s)
	bash .ci/fuzz $(FUZZTIME)

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
