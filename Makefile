# Two commands do everything on a machine that has Rust:
#   make demo    watch a queue at work on a private PostgreSQL
#   make test    everything that CI runs
# Each installs what is missing: apt packages when root, a clear message otherwise.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ARGS ?=

.PHONY: help demo bench bench-peers test deps deps-test fmt lint unit doc schema

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: deps ## a queue at work; ARGS="--duration 15s" ends by itself
	cargo run --quiet --release -p rowlock-cli -- demo $(ARGS)

bench: deps ## the queue and the machine's own limit, a few minutes; ARGS="drain --jobs 1000000" for something else
	mkdir -p target
	cargo run --quiet --release -p rowlock-cli -- bench $(if $(ARGS),$(ARGS),--jobs 100000 --samples 200 --duration 5s --rounds 3 --report target/bench.html)

test: deps-test fmt lint unit doc ## everything that CI runs

deps:
	@scripts/install-missing postgres

deps-test:
	@scripts/install-missing postgres pgbouncer nextest python3

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets --all-features -- -D warnings

unit:
	cargo nextest run --workspace --all-features --no-tests=fail
	cargo test --workspace --all-features --doc --quiet
	python3 -m unittest discover -s bench/peers/tests

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --quiet

schema: ## write sql/schema.sql anew after a change of the SQL
	ROWLOCK_UPDATE_SCHEMA=1 cargo nextest run -p rowlock sql::dump

bench-peers: deps ## Rowlock and its peers side by side, three quarters of an hour; ARGS="--quick" or ARGS="--only rowlock,pgmq --rounds 1"
	python3 bench/peers/run.py $(ARGS)
