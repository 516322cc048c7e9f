#!/usr/bin/env bash
# Build Horovod's last release against the torch that a Python has, for gloo: some ten minutes, on two cores.
#
#   envs/horovod.sh .venv/bin/python [more arguments for pip install, such as --target=FOLDER]
#
# Needs cmake, a C++20 compiler, and nvcc where torch is a CUDA build. For NCCL between GPUs, set Horovod's own
# HOROVOD_GPU_OPERATIONS=NCCL and HOROVOD_NCCL_HOME before.
set -euo pipefail
python=$1
shift
envs=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

missing() {
    echo "Horovod is built from its sources: $1" >&2
    exit 1
}
command -v cmake >/dev/null || missing "cmake is not there; apt-get install cmake"
cxx=$(command -v "${CXX:-g++}") || missing "no C++ compiler; apt-get install g++"

# Horovod asks for C++14 or 17, torch's headers for C++20: the last -std wins
printf '#!/bin/sh\nexec "%s" "$@" -std=c++20\n' "$cxx" >"$build/c++"
chmod +x "$build/c++"
export CXX=$build/c++

if [ "$("$python" -c 'import torch; print(torch.version.cuda)')" != None ]; then
    command -v nvcc >/dev/null || missing "this torch is a CUDA build, so nvcc must be there; or make CPU_ONLY=1"
    # by nvcc's own word: the one on the path may be a wrapper that lies elsewhere
    toolkit=$(nvcc --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
    CUDA_HOME=$(realpath "$toolkit")
    export CUDA_HOME CUDAToolkit_ROOT=$CUDA_HOME CUDACXX=$CUDA_HOME/bin/nvcc
fi

export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO
export HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export MAKEFLAGS=${MAKEFLAGS:--j$(nproc)}
"$python" -m pip install --disable-pip-version-check -r "$envs/requirements-horovod.txt" "$@"
"$python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation "horovod==0.28.1" "$@"
