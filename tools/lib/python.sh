# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # cache, logs: set by common.sh
# Python environments in the cache. Packages come by name and version from the index that pip is set
# up for.

# requirements KIND: the pins as pip reads them, with hashes where tools/dependencies gives them.
requirements() {
    local name version hashes hash
    while read -r name version hashes; do
        printf '%s==%s' "$name" "$version"
        for hash in $hashes; do printf ' --hash=sha256:%s' "$hash"; done
        printf '\n'
    done < <(dependencies "$1")
}

# Without dependencies of dependencies, for all are listed.
make_environment() { # make_environment FOLDER KIND
    "$(system_tool python3)" -m venv "$1" &&
        requirements "$2" >"$1/requirements.txt" &&
        pip_in "$1" install --no-deps --only-binary :all: -r "$1/requirements.txt"
}

pip_in() { # pip_in ENVIRONMENT ARGUMENTS...
    local environment=$1
    shift
    if PIP_USER=0 "$environment/bin/python" -m pip --disable-pip-version-check --no-input "$@"; then return; fi
    echo "If pip could not reach a package index: it takes a proxy, an index and certificates from the environment and from pip.conf (pip config list)."
    return 1
}

test_environment() { # the folder; its name changes with the pins, so that no stale one is ever used
    printf '%s/python-%s' "$cache" "$(requirements pypi-test | sha256sum | cut -c1-12)"
}

make_test_environment() {
    local folder
    folder=$(test_environment)
    rm -rf "$folder" &&
        make_environment "$folder" pypi-test &&
        "$folder/bin/python" -c 'import numpy, onnx, onnx_ir, onnxruntime, onnxruntime_genai, iree.compiler, iree.runtime' &&
        touch "$folder/complete"
}

# Of PyPI's nvidia-cuda-nvrtc in the environment of the tests; nothing where it has no such folder.
nvrtc_folder() {
    local library
    for library in "$(test_packages)"/nvidia/*/lib/libnvrtc.so.*; do
        if [[ -e $library ]]; then dirname "$library" && return; fi
    done
}

test_packages() { # where the environment of the tests has its packages
    local folder
    for folder in "$(test_environment)"/lib/python*/site-packages; do
        if [[ -d $folder ]]; then printf '%s' "$folder" && return; fi
    done
}

export_test_peers() { # what the tests run Cleave beside, as they look for it
    CLEAVE_TEST_PYTHON=$(test_environment)/bin/python
    # The tests compile with this NVRTC, whatever else the machine has.
    CLEAVE_NVRTC=${CLEAVE_NVRTC:-$(nvrtc_folder)}
    # This one alone is tested: whole programs of the tests have fakes, or what the machine has.
    CLEAVE_TEST_NCCL=${CLEAVE_TEST_NCCL:-$(test_packages)/nvidia/nccl/lib/libnccl.so.2}
    export CLEAVE_TEST_PYTHON CLEAVE_NVRTC CLEAVE_TEST_NCCL
}

install_test_environment() {
    local folder
    folder=$(test_environment)
    # The interpreter may have been replaced by a newer system since.
    if [[ -e $folder/complete && -x $folder/bin/python ]]; then return; fi
    check_room "$cache" 3000
    step "Python packages for the tests" python-tests make_test_environment
}
