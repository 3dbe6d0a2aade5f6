#!/usr/bin/env bash
# Copies the libraries of the web console from npm, in the versions of package-lock.json, to web/vendor.
#
#   crates/console/vendor.sh [FOLDER]   FOLDER: where the packages go (default: web/vendor)
#
# The output is committed, so that a build needs no npm. The stage `console` of .ci/run compares it.
set -eu -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
output=$(realpath --canonicalize-missing "${1:-web/vendor}")

packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
cp package.json package-lock.json "$packages"
npm ci --prefix "$packages" --omit dev --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null
modules=$packages/node_modules

# Browsers resolve no bare names without an import map, and a strict Content-Security-Policy forbids inline import maps.
# The source maps are not shipped.
copy_module() { # from to
  sed -e 's#from *"preact"#from"./preact.js"#g' -e '/^\/\/# sourceMappingURL=/d' "$modules/$1" >"$output/$2"
}

mkdir -p "$output"
copy_module preact/dist/preact.mjs preact.js
copy_module preact/hooks/dist/hooks.mjs hooks.js
copy_module htm/dist/htm.mjs htm.js
copy_module uplot/dist/uPlot.esm.js uplot.js
cp "$modules/uplot/dist/uPlot.min.css" "$output/uplot.css"
for name in htm preact uplot; do
  version=$(node -p "require('$modules/$name/package.json').version")
  printf '%s %s\n\n' "$name" "$version"
  cat "$modules/$name/LICENSE"
  printf '\n'
done >"$output/LICENSES.txt"
