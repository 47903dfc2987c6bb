#!/usr/bin/env bash
# Puts the WebGPU library (wgpu-native, with the standard C header) into .deps of this repository, where CMake looks for it.
# It comes out of the Python package wgpu, the one place that has the same build for every Linux; nothing of Python is
# needed later. Each file must have the SHA-256 below. Does nothing and says nothing if all is there.
#   --tensor-cores   also builds providers/tensor-cores, with cargo: the library that programs take in its place where it is
#                    there, and whose prompts run on tensor cores. Two minutes; cargo fetches what Cargo.lock names.
set -euo pipefail
cd "$(dirname "$0")/.."
case "$*" in
  "") tensor_cores= ;;
  --tensor-cores) tensor_cores=1 ;;
  *) echo "Usage: $0 [--tensor-cores]" >&2; exit 2 ;;
esac

# pin_crates DIR: writes Cargo.lock, versions and SHA-256 of all crates, from Cargo.lock.in, which lacks what differs between
# machines: where cargo takes crates from. It says so itself in a lock file of its own for a crate that needs one other.
pin_crates() {
  local work from; work=$(mktemp -d)
  mkdir "$work/src" && : > "$work/src/lib.rs"
  printf '[package]\nname = "asks"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nlog = "0.4"\n' > "$work/Cargo.toml"
  cargo generate-lockfile --quiet --manifest-path "$work/Cargo.toml"
  from=$(grep -m1 '^source = ' "$work/Cargo.lock")
  rm -rf "$work"
  sed "s|^source = .*|$from|" "$1/Cargo.lock.in" > "$1/Cargo.lock"
}

# build_tensor_cores: from the sources that are here, unless that has been done.
build_tensor_cores() {
  local source=providers/tensor-cores root=.deps/tensor-cores-29.0.4  # cmake/webgpu.cmake names it too
  local state; state=$(cat $source/Cargo.toml $source/Cargo.lock.in $source/src/*.rs | sha256sum)
  [ -f $root/lib/libwgpu_native.so ] && [ "$(cat $root/built_from 2>/dev/null)" = "$state" ] && return
  if ! command -v cargo >/dev/null; then
    echo "There is no cargo here, which builds the library for tensor cores. Install Rust 1.87 or newer." >&2
    echo "Without that library all runs as before." >&2
    return 1
  fi
  echo "Building the WebGPU library for tensor cores (about two minutes)"
  pin_crates $source
  CARGO_TARGET_DIR=.deps/tensor-cores-build cargo build --quiet --release --locked --lib \
    --manifest-path $source/Cargo.toml
  mkdir -p $root/lib
  # In one step: a program that runs keeps the file that it has.
  cp .deps/tensor-cores-build/release/libwgpu_native.so $root/lib/new.so
  mv $root/lib/new.so $root/lib/libwgpu_native.so
  echo "$state" >$root/built_from
}
# finish: ends the script when wgpu-native is there.
finish() {
  [ -z "$tensor_cores" ] || build_tensor_cores
  exit
}

package=wgpu==0.32.0
root=.deps/wgpu-native-29.0.1.1  # the version of the library in that package; cmake/dependencies.cmake names it too
case "$(uname -sm)" in
  "Linux x86_64") machine=x86_64 library=be0d8270dd9d78e1039eeb413ee21be8a89776a752e56d6b0f57eefbbc2d749c ;;
  "Linux aarch64") machine=aarch64 library=51d8a711c9a687f824712c42a206800b69f14eff8667a88f2f86936cdef0ebd0 ;;
  *) echo "There is no WebGPU library for $(uname -sm) here. Build without GPU: set DOPPLER_GPU=OFF." >&2; exit 1 ;;
esac
sums="$library  lib/libwgpu_native.so
a483031c3fed05ea5dd1c74082a71676c46c5b2b820ccca10da515c033efc997  include/webgpu/webgpu.h
7bd23656d394f620a804b1f174444ea17082b6d330a2fca0c0e6b1121ec4b284  include/webgpu/wgpu.h"

# all_there DIR: every file is there and is the one expected.
all_there() { [ -d "$1" ] && (cd "$1" && sha256sum --check --status <<<"$sums" 2>/dev/null); }
if all_there "$root"; then finish; fi

# The first python3 may be one without pip (a user's own, before the system's): any that has pip will do.
python=
while read -r candidate; do
  if "$candidate" -m pip --version >/dev/null 2>&1; then python=$candidate; break; fi
done < <(type -ap python3; echo /usr/bin/python3)
if [ -z "$python" ]; then
  echo "No python3 here has pip, which fetches the WebGPU library. Run: apt-get install python3-pip" >&2
  echo "Or build without GPU: set DOPPLER_GPU=OFF." >&2
  exit 1
fi

mkdir -p .deps
work=$(mktemp -d .deps/fetching.XXXXXX)
trap 'rm -rf "$work"' EXIT
echo "Fetching the WebGPU library (the Python package $package)"
# Platform and Python version are named, so that the running Python's age does not matter.
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --platform "manylinux_2_28_$machine" --python-version 3.12 --dest "$work" "$package"; then
  echo "The package $package could not be fetched. Check the network and pip's settings, then run $0 again." >&2
  echo "Or build without GPU: set DOPPLER_GPU=OFF." >&2
  exit 1
fi
"$python" -m zipfile -e "$work"/wgpu-*.whl "$work/package"
mkdir -p "$work/new/lib" "$work/new/include/webgpu"
mv "$work/package/wgpu/resources/libwgpu_native-release.so" "$work/new/lib/libwgpu_native.so"
mv "$work"/package/wgpu/resources/{webgpu.h,wgpu.h} "$work/new/include/webgpu/"
if ! all_there "$work/new"; then
  echo "The package $package holds another WebGPU library than the one this program was tested with (its SHA-256 differs)." >&2
  echo "Nothing was installed. Run $0 again; if that does not help, see where pip fetches packages from." >&2
  exit 1
fi
rm -rf "$root"
mv -T "$work/new" "$root"
finish
