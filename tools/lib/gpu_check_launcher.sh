#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bundle's command: starts bin/cleave_gpu_check, with the bundle's own libstdc++ where this machine's is too old or absent.
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
if ! "$here/bin/cleave" --version >/dev/null 2>&1; then
    LD_LIBRARY_PATH=$here/fallback${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    if ! error=$("$here/bin/cleave" --version 2>&1); then
        echo "gpu-check: the programs do not start here (glibc 2.36 or newer on x86-64 is needed): $error" >&2
        exit 1
    fi
fi
exec "$here/bin/cleave_gpu_check" "$@"
