# SPDX-License-Identifier: Apache-2.0
"""Faults of a run over two hosts, for hosts_bench.py: how long after each all processes have ended,
and what the surviving ranks said. Kernels of a GPU on the CPU are slow enough to be met in each phase."""

import os
import signal
import subprocess
import time

PATIENCE = 60  # seconds, of what never ends
RANK = 'echo $$ > "$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@" 2> "$0/err.$OMPI_COMM_WORLD_RANK"'
# Nothing is compiled yet.
COLD = 'export XDG_CACHE_HOME="$0/cache.$OMPI_COMM_WORLD_RANK"; ' + RANK
# Rank 1 works in a folder of its own, where its copy of the model differs by a byte.
OWN_COPY = 'cd "$0/copy.$OMPI_COMM_WORLD_RANK"; ' + RANK


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def until(holds):
    end = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Run:
    """A run that would take minutes, in a folder of its hosts."""

    def __init__(self, hosts, cleave, model, rank=RANK, names=("a", "b")):
        self.dir, self.call = hosts.folder.name, hosts.call
        for old in ("pid.0", "pid.1", "err.0", "err.1", "out"):
            if os.path.exists(f"{self.dir}/{old}"):
                os.remove(f"{self.dir}/{old}")
        devices = ",".join(f"simt:sm_90a[0]@{name}" for name in names)
        words = [hosts.SCRIPT, "mpirun", self.dir, "-np", "2", "--host", ",".join(names), "bash", "-c", rank, self.dir,
                 cleave, "run", model, "--devices", devices, "--pp", "2", "--ignore-eos", "--max-new-tokens", "400",
                 "--prompt", "Once upon a time"]
        self.began = time.monotonic()
        with open(f"{self.dir}/out", "wb") as out:
            self.mpirun = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)

    def reach(self, phase):
        """The prompt is written before the first pass, new text behind it after each token."""
        until(lambda: all(size(f"{self.dir}/pid.{rank}") for rank in (0, 1)))
        if phase == "load":
            until(lambda: b"ranks on" in self.said(0))
        else:
            until(lambda: size(f"{self.dir}/out") > (0 if phase == "prefill" else 40))

    def said(self, rank):
        if not size(f"{self.dir}/err.{rank}"):
            return b""
        with open(f"{self.dir}/err.{rank}", "rb") as file:
            return file.read()

    def pid(self, rank):
        if rank == "mpirun":
            return self.mpirun.pid
        with open(f"{self.dir}/pid.{rank}") as file:
            return int(file.read())

    def show(self, fault, began):
        ranks = [self.pid(rank) for rank in (0, 1) if size(f"{self.dir}/pid.{rank}")]
        ended = until(lambda: self.mpirun.poll() is not None and not any(map(is_there, ranks)))
        seconds = time.monotonic() - began
        said = []
        for rank in (0, 1):
            lines = self.said(rank).decode(errors="replace").splitlines()
            said += [f"{rank}: {line[8:70]}" for line in lines if line.startswith("cleave:")][-1:]
        print(f"{fault:>30} {seconds:7.1f} s {self.mpirun.poll()!s:>5}  {'; '.join(said)}"
              f"{'' if ended else '  A PROCESS STAYS'}", flush=True)
        if not ended:
            self.mpirun.kill()


def copies(folder, model):
    for rank in (0, 1):
        os.makedirs(f"{folder}/copy.{rank}", exist_ok=True)
        for name in os.listdir(os.path.dirname(model)):
            with open(f"{os.path.dirname(model)}/{name}", "rb") as file:
                data = bytearray(file.read())
            if rank == 1 and name == os.path.basename(model):
                data[2_000_000] ^= 1
            with open(f"{folder}/copy.{rank}/{name}", "wb") as file:
                file.write(data)


def show_faults(make_hosts, cleave, model):
    """`make_hosts()` gives two hosts without a delay. `model`: an ONNX file with a tokenizer beside it."""
    cleave = os.path.abspath(cleave)
    print(f"{'fault':>30} {'all ended':>9} {'code':>5}  what the ranks said last")
    for phase, rank, sent in (("load", 1, signal.SIGKILL), ("prefill", 1, signal.SIGKILL),
                              ("decode", 1, signal.SIGKILL), ("decode", 0, signal.SIGKILL),
                              ("decode", 1, signal.SIGSTOP), ("decode", "mpirun", signal.SIGINT)):
        with make_hosts() as hosts:
            run = Run(hosts, cleave, model, COLD if phase == "load" else RANK)
            run.reach(phase)
            began = time.monotonic()
            os.kill(run.pid(rank), sent)
            run.show(f"{rank if rank == 'mpirun' else f'rank {rank}'} {sent.name} in {phase}", began)
    for end in ("both", "a", "b"):
        with make_hosts() as hosts:
            run = Run(hosts, cleave, model)
            run.reach("decode")
            began = time.monotonic()
            hosts.call("cut", run.dir, end)
            run.show(f"network cut, {'both ways' if end == 'both' else f'what {end} sends'}", began)
    # Of what is found at the start, from the start on.
    with make_hosts() as hosts:
        copies(hosts.folder.name, model)
        run = Run(hosts, cleave, os.path.basename(model), OWN_COPY)
        run.show("rank 1's model differs", run.began)
        run = Run(hosts, cleave, model, names=("a", "c"))
        run.show("no such host", run.began)
