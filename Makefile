# The commands of the project. `make test` is the one test command; `make demo` shows the thing itself.
# Everything they need beside Rust, Python 3 with pip, Node and git is installed into .tools (or $PI_NVIM_TOOLS).
SHELL := bash
export PI_NVIM_TOOLS ?= $(CURDIR)/.tools
ISOLATED := scripts/isolated.sh

# rustup looks for its toolchains in the home folder; with an empty home they are still beside the cargo on PATH.
ifndef RUSTUP_HOME
beside := $(shell dirname "$$(dirname "$$(dirname "$$(command -v cargo || echo /x/x/x)")")")/.rustup
ifneq ($(wildcard $(beside)),)
export RUSTUP_HOME := $(beside)
endif
endif

.PHONY: help build test demo lint fmt conformance bench interop bench-peer pictures check clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: ## build the release binary into bin/
	cargo build --release --locked
	@mkdir -p bin && cp -f target/release/pi-nvim bin/pi-nvim.new && mv -f bin/pi-nvim.new bin/pi-nvim

test: ## run every test (unit, property, recorded cases, a real Neovim)
	@scripts/setup.sh nvim nextest
	@$(ISOLATED) cargo nextest run --locked --all-features --no-fail-fast
	@$(ISOLATED) cargo test --locked --doc --all-features --quiet

demo: ## watch an agent work: a terminal gets Neovim, anything else a headless run that is checked
	@scripts/setup.sh nvim
	@scripts/demo.sh

lint: ## formatters, clippy, Lua types, docs, licences
	@scripts/setup.sh nvim stylua luacheck deny shellcheck
	@scripts/lint.sh

fmt: ## format Rust and Lua
	@scripts/setup.sh stylua
	cargo fmt
	"$$PI_NVIM_TOOLS/npm/node_modules/.bin/stylua" lua plugin scripts

conformance: ## run the recorded cases and print `area passed of all, n deliberate differences`
	@scripts/setup.sh nvim nextest
	@scripts/conformance.sh

bench: ## measure start-up, memory, streaming, sessions, tools; fails when a figure is over twice its target
	@scripts/setup.sh nvim
	@scripts/bench.sh

interop: ## against programs of others: mock model servers, the vendors' types, the reference program
	@scripts/interop.sh

bench-peer: ## compare with the reference program in one run
	@scripts/setup.sh peer
	@$(ISOLATED) python3 scripts/bench_peer.py

pictures: ## draw the pictures in doc/images from the real thing
	@scripts/setup.sh nvim pictures
	@scripts/pictures.sh

clean: ## remove build output (not the tools)
	cargo clean
