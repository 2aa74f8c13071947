#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Analyses each .cpp with clang-tidy, or compiles each header by itself, and counts what it did.

usage: analyse.py (sources | headers) ROOT FOLDER [--jobs N] [--limit SECONDS] [--changed FILE...]

FOLDER is a build folder of ROOT without unity builds and precompiled headers; nothing is built in
it. With --changed: of the sources those named, and those that include a header named, in that order.
Ends with "analysed n of m". Exits with 1 when there is a finding, or when a file was left out for
another reason than the limit. What was clean is remembered in FOLDER by the contents of the file,
of what it includes from ROOT, and of the tool's settings, so that a second run takes up where the
first ended; remove FOLDER after an update of the system's headers.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import cpp_text

# Sources of other builds: whose flags they are analysed with.
FLAGS_OF = {
    **{
        f"tests/fuzz/{name}.cpp": "tests/fuzz/write_seeds.cpp"
        for name in (
            "abi_fuzzer",
            "check_fuzzer",
            "commands_fuzzer",
            "engine_fuzzer",
            "files_fuzzer",
            "harness",
            "import_fuzzer",
            "inspect_fuzzer",
            "json_fuzzer",
            "mutate_json",
            "mutate_message",
            "plan_fuzzer",
            "sentencepiece_fuzzer",
            "serve_fuzzer",
            "text_fuzzer",
            "weights_fuzzer",
        )
    },
    "codegen/compile/llvm_static/absent_parts.cpp": "codegen/compile/llvm/load.cpp",
}
# Files that cannot be compiled here, with the reason.
LEFT_OUT = {
    "tests/consumer/abi.cpp": "includes an installed libcleave; tests/tools/libcleave_test.cpp compiles it",
    "tests/consumer/own_operators.cpp": "the same",
    "tests/fuzz/c_abi.h": "includes a header of Clang's fuzzer; the sources that include it are analysed",
    "runtime/hosts/mpi/mpi_table.cpp": "includes mpi.h, which is optional; compiled where it is",
}


class Tree:
    """The files of the project as they are now, and how each .cpp is compiled."""

    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        listed = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()
        names = [name for name in sorted(set(names)) if (root / name).is_file()]
        self.sources = [name for name in names if name.endswith(".cpp")]
        # Templates are parts of kernels: only the run-time compilers can read them.
        self.headers = [name for name in names if name.endswith((".h", ".hpp")) and "/templates/" not in name]
        self._digests, self._included = {}, {}
        self._commands = {}
        for entry in json.loads((folder / "compile_commands.json").read_text(encoding="utf-8")):
            file = pathlib.Path(entry["file"])
            if file.is_relative_to(root):
                self._commands.setdefault(str(file.relative_to(root)), shlex.split(entry["command"]))

    def compiler(self, source):
        return next(word for word in self._commands[source] if not word.endswith("ccache"))

    def flags(self, source):
        """What decides the meaning of a source: language, definitions, folders of headers."""
        command = self._commands.get(FLAGS_OF.get(source, source))
        if command is None:
            return None
        kept, takes_next = [], False
        for word in command:
            if takes_next or word.startswith(("-D", "-I", "-isystem", "-std=")):
                kept.append(word)
            takes_next = word in ("-D", "-I", "-isystem")
        return kept

    def neighbour(self, header):
        """A source whose flags serve a header: its own, or else of its folder or the nearest around
        it the one with most flags."""
        own = str(pathlib.PurePath(header).with_suffix(".cpp"))
        if own in self._commands:
            return own
        for parent in pathlib.PurePath(header).parents:
            beside = "" if str(parent) == "." else f"{parent}/"
            found = [name for name in self._commands if name.startswith(beside)]
            if found:
                return max(found, key=lambda name: (len(self.flags(name)), name))
        return None

    def _look_up(self, name, includer):
        beside = str(pathlib.PurePath(includer).parent / name)
        for path in (self.root / name, self.folder / "generated" / name, self.root / beside):
            if path.is_file():
                return beside if path == self.root / beside else name
        return None  # a library's

    def _read(self, name):
        if name not in self._digests:
            path = self.root / name
            text = (path if path.is_file() else self.folder / "generated" / name).read_text(encoding="utf-8")
            found = (self._look_up(include, name) for _, include in cpp_text.includes_of(text))
            self._included[name] = [include for include in found if include]
            # Last: another thread that finds it takes the file for read.
            self._digests[name] = hashlib.sha256(text.encode()).hexdigest()

    def includes(self, name):
        self._read(name)
        return self._included[name]

    def digest(self, name):
        """Of a file and of everything of the project that it includes."""
        seen, open_ = {name}, [name]
        while open_:
            for include in self.includes(open_.pop()):
                if include not in seen:
                    seen.add(include)
                    open_.append(include)
        return "".join(f"{one} {self._digests[one]}\n" for one in sorted(seen))

    def selected(self, changed):
        """Sources among `changed`, then those that include one of its headers: own ones first."""
        if ".clang-tidy" in changed:
            return self.sources
        chosen = [name for name in changed if name in self.sources]
        headers = [name for name in changed if name.endswith((".h", ".hpp"))]
        including = [name for name in self.sources if set(self.includes(name)) & set(headers)]
        own = {name[: name.rindex(".")] for name in headers}
        including.sort(key=lambda name: name[: -len(".cpp")] not in own)
        return list(dict.fromkeys(chosen + including))


