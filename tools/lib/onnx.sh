# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # cache, logs: set by common.sh
# The ONNX library: built from its pinned source distribution with the distribution's Protobuf,
# static and position-independent, into the cache. tools/cmake/onnx.cmake finds it there.

onnx_version() { dependencies pypi-source | awk '$1 == "onnx" { print $2 }'; }
onnx_prefix() { printf '%s/onnx-%s' "$cache" "$(onnx_version)"; }

# What the library was built against: Protobuf's headers and library have to match to the last
# digit.
onnx_built_with() { "$(system_tool protoc)" --version; }

onnx_is_there() {
    local record
    record=$(onnx_prefix)/built-with
    [[ -e $record && $(<"$record") == "$(onnx_built_with)" ]]
}

# pip runs the package's build back end even to download it, so the back end and the CMake that it
# looks for have to be at hand; --no-build-isolation keeps pip from fetching others.
fetch_onnx_source() { # fetch_onnx_source WORK
    make_environment "$1/python" pypi-build &&
        requirements pypi-source >"$1/source.txt" &&
        PATH=$1/python/bin:$PATH pip_in "$1/python" download --no-deps --no-binary onnx --no-build-isolation \
            --require-hashes -r "$1/source.txt" -d "$1" &&
        mkdir "$1/source" &&
        tar -xzf "$1"/onnx-*.tar.gz -C "$1/source" --strip-components=1
}

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

# The prefix appears whole or not at all: it is renamed into place once its record is written.
build_onnx() {
    local prefix work status=0
    prefix=$(onnx_prefix)
    work=$(mktemp -d "$cache/building-onnx.XXXXXX") || return 1
    fetch_onnx_source "$work" &&
        compile_onnx "$work" &&
        onnx_built_with >"$work/prefix/built-with" &&
        rm -rf "$prefix" &&
        mv -T "$work/prefix" "$prefix" || status=$?
    rm -rf "$work"
    return "$status"
}

build_onnx_once() { # another set-up may have built it while this one waited for the lock
    if onnx_is_there; then return; fi
    find "$cache" -maxdepth 1 -name 'building-onnx.*' -exec rm -rf {} + # of an interrupted build
    step "ONNX $(onnx_version), from source (about a minute)" onnx build_onnx
}

install_onnx() {
    if onnx_is_there; then return; fi
    check_room "$cache" 1500
    with_lock onnx build_onnx_once
}
