# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that PROMISES.md names and writes its last column, what each row's tests checked.

  python3 tests/promise_figures.py BUILD_FOLDER [--slow]

Without --slow, rows whose tests are all [slow] keep the figure that they have. The environment is
that of tools/test. A test that fails ends it, and nothing is written.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parent / "PROMISES.md"
QUOTED = re.compile(r"`([^`]+)`( \[slow\])?")


def programs(build):
    """Which program has a test, by its name."""
    where = {}
    for program in sorted((build / "bin").glob("cleave_test_*")):
        listed = subprocess.run([program, "--list-test-names-only"], capture_output=True, text=True)
        for name in listed.stdout.splitlines():
            where.setdefault(name.strip(), program)
    return where


def assertions(program, name):
    escaped = re.sub(r"([,\[\]\\*])", r"\\\1", name)
    done = subprocess.run([program, escaped], capture_output=True, text=True)
    found = re.search(r"All tests passed \(([\d,]+) assertion", done.stdout)
    if done.returncode or not found:
        sys.exit(f"'{name}' failed, and no figure is written:\n{done.stdout[-3000:]}")
    return int(found[1])


def main():
    build, slow = Path(sys.argv[1]).resolve(), "--slow" in sys.argv[2:]
    where, day = programs(build), time.strftime("%Y-%m-%d")
    lines = PAGE.read_text().splitlines()
    for i, line in enumerate(lines):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        if not line.startswith("|") or len(cells) < 5 or "`" not in cells[2]:
            continue
        held = [(name, is_slow) for name, is_slow in QUOTED.findall(cells[2]) if name in where]
        chosen = [name for name, is_slow in held if slow or not is_slow]
        if not chosen:
            continue
        count = sum(assertions(where[name], name) for name in chosen)
        cells[3] = f"{count:,} on {day}"
        lines[i] = " ".join(["|", cells[1], "|", cells[2], "|", cells[3], "|"])
        print(lines[i][:60], cells[3], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
