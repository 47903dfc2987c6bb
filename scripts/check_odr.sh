#!/usr/bin/env bash
# check_odr.sh: no type has two definitions. Two classes of one name in one namespace compile and link, and are undefined
# behaviour (the One Definition Rule); a compiler sees one file at a time and cannot tell. g++ can when it joins what it keeps
# of all files for optimising at link time, and that is all that happens here: nothing is optimised, no program is made.
# --in-turn: only where the number of commits is a multiple of six, since it compiles all rooms once more.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --in-turn ] && [ "$(scripts/turn.sh 6)" -ne 0 ]; then
  echo "It is checked at every sixth commit; scripts/check_odr.sh checks it now."
  exit 0
fi
folder=build/odr
cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="${CXX:-g++}" -DCMAKE_BUILD_TYPE=Joined -DDOPPLER_TESTS=OFF -DDOPPLER_WERROR=OFF \
  -DDOPPLER_UNITY=ON -DCMAKE_CXX_FLAGS="-O0 -w -flto -fno-fat-lto-objects" >/dev/null
rooms=$(sed -nE 's/^doppler_room\(([a-z]+) .*/doppler_\1/p' CMakeLists.txt)
# shellcheck disable=SC2086  # the rooms are words
cmake --build "$folder" --target $rooms -j "$(nproc)" >"$folder/build.log" || { tail -n 40 "$folder/build.log"; exit 1; }
find "$folder/CMakeFiles" -name '*.o' >"$folder/objects"
"${CXX:-g++}" -r -O0 -flto -flinker-output=rel -Wodr @"$folder/objects" -o "$folder/joined.o" 2>&1 | tee "$folder/odr.log"
if grep -q 'Wodr' "$folder/odr.log"; then
  echo "Some types are defined twice. Give each a name of its own, or its room's namespace."
  exit 1
fi
echo "$(wc -l <"$folder/objects") objects joined: every type has one definition"
