#!/usr/bin/env bash
# Puts Binaryen's wasm-opt, from npm, of the version and hash below, into .deps/binaryen: with it modules are a sixteenth smaller
# to download, and without it make web works all the same. Debian's own is too old to know relaxed vectors as browsers take them.
set -euo pipefail
cd "$(dirname "$0")/.."
version=132.0.0
hash=sha512-4Usg7yEvwO3FMso3Oov6qkOOHSod1IEv+boKkh77kTljM+eNBouqCTbqWswGzbG+vDNO/b/v2C4gfEh1WgB9Lg==
home=.deps/binaryen
[ ! -e "$home/complete-$version" ] || exit 0
if ! command -v npm > /dev/null; then
  echo "There is no npm, so that modules are not made smaller by wasm-opt."
  exit 0
fi
mkdir -p "$home"
package='"name": "tools", "version": "0.0.0", "dependencies": {"binaryen": "'$version'"}'
echo "{$package}" > "$home/package.json"
cat > "$home/package-lock.json" <<END
{"name": "tools", "version": "0.0.0", "lockfileVersion": 3, "requires": true, "packages": {"": {$package},
 "node_modules/binaryen": {"version": "$version", "integrity": "$hash"}}}
END
if (cd "$home" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error > install.log 2>&1); then
  touch "$home/complete-$version"
else
  tail -3 "$home/install.log"
  echo "wasm-opt cannot be fetched, so that modules are not made smaller by it."
fi
