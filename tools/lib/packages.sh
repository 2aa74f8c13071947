# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # cache, logs: set by common.sh
# The distribution's packages: which of tools/dependencies are missing or too old, and installing
# them.

# missing_packages KIND...: names of the packages that are absent or older than the minimum. One
# dpkg-query for all.
missing_packages() {
    local kind name minimum version
    local -A installed=()
    local -a wanted=()
    for kind in "$@"; do
        while read -r name minimum _; do wanted+=("$name $minimum"); done < <(dependencies "$kind")
    done
    while read -r name version; do installed[$name]=$version; done < <(
        # Absent packages make dpkg-query fail; they show as absent from the table.
        dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' "${wanted[@]%% *}" 2>/dev/null |
            sed -n 's/^installed //p'
    )
    local row
    for row in "${wanted[@]}"; do
        name=${row%% *} minimum=${row##* }
        version=${installed[$name]:-}
        if [[ -z $version ]] || ! version_reaches "$version" "$minimum"; then printf '%s\n' "$name"; fi
    done
}

version_reaches() { # a cheap exact comparison first: dpkg is a process per package
    [[ $1 == "$2" ]] || dpkg --compare-versions "$1" ge "$2"
}

as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    else
        sudo "$@"
    fi
}

require_apt() { # require_apt MISSING...
    command -v apt-get >/dev/null || die "apt-get is not here, and these packages are needed: $*" \
        "Install them with your system's own package manager, then run: tools/setup --no-packages"
    [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null || die "not root, and there is no sudo; packages to install: $*" \
        "As root: apt-get install $*"
}

apt_update() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install "$@"
}

# Without this an old release fails in the middle of apt's output with "Unable to locate package".
check_candidates() { # check_candidates KIND...
    local kind name minimum candidate
    for kind in "$@"; do
        while read -r name minimum _; do
            candidate=$(apt-cache policy "$name" 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
            if [[ -z $candidate || $candidate == "(none)" ]]; then
                die "this system's package lists have no $name" "Debian 12 or newer has it; see apt-cache policy $name."
            fi
            version_reaches "$candidate" "$minimum" ||
                die "this system offers $name $candidate; $minimum or newer is needed" "Debian 12 or newer has it."
        done < <(dependencies "$kind")
    done
}

# install_optional_packages KIND: those that this system's package lists have; others are left out
# without a word.
install_optional_packages() {
    local name candidate
    local -a wanted=()
    command -v apt-cache >/dev/null || return 0
    while read -r name; do
        candidate=$(apt-cache policy "$name" 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
        if [[ -n $candidate && $candidate != "(none)" ]]; then wanted+=("$name"); fi
    done < <(missing_packages "$1")
    if [[ ${#wanted[@]} -eq 0 ]]; then return; fi
    step "${#wanted[@]} optional packages" apt-optional apt_install "${wanted[@]}"
}

# install_packages KIND...: nothing happens, and nothing is printed, where all are there.
install_packages() {
    command -v dpkg-query >/dev/null || require_apt "$(for kind in "$@"; do dependencies "$kind"; done | cut -d' ' -f1 | xargs)"
    local -a missing=()
    mapfile -t missing < <(missing_packages "$@")
    if [[ ${#missing[@]} -eq 0 ]]; then return; fi
    require_apt "${missing[@]}"
    if [[ $(id -u) -ne 0 ]]; then sudo -v || die "sudo refused; packages to install: ${missing[*]}"; fi
    step "package lists" apt-update apt_update
    check_candidates "$@"
    step "${#missing[@]} packages" apt-install apt_install "${missing[@]}"
    mapfile -t missing < <(missing_packages "$@")
    if [[ ${#missing[@]} -gt 0 ]]; then
        die "apt-get succeeded, yet these are still missing or too old: ${missing[*]}" "The log: $logs/apt-install.log"
    fi
}
