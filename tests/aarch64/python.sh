#!/bin/sh
# A Python for AArch64 in FOLDER, with its headers and what the package needs, from Debian's packages and from PyPI's wheels; nothing is
# installed. tests/aarch64/run runs it under qemu-user.
#   tests/aarch64/python.sh FOLDER PYTHON REQUIREMENTS
set -eu
folder=$1 python=$2 requirements=$3
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$folder"
mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial" "$folder/root" "$folder/site"
apt="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$folder/apt/state -o Dir::Cache=$folder/apt/cache
  -o Dir::State::status=/dev/null -o Debug::NoLocking=1"
# shellcheck disable=SC2086
apt-get $apt update -qq
# shellcheck disable=SC2086
apt-get $apt install -qq -y --download-only --no-install-recommends python3-minimal libpython3-stdlib libpython3-dev libstdc++6
for package in "$folder"/apt/cache/archives/*.deb; do
  dpkg-deb -x "$package" "$folder/root"
done
rm -rf "$folder/apt"
version=$(cd "$folder/root/usr/bin" && ls -d python3.[0-9]* | head -1 | sed 's/python//')
"$python" "$here/pinned_wheels.py" "$requirements" "$version" >"$folder/requirements.txt"
"$python" -m pip install --quiet --require-hashes --no-deps --no-compile --only-binary=:all: --implementation cp \
  --python-version "$version" --platform manylinux2014_aarch64 --platform manylinux_2_26_aarch64 \
  --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 --target "$folder/site" -r "$folder/requirements.txt"
ln -sf "python$version" "$folder/root/usr/bin/python3"
touch "$folder/.ready"
