# SPDX-License-Identifier: Apache-2.0
"""The wheel of a release: the Python package with the programs and libraries of the unpacked folder inside.

usage: make_wheel.py PACKAGE RELEASE VERSION PLATFORM OUT   (PACKAGE: tools/python)
Format: https://packaging.python.org/en/latest/specifications/binary-distribution-format/ . The same files give the
same bytes: entries are sorted, and their time is SOURCE_DATE_EPOCH's.
"""

import base64
import hashlib
import os
import pathlib
import sys
import time
import zipfile


def entries(package, release, version, tag):
    """Names in the wheel -> (bytes, executable)."""
    found = {}
    for file in sorted((package / "cleave").glob("*.py")):
        found[f"cleave/{file.name}"] = (file.read_bytes(), False)
    for folder in ("bin", "lib"):
        for file in sorted((release / folder).iterdir()):
            found[f"cleave/{folder}/{file.name}"] = (file.read_bytes(), os.access(file, os.X_OK))
    info = f"cleave-{version}.dist-info"
    for file in [release / "LICENSE", *sorted((release / "licences").iterdir())]:
        found[f"{info}/licenses/{file.name}"] = (file.read_bytes(), False)
    found[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: cleave\nVersion: {version}\n"
        "Summary: Plans, proves and runs a Llama over several devices\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\n".encode(),
        False,
    )
    found[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: cleave\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        False,
    )
    found[f"{info}/entry_points.txt"] = (b"[console_scripts]\ncleave = cleave._program:main\n", False)
    return found, f"{info}/RECORD"


def main(package, release, version, platform, out):
    tag = f"py3-none-{platform}"
    found, record = entries(pathlib.Path(package), pathlib.Path(release), version, tag)
    lines = []
    for name, (data, _) in sorted(found.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    found[record] = ("\n".join([*lines, f"{record},,", ""]).encode(), False)
    first = 315532800  # 1980: a zip file knows no earlier time
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), first))[:6]
    with zipfile.ZipFile(pathlib.Path(out) / f"cleave-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, executable) in sorted(found.items()):
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data)


if __name__ == "__main__":
    main(*sys.argv[1:])
