# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154  # root: set by common.sh
# What tools/gpu-check and tools/release pack: programs and libraries of the portable build, what
# they are linked with, and the licences of that. Sourced after common.sh.
source "$root/tools/lib/bundle_requirements.sh"

portable=$root/build-portable
# What every machine has, and the compiler's library: an older one beside the programs would come
# before the one that the vendors' libraries want.
system='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so'

build_portable() { # build_portable TARGET...
    cmake --preset portable -S "$root" >/dev/null && ninja -C "$portable" "$@" >&2
}

links_of() { # links_of FILE...: what ldd says of them; of a static program nothing
    local file text
    for file in "$@"; do
        text=$(LC_ALL=C ldd "$file" 2>&1) || [[ $text == *"not a dynamic executable"* ]] || die "ldd $file: $text"
        printf '%s\n' "$text"
    done
}

libraries_of() { # libraries_of FILE...: paths of what they are linked with, the system's left out
    links_of "$@" | sed -nE 's/^\s*(\S+) => (\/\S+) .*/\1 \2/p' | sort -u | while read -r name path; do
        [[ $name =~ $system ]] || printf '%s %s\n' "$name" "$path"
    done
}

licence_of() { # licence_of FILE: the distribution's copyright file of the package that it is from
    local package
    package=$(dpkg -S "$(basename "$1")" 2>/dev/null | grep -F "/$(basename "$1")" | head -1 | cut -d: -f1) || true
    if [[ -n $package && -e /usr/share/doc/$package/copyright ]]; then printf '%s' "/usr/share/doc/$package/copyright"; fi
}

# pack_libraries FOLDER FILE...: what those files are linked with, into FOLDER/lib, and its licences
# and those of what is linked statically into FOLDER/licences.
pack_libraries() {
    local folder=$1 name path licence
    shift
    while read -r name path; do
        cp "$(readlink -f "$path")" "$folder/lib/$name"
        licence=$(licence_of "$path")
        [[ -z $licence ]] || cp "$licence" "$folder/licences/$name"
    done < <(libraries_of "$@")
    for name in /usr/share/doc/{libstdc++6,llvm-19-dev,nlohmann-json3-dev,libcli11-dev,catch2,libboost-dev,libedit-dev,libprometheus-cpp-dev,prometheus-cpp-dev}/copyright; do
        if [[ -e $name ]]; then cp "$name" "$folder/licences/$(basename "$(dirname "$name")")"; fi
    done
}

commit_state() { # the commit, and "dirty" where a file differs from it
    git -C "$root" rev-parse HEAD 2>/dev/null || printf 'unknown\n'
    if [[ -d $root/.git || -f $root/.git ]] && [[ -z $(git -C "$root" status --porcelain) ]]; then echo clean; else echo dirty; fi
}
