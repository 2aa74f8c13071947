# SPDX-License-Identifier: Apache-2.0
"""Compiles what `cleave export --format iree` wrote and says what the compiled module does where.

usage: iree_check.py FOLDER run|compile|read|undeclared

run: the commands of manifest.json, in order; compile: the first alone. read: compiles as far as IREE's flow and stream phases and prints JSON,
{"transfers": flow.tensor.transfer operations, "products": {device: parameters that its matrix products read},
"misplaced": executions that hold a parameter of another device}. undeclared: compiles without the last device's flag and
prints the compiler's first error.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

SYMBOL = re.compile(r"@(\w+) \{stream\.affinity = #hal\.device\.promise<@(\w+)>\} = #flow\.parameter\.named<\"(\w+)\"::\"(.*)\"> :")
LOAD = re.compile(r"(%\S+) = util\.global\.load \S*\s*@(\w+) :")
EXECUTE = re.compile(r"stream\.cmd\.execute .*on\(#hal\.device\.affinity<@(\w+)>\).* with\((.*)\)")


def run(folder: pathlib.Path, argv: list[str]) -> subprocess.CompletedProcess:
    environment = dict(os.environ)
    environment["PATH"] = f"{pathlib.Path(sys.executable).parent}:{environment['PATH']}"
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True)


def compiled_to(folder: pathlib.Path, command: list[str], phase: str) -> str:
    done = run(folder, [*command, f"--compile-to={phase}", "-o", f"{phase}.mlir"])
    if done.returncode:
        raise SystemExit(done.stderr)
    return (folder / f"{phase}.mlir").read_text()


def placement(source: str, stream: str) -> tuple[dict[str, list[str]], list[str]]:
    home = {symbol: (device, key) for symbol, device, scope, key in SYMBOL.findall(source)}
    loads = {ssa: symbol for ssa, symbol in LOAD.findall(stream) if symbol in home}
    products: dict[str, list[str]] = {}
    misplaced, device, held, dispatch = [], "", {}, ""
    for line in stream.splitlines():
        if execute := EXECUTE.search(line):
            device, captures = execute.groups()
            held = {}
            for ssa, argument in re.findall(r"(%[\w#]+) as (%\w+):", captures):
                if ssa in loads:
                    held[argument] = home[loads[ssa]]
                    if held[argument][0] != device:
                        misplaced.append(f"{held[argument][1]} on {device}")
        elif "stream.cmd.dispatch" in line:
            dispatch = line
        elif (read := re.match(r"\s*r[ow] (%\w+)\[", line)) and read[1] in held and re.search("mat(mul|vec)|contract", dispatch):
            products.setdefault(device, []).append(held[read[1]][1])
    return products, misplaced


def main() -> None:
    folder, action = pathlib.Path(sys.argv[1]), sys.argv[2]
    commands = json.loads((folder / "manifest.json").read_text())["commands"]
    if action in ("run", "compile"):
        for argv in commands if action == "run" else commands[:1]:
            done = run(folder, argv)
            if done.returncode:
                raise SystemExit(" ".join(argv) + "\n" + done.stderr)
    elif action == "undeclared":
        flags = [a for a in commands[0] if a.startswith("--iree-hal-target-device=")]
        done = run(folder, [a for a in commands[0] if a != flags[-1]])
        print(done.stderr.strip().splitlines()[0] if done.returncode else "it compiled")
    else:
        base = [a for a in commands[0] if a not in ("-o", "model.vmfb")]
        flow, stream = (compiled_to(folder, base, phase) for phase in ("flow", "stream"))
        products, misplaced = placement((folder / "model.mlir").read_text(), stream)
        print(json.dumps({"transfers": flow.count("flow.tensor.transfer"), "products": products, "misplaced": misplaced}))


if __name__ == "__main__":
    main()
