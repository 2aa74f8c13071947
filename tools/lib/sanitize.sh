# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # build, logs, root: set by common.sh and build.sh
# Tests under a sanitizer of the compiler: `tools/check --sanitize`.

# Rows of tests/not_under_sanitizers of that sanitizer, as one regular expression for ctest.
not_under_sanitizer() {
    awk -v kind="$1" -F '\t' '!/^#/ && ($1 == kind || $1 == "both") { print $2 }' "$root/tests/not_under_sanitizers" |
        paste -sd '|'
}

# What fits in a run of continuous integration: one of these, by the last commit. The sanitizer, and
# the folder whose test program passes.
sanitize_turns=("address importer" "address base" "thread base")

sanitize() { # sanitize address|thread|turn [CTEST ARGUMENT...]
    local kind=$1 target=all turn flags left_out
    local -a settings=() fixed=()
    shift
    if [[ $kind == turn ]]; then
        turn=$(git -C "$root" rev-parse --short=4 HEAD)
        read -r kind turn <<<"${sanitize_turns[$((16#$turn % ${#sanitize_turns[@]}))]}"
        target=cleave_test_$turn
    fi
    case $kind in
        address)
            build=$root/build-sanitize
            flags='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'
            # What LLVM, Protobuf and the others keep until the process ends is none of ours. LLVM's
            # threads have alternate stacks of their own.
            export ASAN_OPTIONS=detect_leaks=0:strict_string_checks=1:detect_stack_use_after_return=1:use_sigaltstack=0
            export UBSAN_OPTIONS=print_stacktrace=1
            ;;
        thread)
            build=$root/build-thread-sanitize
            flags='-fsanitize=thread'
            # Where a large mapping lies at the end of its range, GCC 12's runtime asks for a
            # shadow of 500 TB and ends: addresses that are the same each time keep clear of it.
            if setarch "$(uname -m)" --addr-no-randomize true 2>/dev/null; then
                fixed=(setarch "$(uname -m)" --addr-no-randomize)
            fi
            export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions='$root/tests/thread_suppressions'"
            ;;
        *) die "--sanitize takes address (with undefined behaviour), thread or turn, not '$kind'" ;;
    esac
    "$root/tools/setup" --for-tests
    if [[ ! -e $build/CMakeCache.txt ]]; then
        settings=(-DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" "-DCMAKE_CXX_FLAGS=$flags")
    fi
    configure "${settings[@]}" -DCLEAVE_TESTS=ON -DCLEAVE_TEST_PACKAGES="$(test_packages)"
    build_targets "compile $target ($kind)" "$target"
    export_test_peers
    left_out=$(not_under_sanitizer "$kind")
    # Programs that were not built are entries of that name.
    if [[ $target != all ]]; then left_out+="${left_out:+|}_NOT_BUILT"; fi
    "${fixed[@]}" ctest --test-dir "$build" --parallel "$(nproc)" --output-on-failure --no-tests=error --label-exclude '^slow$' \
        --exclude-regex "${left_out:-^$}" --output-log "$logs/sanitize-$kind.log" "$@"
}
