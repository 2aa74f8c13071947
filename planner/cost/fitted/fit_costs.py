#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the planner's costs of GPU kernels to measured H200 latencies, and prints what the fit is worth on rows that it
has not seen. Needs numpy.

In: a folder with h200_sxm_{gemm,generation_attention,context_attention,allreduce}*.csv (measurement tables of
ai-dynamo/aiconfigurator, Apache-2.0). Out, with --write: h200.txt beside this file, which the planner embeds and
planner/cost/kernel_times.cpp evaluates, and predictions for tests/planner/cost/kernel_times_test.cpp.

The model. A roofline with fitted efficiencies (Williams, Waterman and Patterson, CACM 2009),
    latency + max(operations / (e_f x peak), bytes / (e_b x bandwidth)),
times exp(residual). The residual is a table over three axes, read by linear interpolation in the logarithms:
    gemm      site (n, k), inner m
    decode    site (batch x kv_heads, heads / kv_heads), inner keys
    prefill   site (batch x kv_heads, heads / kv_heads), inner tokens
Cells that were not measured are filled by a Gaussian process over the sites, for each inner value apart, with the
kernel exp(-distance) of log2 coordinates (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
eq. 2.23 and 4.18); a missing row of a measured site also takes its inner neighbours' deviation from that process.
All-reduce: for each number of GPUs a few segments alpha + beta x bytes, one an algorithm, cut by dynamic programming.

