# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # cache, logs: set by common.sh
# Configuring and building into build/. tools/demo and tools/test share that folder and its
# settings, so that neither makes the other compile again.

build=$root/build
build_memory_mb=3000 # one compiler on a file that includes Clang's headers, with room to spare
build_disk_mb=3000

configure_command() { # settings that a build folder already has stay as they are
    local settings=(-DCMAKE_BUILD_TYPE=Release)
    if [[ -e $build/CMakeCache.txt ]]; then settings=(); fi
    cmake -S "$root" -B "$build" -G Ninja "${settings[@]}" "$@"
}

# A build folder made by another generator, or copied from another place, cannot be configured
# again.
refuse_foreign_build_folder() {
    local made_for generator
    [[ -e $build/CMakeCache.txt ]] || return 0
    made_for=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")
    generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
    if [[ $made_for != "$root" || $generator != Ninja ]]; then
        die "build/ was configured for $made_for with $generator; here it is $root with Ninja" "Remove it: rm -r build"
    fi
}

check_memory() {
    local mb
    mb=$(available_memory_mb)
    if [[ $mb -lt $build_memory_mb ]]; then
        die "only $mb MB of memory are free; compiling the part that includes Clang takes up to $build_memory_mb MB" \
            "Close something, or add swap, then run $0 again."
    fi
}

# Ninja configures again by itself when a CMake file or the set of sources changes.
configure_if_new() { # configure_if_new [CMAKE ARGUMENT...]
    if [[ -e $build/build.ninja ]]; then return; fi
    configure "$@"
}

configure() { # configure [CMAKE ARGUMENT...]
    refuse_foreign_build_folder
    mkdir -p "$build"
    step "configure" configure configure_command "$@"
}

# A compiler that crashes, as on a machine whose memory now and then is wrong, is asked once more:
# no source is at fault. For the step `build`, whose log says so.
ninja_past_a_crash() { # ninja_past_a_crash NINJA ARGUMENT...
    ninja "$@" && return
    grep -q 'internal compiler error' "$logs/build.log" || return 1
    echo "the compiler itself has crashed: once more"
    ninja "$@"
}

# Ninja shows its own progress on a terminal; elsewhere the build is one line and a log.
build_targets() { # build_targets LABEL TARGET...
    local label=$1 jobs
    shift
    check_memory
    check_room "$build" "$build_disk_mb"
    jobs=$(parallel_jobs)
    if [[ -t 2 ]]; then
        say "  $label, $jobs at a time"
        ninja -C "$build" -j "$jobs" "$@" >&2 || die "$label: the build failed" "The messages are above."
    else
        step "$label, $jobs at a time" build ninja_past_a_crash -C "$build" -j "$jobs" "$@"
    fi
}
