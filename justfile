# Recipes for daily work. `.ci/run` defines every check once; the recipes give its stages short names.

# List the recipes
default:
    @just --list --unsorted

# Run the landing tier: all checks that must pass before a merge
ci:
    .ci/run

# Run the nightly tier: slower checks
nightly:
    .ci/run nightly

# Run the quick checks before a commit
check:
    .ci/run fmt clippy test

# Run unit and integration tests
test:
    .ci/run test

# Format the code
fmt:
    cargo fmt --all

# Run clippy with warnings denied
clippy:
    .ci/run clippy

# Build the API documentation with warnings denied
doc:
    .ci/run doc

# Build the documentation as a searchable site in target/book/book
book:
    .ci/run book

# Check licences, bans and sources of the dependencies
supply-chain:
    .ci/run supply-chain

# Build the static binary that the checks run
build:
    .ci/run build

# Replay recorded responses through the proxy (needs ../shared)
replay: build
    .ci/run replay

# Run the providers' official clients through the proxy (needs ../shared)
clients: build
    .ci/run clients

# Compare span timestamps with the times at which the upstream wrote (needs ../shared)
timeline: build
    .ci/run timeline

# Run mixed traffic with faults for some minutes
soak MINUTES: build
    SOAK_SECONDS=$(({{MINUTES}} * 60)) .ci/run soak

# Build, run, drain and stop the image with a Docker engine
docker: build
    .ci/run docker

# Run image, manifests and chart on a real Kubernetes node (kubelet, containerd, kube-proxy)
node: docker
    .ci/run node

# Build the image for arm64 and run it with QEMU
arm64:
    .ci/run arm64

# Install, upgrade and remove the packages of a release in clean roots
dist: build
    .ci/run dist

# Build the files of the image again in another folder and compare every byte
reproducible:
    .ci/run reproducible

# Compare `tokengauge report` on a million lines with an independent script
report: build
    .ci/run report

# Compare with another instrument: aiperf, guidellm or conventions (--write: renew its section of docs/explanation/agreement.md)
judge NAME *arguments: build
    JUDGES={{NAME}} JUDGE_OPTIONS="{{arguments}}" .ci/run judges

# Check the FOCUS output of `tokengauge report` with the official validator
focus: build
    .ci/run focus

# Replay a trace of `tokengauge report --format trace` with AIPerf
trace: build
    .ci/run trace

# ClickHouse: tables, `report --clickhouse` and the Collector's exporter, on a real engine
clickhouse: build
    .ci/run clickhouse

# Compare tokens, times and gauges with a real llama.cpp
engines: build
    .ci/run engines

# Run the demo: simulated backends, load, proxy and live view in one process
demo *arguments:
    cargo run --release -- demo {{ arguments }}

# Run every fuzz target for 5 s (FUZZ_SECONDS, FUZZ_TARGETS)
fuzz:
    .ci/run fuzz

# Run the microbenchmarks
bench *arguments:
    cargo bench --workspace {{ arguments }}

# Compare the overhead of the proxy with a bare relay, and with nginx, HAProxy and Envoy if they are installed (--quick: a minute)
overhead *arguments:
    cargo build --profile dist -p tokengauge -p tokengauge-overhead
    python3 benches/overhead.py --lab target/dist/overhead --binary target/dist/tokengauge {{ arguments }}