Held out. Whole sites (for attention: all rows of a (heads, kv_heads, batch)), and single rows of the other sites. The
table that is written was fitted without the held-out tenth of the sites and a twentieth of the other GEMM rows; it
lists them, and the C++ test measures the error on exactly these.
"""
import argparse
import csv
import glob
import json
import os
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
# Of the reference device, as planner/machine/catalogue.cpp has them.
PEAK, BANDWIDTH = 989e12, 4800e9
FOLDS = 10


# ---- Rows ----


def read(folder, name):
    files = glob.glob(os.path.join(folder, f"h200_sxm_{name}_*.csv"))
    if len(files) != 1:
        sys.exit(f"fit_costs: {folder} has {len(files)} files h200_sxm_{name}_*.csv; it must have one")
    with open(files[0], newline="") as file:
        return list(csv.DictReader(file))


class Rows:
    """Measured rows of one kind: site [r, 2], inner [r], operations and bytes [r], seconds [r], group [r]."""

    def __init__(self, site, inner, flops, moved, seconds, group):
        self.site, self.inner = np.array(site, float), np.array(inner, float)
        self.flops, self.moved = np.array(flops, float), np.array(moved, float)
        self.seconds = np.array(seconds, float)
        names = sorted(set(group))  # what is held out together
        number = {g: i for i, g in enumerate(names)}
        self.group, self.names = np.array([number[g] for g in group]), names

    def part(self, keep):
        rows = object.__new__(Rows)
        for field in ("site", "inner", "flops", "moved", "seconds", "group"):
            setattr(rows, field, getattr(self, field)[keep])
        rows.names = self.names
        return rows


def gemm_amounts(m, n, k):
    return 2 * m * n * k, 2 * (m * n + m * k + n * k)


def decode_amounts(batch, heads, kv_heads, keys, dim):
    return 4 * batch * heads * keys * dim, 2 * dim * batch * (2 * kv_heads * keys + 2 * heads)


def prefill_amounts(batch, heads, kv_heads, tokens, dim):
    pairs = tokens * (tokens + 1) / 2
    return 4 * batch * heads * pairs * dim, 2 * dim * batch * tokens * (2 * kv_heads + 2 * heads)


def gemm_rows(table):
    site, inner, flops, moved, seconds = [], [], [], [], []
    for row in table:
        m, n, k = (int(row[c]) for c in "mnk")
        f, b = gemm_amounts(m, n, k)
        site.append((n, k)), inner.append(m), flops.append(f), moved.append(b)
        seconds.append(float(row.get("latency_ms") or row["latency"]) * 1e-3)
    return Rows(site, inner, flops, moved, seconds, site)


def attention_rows(table, amounts, length):
    site, inner, flops, moved, seconds, group = [], [], [], [], [], []
    for row in table:
        batch, heads, kv_heads, dim = (int(row[c]) for c in ("batch", "num_heads", "num_kv_heads", "head_dim"))
        f, b = amounts(batch, heads, kv_heads, length(row), dim)
        site.append((batch * kv_heads, heads // kv_heads)), inner.append(length(row))
        flops.append(f), moved.append(b), group.append((heads, kv_heads, batch))
        seconds.append(float(row["latency_ms"]) * 1e-3)
    return Rows(site, inner, flops, moved, seconds, group)


# ---- The model ----


def roofline(parameters, flops, moved, peak=PEAK, bandwidth=BANDWIDTH):
    ef, eb, latency = parameters
    return latency + np.maximum(flops / (ef * peak), moved / (eb * bandwidth))


def fit_roofline(rows):
    """Coordinate descent on the mean absolute logarithm."""

    def cost(p):
        return np.abs(np.log(rows.seconds / roofline(p, rows.flops, rows.moved))).mean()

    p, step = [0.7, 0.8, 5e-6], 1.25
    best = cost(p)
    while step > 1.004:
        moved = False
        for i in range(3):
            for factor in (step, 1 / step):
                trial = list(p)
                trial[i] *= factor
                if i < 2 and trial[i] > 1:
                    continue
                value = cost(trial)
                if value < best - 1e-9:
                    p, best, moved = trial, value, True
        if not moved:
            step = step**0.5
    return [float(f"{x:.4g}") for x in p]


def covariance(a, b, scale):
    d = (a[:, None, :] - b[None, :, :]) / np.array(scale)
    return np.exp(-np.sqrt((d**2).sum(-1)))


class Table:
    """Residuals over the full grid of site axes and inner axis, from rows."""

    def __init__(self, rows, scale, noise, axes=None):
        self.roofline = fit_roofline(rows)
        y = np.log(rows.seconds / roofline(self.roofline, rows.flops, rows.moved))
        self.axes = axes or [sorted(set(rows.site[:, 0])), sorted(set(rows.site[:, 1])), sorted(set(rows.inner))]
        first, second, inner = (np.array(a) for a in self.axes)
        grid = np.array([(a, b) for a in first for b in second])
        cell = np.searchsorted(first, rows.site[:, 0]) * len(second) + np.searchsorted(second, rows.site[:, 1])
        column = np.searchsorted(inner, rows.inner)
        # Several measurements of one cell are averaged.
        total, count = np.zeros((len(grid), len(inner))), np.zeros((len(grid), len(inner)))
        np.add.at(total, (cell, column), y)
        np.add.at(count, (cell, column), 1)
        self.measured = count > 0
        value = np.where(self.measured, total / np.maximum(count, 1), 0.0)
        self.fill(np.log2(grid), value, count, scale, noise)

    def fill(self, grid, value, count, scale, noise):
        shape = value.shape
        filled, deviation = value.copy(), np.zeros(shape)
        known = {}
        for j in range(shape[1]):
            have = np.flatnonzero(count[:, j])
            key = (have.tobytes(), count[have, j].tobytes())
            if key not in known:
                inverse = np.linalg.inv(covariance(grid[have], grid[have], scale) + np.diag(noise / count[have, j]))
                rest = np.flatnonzero(count[:, j] == 0)
                known[key] = inverse, rest, covariance(grid[rest], grid[have], scale)
            inverse, rest, across = known[key]
            mean = value[have, j].mean()
            weights = inverse @ (value[have, j] - mean)
            filled[rest, j] = mean + across @ weights
            deviation[have, j] = weights / np.diag(inverse)  # of each from the process without it
        # Rows missing among the measured rows of a site follow their neighbours.
        position = np.log2(np.array(self.axes[2]))
        for i in np.flatnonzero(self.measured.any(1) & ~self.measured.all(1)):
            have = np.flatnonzero(self.measured[i])
            for j in np.flatnonzero(~self.measured[i]):
                filled[i, j] += np.interp(position[j], position[have], deviation[i, have])
        # As it is stored: thousandths.
        self.residual = np.round(filled * 1000).astype(int).reshape(len(self.axes[0]), len(self.axes[1]), shape[1])

    def predict(self, rows, peak=PEAK, bandwidth=BANDWIDTH, latency=1.0):
        """Seconds. `peak`, `bandwidth` and `latency` (a factor) of another device."""
        points = np.stack([rows.site[:, 0], rows.site[:, 1], rows.inner], 1)
        low, part = [], []
        for axis, x in zip(self.axes, points.T):
            at = np.interp(np.log2(x), np.log2(axis), np.arange(len(axis)))  # clamped to the ends
            low.append(np.minimum(at.astype(int), max(0, len(axis) - 2)))
            part.append(at - low[-1])
        residual = np.zeros(len(points))
        for corner in np.ndindex(2, 2, 2):
            weight = np.prod([p if c else 1 - p for c, p in zip(corner, part)], 0)
            at = tuple(np.minimum(l + c, len(a) - 1) for l, c, a in zip(low, corner, self.axes))
            residual += weight * self.residual[at]
        ef, eb, seconds = self.roofline
        return roofline((ef, eb, seconds * latency), rows.flops, rows.moved, peak, bandwidth) * np.exp(residual / 1000)


# What each kind's process takes: length scales in octaves of the site axes, noise over signal.
SETTINGS = {"gemm": ((2, 4), 0.01), "decode": ((8, 8), 0.1), "prefill": ((8, 8), 0.1)}


def errors(table, rows):
    return np.abs(table.predict(rows) / rows.seconds - 1)


def cross_validate(rows, settings, seed=0):
    """Error of each row, predicted by a fit without its group's tenth of the groups."""
    fold = np.random.default_rng(seed).permutation(len(rows.names)) % FOLDS
    axes = [sorted(set(rows.site[:, 0])), sorted(set(rows.site[:, 1])), sorted(set(rows.inner))]
    result = np.zeros(len(rows.inner))
    for f in range(FOLDS):
        held = fold[rows.group] == f
        result[held] = errors(Table(rows.part(~held), *settings, axes), rows.part(held))
    return result


