#!/usr/bin/env bash
# Runs the golden tests on a GPU under compute-sanitizer. Each tool's findings make the exit code 1.
#
#   tests/gpu/sanitize.sh [memcheck] [racecheck] [initcheck]    the tools, in this order; without any, all three
#
# PYTHON is the interpreter (default: python3), which must have what the tests need. NNCUDA_LIBRARY chooses the library.
# KERNELS="gemm rope" takes only these kernels. SECONDS_EACH is a limit for each tool (default: 1800).
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
tools=("${@:-}")
[ -n "${tools[0]}" ] || tools=(memcheck racecheck initcheck)
for tool in "${tools[@]}"; do
  case $tool in
  memcheck | racecheck | initcheck) ;;
  *)
    sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
  esac
done

places=("${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda "$root/build/cuda-toolchain/sanitizer")
sanitizer=$(command -v compute-sanitizer)
for place in "${places[@]}"; do
  [ -z "$sanitizer" ] && [ -n "$place" ] && [ -x "$place/bin/compute-sanitizer" ] &&
    sanitizer=$place/bin/compute-sanitizer
done
if [ -z "$sanitizer" ]; then
  echo "There is no compute-sanitizer on PATH, in CUDA_HOME, CUDA_PATH or /usr/local/cuda, nor in build/cuda-toolchain." >&2
  echo "It comes with the CUDA toolkit; \`make gpu-sanitize\` fetches it from PyPI (nvidia-cuda-sanitizer-api)." >&2
  exit 2
fi

# A run from the source tree finds the package there; an installed one needs no path.
export PYTHONPATH=${NNCUDA_LIBRARY:+$root/python${PYTHONPATH:+:}}${PYTHONPATH:-}
chosen=()
for kernel in ${KERNELS:-}; do chosen+=(--kernel "$kernel"); done
status=0
for tool in "${tools[@]}"; do
  options=(--tool "$tool" --error-exitcode 9 --target-processes application-only --print-limit 20)
  [ "$tool" != memcheck ] || options+=(--track-stream-ordered-races all)
  echo "---- compute-sanitizer $tool"
  timeout --kill-after 10 "${SECONDS_EACH:-1800}" "$sanitizer" "${options[@]}" \
    "${PYTHON:-python3}" -c 'from nncuda.cli import main; main()' verify --device cuda "${chosen[@]}"
  code=$?
  case $code in
  0) echo "$tool: nothing found" ;;
  9) echo "$tool: findings, see above" ;;
  124 | 137) echo "$tool: did not end within ${SECONDS_EACH:-1800} s" ;;
  *) echo "$tool: ended with $code" ;;
  esac
  [ "$code" = 0 ] || status=1
done
exit $status
