# All targets need only Go. `make help` lists them.
GO        ?= go
BIN       := bin/nearside
VERSION   ?= $(shell sed -n 's/^var version = "\(.*\)"/\1/p' cmd/agent/main.go)
# Without grpc's trace pages and html/template, the linker can remove unused methods: the binary is
# 5 MB smaller.
TAGS      := grpcnotrace
LDFLAGS   := -s -w -X main.version=$(VERSION)
DATA      ?= nearside-data
FUZZTIME  ?= 10s
ENVOY_VERSION ?= 1.36.2
ENVOY_CACHE ?= $(or $(NEARSIDE_CI_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/nearside-ci)
LINT      := bin/lint

.DEFAULT_GOAL := help
.PHONY: help build run demo test race fuzz traffic traffic-fuzz traffic-changes pool pool-storm dns-restarts envoy envoy-formats envoy-fuzz lint vuln bench screenshot fidelity golden ci deb rpm package-test image kubernetes-manifests kubernetes-test clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the static binary bin/nearside
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/agent

run: build ## run the agent with examples/quickstart; all its files are below ./nearside-data
	@sh examples/quickstart/run.sh $(BIN) $(DATA)

demo: build ## show the main features with real xDS clients and the Envoy of "make envoy"
	$(GO) run ./examples/demo $(BIN) $(wildcard $(ENVOY_CACHE)/envoy-$(ENVOY_VERSION)/lib/python*/site-packages/envoy/_bin/envoy)

test: ## run all tests
	$(GO) test ./...
	$(GO) -C packaging/kubernetes/watcher test ./...

race: ## run the tests of packages that start goroutines under the race detector
	$(GO) test -race -short $$(bash .ci/goroutine-packages)

fuzz: ## run every fuzz target for FUZZTIME (10s) each
	bash .ci/fuzz $(FUZZTIME)

N         ?= 500
SEED      ?= 1
envoy-fuzz: ## compare the config check with a real Envoy (ENVOY_BIN or PATH) on N (500) generated inputs
	ENVOY_FUZZ_N=$(N) ENVOY_FUZZ_SEED=$(SEED) $(GO) test -count=1 -timeout 30m -v -run TestEnvoyFuzz ./agent/answer/envoybin
	REJECTED_N=$(N) REJECTED_SEED=$(SEED) $(GO) test -count=1 -timeout 30m -v -run TestRejectedInputs ./agent

TRAFFIC   = PATH="$$PATH:$$(dirname "$$(bash .ci/install-envoy $(ENVOY_VERSION))")" $(GO) test -count=1 -timeout 30m
traffic: ## send traffic through real Envoys and compare the results with explanations (needs root)
	$(TRAFFIC) ./agent/test/traffictest

TRAFFIC_N ?= 200
traffic-fuzz: ## like traffic, with TRAFFIC_N (200) random connections and policies from SEED (1)
	TRAFFIC_FUZZ_N=$(TRAFFIC_N) TRAFFIC_FUZZ_SEED=$(SEED) $(TRAFFIC) -run TestTrafficFuzz ./agent/test/traffictest

CHANGES   ?= 200
traffic-changes: ## make CHANGES (200) random changes from SEED (1) under traffic through three real Envoys
	CHANGES_N=$(CHANGES) CHANGES_SEED=$(SEED) $(TRAFFIC) -v -run TestChanges ./agent/test/changetest

pool: ## partition, reconnect, and kill five machines with real Envoys (needs root)
	POOL=whole $(TRAFFIC) -v -run TestTrafficInPool ./agent/test/traffictest

KILLS     ?= 200
pool-storm: ## kill the agents of a pool KILLS (200) times while others write, and compare all nodes
	$(GO) test -count=1 -timeout 60m -v -run TestStormOfKilledNodes ./agent/test/pooltest -kills $(KILLS)

DNS_RESTARTS ?= 50
dns-restarts: ## resolve 200 names per second during DNS_RESTARTS (50) agent restarts (needs root)
	DNS_RESTARTS=$(DNS_RESTARTS) $(GO) test -count=1 -timeout 30m -v -run 'TestDNSOver(Restarts|Kills)' ./cmd/agent

envoy: ## install an Envoy (ENVOY_VERSION, 1.36.2) below the cache and print its path
	@bash .ci/install-envoy $(ENVOY_VERSION)

envoy-formats: ## ask Envoy 1.36 to 1.40 which log formats they accept, and update the table of them
	.ci/formats

lint: ## run gofmt and the analyzers of go vet and staticcheck
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	CGO_ENABLED=0 $(GO) -C .ci/tools build -trimpath -o $(CURDIR)/$(LINT) ./lint
	$(GO) vet -vettool=$(CURDIR)/$(LINT) ./...

vuln: ## check for known vulnerabilities (needs the network)
	$(GO) tool -modfile=.ci/tools/go.mod govulncheck ./...

bench: ## run the benchmarks, compare them with the reference, and plot docs/performance.svg
	bash .ci/bench

screenshot: build ## write docs/screenshot.svg from the output of a command
	bash .ci/screenshot $(BIN)

fidelity: build ## compare the configs of random inputs with a reference and print the differences
	.ci/fidelity --binary $(BIN)

golden: ## update the expected output of tests; review the diff before you commit it
	UPDATE_GOLDEN=1 $(GO) test ./...

ci: ## run all checks that a change must pass
	bash .ci/run

deb: ## build dist/*.deb for amd64 and arm64
	bash packaging/build deb

rpm: ## build dist/*.rpm for amd64 and arm64
	bash packaging/build rpm

package-test: ## test the package on Debian 12 and 13 booted with systemd (needs root)
	packaging/systemd/test

K8S       := packaging/kubernetes
ARCHS     := amd64 arm64
image: ## build both images for amd64 and arm64 in dist (OCI layouts) without a daemon, and list their layers
	@for a in $(ARCHS); do mkdir -p dist/rootfs/$$a dist/rootfs-kubernetes/$$a && \
	CGO_ENABLED=0 GOARCH=$$a $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o dist/rootfs/$$a/nearside ./cmd/agent && \
	CGO_ENABLED=0 GOARCH=$$a $(GO) -C $(K8S)/prepare build -trimpath -ldflags '-s -w' -o $(CURDIR)/dist/rootfs/$$a/prepare . && \
	CGO_ENABLED=0 GOARCH=$$a $(GO) -C $(K8S)/watcher build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $(CURDIR)/dist/rootfs-kubernetes/$$a/nearside-kubernetes . || exit 1; done
	cd $(K8S)/test && $(GO) run ./image -out $(CURDIR)/dist/image -oci-tar $(CURDIR)/dist/image.tar \
	$(foreach a,$(ARCHS),linux/$(a)=$(CURDIR)/dist/rootfs/$(a))
	cd $(K8S)/test && $(GO) run ./image -out $(CURDIR)/dist/image-kubernetes -oci-tar $(CURDIR)/dist/image-kubernetes.tar \
	-tag ghcr.io/nearside-mesh/nearside-kubernetes:dev -entrypoint /nearside-kubernetes -command watch -user 65531:65532 \
	$(foreach a,$(ARCHS),linux/$(a)=$(CURDIR)/dist/rootfs-kubernetes/$(a))

kubernetes-manifests: build ## validate the manifests, and compare them with the chart and with bin/nearside
	cd $(K8S)/test && NEARSIDE_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 ./...
	cd $(K8S)/watcher && $(GO) vet ./... && $(GO) test -count=1 ./...

kubernetes-test: ## test the manifests and the mesh on a real single-node Kubernetes (needs root)
	packaging/kubernetes/test/cluster
	packaging/kubernetes/test/mesh
	packaging/kubernetes/test/webhook

clean: ## remove the files that builds and runs create
	rm -rf bin dist $(DATA)
