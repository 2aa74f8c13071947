#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds README.md to the reports of real GPUs: each figure of a GPU that it states is in tests/reports/gpu_*.json.

usage: gpu_reports.py ROOT [--fix]      the block of README.md between the two comments, and the text around it
       gpu_reports.py --report FILE...  whether reports may be kept as those of real GPUs

Prints one line per finding; exits 1 when there is one. --fix writes the block anew.
"""

import json
import pathlib
import re
import sys

FORMAT = "cleave gpu-check 4"
BEGIN = "<!-- Figures of GPUs: tools/check --fix writes them from tests/reports/gpu_*.json. -->"
END = "<!-- End of the figures of GPUs. -->"
NOTHING_RAN = "Nothing has run on a card yet: `tests/reports/` holds no report of one, and no figure of a GPU is stated."
ASK = "`tools/gpu-check` on that card, and keep its report as tests/reports/gpu_DEVICE_COMMIT.json"

# A figure of speed in a text that is about GPUs.
FIGURE = re.compile(
    r"(?<![\w.])\d[\d.,]*\s*(%|ms\b|us\b|µs\b|ns\b|s\b|seconds?\b|[GT]B/s|[GMT]B a second|T?FLOP|tokens?(/s| a second| per second)|times\b)",
    re.IGNORECASE)
GPU = re.compile(
    r"\bGPUs?\b|\bcuda\b|\bhip\b|NVIDIA|\bAMD\b|\b[ABHVL]\d{2,3}S?\b|\bMI\d{2,3}X?\b|\bRTX|Radeon|GeForce|\bcards?\b",
    re.IGNORECASE)


def text_of(value):
    return value.strip() if isinstance(value, str) else ""


def findings_of(report):
    """Why a report is not one of a real GPU that ran to its end; empty: it is."""
    if not isinstance(report, dict):
        return ["it is no JSON object"]
    found = []
    if report.get("format") != FORMAT:
        found.append(f"its format is {report.get('format')!r}, not {FORMAT!r}")
    if not re.fullmatch(r"[0-9a-f]{40}", text_of(report.get("commit"))):
        found.append(f"its commit is {report.get('commit')!r}, not the 40 digits of one")
    if report.get("dirty") is not False:
        found.append("its files differed from the commit (dirty)")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text_of(report.get("date"))):
        found.append(f"its date is {report.get('date')!r}")
    if report.get("finished") is not True:
        found.append("it was cut off before its end (finished)")
    if not isinstance(report.get("parts"), dict) or not report["parts"]:
        found.append("no part of it ran")
    variables = report.get("variables")
    if not isinstance(variables, dict):
        found.append("it does not say which variables were set (variables)")
    elif variables:
        found.append("it was made with " + ", ".join(sorted(variables)) + ", which a report of a real GPU does without")
    device = device_of(report)
    kind = text_of(report.get("device")).split("[")[0]
    if device is None:
        found.append(f"the device that it names, {report.get('device')!r}, is not among its devices")
    else:
        for field in ("name", "arch", "pci"):
            if not text_of(device.get(field)):
                found.append(f"its device has no {field}")
    driver = driver_of(report, kind)
    if driver is None or not text_of(driver.get("version")) or not text_of(driver.get("library")):
        found.append(f"it names no driver of {kind or 'its device'} with library and version")
    for one in report.get("drivers") or []:
        if isinstance(one, dict) and "library" in one and one.get("fake") is not False:
            found.append(f"its driver {one['library']} is a fake, or it does not say that it is none (fake)")
    return found


def device_of(report):
    for device in report.get("devices") or []:
        if isinstance(device, dict) and device.get("device") == report.get("device"):
            return device
    return None


def driver_of(report, kind):
    for driver in report.get("drivers") or []:
        if isinstance(driver, dict) and driver.get("kind") == kind:
            return driver
    return None


def number(value, digits=3):
    return f"{value:.{digits}g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "not measured"


def share(value):
    return f"{100 * value:.1f} %" if isinstance(value, (int, float)) and not isinstance(value, bool) else "not measured"


def row(report):
    device, kind = device_of(report), report["device"].split("[")[0]
    parts = report["parts"]
    failed = sorted(name for name, part in parts.items() if part.get("status") != "passed")
    result = parts.get("benchmark", {}).get("result", {})
    decode, prefill = result.get("decode", {}), result.get("prefill", {})
    gaps = decode.get("launch_gaps", {})
    of_token = [gaps.get(key) for key in ("token_less_traced_steps_of_token", "empty_launches_of_token")]
    worst = max(of_token) if all(isinstance(one, (int, float)) for one in of_token) else None
    return [
        f"{device['name']} ({device['arch']})",
        f"{kind} {driver_of(report, kind)['version']}",
        report["date"][:10],
        f"`{report['commit'][:9]}`",
        f"{len(parts) - len(failed)} of {len(parts)} passed" + (f", failed: {', '.join(failed)}" if failed else ""),
        f"{result.get('shape', 'no benchmark')} {result.get('dtype', '')}".strip(),
        f"{number(decode.get('ms_per_token'))} ms a token, {share(decode.get('of_copy_bandwidth'))} of copy bandwidth"
        if decode else "not measured",
        share(worst) if decode else "not measured",
        f"{number(prefill.get('tflops'))} TFLOPS, {share(prefill.get('of_matmul'))} of PyTorch's matmul"
        if prefill else "not measured",
    ]


def block(reports):
    if not reports:
        return NOTHING_RAN
    head = ["device", "driver", "date", "commit", "parts", "model", "decode", "launch gaps", "prefill"]
    table = [head, ["---"] * len(head)] + [row(report) for report in reports]
    return "\n".join("| " + " | ".join(line) + " |" for line in table)


def read(path, found):
    """The report of a path when it is one of a real GPU; else None, and why in `found`."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        found.append(f"{path.name}: {error}")
        return None
    wrong = findings_of(report)
    found.extend(f"{path.name}: no report of a real GPU: {why}" for why in wrong)
    return None if wrong else report


