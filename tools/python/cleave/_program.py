# SPDX-License-Identifier: Apache-2.0
"""The program `cleave` of a wheel."""

import os
import pathlib
import sys


def main():
    """Becomes the program beside this file."""
    program = pathlib.Path(__file__).parent / "bin" / "cleave"
    if not program.exists():
        sys.exit("cleave: this wheel holds the library alone; the program is in those of a release")
    os.execv(program, [str(program), *sys.argv[1:]])