def without_an_axis_value(rows, settings):
    """Error when all sites with one value of the first or second axis are left out and the grid lacks it: what
    a size between the grid's meets."""
    found = []
    for axis in (0, 1):
        values = sorted(set(rows.site[:, axis]))
        for value in values[4:-2:5]:
            held = rows.site[:, axis] == value
            found.append(errors(Table(rows.part(~held), *settings), rows.part(held)))
    return np.concatenate(found)


# ---- All-reduce ----

MOST_SEGMENTS, LEAST_ROWS = 5, 3


def line(x, t):
    """alpha, beta and the sum of squared relative errors of t = alpha + beta x, both at least 0."""
    a = np.stack([1 / t, x / t], 1)
    (alpha, beta), *_ = np.linalg.lstsq(a, np.ones(len(x)), rcond=None)
    if beta < 0:
        alpha, beta = len(t) / (1 / t).sum() if len(t) else 0, 0.0
    if alpha < 0:
        alpha, beta = 0.0, (x / t).sum() / ((x / t) ** 2).sum()
    return alpha, beta, float((((alpha + beta * x) / t - 1) ** 2).sum())


def segments(x, t):
    """[(first bytes, alpha, beta)]: the cut with the least error, each further segment paid with 0.1 % squared."""
    n = len(x)
    cost = {(i, j): line(x[i:j], t[i:j]) for i in range(n) for j in range(i + LEAST_ROWS, n + 1)}
    best = {0: (0.0, [])}
    for _ in range(MOST_SEGMENTS):
        for j in range(n, LEAST_ROWS - 1, -1):
            for i in [i for i in list(best) if i <= j - LEAST_ROWS]:
                value = best[i][0] + cost[i, j][2] + 1e-3
                if j not in best or value < best[j][0]:
                    best[j] = (value, best[i][1] + [(i, j)])
    result = []
    for i, j in best[n][1]:
        start = 0 if i == 0 else np.sqrt(x[i - 1] * x[i])
        result.append((start, *cost[i, j][:2]))
    return result


def all_reduce_time(pieces, x):
    for start, alpha, beta in reversed(pieces):
        if x >= start:
            return alpha + beta * x
    raise AssertionError("segments begin at 0")


