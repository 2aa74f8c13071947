# SPDX-License-Identifier: Apache-2.0
"""Writes the last column of PROMISES.md: what each row's tests checked, by the last run of tools/test.

  python3 tests/promise_figures.py BUILD_FOLDER

A row whose tests did not all run keeps the figure that it has ([slow] ones run by tools/test --all). A test
that failed ends it, and nothing is written.
"""

import re
import sys
import time
from pathlib import Path

PAGE = Path(__file__).parent / "PROMISES.md"


def assertions(log):
    """Of each test by its name; of one that failed nothing."""
    counts = {}
    for part in re.split(r"^\d+/\d+ Testing: ", log, flags=re.MULTILINE)[1:]:
        name, _, output = part.partition("\n")
        passed = re.search(r"All tests passed \((\d+) assertion", output)
        counts[name.strip()] = int(passed[1]) if passed and "\nTest Passed.\n" in output else None
    return counts


def main():
    log = Path(sys.argv[1]) / "Testing/Temporary/LastTest.log"
    counts = assertions(log.read_text(errors="replace"))
    day = time.strftime("%Y-%m-%d", time.localtime(log.stat().st_mtime))
    lines = PAGE.read_text().splitlines()
    for i, line in enumerate(lines):
        cells = [cell.strip() for cell in line.split("|")]
        if not line.startswith("|") or len(cells) != 5 or "`" not in cells[2]:
            continue
        held = [(name, slow) for name, slow in re.findall(r"`([^`]+ [^`]+)`( \[slow\])?", cells[2])]
        ran = [name for name, _ in held if name in counts]
        if not ran or any(name not in counts for name, slow in held if not slow):
            continue
        if failed := [name for name in ran if counts[name] is None]:
            sys.exit(f"failed or skipped, and nothing is written: {failed}")
        lines[i] = f"| {cells[1]} | {cells[2]} | {sum(counts[name] for name in ran):,} on {day} |"
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
