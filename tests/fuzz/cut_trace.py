# SPDX-License-Identifier: Apache-2.0
"""cut_trace.py FILE: keeps a few events of a trace of `run --trace`, of each pass."""
import json
import pathlib
import sys

path = pathlib.Path(sys.argv[1])
trace = json.loads(path.read_text())
kept, count = [], {}
for event in trace["traceEvents"]:
    of = event.get("args", {}).get("pass"), event["ph"]
    count[of] = count.get(of, 0) + 1
    if count[of] <= 6:
        kept.append(event)
trace["traceEvents"] = kept
path.write_text(json.dumps(trace))
