# SPDX-License-Identifier: Apache-2.0
"""Published speeds beside predictions: every row, by class, against the bounds of the class.

In: a CSV of rows (class, what was run, the figure, its source, the `cleave plan` command), and the
`cleave` program. Out: a line a row, a table of the classes, exit code 1 where a class is outside its
bounds. A ratio is predicted speed over published speed: above 1, the prediction is too fast. Rows
that no command predicts are counted as such, and rows whose plan is refused are printed with why.
"""

import argparse
import csv
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def read_bounds():
    """By class, bounds of the median and of the 10th and 90th percentile: the planner's table."""
    table = Path(__file__).parents[2] / "planner/cost/published_classes.h"
    row = re.compile(r'PublishedClass\{"([^"]+)", ([\d.]+), ([\d.]+), ([\d.]+), ([\d.]+)\}')
    return {m[0]: tuple(map(float, m[1:])) for m in row.findall(table.read_text())}


BOUNDS = read_bounds()
# The networks that the sources name, where these are not the catalogue's.
FABRICS = [("EFA", "efa")]
# Engines whose sums wait for a late member, which TensorRT-LLM's hardly do.
SKEWED = re.compile(r"vllm|sglang|gpt-fast|llm-perf-bench", re.IGNORECASE)
# A class whose rows are predicted a second time, as another class, with that option: cards of which
# nothing says how they share their links, as if all were behind one.
GROUPED = {"collective in a node, PCIe": "collective in a node, PCIe group"}
# Sums by TensorRT-LLM's own kernels are a class of their own: the curves are of vLLM's.
OTHER_SUMS = re.compile(r"trtllm")
# Sums across nodes of a source that does not say which network they took.
UNNAMED_NETWORK = re.compile(r"microsoft/vidur")
# Sources whose models of 8 bits had caches of 8 bits, too: those that say so, and NVIDIA's tables,
# where they are part of the checkpoint.
F8_CACHES = re.compile(r"fp8 (weights and )?KV|perf-overview\.md")


def arguments_of(row):
    """The command's, with a name for the configuration that it has by path."""
    words = shlex.split(row["cleave command"])[2:]
    words = [re.sub(r"^cfg31-(\d+b)/config\.json$", r"llama-3.1-\1", w) for w in words]
    if "MI355X" in row["source"]:
        words = [w.replace("sim:mi325x", "sim:mi355x") for w in words]
    for name, fabric in FABRICS:
        if name in row["source"]:
            words += ["--fabric", fabric]
    is_split = "collective" not in row["class"] and int(row["tp"] or 1) > 1
    if is_split and SKEWED.search(row["source"]):
        words += ["--sum-skew", "2"]
    if row["dtype"] == "f8e4m3" and F8_CACHES.search(row["source"]):
        words += ["--kv-dtype", "f8e4m3"]
    return words


def in_classes(rows):
    """The rows in their classes, and those of GROUPED of three devices and more once more."""
    for row in rows:
        if row["class"] == "collective in a node" and OTHER_SUMS.search(row["source"]):
            row = {**row, "class": row["class"] + ", TensorRT-LLM"}
        if row["class"] == "collective across nodes" and UNNAMED_NETWORK.search(row["source"]):
            row = {**row, "class": row["class"] + ", network not named"}
        yield row
        if row["class"] in GROUPED and int(row["n"]) > 2:
            command = f"{row['cleave command']} --pcie-group {row['n']}"
            yield {**row, "class": GROUPED[row["class"]], "cleave command": command}


def plan_of(cleave, arguments):
    done = subprocess.run([cleave, "plan", *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError((done.stderr or done.stdout).strip().splitlines()[0])
    return json.loads(done.stdout)


def with_batch(arguments, batch):
    at = arguments.index("--batch")
    return arguments[: at + 1] + [str(batch)] + arguments[at + 2 :]


def ratio_of(cleave, row):
    """(predicted figure, ratio of speeds); ValueError where there is none."""
    if not row["cleave command"].startswith("cleave plan"):
        raise ValueError("no command predicts it")
    arguments = arguments_of(row)
    plan = plan_of(cleave, arguments)
    published, metric = float(row["published value"]), row["metric"]
    if metric.startswith("all_reduce"):
        times = [s["predicted_us"] for s in plan["steps"]
                 if s["phase"] == "decode" and s["kind"] == "collective" and s["op"] == "all_reduce"
                 and s["bytes"] == int(row["batch"])]
        if not times:
            raise ValueError("the plan has no sum of that size")
        return times[0], published / times[0]
    batch, prompt, context = (int(row[k]) for k in ("batch", "prompt", "context"))
    prefill = plan["predicted"]["prefill_ms"]
    decode = plan["predicted"]["decode_ms_per_token"]
    new = context - prompt
    if metric == "decode":
        return 1e3 * batch / decode, 1e3 * batch / decode / published
    if metric == "out":
        speed = 1e3 * batch * new / (prefill + new * decode)
        return speed, speed / published
    if metric == "e2e":
        return prefill + new * decode, published / (prefill + new * decode)
    if metric == "ttft":
        return prefill, published / prefill
    if metric == "tpot":  # while the prompts of the other users are read
        one = plan_of(cleave, with_batch(arguments, 1))["predicted"]["prefill_ms"]
        tpot = decode + (batch - 1) * one / new
        return tpot, published / tpot
    raise ValueError(f"the metric {metric!r} is not known")


def percentile(values, share):
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("--cleave", default="build/bin/cleave")
    parser.add_argument("--class", dest="only", help="rows of this class alone")
    parser.add_argument("--jobs", type=int, default=2)
    flags = parser.parse_args()
    with open(flags.csv, newline="") as file:
        rows = [r for r in in_classes(csv.DictReader(file)) if flags.only in (None, r["class"])]

    def outcome(row):
        try:
            return ratio_of(flags.cleave, row)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(flags.jobs) as pool:
        outcomes = list(pool.map(outcome, rows))
    classes, without = {}, {}
    for row, result in zip(rows, outcomes):
        what = f"{row['model']} {row['dtype']} {row['n']} {row['device']} b{row['batch']}"
        if isinstance(result, str):
            without[row["class"]] = without.get(row["class"], 0) + 1
            if result != "no command predicts it":
                print(f"{row['class']}: {what}: {result}")
            continue
        predicted, ratio = result
        classes.setdefault(row["class"], []).append(ratio)
        print(f"{row['class']}: {what}: {row['metric'].split()[0]} {float(row['published value']):.4g} "
              f"{row['unit']} published, {predicted:.4g} predicted, ratio {ratio:.2f}; {row['source']}")
    failed = False
    print(f"\n{'class':36} {'rows':>5} {'median':>7} {'p10':>6} {'p90':>6}  bounds of median, of p10 to p90")
    for name in sorted(set(classes) | set(without)):
        ratios = classes.get(name)
        missing = f", {without[name]} not predicted" if name in without else ""
        if not ratios:
            print(f"{name:36} {0:5}{missing}")
            continue
        median, low, high = (percentile(ratios, s) for s in (0.5, 0.1, 0.9))
        bounds = BOUNDS.get(name)
        inside = bounds and bounds[0] <= median <= bounds[1] and bounds[2] <= low and high <= bounds[3]
        failed = failed or not inside
        text = "{:.2f} to {:.2f}, {:.2f} to {:.2f}".format(*bounds) if bounds else "none stated"
        print(f"{name:36} {len(ratios):5} {median:7.2f} {low:6.2f} {high:6.2f}  {text}"
              f"{'' if inside else '  OUTSIDE'}{missing}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
