#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits all-reduces inside a node on other GPUs than the H200, as fit_costs.py does on that, and prints the error of
each curve. Needs numpy and pandas, as the environment of `tools/bench experts` has them.

In: the folder aiconfigurator_core/systems/data of ai-dynamo/aiconfigurator 0.12.0 (Apache-2.0): rows of vLLM's sums
in a CUDA graph, which count elements of two bytes. Out: sums.txt beside this file, which the planner embeds and
planner/cost/kernel_times.cpp evaluates.
"""
import os
import sys

import numpy as np
import pandas

from fit_costs import all_reduce_time, curve_lines, leave_one_out, percent, segments

# Of the catalogue: its name, GB/s of its link (planner/machine/catalogue.cpp), the table.
DEVICES = [("a100-80", 300, "a100_sxm/comm/vllm/0.14.0"),
           ("b200", 900, "b200_sxm/comm/vllm/0.24.0"),
           ("gb200", 900, "gb200/comm/vllm/0.24.0")]


def main():
    lines = ["# All-reduces inside a node, fitted by planner/cost/fitted/fit_sums.py: do not edit, run it.",
             "# sums DEVICE; GB/s of its link, number of curves; then all_reduce GPUs: from bytes, ns, bytes/us."]
    for device, link, folder in DEVICES:
        table = pandas.read_parquet(os.path.join(sys.argv[1], folder, "custom_allreduce_perf.parquet"))
        table = table[table.backend == "vllm_graph"].sort_values("message_size")
        lines += [f"sums {device}", f"{link} {table.num_gpus.nunique()}"]
        for gpus, rows in table.groupby("num_gpus"):
            x, t = 2 * rows.message_size.to_numpy(float), rows.latency.to_numpy(float) * 1e-3
            pieces = segments(x, t)
            seen = np.array([abs(all_reduce_time(pieces, v) / s - 1) for v, s in zip(x, t)])
            print(f"{device}, {gpus} GPUs: {percent(seen)}; leave-one-out {percent(leave_one_out(x, t))}")
            lines += curve_lines(gpus, pieces)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "sums.txt"), "w") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
