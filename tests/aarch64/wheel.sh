#!/bin/sh
# The package's wheel for AArch64 in FOLDER/tagged, named for the oldest system that it runs on: cross-compiled, for the
# Python of tests/aarch64/python.sh. TOOLS is a virtual environment with what requirements/wheel.txt locks.
#   tests/aarch64/wheel.sh PYTHON_FOLDER TOOLS FOLDER
set -eu
python=$1 tools=$2 folder=$3
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder/raw"
packages=$(echo "$tools"/lib/python3*/site-packages) # none of what builds a wheel is compiled
NNCUDA_AARCH64_PYTHON=$python PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$packages \
  "$here/emulate" "$python/root/usr/bin/python3" "$here/wheel.py" "$folder"
PATH="$tools/bin:$PATH" auditwheel repair --wheel-dir "$folder/tagged" "$folder"/raw/*.whl
