# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # cache, logs: set by common.sh
# Configuring and building into build/. tools/demo and tools/test share that folder and its settings, so that
# neither makes the other compile again.

build=$root/build
build_memory_mb=3000 # one compiler on a file that includes Clang's headers, with room to spare
build_disk_mb=3000

configure_command() {
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCLEAVE_TESTS=ON
}

# A build folder made by another generator, or copied from another place, cannot be configured again.
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

nothing_to_build() { # whether ninja would do nothing for TARGET...
    [[ -e $build/build.ninja ]] && ninja -C "$build" -n "$@" 2>/dev/null | grep -q 'no work to do'
}

# Ninja shows its own progress on a terminal; elsewhere the build is one line and a log.
build_targets() { # build_targets LABEL TARGET...
    local label=$1 jobs
    shift
    if nothing_to_build "$@"; then return; fi
    refuse_foreign_build_folder
    check_memory
    mkdir -p "$build"
    check_room "$build" "$build_disk_mb"
    step "configure" configure configure_command
    jobs=$(parallel_jobs)
    if [[ -t 2 ]]; then
        say "  $label, $jobs at a time"
        ninja -C "$build" -j "$jobs" "$@" >&2 || die "$label: the build failed" "The messages are above."
    else
        step "$label, $jobs at a time" build ninja -C "$build" -j "$jobs" "$@"
    fi
}
