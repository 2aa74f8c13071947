#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bundle's command: unpacks the rest of it once, and starts bin/cleave_gpu_check, with the
# bundle's own libstdc++ where this machine's is too old or absent.
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
fail() {
    echo "gpu-check: $1" >&2
    exit 1
}
if [ -e "$here/payload.tar.zst" ]; then
    [ -w "$here" ] || fail "$here cannot be written: the bundle unpacks itself there, once; move it to a folder that can be"
    if ! { "$here/pack" expand <"$here/payload.tar.zst" >"$here/payload.tar" && tar -C "$here" -xf "$here/payload.tar"; }; then
        rm -f "$here/payload.tar"
        fail "unpacking into $here failed; it takes 350 MB there, and a processor of x86-64"
    fi
    rm -f "$here/payload.tar" "$here/payload.tar.zst"
fi
for narrow in "$here"/models/stories15M/*.narrow; do
    [ -e "$narrow" ] || continue
    "$here/pack" widen <"$narrow" >"${narrow%.narrow}" || fail "$narrow could not be widened to f32"
    rm -f "$narrow"
done
if ! "$here/bin/cleave" --version >/dev/null 2>&1; then
    LD_LIBRARY_PATH=$here/fallback${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    if ! error=$("$here/bin/cleave" --version 2>&1); then
        fail "the programs do not start here (glibc 2.36 or newer on x86-64 is needed): $error"
    fi
fi
exec "$here/bin/cleave_gpu_check" "$@"
