#!/usr/bin/env bash
# install_from_npm.sh FOLDER NAME VERSION PACKAGES: puts NAME of that VERSION, from npm, into FOLDER.
# PACKAGES: its entry of a lock file and those of what it needs, with npm's hashes, as JSON members. Does nothing if
# it is all there. Exit status: 1 where there is no npm, or it fails, and says so.
set -euo pipefail
[ $# -eq 4 ] || { echo "install_from_npm.sh: a folder, a name, a version and entries of a lock file are needed" >&2; exit 2; }
folder="$1" name="$2" version="$3" packages="$4"
[ ! -e "$folder/complete-$version" ] || exit 0
if ! command -v npm > /dev/null; then
  echo "There is no npm."
  exit 1
fi
mkdir -p "$folder"
package='"name": "tools", "version": "0.0.0", "dependencies": {"'$name'": "'$version'"}'
echo "{$package}" > "$folder/package.json"
echo '{"name": "tools", "version": "0.0.0", "lockfileVersion": 3, "requires": true, "packages": {"": {'"$package"'}, '"$packages"'}}' \
  > "$folder/package-lock.json"
if ! (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error > install.log 2>&1); then
  tail -3 "$folder/install.log"
  exit 1
fi
touch "$folder/complete-$version"
