#!/bin/sh
# Downloads a release of tokengauge for this machine, verifies its SHA-256 checksum, and installs the program.
#
#   install.sh [--prefix FOLDER]
#
#   --prefix FOLDER        installs FOLDER/bin/tokengauge; default /usr/local for root, otherwise ~/.local
#   TOKENGAUGE_VERSION     version to install, such as 0.1.0; default: the newest release
#   TOKENGAUGE_BASE_URL    address of a mirror of the releases page
#
# Everything is in functions, so that a download of this script that breaks off runs nothing.
set -eu

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

download() { # url file
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget -q -O "$2" "$1"
  else
    fail "curl or wget is needed"
  fi
}

verify() { # folder file
  if command -v sha256sum >/dev/null; then
    (cd "$1" && grep " $2\$" SHA256SUMS | sha256sum -c - >/dev/null 2>&1)
  elif command -v shasum >/dev/null; then
    (cd "$1" && grep " $2\$" SHA256SUMS | shasum -a 256 -c - >/dev/null 2>&1)
  else
    fail "sha256sum or shasum is needed to verify the download"
  fi
}

platform() {
  case $(uname -s)-$(uname -m) in
    Linux-x86_64) echo linux-x86_64 ;;
    Linux-aarch64) echo linux-aarch64 ;;
    Darwin-arm64) echo darwin-aarch64 ;;
    *) fail "no binary for $(uname -s) on $(uname -m); build it from source with cargo install" ;;
  esac
}

main() {
  prefix=
  while [ $# -gt 0 ]; do
    case $1 in
      --prefix) prefix=${2:?--prefix needs a folder} && shift 2 ;;
      --prefix=*) prefix=${1#--prefix=} && shift ;;
      *) fail "unknown argument '$1'; allowed: --prefix FOLDER" ;;
    esac
  done
  if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
  fi
  releases=${TOKENGAUGE_BASE_URL:-https://github.com/example/tokengauge/releases}
  version=${TOKENGAUGE_VERSION:-}
  if [ -n "$version" ]; then from=$releases/download/v${version#v}; else from=$releases/latest/download; fi
  name=$(platform)

  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  download "$from/SHA256SUMS" "$folder/SHA256SUMS" || fail "cannot download $from/SHA256SUMS; is there a release ${version:-at all}?"
  archive=$(sed -n "s/^[0-9a-f]* [ *]\(tokengauge-[^ ]*-$name\.tar\.gz\)\$/\1/p" "$folder/SHA256SUMS")
  [ -n "$archive" ] || fail "the release has no archive for $name"
  download "$from/$archive" "$folder/$archive" || fail "cannot download $from/$archive"
  verify "$folder" "$archive" || fail "the checksum of $from/$archive is not the one in SHA256SUMS; nothing was installed"

  tar -xzf "$folder/$archive" -C "$folder"
  mkdir -p "$prefix/bin"
  # A rename replaces a program that runs, which a copy cannot.
  cp "$folder/${archive%.tar.gz}/tokengauge" "$prefix/bin/tokengauge.new"
  chmod 0755 "$prefix/bin/tokengauge.new"
  mv "$prefix/bin/tokengauge.new" "$prefix/bin/tokengauge"
  echo "installed $("$prefix/bin/tokengauge" --version) as $prefix/bin/tokengauge"
  case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "$prefix/bin is not in PATH" ;;
  esac
}

main "$@"
