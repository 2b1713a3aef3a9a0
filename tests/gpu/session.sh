#!/usr/bin/env bash
# Everything that wants a GPU, in one command: builds the library for the GPU of this machine, verifies the kernels,
# runs tests/gpu and measures. Works from the source tree, without installing and without a network.
#
#   tests/gpu/session.sh FOLDER [build] [verify] [tests] [kernels] [steps] [sanitize] [ranks]
#
# FOLDER receives summary.txt, a log of each part, verified.json (what tests/gpu/verified.json is to be replaced by) and
# bench.json. Without names all parts but `sanitize` and `ranks` run, in this order. Each part has a limit of its own, and what it
# left is kept; a part that fails does not stop the next. Exits with 1 when one failed.
#
# `ranks` lets two ranks share this machine's first GPU over NCCL (NNCUDA_NCCL or libnccl.so.2), which that calls
# experimental and has from 2.30 on. It has not been run on a GPU yet.
#
# LIMIT is a limit for all, in seconds (default: 570). NNCUDA_LIBRARY names a library that is there already; then nothing
# is built. QUICK=1 measures tiny sizes, to try this script out. PYTHON is the interpreter (default: python3). It must
# have numpy, cffi, click, rich, ml_dtypes, safetensors, sentencepiece and pytest; torch with CUDA is
# measured beside it if it is there. The build needs nvcc from 12.0, CMake from 3.22, a C and a C++ compiler.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
if [ $# = 0 ] || [ "${1#-}" != "$1" ]; then
  sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
parts=("$@")
[ ${#parts[@]} != 0 ] || parts=(build verify tests kernels steps)
python=${PYTHON:-python3}
limit=${LIMIT:-570}
export PYTHONPATH=$root/python${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
cd "$root" || exit 2
summary=$out/summary.txt
: >"$summary"
status=0

say() { echo "$*" | tee -a "$summary"; }

# part NAME LIMIT COMMAND...: runs it under its limit, or what is left of the whole; its output goes to NAME.log.
part() {
  local name=$1 own=$2 begin=$SECONDS left code
  shift 2
  left=$((limit - SECONDS))
  [ "$own" -lt "$left" ] || own=$left
  if [ "$own" -lt 5 ]; then
    say "$name: left out, the $limit seconds are over"
    status=1
    return 1
  fi
  timeout --kill-after 5 "$own" "$@" 2>&1 | tee -a "$out/${name%% *}.log"
  code=${PIPESTATUS[0]}
  case $code in
  0) say "$name: passed, $((SECONDS - begin)) s" ;;
  124 | 137) say "$name: stopped after $own s" ;;
  *) say "$name: FAILED with $code, $((SECONDS - begin)) s" ;;
  esac
  [ "$code" = 0 ] || status=1
  return "$code"
}

missing=$("$python" - <<'PY'
import importlib.util
names = "numpy cffi click rich ml_dtypes safetensors sentencepiece pytest".split()
print(" ".join(name for name in names if importlib.util.find_spec(name) is None))
PY
) || missing="Python itself ($python)"
if [ -n "$missing" ]; then
  say "Missing here: $missing. Nothing was run."
  exit 2
fi

build() {
  cmake -S . -B build/gpu -DNNCUDA_CUDA=ON -DCMAKE_BUILD_TYPE=Release &&
    cmake --build build/gpu --parallel "$(getconf _NPROCESSORS_ONLN)" --target nncuda nncuda_probe
}

# Two processes; a collective, then a graph, then what is said of a rank that ends in the middle.
ranks() {
  local scenario ended
  export MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29571} WORLD_SIZE=2 NCCL_MULTI_RANK_GPU_ENABLE=1
  for scenario in collectives graph vanish; do
    RANK=1 "$1" tests/comm/rank.py nccl $scenario 60 &
    RANK=0 "$1" tests/comm/rank.py nccl $scenario 60
    ended=$?
    wait $!
    ended="$ended $?"
    echo "$scenario: the ranks ended with $ended"
    case "$scenario $ended" in *" 0 0" | "vanish 3 9") ;; *) return 1 ;; esac
  done
}

# One process for each kind of work, since a kernel's fault ends all use of the GPU by its process.
measure() { # NAME LIMIT TEXT...: what --only takes
  local name=$1 own=$2 only=()
  shift 2
  for text in "$@"; do only+=(--only "$text"); done
  part "bench $name" "$own" "$python" -m nncuda bench --device cuda --against torch ${QUICK:+--quick} \
    --json "$out/$name.part" "${only[@]}"
  [ -f "$out/$name.part" ] || return
  "$python" - "$out/bench.json" "$name" "$out/$name.part" <<'PY'
import json, pathlib, sys
target, name, part = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
content = json.loads(target.read_text()) if target.exists() else {}
content[name] = json.loads(part.read_text())
target.write_text(json.dumps(content, indent=1) + "\n")
part.unlink()
PY
}

if [ -z "${NNCUDA_LIBRARY:-}" ]; then
  export -f build
  case " ${parts[*]} " in *" build "*) part build 270 bash -c build || say "there may be no library" ;; esac
  export NNCUDA_LIBRARY=$root/build/gpu/libnncuda.so
fi
[ -f "$NNCUDA_LIBRARY" ] || {
  say "There is no $NNCUDA_LIBRARY: nothing else can run."
  exit 1
}
"$python" -m nncuda doctor 2>&1 | tee "$out/doctor.log"
for each in "${parts[@]}"; do
  case $each in
  build) ;;
  verify)
    [ -f "$out/verified.json" ] || [ ! -f tests/gpu/verified.json ] || cp tests/gpu/verified.json "$out"
    part verify 120 "$python" -m nncuda verify --device cuda --record "$out/verified.json"
    ;;
  tests) part tests 200 "$python" -m pytest -q -p no:cacheprovider tests/gpu ;;
  kernels)
    measure products 60 "products bf16" "products f32" "products tf32"
    measure grouped 60 grouped_gemm
    measure attention 60 flash_attention
    measure stored 60 "products with stored weights" "paged attention"
    measure ternary 60 "products with ternary weights"
    measure memory 90 element-wise "rows " "experts " optimizer
    measure little 45 "little work" "decode top"
    ;;
  steps) measure steps 240 "training step" ;;
  sanitize) part sanitize 300 env SECONDS_EACH=140 PYTHON="$python" tests/gpu/sanitize.sh memcheck racecheck ;;
  ranks)
    export -f ranks
    part ranks 200 bash -c 'ranks "$0"' "$python"
    ;;
  *) say "there is no part $each" && status=1 ;;
  esac
done
echo "----"
cat "$summary"
exit $status
