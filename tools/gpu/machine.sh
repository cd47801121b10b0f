# machine.sh: what check-gpu, bench-kernels and bench-epoch share. It finds out which GPU this machine has, and sets up the
# libraries of an archive of gpu-pack. Sourced by them, in bash.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
export BUILD=${BUILD:-build} PATH=$PATH:/usr/local/nvidia/bin:/usr/local/cuda/bin
name=$(basename "$0")

# The libraries that gpu-pack added stand in for those that this machine does not have, and for its older ones.
[ ! -d "$BUILD/needs" ] || export LD_LIBRARY_PATH=$PWD/$BUILD/lib:$PWD/$BUILD/needs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# How many GPUs the driver lists, and how many of them Penstock can use.
listed=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
answer=$("$BUILD/bin/penstock-memory" --gpus) || { echo "$name: $BUILD/bin/penstock-memory --gpus failed" >&2; exit 1; }
usable=$(sed -n 's/.*"gpus":\([0-9]*\).*/\1/p' <<<"$answer")
reason=$(sed -n 's/.*"why":"\([^"]*\)".*/\1/p' <<<"$answer")

# A GPU that is there and cannot be used is a failure, and no reason to skip anything.
if [ "$listed" -gt 0 ] && [ "${usable:-0}" -eq 0 ]; then
    echo "$name: nvidia-smi lists $listed GPUs, but Penstock can use none of them: $reason" >&2
    exit 1
fi

# Each of the three ends within this time, so that it fits a short visit to such a machine.
limit_s=${PENSTOCK_GPU_LIMIT_S:-470}

results=$([ -d "$BUILD/needs" ] && echo results || echo "$BUILD/gpu-results")
mkdir -p "$results"
log=$results/$name.txt

# begin: says what runs here, and sends all that is printed to the log, too.
begin() {
    exec > >(exec tee "$log") 2>&1
    if [ "$listed" -gt 0 ]; then
        nvidia-smi -L
    else
        echo "$name: this machine has no GPU ($reason), so virtual GPUs on the CPU are used. This tests the programs, but measures no speed"
    fi
}
