#!/bin/sh
# A Rust compiler in FOLDER that compiles for this machine and for AArch64, from Debian's packages; nothing is installed.
# A compiler takes a standard library of its own build alone, and rustup's for AArch64 is not Debian's.
#   tests/aarch64/rust.sh FOLDER
set -eu
folder=$1
machine=$(dpkg --print-architecture)
rm -rf "$folder"
mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial" "$folder/debs" "$folder/root"
apt="-o APT::Architecture=$machine -o APT::Architectures=$machine,arm64 -o Dir::State=$folder/apt/state
  -o Dir::Cache=$folder/apt/cache -o Dir::State::status=/dev/null -o Debug::NoLocking=1 -o APT::Sandbox::User="
# shellcheck disable=SC2086
apt-get $apt update -qq
needs() { # a package, the beginning of the name of one that it depends on: that one
  # shellcheck disable=SC2086
  apt-cache $apt depends "$1:$machine" | sed -n "s/^ *Depends: \($2[0-9.]*\)\(:.*\)\{0,1\}$/\1/p" | head -1
}
std=$(needs libstd-rust-web-dev libstd-rust-web-)
llvm=$(needs "$std" libllvm)
# shellcheck disable=SC2086
(cd "$folder/debs" && apt-get $apt download -qq "rustc-web:$machine" "$std:$machine" "$llvm:$machine" \
  "libstd-rust-web-dev:$machine" libstd-rust-web-dev:arm64)
for package in "$folder"/debs/*.deb; do
  dpkg-deb -x "$package" "$folder/root"
done
rm -rf "$folder/apt" "$folder/debs"
libraries=$(dirname "$(find "$folder/root/usr/lib" -name 'librustc_driver-*.so' | head -1)")
cat >"$folder/rustc" <<END
#!/bin/sh
LD_LIBRARY_PATH="$libraries" exec "$folder/root/usr/bin/rustc" --sysroot "$folder/root/usr" "\$@"
END
chmod +x "$folder/rustc"
"$folder/rustc" --version
touch "$folder/.ready"
