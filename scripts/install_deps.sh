#!/usr/bin/env bash
# Installs what building and testing Doppler needs, on Debian 12 and Ubuntu 24.04 (the packages have the same names).
# Asks nothing, says what it does, and does nothing if all is there. Elsewhere it lists what to install.
# With DOPPLER_GPU=OFF in the environment it leaves out what only the GPU backend needs.
#   scripts/install_deps.sh          compiler, build tools and libraries
#   scripts/install_deps.sh fuzz     the same and clang for the fuzz targets
#   scripts/install_deps.sh format   the same and clang-format
#   scripts/install_deps.sh aarch64  the same and what scripts/test_on aarch64 needs: a cross compiler and an emulator
#   scripts/install_deps.sh windows  the same for scripts/test_on windows: mingw-w64 and Wine
#   scripts/install_deps.sh web      the same and what make web needs: clang, lld and the C and C++ libraries for WebAssembly
#   scripts/install_deps.sh browser  the same and Chromium, for the test of the HTML pages, which is skipped without one
#   scripts/install_deps.sh dawn     the same and npm's webgpu, for the test of kernels by Chromium's compiler, which is skipped without it
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config python3
  libhwy-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libssl-dev libcurl4-openssl-dev libedit-dev libgtest-dev)
if [ "${DOPPLER_GPU:-ON}" = ON ]; then
  # pip fetches the WebGPU library; Mesa has a Vulkan driver that runs on the CPU, for machines without a GPU.
  packages+=(python3-pip libvulkan1 mesa-vulkan-drivers)
fi
case "${1:-}" in
  fuzz) packages+=(clang-19 libclang-rt-19-dev) ;;
  format) packages+=(clang-format-19) ;;
  aarch64) packages+=(g++-aarch64-linux-gnu qemu-user) ;;
  windows) packages+=(g++-mingw-w64-x86-64-posix gcc-mingw-w64-x86-64-posix wine wine64) ;;
  web) packages+=(clang-19 lld-19 llvm-19 wasi-libc libc++-19-dev-wasm32 libc++abi-19-dev-wasm32 libclang-rt-19-dev-wasm32) ;;
  browser) packages+=(chromium) ;;  # Debian; Ubuntu has it as a snap, and any Chrome on the PATH will do
  dawn) ;;
  "") ;;
  *) echo "install_deps.sh: unknown argument $1; use fuzz, format, aarch64, windows, web, browser, dawn or none" >&2; exit 2 ;;
esac

what=${1:-}
# What no package holds.
install_libraries() {
  [ "${DOPPLER_GPU:-ON}" != ON ] || "$(dirname "$0")/install_webgpu.sh"
  [ "$what" != web ] || "$(dirname "$0")/install_web.sh"
  [ "$what" != web ] || "$(dirname "$0")/install_wasm_opt.sh"
  [ "$what" != dawn ] || "$(dirname "$0")/install_dawn.sh"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is not a Debian or Ubuntu system. Install the equivalents of these packages, then run make again:"
  printf '  %s\n' "${packages[@]}"
  echo "The compiler must know C++23's <expected>: g++ 12 or newer, or clang 19 or newer. CMake must be 3.23 or newer."
  # Go on if the essential tools are there: the user may have installed everything already.
  command -v cmake >/dev/null && command -v ninja >/dev/null || exit 1
  install_libraries
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  install_libraries
  exit 0
fi

echo "Installing what is missing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "This needs root. Run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
install_libraries