def reports_of(root, found):
    """The reports that are kept, those of real GPUs by name; what is wrong with the others goes to `found`."""
    reports = []
    for path in sorted((root / "tests" / "reports").glob("gpu_*.json")):
        report = read(path, found)
        if report is None:
            continue
        if not re.fullmatch(rf"gpu_\w+_{report['commit'][:7]}[0-9a-f]*\.json", path.name):
            found.append(f"{path.name}: its name is not gpu_DEVICE_COMMIT.json of its commit {report['commit'][:9]}")
        reports.append(report)
    return reports


def loose_figures(text):
    """Paragraphs that state a figure of speed about GPUs, with their line numbers."""
    start, lines = 1, []
    for number_of_line, line in enumerate(text.splitlines() + [""], 1):
        if line.strip():
            start = start if lines else number_of_line
            lines.append(line)
            continue
        paragraph = " ".join(lines)
        figure = FIGURE.search(paragraph)
        if figure and GPU.search(paragraph):
            yield start, figure.group(0)
        lines = []


def check(root, fix):
    found = []
    wanted = f"{BEGIN}\n{block(reports_of(root, found))}\n{END}"
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(re.escape(BEGIN) + r"\n.*?" + re.escape(END), text, re.DOTALL)
    if len(blocks) != 1 or text.count(BEGIN) != 1 or text.count(END) != 1:
        found.append(f"README.md: it wants one block between {BEGIN} and {END}")
        return found
    if blocks[0] != wanted:
        if fix:
            path.write_text(text.replace(blocks[0], wanted), encoding="utf-8")
        else:
            found.append("README.md: its figures of GPUs are not those of tests/reports/gpu_*.json; tools/check --fix writes them")
    around = text.replace(blocks[0], "\n" * blocks[0].count("\n"))
    for line, figure in loose_figures(around):
        found.append(f"README.md:{line}: '{figure}' is a figure about GPUs that no report holds; run {ASK}")
    return found


def main():
    arguments = sys.argv[1:]
    if len(arguments) > 1 and arguments[0] == "--report":
        found = []
        for name in arguments[1:]:
            read(pathlib.Path(name), found)
    elif len(arguments) in (1, 2) and arguments[1:] in ([], ["--fix"]):
        found = check(pathlib.Path(arguments[0]), len(arguments) == 2)
    else:
        print(__doc__.strip(), file=sys.stderr)
        return 1
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
