#!/usr/bin/env bash
# Checks and times the GPU executor; "On a GPU" in docs/performance.md says what is measured and what is wanted.
#
#   benchmarks/gpu_check.sh [--only PART,...]  on a machine with a GPU: everything, under 8 minutes
#   benchmarks/gpu_check.sh --dry-run          on any other: every part in Triton's interpreter, with tiny sizes
#   benchmarks/gpu_check.sh --pack [DIR]       with a network: fetch what a machine without one may lack into DIR
#
# Nothing is installed: packages are taken from $PACK (gpu_pack), corelm from this tree, the rest from $PYTHON.
# Results go to $OUT (gpu_check_out), as they come.
set -euo pipefail
cd "$(dirname "$0")/.."
pack=${PACK:-gpu_pack}
python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then
    python=.venv/bin/python
fi
if [ "${1:-}" = --pack ]; then
    exec "$python" benchmarks/gpu/carry.py pack "${2:-$pack}"
fi
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
PYTHONPATH=$("$python" benchmarks/gpu/carry.py site "$pack" "$site")${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 TRITON_CACHE_DIR="$site/triton"
"$python" benchmarks/gpu_check.py --out "${OUT:-gpu_check_out}" "$@"
