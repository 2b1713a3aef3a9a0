#!/bin/sh
# Builds ik_llama.cpp's side of `nncuda bench --model` from a folder of that program's sources, for one instruction set
# (avx2 or avx512), and prints the path of the program:
#
#     tests/interop/ik_llama_cpp/build.sh SOURCE avx2 [JOBS]
set -eu

if [ $# -lt 2 ]; then
  echo "usage: $0 SOURCE avx2|avx512 [JOBS]" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$1" && pwd)
built=$here/../../../build/ik_llama.cpp-$2
version=${IK_VERSION:-$(git -C "$source" rev-parse --short=8 HEAD 2>/dev/null || echo unknown)}
cmake -S "$here" -B "$built" -DIK_SOURCE="$source" -DIK_ISA="$2" -DIK_VERSION="$version" >&2
cmake --build "$built" --target ik_llama_cpp_side ik_llama_cpp_quantize -j "${3:-2}" >&2
(cd "$built" && echo "$PWD/ik_llama_cpp_side")
