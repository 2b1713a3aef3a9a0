#!/bin/sh
# Builds the library with sanitizers and runs the tests of the ABI against it.
#
#   tests/abi/sanitize.sh address [folder]   AddressSanitizer and UBSan: the tests of this folder, the bad-input sweep
#                                            above all, and the thread test with a check for leaks
#   tests/abi/sanitize.sh thread [folder]    ThreadSanitizer: worker pools, contexts, streams, events and ranks
#
# `folder` keeps the build (default: build/address, build/thread). CC chooses the compiler, PYTHON the interpreter, which
# must have what the tests need; any further words in PYTEST_ARGS go to pytest. ISAS chooses the instruction sets to build:
# all for address, baseline for thread, since threads share what does not depend on them.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
kind=${1:-}
case $kind in
address) sanitizers=address,undefined isas=${ISAS:-} ;;
thread) sanitizers=thread isas=${ISAS:-baseline} ;;
*)
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
build=${2:-$root/build/$kind}
cc=${CC:-cc}

# -O1 finds the same and builds faster.
mkdir -p "$build"
cmake -S "$root" -B "$build" -DCMAKE_C_COMPILER="$cc" -DNNCUDA_SANITIZE="$sanitizers" -DNNCUDA_ISAS="$isas" \
  -DCMAKE_C_FLAGS_RELEASE=-O1
cmake --build "$build" --target nncuda --parallel

# The runtimes must come first in the process; a Python that was not built for them gets them preloaded.
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1
# gcc before 14 misaligns 64-byte vectors on the stack that the use-after-return check makes up (gcc bug 110027).
export ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0
for program in abi/threads comm/ranks; do
  out=$build/${program#*/}
  "$cc" -std=gnu11 -g -O1 -fsanitize="$sanitizers" -I "$root" "$root/tests/$program.c" "$build/libnncuda.so" \
    -pthread -Wl,-rpath,"$build" -o "$out"
  "$out"
done

if [ "$kind" = address ]; then
  # Python itself leaks at exit by design; leaks are looked for above.
  ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
  runtime=$("$cc" -print-file-name=libasan.so)
  [ -f "$runtime" ] || runtime=$("$cc" -print-file-name=libclang_rt.asan-x86_64.so)
  cd "$root"
  LD_PRELOAD=$runtime NNCUDA_LIBRARY=$build/libnncuda.so PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH} \
    "${PYTHON:-python3}" -m pytest -q tests/abi --ignore tests/abi/test_package.py --ignore tests/abi/test_faults.py \
    --ignore tests/abi/test_threads.py --ignore tests/abi/test_header.py ${PYTEST_ARGS:-}
fi
