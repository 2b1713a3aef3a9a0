#!/usr/bin/env bash
# What wants a GPU, in four calls of at most eight minutes each, on a machine that has no more than CUDA 13's driver and
# runtime, Python from 3.10, PyTorch and NumPy: without a network, without a build. `make gpu-bundle` makes the folder that
# is taken along; it has this script, too.
#
#   tests/gpu/session.sh 1 FOLDER      is it right: golden tests, tests/gpu, compute-sanitizer
#   tests/gpu/session.sh 2 FOLDER      is it fast: kernels beside torch, and with other tiles
#   tests/gpu/session.sh 3 FOLDER      whole programs: training steps, decoding, two ranks on the GPU
#   tests/gpu/session.sh 4 FOLDER      a kernel rebuilt with other tiles, and the record, verified.json
#   tests/gpu/session.sh speeds FOLDER the table of speeds, from what the calls left there; anywhere
#
# Each leaves one file, FOLDER/call-N.tar.gz, which is written anew after each of its parts. Parts are processes with a limit
# each (tests/gpu/session_plan.py); one that fails or hangs does not keep the others from running, and what the machine
# lacks is left out with a sentence. Exits with 1 when a part failed.
#
# PYTHON is the interpreter (default: python3). NNCUDA_LIBRARY names another library. REBUILD names the variant of the fourth
# call (tests/gpu/variants.py). QUICK=1 has tiny sizes, to try this script out. Where time is shorter: PARTS is a regular
# expression that the names of the parts match which run, TOGETHER how many of those run at once that need not run alone,
# and MOST_SECONDS what a call may take (480).
set -u

root=$(cd "$(dirname "$0")/../.." && pwd)
case ${1:-} in
[1-4] | speeds) [ $# = 2 ] ;;
*) false ;;
esac || {
  sed -n '2,22s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
python=${PYTHON:-python3}
packages=$root/python
[ ! -d "$root/site" ] || packages=$packages:$root/site
export PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
missing=$("$python" - <<'PY'
import importlib.util
names = "numpy cffi click rich ml_dtypes safetensors sentencepiece tokenizers pytest".split()
print(" ".join(name for name in names if importlib.util.find_spec(name) is None))
PY
) || missing="Python itself ($python)"
if [ -n "$missing" ]; then
  echo "Missing here: $missing. Nothing was run. \`make gpu-bundle\` packs all but NumPy." >&2
  exit 2
fi
case $1 in
speeds) exec "$python" "$root/tests/gpu/speeds.py" "$2" ;;
*) exec "$python" "$root/tests/gpu/session.py" "$@" ;;
esac
