#!/usr/bin/env bash
# Everything there is to do on a machine with an NVIDIA GPU, in one go and under ten minutes, without Rust.
#
#   bench/gpu.sh --pack FOLDER   where Rust is: builds the binaries, and copies all that's needed into FOLDER
#   FOLDER/gpu.sh                on the GPU's machine: runs it all, prints a table, writes FOLDER/results/GPU-DATE.json
#
# The GPU's machine needs its driver, NVRTC of the driver's major version (`pip install nvidia-cuda-nvrtc`; torch brings it
# too) and python3; with cuBLASLt (`pip install nvidia-cublas`; torch brings it too), matmuls go to the faster of it and the
# engine's own kernels, and both are measured apart; with torch, PyTorch is measured beside. compute-sanitizer is used where
# it is found. Check the results in as bench/results/GPU-DATE.json.
#
# A stage that fails or takes too long loses nothing of the others. Exit code: 0 where all went well, 1 otherwise.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
# Seconds for all stages together.
readonly ALL=590
readonly TEST=kernels::kernels_match_the_references_on_a_gpu_where_there_is_one

pack() {
    local folder=$1 root built
    root=$(dirname "$here")
    mkdir -p "$folder" || return 1
    built=$(cd "$root" && {
        cargo build --release --locked --package tightrope-cli --message-format json-render-diagnostics &&
            cargo test --release --locked --package conformance --test cuda --no-run --message-format json-render-diagnostics
    }) || return 1
    # Cargo names the two executables, wherever the target directory may be.
    local name path
    for name in tightrope cuda; do
        path=$(grep -E "\"name\":\"$name\"" <<<"$built" | grep -oE '"executable":"[^"]+"' | tail -n 1 | cut -d '"' -f 4)
        [ -x "$path" ] || {
            echo "cargo names no binary $name" >&2
            return 1
        }
        cp "$path" "$folder/$name" && strip --strip-debug "$folder/$name" || return 1
    done
    cp "$here/gpu.sh" "$here/gpu.py" "$root/../shared/peers/pytorch.py" "$folder/" || return 1
    cp -r "$root/../shared/parity" "$folder/" || return 1
    echo "$folder is packed: $(du -sh "$folder" | cut -f 1)"
}

case "${1-}" in
--pack)
    [ $# -eq 2 ] || {
        echo "usage: bench/gpu.sh --pack FOLDER" >&2
        exit 2
    }
    pack "$2"
    exit
    ;;
"") ;;
*)
    echo "usage: gpu.sh [--pack FOLDER]" >&2
    exit 2
    ;;
esac

for needed in tightrope cuda gpu.py pytorch.py parity; do
    [ -e "$here/$needed" ] || {
        echo "$here has no $needed: run \`bench/gpu.sh --pack FOLDER\` where Rust is, and FOLDER/gpu.sh here" >&2
        exit 2
    }
done
command -v python3 >/dev/null || {
    echo "python3 is missing: it puts the results together" >&2
    exit 2
}

# Python's packages lie where the loader doesn't look.
libraries=$(python3 "$here/gpu.py" libraries)
if [ -n "$libraries" ]; then
    export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$libraries"
fi

# Without a GPU there's nothing to measure.
if ! doctor=$("$here/tightrope" doctor --json); then
    echo "tightrope doctor failed" >&2
    exit 1
fi
if ! gpu=$(python3 "$here/gpu.py" device <<<"$doctor"); then
    echo "nothing was run: no CUDA device here ($gpu)" >&2
    exit 1
fi
echo "$gpu"

logs=$(mktemp -d)
readonly logs
trap 'rm -rf "$logs"' EXIT
printf '%s\n' "$doctor" >"$logs/doctor.out"
readonly began=$SECONDS

# stage NAME SECONDS COMMAND…: runs it for at most so long, and not past the end of all.
stage() {
    local name=$1 limit=$2 start=$SECONDS left status
    shift 2
    left=$((ALL - (SECONDS - began)))
    if [ "$left" -lt 5 ]; then
        printf '%s\t%s\t0\t%s\n' "$name" "no time left" "$*" >>"$logs/stages"
        echo "$name: no time left"
        return
    fi
    [ "$limit" -lt "$left" ] || limit=$left
    timeout --kill-after=5 "$limit" "$@" >"$logs/$name.out" 2>"$logs/$name.err"
    status=$?
    case $status in
    0) status=passed ;;
    124 | 137) status="over $limit s" ;;
    *) status="failed with $status" ;;
    esac
    printf '%s\t%s\t%s\t%s\n' "$name" "$status" "$((SECONDS - start))" "$*" >>"$logs/stages"
    echo "$name: $status, $((SECONDS - start)) s"
    [ "$status" = passed ] || tail -n 5 "$logs/$name.out" "$logs/$name.err"
}

export TIGHTROPE_CUDA=0
# Made-up tokens: what is measured doesn't depend on them.
own() {
    stage "$1" "$2" "$here/tightrope" bench --json --device cuda --precision "${precision:-bf16}" --set model.vocab=50304 "${@:3}"
}
peer() { stage "$1" "$2" python3 "$here/pytorch.py" --device cuda --precision bf16 --steps 20 "${@:3}"; }

stage conformance 60 "$here/cuda" --exact "$TEST" --nocapture
for case in "$here"/parity/*-case; do
    stage "verify-$(basename "$case")" 20 "$here/tightrope" verify --json --device cuda "$case"
done
stage ceilings 30 python3 "$here/gpu.py" ceilings
own gpt2-batch-64 50 --preset gpt2 --batch 64 --micro-batch 64
own gpt2-batch-64-own-kernels 40 --preset gpt2 --batch 64 --micro-batch 64 --set run.products=own
own gpt2-batch-64-cublaslt 40 --preset gpt2 --batch 64 --micro-batch 64 --set run.products=cublaslt
own gpt2-batch-64-in-14.5-gib 50 --preset gpt2 --batch 64 --micro-batch 64 --memory 14.5GiB
own gpt2-batch-4 30 --preset gpt2 --batch 4 --micro-batch 4
precision=f32 own gpt2-batch-8-f32 30 --preset gpt2 --batch 8 --micro-batch 8
precision=tf32 own gpt2-batch-8-tf32 30 --preset gpt2 --batch 8 --micro-batch 8
own gpt2-xl-batch-16-in-42-gib 60 --preset gpt2-xl --batch 16 --memory 42GiB
peer torch-batch-64 60 --batch 64 --compile default
peer torch-batch-64-autotune 100 --batch 64 --compile max-autotune
peer torch-batch-4-autotune 80 --batch 4 --compile max-autotune
peer torch-batch-64-checkpoint 50 --batch 64 --compile default --checkpoint block --loss-chunk 8192
if sanitizer=$(command -v compute-sanitizer); then
    for tool in memcheck racecheck initcheck synccheck; do
        stage "$tool" 25 "$sanitizer" --tool "$tool" --error-exitcode 1 "$here/cuda" --exact "$TEST"
    done
else
    echo "compute-sanitizer is not installed: its four tools were not run"
fi

python3 "$here/gpu.py" report "$logs" "$here/results"
