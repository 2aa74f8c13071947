#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler sees: includes against the order of the rooms, lengths, licence lines.

usage: check_sources.py ROOT [FILE...]

FILEs are paths from ROOT. Prints one line per finding, "path:line: what"; exits 1 when there is one.
"""

import ast
import io
import pathlib
import re
import sys
import tokenize

import cpp_text

# Pipeline order: a file may include from its own room and from those before it.
ORDER = """
runtime/base
importer/graph importer/weights importer/onnx
planner/machine planner/plan planner/metis planner/tiles planner/analysis planner/cost planner/build planner/search
planner/verify planner planner/ask planner/cost_graph planner/file planner/view planner/export planner/export/model
codegen/templates codegen/kernel codegen/text codegen/lower codegen/host codegen/gpu codegen/compile codegen
runtime/text runtime/hosts runtime/device runtime/drivers/host runtime/simt runtime/drivers runtime/cards runtime/load
runtime/exchange runtime/execute runtime/session runtime/generate runtime/engine
models tools tests
""".split()
# Rooms that may see less than all rooms before them.
MAY = {
    # The verifier shares no code with the search, so that it finds the search's mistakes.
    "planner/verify": ["runtime/base", "importer/graph", "planner/machine", "planner/plan"],
}

# What the program must not use, and what instead.
ITERATOR = re.compile(r"\bdirectory_iterator(\s+\w+)?\s*[({]")
NOT_ITERATOR = "a directory_iterator ends the process where memory ends: names_in of runtime/base/folder.h"

LINES_OF_FILE, LINES_OF_FUNCTION, COLUMNS_OF_COMMENT = 600, 80, 100
BARE_URL = re.compile(r"\W*https?://\S+$")
SPDX = "SPDX-License-Identifier: Apache-2.0"


def language(root, path):
    """What a file is written in: by its name, or by its first line where the name has no suffix."""
    file = pathlib.PurePath(path)
    if file.suffix in (".h", ".hpp", ".cpp", ".cuh", ".cu", ".c"):
        return "c++"
    if file.suffix == ".cmake" or file.name == "CMakeLists.txt":
        return "cmake"
    if file.suffix in (".py", ".sh"):
        return {".py": "python", ".sh": "shell"}[file.suffix]
    if not file.suffix:
        with open(root / path, "rb") as opened:
            first = opened.readline(64)
        match = re.match(rb"#!.*\b(python|bash|sh)", first)
        return {b"python": "python"}.get(match.group(1), "shell") if match else None
    return None


def room(path):
    """The room of ORDER that a path from the root is in; None for any other place."""
    matches = [name for name in ORDER if path == name or path.startswith(name + "/")]
    return max(matches, key=len) if matches else None


def generated(root, name):
    """plan.pb.h is made from plan.proto while building."""
    return name.endswith(".pb.h") and (root / (name[: -len(".pb.h")] + ".proto")).exists()


def include_findings(root, path, text):
    """By bare file name: kernel sources, which run-time compilers read, and installed headers."""
    here = room(path)
    for number, name in cpp_text.includes_of(text):
        if ("templates/" in path or "libcleave/include/" in path) and (root / path).parent.joinpath(name).exists():
            continue
        there = room(name)
        if not (root / name).is_file() and not generated(root, name):
            yield number, f'"{name}" is no file of the repository; include paths start at its root'
        elif here is None or there is None:
            continue
        elif ORDER.index(there) > ORDER.index(here):
            yield number, f'{here} must not include "{name}": {there} comes later in the pipeline'
        elif here in MAY and there not in [here, *MAY[here]]:
            yield number, f'{here} must not include "{name}": it may see {", ".join(MAY[here])} alone'


def functions(kind, text):
    """First and last line of each function."""
    if kind == "c++":
        yield from cpp_text.functions_of(text)
    elif kind == "python":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node.lineno, node.end_lineno


def comment_lines(kind, text):
    """Lines that hold a comment, or a part of one."""
    if kind == "c++":
        for begin, end in cpp_text.comments_of(text):
            yield from range(text.count("\n", 0, begin) + 1, text.count("\n", 0, end) + 2)
    elif kind == "python":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0]
    else:
        for number, line in enumerate(text.splitlines(), 1):
            unquoted = re.sub(r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'""", "", line)
            if re.search(r"(^|\s)#", unquoted):
                yield number


def column_findings(kind, text):
    lines = text.splitlines()
    for number in sorted(set(comment_lines(kind, text))):
        width = len(lines[number - 1])
        if width > COLUMNS_OF_COMMENT and not BARE_URL.match(lines[number - 1]):
            yield number, f"a comment of {width} columns; {COLUMNS_OF_COMMENT} at most"


def findings(root, path, kind):
    text = (root / path).read_text(encoding="utf-8")
    lines = text.splitlines()
    if lines and not any(SPDX in line for line in lines[:3]):
        yield 1, f"no licence line: {SPDX}"
    if kind == "c++":
        yield from include_findings(root, path, text)
        if not path.startswith("tests/"):
            yield from ((text.count("\n", 0, at.start()) + 1, NOT_ITERATOR) for at in ITERATOR.finditer(text))
    if path.endswith(".h") and "templates/" not in path and "#pragma once" not in lines:
        yield 1, "no #pragma once"
    if len(lines) > LINES_OF_FILE:
        yield LINES_OF_FILE, f"{len(lines)} lines; {LINES_OF_FILE} at most: split it"
    for begin, end in functions(kind, text):
        if end - begin + 1 > LINES_OF_FUNCTION:
            yield begin, f"a function of {end - begin + 1} lines; {LINES_OF_FUNCTION} at most"
    yield from column_findings(kind, text)


def main():
    root = pathlib.Path(sys.argv[1])
    errors = 0
    for path in sys.argv[2:]:
        kind = language(root, path)
        for number, what in findings(root, path, kind) if kind else ():
            print(f"{path}:{number}: error: {what}")
            errors += 1
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
