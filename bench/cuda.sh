#!/bin/sh
# On a machine with a CUDA device, from the repository's root: the tests that need one, then the
# bench, within ten minutes. Results go to $OUT where that is set, else to bench/results.
#
#     bench/cuda.sh               # both
#     bench/cuda.sh tests         # or one
#     bench/cuda.sh corpus        # the whole corpus of GPU programs beside eager
#     bench/cuda.sh sanitize      # every program of tests/gpu/programs.py under compute-sanitizer
#     bench/cuda.sh bench --only matmul --backends eager,inductor-max-autotune,weft
set -u
cd "$(dirname "$0")/.." || exit 2
python=${PYTHON:-python3}
out=${OUT:-bench/results}
part=${1:-both}
[ $# -gt 0 ] && shift
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export WEFT_CACHE="${WEFT_CACHE:-$PWD/build/cuda-cache}"

if ! $python -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then
    echo "bench/cuda.sh: PyTorch finds no CUDA device here" >&2
    exit 2
fi
mkdir -p "$out"
$python -m weft.cli.main doctor
status=0
case $part in both | tests)
    jobs=""
    $python -c "import xdist" 2>/dev/null && jobs="-n 8"
    # shellcheck disable=SC2086
    timeout 200 $python -m pytest -q -p no:cacheprovider $jobs --maxfail=40 --durations=5 \
        tests/gpu/test_device.py tests/sim/test_device.py tests/export/test_cuda_device.py \
        > "$out/cuda-tests.txt" 2>&1 || status=1
    tail -60 "$out/cuda-tests.txt"
    ;;
esac
case $part in corpus)
    timeout 580 $python -W ignore -m tests.gpu.corpus.on_device --jobs 12 "$@" \
        > "$out/cuda-corpus.txt" 2>&1 || status=1
    tail -40 "$out/cuda-corpus.txt"
    ;;
esac
case $part in sanitize)
    # torch's allocator hands out parts of large blocks; without it every tensor has its bounds.
    for tool in memcheck racecheck; do
        PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout 280 compute-sanitizer --tool $tool \
            --error-exitcode 9 --print-limit 20 $python -m pytest -q -p no:cacheprovider -x \
            tests/gpu/test_device.py -k "as_eager and greedy" > "$out/cuda-$tool.txt" 2>&1 ||
            status=1
        tail -25 "$out/cuda-$tool.txt"
    done
    ;;
esac
case $part in both | bench)
    # max-autotune takes half a minute for a product: ask for it by name, with --only.
    timeout 390 $python -m weft.cli.main bench cuda --backends eager,inductor,weft --minutes 5 \
        --json "$out/cuda.json" "$@" || status=1
    ;;
esac
exit $status
