# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # cache, logs: set by common.sh
# What is built from its pinned source distribution (pypi-source and pypi-peer in
# tools/dependencies), once a machine into the cache: NAME-VERSION there. Libraries are static and
# position-independent; tools/cmake/NAME.cmake finds them.
# Of each: compile_NAME WORK, which compiles WORK/source into WORK/prefix, and NAME_built_with, the
# program that this was done with: where it changes, the library is built again.

source_version() { { dependencies pypi-source && dependencies pypi-peer; } | awk -v name="$1" '$1 == name { print $2 }'; }
source_prefix() { printf '%s/%s-%s' "$cache" "$1" "$(source_version "$1")"; }

source_is_there() {
    local record
    record=$(source_prefix "$1")/built-with
    [[ -e $record && $(<"$record") == "$("$1_built_with")" ]]
}

# pip runs the package's build back end even to download it, so the back end and the CMake that it
# looks for have to be at hand; --no-build-isolation keeps pip from fetching others.
fetch_source() { # fetch_source NAME WORK
    make_environment "$2/python" pypi-build &&
        { requirements pypi-source && requirements pypi-peer; } | grep "^$1==" >"$2/source.txt" &&
        PATH=$2/python/bin:$PATH pip_in "$2/python" download --no-deps --no-binary "$1" --no-build-isolation \
            --require-hashes -r "$2/source.txt" -d "$2" &&
        mkdir "$2/source" &&
        tar -xzf "$2/$1"-*.tar.gz -C "$2/source" --strip-components=1
}

# The prefix appears whole or not at all: it is renamed into place once its record is written.
build_source() { # build_source NAME
    local prefix work status=0
    prefix=$(source_prefix "$1")
    work=$(mktemp -d "$cache/building-$1.XXXXXX") || return 1
    fetch_source "$1" "$work" &&
        "compile_$1" "$work" &&
        "$1_built_with" >"$work/prefix/built-with" &&
        rm -rf "$prefix" &&
        mv -T "$work/prefix" "$prefix" || status=$?
    rm -rf "$work"
    return "$status"
}

build_source_once() { # another set-up may have built it while this one waited for the lock
    if source_is_there "$1"; then return; fi
    find "$cache" -maxdepth 1 -name "building-$1.*" -exec rm -rf {} + # of an interrupted build
    step "$1 $(source_version "$1"), from source (a minute or more)" "$1" build_source "$1"
}

install_source() { # install_source NAME
    if source_is_there "$1"; then return; fi
    check_room "$cache" 1500
    with_lock "$1" build_source_once "$1"
}

# Protobuf's headers and library have to match to the last digit.
onnx_built_with() { "$(system_tool protoc)" --version; }

# "Shared" Protobuf only keeps ONNX's CMake files from asking for a Protobuf CMake config, which
# Debian does not ship; whoever links Cleave chooses.
compile_onnx() { # compile_onnx WORK
    local cmake=$1/python/bin/cmake
    "$cmake" -S "$1/source" -B "$1/build" -G Ninja \
        -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_INSTALL_LIBDIR=lib \
        -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
        -DCMAKE_CXX_VISIBILITY_PRESET=hidden \
        -DBUILD_SHARED_LIBS=OFF \
        -DONNX_USE_UNITY_BUILD=ON \
        -DONNX_USE_PROTOBUF_SHARED_LIBS=ON \
        -DONNX_USE_LITE_PROTO=OFF \
        -DProtobuf_PROTOC_EXECUTABLE="$(system_tool protoc)" \
        -DPython3_EXECUTABLE="$1/python/bin/python" &&
        "$cmake" --build "$1/build" --parallel "$(parallel_jobs)" &&
        "$cmake" --install "$1/build" --prefix "$1/prefix"
}

xgrammar_built_with() { "$(system_tool g++)" -dumpfullversion; }

# A config.cmake in the build folder replaces its own, which asks for Python's bindings. Its
# warnings go to Cleave, for each is a keyword of a schema that its grammar leaves out.
compile_xgrammar() { # compile_xgrammar WORK
    local cmake=$1/python/bin/cmake
    mkdir "$1/build" &&
        echo 'set(XGRAMMAR_BUILD_PYTHON_BINDINGS OFF)' >"$1/build/config.cmake" &&
        "$cmake" -S "$1/source" -B "$1/build" -G Ninja \
            -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_INSTALL_LIBDIR=lib \
            -DCMAKE_CXX_VISIBILITY_PRESET=hidden \
            -DCMAKE_CXX_FLAGS="-fno-lto -Wno-error -DXGRAMMAR_LOG_CUSTOMIZE=1" &&
        "$cmake" --build "$1/build" --parallel "$(parallel_jobs)" &&
        "$cmake" --install "$1/build" --prefix "$1/prefix" &&
        cp "$1/source/LICENSE" "$1/source/NOTICE" "$1/prefix"
}

# Programs for this machine's CPU.
llama_cpp_python_built_with() { "$(system_tool g++)" -dumpfullversion && grep -m 1 '^flags' /proc/cpuinfo; }

# llama.cpp alone, as its own build does: what tools/bench runs beside Cleave.
compile_llama_cpp_python() { # compile_llama_cpp_python WORK
    local cmake=$1/python/bin/cmake program
    "$cmake" -S "$1/source/vendor/llama.cpp" -B "$1/build" -G Ninja \
        -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=OFF \
        -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_UI=OFF \
        -DLLAMA_OPENSSL=OFF &&
        "$cmake" --build "$1/build" --parallel "$(parallel_jobs)" \
            --target llama-bench llama-quantize llama-server &&
        mkdir -p "$1/prefix/bin" &&
        for program in bench quantize server; do
            cp "$1/build/bin/llama-$program" "$1/prefix/bin" || return
        done
}
