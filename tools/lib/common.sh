# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What every script in tools/ starts from: the places it works in, its messages, timed steps.
# Sourced under `set -euo pipefail`. All messages go to standard error.
#
# A function given to `step` must chain its commands with `&&`: bash ignores `set -e` inside a
# condition.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root
cache= # both set by find_cache
logs=

die() { # die MESSAGE [HOW TO MEND IT]
    printf '%s: %s\n' "tools/${0##*/}" "$1" >&2
    if [[ $# -gt 1 ]]; then printf '%s\n' "$2" >&2; fi
    exit 1
}

say() { printf '%s\n' "$*" >&2; }

# The cache of this user: what is built or fetched once per machine, and the logs.
find_cache() {
    local base=${XDG_CACHE_HOME:-}
    if [[ -z $base ]]; then
        [[ -n ${HOME:-} ]] || die "neither HOME nor XDG_CACHE_HOME is set, so there is no place for the cache" \
            "Set one of them to a folder that can be written: XDG_CACHE_HOME=/some/folder $0"
        base=$HOME/.cache
    fi
    cache=$base/cleave
    logs=$cache/logs
    if ! mkdir -p "$logs" 2>/dev/null || [[ ! -w $cache || ! -w $logs ]]; then
        die "cannot write to the cache folder $cache" \
            "Make it writable, or choose another: XDG_CACHE_HOME=/some/folder $0"
    fi
    readonly cache logs
}

# The distribution's own program, if it has one: its packages belong together, and another may come
# first in PATH.
system_tool() { # system_tool NAME
    if [[ -x /usr/bin/$1 ]]; then printf '/usr/bin/%s' "$1"; else command -v "$1" || die "$1 is not installed" "Run tools/setup."; fi
}

milliseconds() { # from the shell's own clock; the separator of EPOCHREALTIME follows the locale
    local digits=${EPOCHREALTIME//[!0-9]/}
    printf '%s' "$((digits / 1000))"
}

elapsed_since() { # elapsed_since MILLISECONDS: "12.3 s"
    local tenths=$((($(milliseconds) - $1) / 100))
    printf '%d.%d s' "$((tenths / 10))" "$((tenths % 10))"
}

# step LABEL LOG COMMAND...: one line with the time it took. Its output goes to LOG, whose end is
# shown when it fails.
step() {
    local label=$1 log=$logs/$2.log began status=0
    shift 2
    began=$(milliseconds)
    printf '  %-58s ' "$label" >&2
    printf '+ %s\n' "$*" >"$log"
    "$@" >>"$log" 2>&1 </dev/null || status=$?
    if [[ $status -ne 0 ]]; then
        printf 'failed after %s\n\n' "$(elapsed_since "$began")" >&2
        tail -n 30 "$log" | sed 's/^/    /' >&2
        say ""
        die "$label: failed (exit code $status)" "The whole log: $log"
    fi
    elapsed_since "$began" >&2
    say ""
}

# The rows of tools/dependencies of one kind, without kind and comment: name, version, hashes.
dependencies() {
    awk -v kind="$1" '$1 == kind { sub(/[ \t]*#.*/, ""); sub(/^[^ ]+ +/, ""); print }' "$root/tools/dependencies"
}

# Calls COMMAND... with a lock held, so that two set-ups at once do not build the same thing twice.
with_lock() { # with_lock NAME COMMAND...
    local lock=$cache/$1.lock
    shift
    (
        flock -n 9 || { say "  waiting for another $0 to finish ..." && flock 9; }
        "$@"
    ) 9>"$lock"
}

# Compilers need room: better a clear word now than a dead compiler in ten minutes.
check_room() { # check_room FOLDER NEEDED_MB
    local free_mb
    free_mb=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
    if [[ $free_mb -lt $2 ]]; then
        die "only $free_mb MB free where $1 lies; $2 MB are needed" "Free some space, then run $0 again."
    fi
}

# Memory that can still be had, in MB: the machine's, or the control group's limit where that is
# lower.
available_memory_mb() {
    local mb limit used
    mb=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [[ $limit =~ ^[0-9]+$ ]]; then
        used=$(cat /sys/fs/cgroup/memory.current 2>/dev/null || echo 0)
        limit=$(((limit - used) / 1048576))
        if [[ $limit -lt $mb ]]; then mb=$limit; fi
    fi
    printf '%s' "$mb"
}

# As many compilers at once as there are processors, and memory for (2 GB each), at least one.
parallel_jobs() {
    local by_memory by_cores
    by_memory=$(($(available_memory_mb) / 2048))
    by_cores=$(nproc)
    local jobs=$((by_memory < by_cores ? by_memory : by_cores))
    printf '%s' "$((jobs > 0 ? jobs : 1))"
}
