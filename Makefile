# The front door: every target builds what it needs, installing missing packages first on Debian and Ubuntu.
.PHONY: run build test check format bench fuzz clean
JOBS ?= $(shell nproc)

build: build/release/build.ninja
	cmake --build build/release -j $(JOBS)

build/%/build.ninja: CMakeLists.txt CMakePresets.json
	@scripts/install_deps.sh
	cmake --preset $*

format:
	@scripts/format.sh
