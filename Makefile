# Everything a developer types. `make help` lists it.

SHELL   = /bin/bash
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.1.0-dev)
LDFLAGS  = -s -w -X main.version=$(VERSION)
WEB      = ui/web

# The packages whose tests are quick enough to run with the race detector on
# each check; the lab and the browser have their place in `make test`. The mesh
# goes alone: its boxes call each other dead when the machine has no time for them.
RACE = $(shell $(GO) list ./... | grep -v -e /node/lab -e '/mesh$$')

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ui ## Build bin/llmgw, web page included
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/llmgw ./cmd/llmgw

.PHONY: ui
ui: $(WEB)/dist/.built ## Build the web page that the daemon embeds

$(WEB)/node_modules/.installed: $(WEB)/package.json $(WEB)/package-lock.json
	@command -v npm >/dev/null || { echo 'the web page is built with Node.js 20.19 or later and npm; install them and try again' >&2; exit 1; }
	cd $(WEB) && npm ci --no-audit --no-fund
	@touch $@

$(WEB)/dist/.built: $(WEB)/node_modules/.installed $(shell find $(WEB) -type f -not -path '*/node_modules/*' -not -path '*/dist/*' 2>/dev/null)
	cd $(WEB) && npm run build
	@touch $@

.PHONY: run
run: build ## Serve a small real model on this machine and print how to ask it
	@packaging/dev/run.sh

.PHONY: test
test: build ## Get what the tests need and run all of them
	@packaging/dev/test.sh

.PHONY: check
check: $(WEB)/node_modules/.installed ## gofmt, vet, staticcheck, and the race detector on the small packages
	@test -z "$$(gofmt -l .)" || { gofmt -l . ; echo 'run gofmt -w on these' >&2; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	cd $(WEB) && npm run --silent check
	$(GO) test -race -short $(RACE)
	$(GO) test -race -short ./mesh

.PHONY: lab
lab: build ## Run only the tests of several boxes, in network namespaces (root)
	@packaging/dev/test.sh ./node/lab/...

.PHONY: clients
clients: build ## Run unmodified clients against two boxes and print what works with which (root)
	@packaging/dev/test.sh -run 'TestClients$$' ./node/lab

.PHONY: bench
bench: build ## Run the benchmarks; figures are ratios against a baseline of the same run
	@packaging/dev/bench.sh

# How much of it: make sim SEEDS=5000, make chaos MINUTES=10.
SEEDS   ?= 1000
MINUTES ?= 5

.PHONY: sim
sim: ## Simulate boxes, their network and their faults; the last line is the figure (SEEDS=1000)
	@SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 120m -v -run 'TestSimulator$$' ./crdt/crdtsim | grep -e '^simulator' -e '^ *sim.*_test.go' -e FAIL; \
	exit $${PIPESTATUS[0]}

.PHONY: trace
trace: ## Simulate routing over two published traces; the last lines are the figures
	@TRACE=full $(GO) test -count=1 -timeout 60m -v -run 'TestTraces$$' ./router/affinity | grep -v -e '^=== ' -e '^--- PASS' -e '^PASS' -e '^ok '; \
	exit $${PIPESTATUS[0]}

.PHONY: chaos
chaos: build ## Hurt five real boxes at random under load; the last line is the figure (MINUTES=5, root)
	@report=$$(mktemp); MINUTES=$(MINUTES) LLMGW_CHAOS_REPORT=$$report packaging/dev/test.sh -run 'TestChaos$$' ./node/lab; \
	code=$$?; cat $$report; rm -f $$report; exit $$code

.PHONY: limits
limits: build ## Offer limits ten times what they let through, on eight boxes, and cut them in two (root)
	@LIMITS=full $(GO) test -count=1 -timeout 20m -v -run 'TestLimits$$' ./node/lab | grep -v -e '^=== ' -e '^--- PASS' -e '^PASS' -e '^ok '; \
	exit $${PIPESTATUS[0]}

.PHONY: clean
clean: ## Remove what was built and the state of make run
	rm -rf bin .run $(WEB)/node_modules
	git clean -qfdX $(WEB)/dist
