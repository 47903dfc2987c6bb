# The front door. Every target installs what is missing (Debian, Ubuntu) and builds what it needs.
#   make run      let the demo model answer "The color of the sky is"
#   make test     the tests; make test-more runs those, too, that only try more models on the GPU
#   make build    the program, at build/release/doppler
#   make sanitize every test under AddressSanitizer and UndefinedBehaviorSanitizer
#   make threads  what the interface promises about threads, under ThreadSanitizer
#   make fuzz     a minute of fuzzing for each parser
#   make install  program, libraries, headers and man page, to PREFIX (/usr/local)
#   make package  a Debian package with the same, in build/release
#   make web      the engine as WebAssembly with its JavaScript, in build/web; make test-web tests it in node and Chromium
#   make bench    speed and memory of 1B models against the limits of this machine
#   make format   clang-format over everything
#   make cost     what compiling costs, by room, from nothing
# DOPPLER_GPU=OFF leaves the GPU backend out, and the library and drivers that only it needs.
.PHONY: run build test test-more test-web sanitize threads fuzz web installable install package bench format cost clean deps
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
DOPPLER_GPU ?= ON
export DOPPLER_GPU

run: build
	@answer=$$(build/release/doppler run demo "The color of the sky is" --raw --max-tokens 40) && \
	  echo "The color of the sky is$$answer"

deps:
	@scripts/install_deps.sh

build: deps
	@cmake --preset release -DDOPPLER_GPU=$(DOPPLER_GPU) -DDOPPLER_TESTS=OFF >/dev/null
	cmake --build build/release --target doppler -j $(JOBS)

test: deps
	@cmake --preset release -DDOPPLER_GPU=$(DOPPLER_GPU) -DDOPPLER_TESTS=ON >/dev/null
	cmake --build build/release --target doppler_tests -j $(JOBS)
	ctest --preset release -j $(JOBS)

test-more: test
	ctest --preset more -j $(JOBS)

sanitize: deps
	@cmake --preset debug -DDOPPLER_GPU=$(DOPPLER_GPU) >/dev/null
	cmake --build build/debug -j $(JOBS)
	ctest --preset debug -j $(JOBS)

threads: deps
	scripts/check_threads.sh

fuzz: deps
	scripts/run_fuzz.sh $(FUZZ_SECONDS)

web:
	@DOPPLER_GPU=ON scripts/install_deps.sh web
	@cmake --preset web >/dev/null
	cmake --build build/wasm --target web -j $(JOBS)

test-web: web build
	tests/web/web_test.py build/release/doppler build/web
	tests/web/look_test.py build/release/doppler build/web
	tests/web/page_test.py build/release/doppler build/web
	tests/web/examples_test.py build/release/doppler build/web
	tests/web/gpu_test.py build/release/doppler build/web
	tests/web/families_gpu_test.py build/release/doppler build/web
	tests/web/store_test.py build/web
	tests/web/harness_test.py build/release/doppler build/web

# What is built is what is installed; the tests' part of the build folder stays as it is.
installable: deps
	@cmake --preset release -DDOPPLER_GPU=$(DOPPLER_GPU) >/dev/null
	cmake --build build/release --target doppler_installable -j $(JOBS)

install: installable
	cmake --install build/release --prefix $(PREFIX)

package: installable
	cd build/release && cpack

bench: build
	bench/run.sh

format: deps
	@scripts/format.sh

cost:
	@scripts/build_cost --tests

clean:
	rm -rf build
