# Libraries for machines that Debian has no packages for, made of Debian's source packages. To be sourced in the repository's
# root, with `machine` (cmake/machines/MACHINE.cmake) and `work` (a folder for what is fetched and built) set.

# An apt of its own for an architecture: as if nothing were installed, so that all that a package needs is fetched with it.
#   open_apt ARCHITECTURE
open_apt() {
  apt=$work/apt
  rm -rf "$apt"
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : > "$apt/status"
  cat > "$apt/apt.conf" <<END
APT::Architecture "$1";
#clear APT::Architectures;
APT::Architectures { "$1"; };
APT::Sandbox::User "$(id -un)";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
END
}

# Where Debian has no package for the machine: the sources that Debian's packages are made of, built and installed into a folder
# by their own CMake files. What follows a name and a colon are options of it.
#   build_sources FOLDER "NAME: OPTION..."...
build_sources() {
  local folder=$1 apt name options library
  shift
  [ ! -e "$folder/complete" ] || return 0
  open_apt amd64
  # The machine's own sources of packages, as sources of sources.
  mkdir -p "$apt/sources"
  [ ! -e /etc/apt/sources.list ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > "$apt/sources/main.list"
  for name in /etc/apt/sources.list.d/*.sources; do
    [ ! -e "$name" ] || sed 's/^Types:.*/Types: deb-src/' "$name" > "$apt/sources/$(basename "$name")"
  done
  printf 'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "%s";\n' "$apt/sources" >> "$apt/apt.conf"
  APT_CONFIG=$apt/apt.conf apt-get update -qq 2>/dev/null || true
  for library in "$@"; do
    name=${library%%:*} options=${library#*:}
    [ ! -e "$work/$name.installed" ] || continue
    echo "Building $name from Debian's source package"
    mkdir -p "$work/sources/$name"
    (cd "$work/sources" && APT_CONFIG=$apt/apt.conf apt-get source -qq --tar-only "$name" > /dev/null)
    tar xf "$(ls "$work/sources/$name"_*.orig.tar.*z* | head -1)" -C "$work/sources/$name" --strip-components=1
    cmake -S "$work/sources/$name" -B "$work/sources/build-$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
      -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/machines/$machine.cmake" -DDOPPLER_SYSROOT="$folder" -DCMAKE_INSTALL_PREFIX="$folder" \
      $options > "$work/$name.log" 2>&1 \
      && nice ninja -C "$work/sources/build-$name" install >> "$work/$name.log" 2>&1 || { tail -30 "$work/$name.log"; exit 1; }
    touch "$work/$name.installed"
  done
  rm -rf "$apt"
  touch "$folder/complete"
}