def tidy_command(tree, source):
    flags = tree.flags(source)
    return None if flags is None else ["clang-tidy-19", "--quiet", source, "--", *flags]


def header_command(tree, header):
    source = tree.neighbour(header)
    if source is None:
        return None
    return [tree.compiler(source), *tree.flags(source), "-fsyntax-only", "-w", "-include", header, "-x", "c++", os.devnull]


def version(program):
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout


class Clean:
    """What was clean, as lines of a file that grows."""

    def __init__(self, path):
        self.path = path
        self.keys = set(path.read_text(encoding="utf-8").split()) if path.exists() else set()

    def add(self, key):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(key + "\n")


def findings_of(result, root):
    """What a tool said, with paths from the root, in pieces of one finding each."""
    text = (result.stdout + ("" if result.stdout else result.stderr)).replace(f"{root}/", "")
    pieces = re.split(r"^(?=\S+?:\d+:\d+: (?:error|warning|fatal error):)", text, flags=re.MULTILINE)
    return [piece for piece in pieces if piece.strip()]


def run_all(tree, wanted, command_of, settings, arguments):
    """Counts of files that are clean, that are not, and that the limit left; prints findings once."""
    clean = Clean(tree.folder / f"clean_{arguments.what}")
    ends = time.monotonic() + arguments.limit if arguments.limit else None

    def analyse(file):
        command = command_of(tree, file)
        text = settings + " ".join(command) + tree.digest(file)
        key = hashlib.sha256(text.encode()).hexdigest()
        if key in clean.keys:
            return True, []
        if ends and time.monotonic() > ends:
            return None, []
        result = subprocess.run(command, cwd=tree.root, capture_output=True, text=True)
        if result.returncode == 0:
            clean.add(key)
        return result.returncode == 0, findings_of(result, tree.root) if result.returncode else []

    counts, shown = {True: 0, False: 0, None: 0}, set()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for good, pieces in pool.map(analyse, wanted):
            counts[good] += 1
            for piece in pieces:
                if piece.splitlines()[0] not in shown:
                    shown.add(piece.splitlines()[0])
                    print(piece.rstrip(), flush=True)
    return counts[True], counts[False], counts[None]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].removeprefix("usage: "))
    parser.add_argument("what", choices=["sources", "headers"])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=0)
    parser.add_argument("--changed", nargs="*")
    arguments = parser.parse_args()
    tree = Tree(arguments.root.resolve(), arguments.folder.resolve())
    if arguments.what == "sources":
        command_of = tidy_command
        settings = version("clang-tidy-19") + (tree.root / ".clang-tidy").read_text(encoding="utf-8")
        all_of_them = tree.sources if arguments.changed is None else tree.selected(arguments.changed)
    else:
        command_of, settings, all_of_them = header_command, version("c++"), tree.headers

    excused = [name for name in all_of_them if name in LEFT_OUT]
    for name in excused:
        print(f"  {name} is left out: {LEFT_OUT[name]}")
    all_of_them = [name for name in all_of_them if name not in LEFT_OUT]
    missed = [name for name in all_of_them if command_of(tree, name) is None]
    for name in missed:
        print(f"{name}: no compile command covers it: name it in a CMakeLists.txt, or in tools/lib/analyse.py with a reason")
    wanted = [name for name in all_of_them if name not in missed]
    good, bad, late = run_all(tree, wanted, command_of, settings, arguments)
    print(f"  analysed {good + bad} of {len(all_of_them)} {arguments.what}"
          + (f", {bad} with findings" if bad else "")
          + (f"; {late} are left for tools/check --all, for the {arguments.limit:.0f} s are over" if late else ""))
    return 1 if bad or missed else 0


if __name__ == "__main__":
    sys.exit(main())
