# Recipes for daily work. Each stage is written once, in .ci/run, which CI calls too; `just` only gives it a short name.

# The list of recipes
default:
    @just --list --unsorted

# Everything that CI runs
ci:
    .ci/run

# What is quick enough to run before each commit
check:
    .ci/run fmt clippy test

# Unit and integration tests
test:
    .ci/run test

# Formatting
fmt:
    cargo fmt

# Lints, warnings denied
clippy:
    .ci/run clippy

# The API documentation, warnings denied
doc:
    .ci/run doc

# Licences, banned crates and sources of the dependencies
supply-chain:
    .ci/run supply-chain

# The optimised binary
build:
    .ci/run build

# Recorded answers through the proxy: bytes, spans, usage and counts (needs ../shared)
replay: build
    .ci/run replay

# The official Python client through the proxy (needs ../shared)
clients: build
    .ci/run clients

# Times on spans against the times at which the upstream wrote (needs ../shared)
timeline: build
    .ci/run timeline

# The image by a Docker engine of its own: built, run, drained and stopped
docker: build
    .ci/run docker

# Pods, manifests and chart on a real node: kubelet, containerd, kube-proxy
node: docker
    .ci/run node

# The image for arm64, run by QEMU
arm64:
    .ci/run arm64

# The image's files built again elsewhere and compared byte for byte
reproduced:
    .ci/run reproduced

# `tokengauge report` on a million lines against figures computed independently
report: build
    .ci/run report

# Everything in one process, for as long as it is watched
demo *arguments:
    cargo run --release -- demo {{ arguments }}

# Every fuzz target for 12 s (FUZZ_SECONDS, FUZZ_TARGETS)
fuzz:
    .ci/run fuzz

# Benchmarks of the parts
bench *arguments:
    cargo bench {{ arguments }}

# What the proxy costs beside a bare relay, telemetry on (LOADLAB: the built driver of ../shared/loadlab)
overhead loadlab *arguments:
    cargo build --release --bin tokengauge --example otlp_sink
    python3 benches/overhead.py --loadlab {{ loadlab }} --binary target/release/tokengauge \
        --sink target/release/examples/otlp_sink {{ arguments }}
