#!/usr/bin/env bash
# Everything there is to do on a machine with an NVIDIA GPU, without Rust, in calls of less than ten minutes each.
#
#   bench/gpu.sh --pack FOLDER [WHEEL…]   where Rust is: builds the binaries, and copies all that's needed into FOLDER, with the
#                                         libraries of wheels, such as NVRTC's, for a machine that has none
#   FOLDER/gpu.sh [own]                   on the GPU's machine: kernels case by case, losses, throughput
#   FOLDER/gpu.sh pytorch                 PyTorch beside it
#   FOLDER/gpu.sh sanitizer               a part of the cases under compute-sanitizer
#   bench/gpu.sh --dry-run                walks all of it on an emulated device, with faults and without
#
# The GPU's machine needs its driver, NVRTC of the driver's major version (`pip install nvidia-cuda-nvrtc`; torch brings it
# too) and python3; with cuBLASLt (`pip install nvidia-cublas`; torch brings it too), matmuls go to the faster of it and the
# engine's own kernels, and both are measured apart. What torch and compute-sanitizer do is left out where they're missing.
#
# A report is written after each stage into FOLDER/results, or where `--results` says: gpu-CALL.json, .txt and .log. It names the
# first failure with its kernel and case. A stage that fails or hangs loses nothing of the others, and a case that does nothing of
# its stage. Check the reports in as bench/results/GPU-DATE-CALL.json. Exit code: 0 where all went well, 1 otherwise.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
# Seconds after which a call is over, whatever hangs: more than it gives itself.
readonly ALL=515

pack() {
    local folder=$1 root=${here%/bench} name
    shift
    mkdir -p "$folder/lib" "$folder/parity" || return 1
    (cd "$root" && cargo build --release --locked --package tightrope-cli --package gpu-cases) || return 1
    for name in tightrope gpu-cases; do
        strip -o "$folder/$name" "${CARGO_TARGET_DIR:-$root/target}/release/$name" || return 1
        python3 "$here/gpu/pack.py" "$folder/$name" "$folder" && rm "$folder/$name" || return 1
    done
    for name in "$@"; do
        python3 "$here/gpu/pack.py" "$name" "$folder/lib" || return 1
    done
    cp -r "$here/gpu.sh" "$here/gpu" "$root/../shared/peers/pytorch.py" "$folder/" || return 1
    cp -r "$root"/tests/parity/*-case "$folder/parity/" || return 1
    echo "$folder is packed: $(du -sh "$folder" | cut -f 1)"
}

case "${1-}" in
--pack)
    [ $# -ge 2 ] || {
        echo "usage: bench/gpu.sh --pack FOLDER [WHEEL…]" >&2
        exit 2
    }
    pack "${@:2}"
    exit
    ;;
--dry-run)
    cd "$here/.." && exec cargo xtask gpu
    ;;
esac

command -v python3 >/dev/null || {
    echo "python3 is missing: it runs the stages" >&2
    exit 2
}
exec timeout --kill-after=3 "$ALL" python3 "$here/gpu" "$@"
