# SPDX-License-Identifier: Apache-2.0
"""write_commands.py CLEAVE FOLDER: the first corpus of the target `commands`: the worked examples
of every command, and each option with a value, a word a line."""
import pathlib
import re
import shlex
import subprocess
import sys

VALUES = {"LIST": "host[0-3],sim:h100[0-31]/4", "N": "16", "AXIS": "batch=1,16,64k"}


def printed(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def main():
    cleave, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    commands = re.findall(r"^  ([a-z][a-z-]+)  ", printed(cleave, "--help"), re.MULTILINE)
    if len(commands) < 20:
        sys.exit(f"--help names {len(commands)} commands alone: {commands}")
    for command in commands:
        text = printed(cleave, command, "--help-all")
        for number, example in enumerate(re.findall(r"cleave (.*)", text.partition("Example")[2])):
            (folder / f"{command}-{number}").write_text("\n".join(shlex.split(example)))
        for option, value in re.findall(r"^ +(?:-\w, ?)?(--[a-z-]+)(?: ([A-Z]+))?", text,
                                        re.MULTILINE):
            words = [command, "model", option] + ([VALUES.get(value, "1")] if value else [])
            (folder / f"{command}{option}").write_text("\n".join(words))
    for name, words in {
            "devices": "plan\nmodel\n--devices\n"
                       "cuda[0]/0-3,hip:gfx90a[0-7],sim:h100[0-31]/4,host[0]",
            "sweep": "plan\nllama-2-7b\n--sweep\nbatch=1,16,64k\n--sweep\n"
                     "devices=host[0],host[0-1]",
            "pin": "plan\nmodel\n--pin\nlayers.0-15=cuda[0]\n--price\nh100=2.5",
            "rate": "run\nmodel\n--serve-trace\nrate=2.5,prompt=128,output=32,seed=7",
            "help": "help\nplan", "all": "run\n--help-all"}.items():
        (folder / f"own-{name}").write_text(words)


main()
