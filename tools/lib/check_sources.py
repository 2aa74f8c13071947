#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler sees: the direction of includes, file lengths, licence lines.

usage: check_sources.py ROOT [FILE...]

FILEs are paths from ROOT. Prints one line per finding, "path:line: what"; exits 1 when one is an error.
"""

import pathlib
import re
import sys

# Pipeline order: a file may include from its own room and from those before it.
ORDER = """
runtime/base
importer/graph importer/weights importer/onnx
planner/machine planner/plan planner/metis planner/tiles planner/analysis planner/cost planner/build planner/search
planner/verify planner planner/cost_graph planner/file planner/view planner/export planner/export/model
codegen/templates codegen/kernel codegen/text codegen/lower codegen/host codegen/gpu codegen/compile codegen
runtime/text runtime/device runtime/drivers/host runtime/simt runtime/drivers runtime/cards runtime/load
runtime/exchange runtime/execute runtime/session runtime/generate
models tools tests
""".split()

SOURCES = {".h", ".cpp", ".cuh", ".cu", ".py", ".sh"}
INCLUDING = {".h", ".cpp", ".cuh", ".cu"}
LONG, TOO_LONG = 300, 600
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
SPDX = "SPDX-License-Identifier: Apache-2.0"


def room(path):
    """The room of ORDER that a path from the root lies in; None for any other place."""
    matches = [name for name in ORDER if path == name or path.startswith(name + "/")]
    return max(matches, key=len) if matches else None


def generated(root, name):
    """plan.pb.h is made from plan.proto while building."""
    return name.endswith(".pb.h") and (root / (name[: -len(".pb.h")] + ".proto")).exists()


def include_findings(root, path, lines):
    """Kernel sources are given to the run-time compilers and name each other by bare file name."""
    here = room(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(1)
        if "templates/" in path and (root / path).parent.joinpath(name).exists():
            continue
        if not (root / name).is_file() and not generated(root, name):
            yield number, f'"{name}" is no file of the repository; include paths start at its root', True
        elif here is None or room(name) is None:
            continue
        elif ORDER.index(room(name)) > ORDER.index(here):
            yield number, f'{here} must not include "{name}": {room(name)} comes later in the pipeline', True


def length_findings(path, lines):
    if len(lines) > TOO_LONG:
        yield TOO_LONG, f"{len(lines)} lines; {TOO_LONG} at most: split it", True
    elif len(lines) > LONG:
        yield LONG, f"{len(lines)} lines; is it still about one thing?", False


def findings(root, path):
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    if lines and not any(SPDX in line for line in lines[:3]):
        yield 1, f"no licence line: {SPDX}", True
    if pathlib.Path(path).suffix in INCLUDING:
        yield from include_findings(root, path, lines)
    if path.endswith(".h") and "templates/" not in path and "#pragma once" not in lines:
        yield 1, "no #pragma once", True
    yield from length_findings(path, lines)


def main():
    root = pathlib.Path(sys.argv[1])
    errors = 0
    for path in sys.argv[2:]:
        if pathlib.Path(path).suffix not in SOURCES:
            continue
        for number, text, is_error in findings(root, path):
            print(f"{path}:{number}: {'error' if is_error else 'note'}: {text}")
            errors += is_error
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
