# SPDX-License-Identifier: Apache-2.0
"""One plan over two hosts whose network is slow: predicted and measured time per token, and what
groups in flight hide of a delay.

In: the `cleave` program, the relay and the script of tests/two_hosts, which make two hosts of this
machine (root; a TUN device), each rank with a core of its own. Out: a row a network. The delay is that
of one way; the rate is tc's tbf. Nothing here is a network's own speed. The relay has no core of its own, and goes
before the ranks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from hosts_faults import show_faults

SCRIPT = os.path.join(os.path.dirname(__file__), "../../tests/two_hosts/two_hosts.sh")


class Hosts:
    """Two hosts, with a delay of so many microseconds one way if any, while it lives."""

    SCRIPT = SCRIPT

    def __init__(self, relay, delay_us, rate):
        self.folder = tempfile.TemporaryDirectory()
        self.call("up", self.folder.name, *([relay, str(delay_us)] if delay_us is not None else []))
        if rate:
            self.call("rate", self.folder.name, rate)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("down", self.folder.name)
        self.folder.cleanup()

    @staticmethod
    def call(*words):
        subprocess.run([SCRIPT, *words], check=True, stdin=subprocess.DEVNULL)

    def json(self, *words):
        """What the program prints as JSON, a rank on each host, which has a core and what was measured of it."""
        mine = 'XDG_CONFIG_HOME+=/$OMPI_COMM_WORLD_RANK exec taskset -c "$OMPI_COMM_WORLD_RANK" "$@"'
        run = [SCRIPT, "mpirun", self.folder.name, "-np", "2", "--host", "a,b", "bash", "-c", mine, "rank", *words]
        done = subprocess.run(run, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(done.stdout)


def decode(json_of, cleave, model, plan_words, plan, tokens):
    """Predicted and measured ms per token of a plan, which goes to a file between."""
    said = json_of(cleave, "plan", model, *plan_words, "--json", "-o", plan)
    run = json_of(cleave, "run", plan, "--input-ids", "1,2,3,4,5,6,7,8", "--ignore-eos", "--max-new-tokens", str(tokens),
                  "--json")
    return said["predicted"]["decode_ms_per_token"], run["decode_ms_per_token"]


def show(name, split, pairs):
    """A row: the middle of each column, and the ratios' range."""
    ratios = [predicted / measured for predicted, measured in pairs]
    predicted, measured = (statistics.median(column) for column in zip(*pairs))
    print(f"{name:>13}   {split:5} {predicted:12.2f} {measured:12.2f} {statistics.median(ratios):10.2f}"
          f"   {min(ratios):.2f} to {max(ratios):.2f}", flush=True)


def show_groups(flags, measure, words):
    """Tokens per second of many sequences without a delay and with one, in each round, and their ratio."""
    users = flags.sequences
    speeds = {0: [], 10000: []}
    for _ in range(flags.rounds):
        measure(together=True)
        for delay, of_delay in speeds.items():
            with Hosts(flags.relay, delay, "1gbit") as hosts:
                served = hosts.json(flags.cleave, "run", *words, "--pp", "2", "--batch", str(users),
                                    "--objective", "throughput", "--serve-trace",
                                    f"rate=10000,prompt=8,output={flags.tokens},requests={users}", "--json")["measured"]
            of_delay.append(served["tokens_per_second"])
            print(f"{users} sequences on pp 2, {delay / 1000:.0f} ms: {of_delay[-1]:.1f} tokens/s, "
                  f"{served['groups_in_flight']} groups in flight", flush=True)
    shares = [far / near for near, far in zip(*speeds.values())]
    print(f"with 10 ms {statistics.median(shares):.2f} of the speed without (goal 0.8), "
          f"{min(shares):.2f} to {max(shares):.2f} in {flags.rounds} rounds")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cleave")
    parser.add_argument("relay")
    parser.add_argument("--shape", default="llama-110m")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--rows", default="tokens,groups", help="of tokens, groups and faults")
    parser.add_argument("--rounds", type=int, default=6)
    flags = parser.parse_args()
    if flags.rounds < 1:
        parser.error("--rounds takes a number from 1 on")
    if why := subprocess.run([SCRIPT, "can"], capture_output=True, text=True).stdout:
        sys.exit(f"tools/bench hosts: {why.strip()}")
    if "faults" in flags.rows:
        bundled = os.path.join(os.path.dirname(__file__), "../../models/bundled/model.onnx")
        show_faults(lambda: Hosts(flags.relay, None, None), flags.cleave, os.path.abspath(bundled))
    if "tokens" not in flags.rows and "groups" not in flags.rows:
        return
    with tempfile.TemporaryDirectory() as folder:
        def measure(together):
            """Measures the core of each rank, both at once where they compute at once, as they share one memory, else
            one after the other. What plans from now on are predicted by."""
            os.environ["XDG_CONFIG_HOME"] = os.path.join(folder, str(together))
            for cores in ((0, 1),) if together else ((0,), (1,)):
                measured = [on_core(subprocess.Popen, core, flags.cleave, "devices", "--measure",
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for core in cores]
                if any([process.wait() for process in measured]):
                    sys.exit("cleave devices --measure failed")

        def on_core(call, core, *words, **keywords):
            environment = {**os.environ, "XDG_CONFIG_HOME": os.path.join(os.environ["XDG_CONFIG_HOME"], str(core))}
            return call(["taskset", "-c", str(core), *words], env=environment, **keywords)

        def on_one_host(*words):
            return json.loads(on_core(subprocess.run, 0, *words, check=True, capture_output=True).stdout)

        subprocess.run([flags.cleave, "model", flags.shape, "--weights", "random", "-o", folder], check=True,
                       stdout=subprocess.DEVNULL)
        model = os.path.join(folder, "model.onnx")
        devices = ["--devices", "host[0]@a,host[0]@b"]
        short = ["--context", "256", "--prompt-tokens", "8"]
        plan = os.path.join(folder, "two.plan")
        on_one = ["--devices", "host[0]", *short]
        # One host says what of an error is the kernels'. One sequence keeps one stage busy at a
        # time, and all shards. Each round has every row, as a machine's speed may change from one
        # minute to the next.
        delays = (0, 200, 2000, 10000)
        in_turn = [(None, None), *(("pp 2", delay) for delay in delays)]
        at_once = [("tp 2", delay) for delay in delays]
        pairs = {row: [] for row in in_turn + at_once}
        for _ in range(flags.rounds if "tokens" in flags.rows else 0):
            for together, rows in ((False, in_turn), (True, at_once)):
                measure(together)
                for split, delay in rows:
                    if split is None:
                        pair = decode(on_one_host, flags.cleave, model, on_one, plan, flags.tokens)
                    else:
                        with Hosts(flags.relay, delay, "1gbit") as hosts:
                            pair = decode(hosts.json, flags.cleave, model,
                                          [*devices, *f"--{split}".split(), *short], plan, flags.tokens)
                    pairs[split, delay].append(pair)
        if "tokens" in flags.rows:
            print(f"{flags.shape}, two ranks of one core, 1 Gb/s, {flags.rounds} rounds")
            print("delay one way   split predicted ms  measured ms  predicted / measured, all rounds")
            for (split, delay), of_row in pairs.items():
                show(f"{delay / 1000:.1f} ms" if split else "one host", split or "none", of_row)
        if "groups" in flags.rows:
            show_groups(flags, measure, [model, *devices, *short])


if __name__ == "__main__":
    main()
