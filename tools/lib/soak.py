# SPDX-License-Identifier: Apache-2.0
"""What tools/soak does: hours of random clients and commands, and what must be flat meanwhile.

Every random choice comes from one seed. A find is kept with its command in the work folder.
"""

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from soak_commands import Commands
from soak_server import Server


class Finds:
    """What was wrong, by any thread."""

    def __init__(self):
        self.lock, self.texts = threading.Lock(), []

    def add(self, text):
        with self.lock:
            self.texts.append(text)
        print(f"FOUND: {text}", file=sys.stderr, flush=True)


def grown(name, values, slack):
    """Medians of the first and the last quarter; a text where the last is above by more than
    2 % and `slack`."""
    quarter = max(1, len(values) // 4)
    first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
    if last > first * 1.02 + slack:
        return f"{name} grew from {first:,.0f} to {last:,.0f} over {len(values)} samples"
    return ""


def table(hours, seed, server, commands, samples, finds):
    rows = [("seed", seed), ("hours", f"{hours:.2f}"), *server.counts.items(), *commands.counts.items()]
    text = "| what | number |\n|---|---|\n"
    text += "".join(f"| {name} | {count} |\n" for name, count in rows)
    text += "\n| of the idle server | first | median | last | largest |\n|---|---|---|---|---|\n"
    for name in samples[0] if samples else ():
        values = [s[name] for s in samples]
        text += (f"| {name} | {values[0]:,} | {statistics.median(values):,.0f} | {values[-1]:,} "
                 f"| {max(values):,} |\n")
    text += f"\nFound: {len(finds)}\n" + "".join(f"- {find}\n" for find in finds)
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("built")
    parser.add_argument("hours", type=float)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--cleave")
    parser.add_argument("--report", type=Path)
    flags = parser.parse_args()
    cleave = str(Path(flags.cleave or flags.built).resolve())
    work = Path(tempfile.mkdtemp(prefix="cleave-soak-"))
    print(f"seed {flags.seed}, in {work}", file=sys.stderr, flush=True)

    finds, began = Finds(), time.monotonic()
    end = began + 3600 * flags.hours
    server = Server(flags.root, cleave, work / "server", flags.seed, finds)
    commands = Commands(flags.root, cleave, work / "commands", flags.seed + 1, finds)
    other = threading.Thread(target=commands.run_until, args=(end,))
    other.start()
    samples = []
    try:
        server.start()
        server.round()  # warms up: pools, caches, threads that clients need
        while time.monotonic() < end:
            server.round()
            samples.append(server.sample())
    except KeyboardInterrupt:  # what was done until then is told
        print("interrupted", file=sys.stderr)
    finally:
        commands.stops = True
        other.join()
        server.stop()
    for name, slack in (("memory, kB", 4096), ("descriptors", 1), ("threads", 0), ("files", 0)):
        if samples and (text := grown(name, [s[name] for s in samples], slack)):
            finds.add(f"the server's {text}")

    hours = (time.monotonic() - began) / 3600
    text = table(hours, flags.seed, server, commands, samples, finds.texts)
    print(text, end="")
    if flags.report:
        flags.report.write_text("<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
                                f"# tools/soak, {time.strftime('%d %B %Y')}\n\n{text}")
    if finds.texts:
        print(f"what is left of them: {work}", file=sys.stderr)
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