def all_reduce_rows(table):
    """bytes and seconds by number of GPUs, of the rows measured inside a CUDA graph. The table counts elements of
    two bytes: its times at N agree with NCCL's at N halves, not at N int8."""
    rows = {}
    for row in table:
        if row["backend"].endswith("graph"):
            rows.setdefault(int(row["num_gpus"]), []).append(
                (2 * int(row["message_elems_or_bytes"]), float(row["latency_ms"]) * 1e-3))
    return {n: np.array(sorted(r)).T for n, r in sorted(rows.items())}


def leave_one_out(x, t):
    found = []
    for i in range(len(x)):
        keep = np.arange(len(x)) != i
        found.append(abs(all_reduce_time(segments(x[keep], t[keep]), x[i]) / t[i] - 1))
    return np.array(found)


# ---- Reports and files ----


def percent(e):
    return f"{100 * e.mean():5.2f} % mean, {100 * np.median(e):5.2f} % median, {100 * np.percentile(e, 90):5.2f} % p90"


def report(kinds, reduce):
    for name, rows in kinds.items():
        settings = SETTINGS[name]
        alone = fit_roofline(rows)
        plain = np.abs(roofline(alone, rows.flops, rows.moved) / rows.seconds - 1)
        print(f"{name}: {len(rows.inner)} rows, {len(rows.names)} sites; roofline {alone[0]:.3f} of peak, "
              f"{alone[1]:.3f} of bandwidth, {alone[2] * 1e6:.2f} us")
        print(f"  roofline alone, rows seen                 {percent(plain)}")
        e = cross_validate(rows, settings)
        print(f"  unseen sites, {FOLDS}-fold                     {percent(e)}")
        if name == "gemm":
            large = (rows.site >= 1024).all(1)
            print(f"  the same, n and k >= 1024                 {percent(e[large])}")
            held = np.random.default_rng(1).random(len(rows.inner)) < 0.1
            print(f"  unseen rows, a tenth left out             "
                  f"{percent(errors(Table(rows.part(~held), *settings), rows.part(held)))}")
            print(f"  unseen n or k, between the grid's values  {percent(without_an_axis_value(rows, settings))}")
        sys.stdout.flush()
    found = []
    for n, (x, t) in reduce.items():
        found.append(leave_one_out(x, t))
        print(f"all_reduce {n}: {len(segments(x, t))} segments; leave-one-out {percent(found[-1])}")
    print(f"all_reduce: leave-one-out                   {percent(np.concatenate(found))}")


