# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the programs and libraries of a bundle need of the machine on which it runs, read from the
# files themselves. Sourced by bundle.sh, after common.sh.

newest_glibc=2.36
# glibc's own, which every machine has.
glibc_libraries='^(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv)\.so\.[0-9]+$'

is_elf() { [[ $(head -c 4 "$1" | tr -d '\0') == $'\x7fELF' ]]; }

# unmet_versions PATH NAME: a line for each version of a glibc symbol that NAME needs and glibc 2.36
# lacks.
unmet_versions() {
    local library version major minor symbols
    while read -r library version; do
        if [[ ! $library =~ $glibc_libraries ]]; then continue; fi
        if [[ $version =~ ^GLIBC_([0-9]+)\.([0-9]+)(\.[0-9]+)?$ ]]; then
            major=${BASH_REMATCH[1]} minor=${BASH_REMATCH[2]}
            ((major < ${newest_glibc%.*} || (major == ${newest_glibc%.*} && minor <= ${newest_glibc#*.}))) && continue
        elif [[ $version == GLIBC_ABI_DT_RELR ]]; then
            continue # of 2.36
        fi
        symbols=$(objdump -T "$1" | awk -v version="($version)" 'NF > 1 && $(NF - 1) == version { print $NF }' | paste -sd ' ')
        printf '%s: %s of %s, which glibc %s lacks (symbols: %s)\n' "$2" "$version" "$library" "$newest_glibc" "${symbols:-none}"
    done < <(objdump -p "$1" | awk '
        /^  required from / { library = $3; sub(/:$/, "", library); next }
        /^$/ { library = "" }
        library != "" { print library, $4 }')
}

# unmet_needs FOLDER: a line for each need of the files below it, which has lib/ and fallback/, that
# neither the folder nor glibc
# 2.36 meets.
unmet_needs() {
    local file name library type
    while IFS= read -r -d '' file; do
        is_elf "$file" || continue
        name=${file#"$1"/}
        type=$(objdump -f "$file") || { printf '%s: objdump cannot read it\n' "$name" && continue; }
        [[ $type == *"file format elf64-x86-64"* ]] || printf '%s: it is not for x86-64\n' "$name"
        while read -r library; do
            if [[ $library =~ $glibc_libraries || -e $1/lib/$library || -e $1/fallback/$library ]]; then continue; fi
            printf '%s: %s is neither in the bundle nor a part of glibc\n' "$name" "$library"
        done < <(objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }')
        unmet_versions "$file" "$name"
    done < <(find "$1" -type f -print0 | sort -z)
}