def report_other(table, device, path):
    """Another device's GEMM rows by the catalogue's ratios alone; the catalogue is asked of the built program."""
    program = os.path.join(ROOT, "build", "bin", "cleave")
    text = subprocess.run([program, "devices", "--devices", f"sim:{device}", "--json"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    entry = json.loads(text)["devices"][0]
    with open(path, newline="") as file:
        rows = gemm_rows([r for r in csv.DictReader(file) if r.get("gemm_dtype", "bfloat16") in ("bfloat16", "float16")])
    e = np.abs(table.predict(rows, entry["flops_f16"], entry["memory_bandwidth"]) / rows.seconds - 1)
    print(f"gemm on {device}, by catalogue ratios: {len(rows.inner)} rows, {percent(e)}")


def holdout(kinds):
    """Masks of the rows that the written table must not see."""
    masks = {}
    for name, rows in kinds.items():
        generator = np.random.default_rng(2)
        masks[name] = (generator.permutation(len(rows.names)) % FOLDS == 0)[rows.group]
        if name == "gemm":
            masks[name] |= generator.random(len(rows.inner)) < 0.05
    return masks


def curve_lines(gpus, pieces):
    return [f"all_reduce {gpus} {len(pieces)}"] + [
        f"{start:.0f} {alpha * 1e9:.0f} {1e-6 / beta if beta > 0 else 0:.0f}" for start, alpha, beta in pieces]


def write(kinds, reduce, path):
    lines = ["# Costs of GPU kernels, fitted to an H200 by planner/cost/fitted/fit_costs.py: do not edit, run it with --write.",
             "# kind: efficiency of flops and bandwidth, latency in ns; three axes; for each pair of the first two a row of",
             "# residuals in thousandths over the third; then the rows held out.  all_reduce GPUs: from bytes, ns, bytes/us."]
    tables = {}
    masks = holdout(kinds)
    for name, rows in kinds.items():
        axes = [sorted(set(rows.site[:, 0])), sorted(set(rows.site[:, 1])), sorted(set(rows.inner))]
        table = tables[name] = Table(rows.part(~masks[name]), *SETTINGS[name], axes)
        ef, eb, latency = table.roofline
        lines.append(f"{name} {ef:.4g} {eb:.4g} {latency * 1e9:.0f}")
        table.roofline = [ef, eb, round(latency * 1e9) * 1e-9]
        for axis in axes:
            lines.append(" ".join(f"{int(x)}" for x in [len(axis)] + list(axis)))
        for plane in table.residual:
            for row in plane:
                lines.append(" ".join(str(x) for x in row))
        lines += held_out_lines(name, rows, masks[name])
    for n, (x, t) in reduce.items():
        lines += curve_lines(n, segments(x, t))
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    print(f"wrote {path}: {os.path.getsize(path)} bytes")
    return tables, masks


def held_out_lines(name, rows, mask):
    """`held_out N`, then N lines: a group (n k; heads kv_heads batch), and for GEMM the values of m, or 0 for all."""
    result = []
    for g in range(len(rows.names)):
        mine = rows.group == g
        if not (mine & mask).any():
            continue
        text = " ".join(str(int(v)) for v in rows.names[g])
        if name == "gemm":
            text += " " + ("0" if mask[mine].all() else " ".join(f"{int(m)}" for m in sorted(rows.inner[mine & mask])))
        result.append(text)
    return [f"held_out {len(result)}"] + result


def write_sample(tables, path):
    """Predictions at points on and off the grid, for the C++ evaluation to reproduce: kind, arguments, ns."""
    generator = np.random.default_rng(3)
    lines = []
    for _ in range(60):
        m, n, k = (int(2 ** generator.uniform(0, 16)) + 1 for _ in range(3))
        f, b = gemm_amounts(m, n, k)
        t = tables["gemm"].predict(Rows([(n, k)], [m], [f], [b], [1], [0]))[0]
        lines.append(f"gemm {m} {n} {k} {t * 1e9:.3f}")
        batch, kv, length = (int(2 ** generator.uniform(0, e)) + 1 for e in (8, 4, 14))
        heads = kv * int(generator.integers(1, 20))
        for name, amounts in (("decode", decode_amounts), ("prefill", prefill_amounts)):
            f, b = amounts(batch, heads, kv, length, 128)
            t = tables[name].predict(Rows([(batch * kv, heads // kv)], [length], [f], [b], [1], [0]))[0]
            lines.append(f"{name} {batch} {heads} {kv} {length} {t * 1e9:.3f}")
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.path.join(ROOT, "..", "shared", "data", "costdata"), help="the measured tables")
    parser.add_argument("--write", action="store_true", help="write planner/cost/fitted/h200.txt and the test's sample")
    parser.add_argument("--no-report", action="store_true", help="no cross-validation")
    parser.add_argument("--other", nargs=2, metavar=("DEVICE", "CSV"),
                        help="the error on GEMM rows of another catalogue device, by the catalogue's ratios alone")
    flags = parser.parse_args()
    kinds = {
        "gemm": gemm_rows(read(flags.data, "gemm")),
        "decode": attention_rows(read(flags.data, "generation_attention"), decode_amounts, lambda r: int(r["step"]) + 1),
        "prefill": attention_rows(read(flags.data, "context_attention"), prefill_amounts, lambda r: int(r["isl"])),
    }
    reduce = all_reduce_rows(read(flags.data, "allreduce"))
    if not flags.no_report:
        report(kinds, reduce)
    if flags.write:
        tables, masks = write(kinds, reduce, os.path.join(HERE, "h200.txt"))
        write_sample(tables, os.path.join(ROOT, "tests", "planner", "kernel_times_sample.txt"))
        for name, rows in kinds.items():
            print(f"  {name}, rows that the written table has not seen: {percent(errors(tables[name], rows.part(masks[name])))}")
    if flags.other:
        report_other(Table(kinds["gemm"], *SETTINGS["gemm"]), *flags.other)


if __name__ == "__main__":
    main()
