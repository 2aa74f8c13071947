# SPDX-License-Identifier: Apache-2.0
"""Random commands beside the server, for soak.py: right ones, ended ones, and ones that lack
something or read a damaged file.

Exit codes are 0, 1 and 130, or the signal that was sent.
"""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time

import soak_inputs

SHAPES = ["stories-260k", "llama-110m", "llama-3.2-1b", "llama-3-8b", "qwen3-4b", "gemma-3-1b"]
MACHINES = ["sim:h100[0-1]", "sim:h100[0-3]", "sim:rtx4090[0-1]", "sim:a100-40[0],sim:h100[0]", "host[0-1]"]
HOSTS = [["host"], ["host[0-1]", "--tp", "2"], ["host[0-1]", "--pp", "2"], ["host[0-2]", "--tp", "3"],
         ["host[0-3]", "--tp", "2", "--pp", "2"]]
# Of right commands that chance made: an answer, no fault.
REFUSALS = "ONNX has no words for", "its weights are of several types", "does not fit"
RANDOM_MODELS = 4  # at a time
LIMITS = {"address space": (resource.RLIMIT_AS, (50 << 20, 4 << 30)),
          "size of files": (resource.RLIMIT_FSIZE, (0, 200_000)),
          "descriptors": (resource.RLIMIT_NOFILE, (5, 60)),  # its libraries are loaded with one
          "seconds of CPU": (resource.RLIMIT_CPU, (1, 3))}
PATIENCE = 300


class Commands:
    def __init__(self, root, cleave, folder, seed, finds):
        self.root, self.cleave, self.folder, self.finds = root, cleave, folder, finds
        self.random, self.stops, self.tokens = random.Random(seed), False, {}
        self.out, self.tmp = folder / "out", folder / "tmp"
        self.tmp.mkdir(parents=True)
        self.models, self.machine = [], folder / "machine.json"
        self.counts = {"commands": 0, "commands that were ended": 0, "commands with a fault": 0,
                       "random models": 0}
        families = root / "tests/files/families"
        self.folders = sorted(str(p.parent) for p in families.glob("*/config.json"))
        self.ggufs = sorted(str(p) for p in (root / "tests/files/gguf").glob("*.gguf")
                            if not re.match("tokenizer_|blocks", p.name))

    def model(self):
        """One of some random models, each of which a new one replaces now and then."""
        if len(self.models) < RANDOM_MODELS or self.random.random() < 0.05:
            if len(self.models) == RANDOM_MODELS:
                gone = self.models.pop(0)
                shutil.rmtree(gone)
                self.tokens.pop(str(gone), None)
            self.counts["random models"] += 1
            self.models.append(self.folder / f"model{self.counts['random models']}")
            soak_inputs.write_model(self.random, self.models[-1])
        return str(self.random.choice(self.models))

    def words(self):
        """A command, and what its output must equal another's by, if anything."""
        choose = self.random.choice
        bundled = str(self.root / "models/bundled/model.onnx")
        kind = self.random.randrange(10)
        if kind == 0:
            return ["plan", choose(SHAPES), "--devices", choose(MACHINES), "--batch",
                    str(choose([1, 4, 16])), "--context", str(choose([128, 512])), "-o",
                    str(self.out / "a.plan")], None
        if kind <= 2:
            prompt = choose(["Once upon", "The dog", "Lily"])
            return ["run", bundled, "--prompt", prompt, "--max-new-tokens", "24", "--devices",
                    *choose(HOSTS)], prompt
        if kind == 3:
            return ["run", choose(self.folders + self.ggufs), "--input-ids", "1,2,3",
                    "--max-new-tokens", "3", "--devices", "host"], None
        if kind == 4:
            return ["export", bundled, "--format", choose(["ort", "json"]), "--devices", "host[0-1]",
                    "-o", str(self.out / "exported")], None
        if kind == 5:
            return ["convert", choose(self.folders), "--copy", "-o", str(self.out / "converted")], None
        if kind <= 7:
            model = self.model()
            return ["run", model, "--input-ids", "1,2,3,4", "--max-new-tokens", "6", "--devices",
                    f"host[0-{self.random.randrange(4)}]"], model
        if kind == 8:
            soak_inputs.write_machine(self.random, self.machine)
            return ["plan", self.random.choice([*SHAPES, self.model()]), "--machine", str(self.machine),
                    "--batch", str(choose([1, 4, 16])), "--objective",
                    choose(["latency", "throughput", "memory"]), "-o", str(self.out / "a.plan")], None
        return ["inspect", choose(SHAPES), "--devices", choose(MACHINES), "--html",
                str(self.out / "page.html")], None

    def damaged(self):
        """A copy of a model with some bytes changed."""
        source = self.random.choice([str(self.root / "models/bundled/model.onnx"), *self.ggufs])
        data = bytearray(open(source, "rb").read())
        for _ in range(self.random.randint(1, 20)):
            data[self.random.randrange(min(len(data), 4096))] = self.random.randrange(256)
        path = self.folder / ("damaged" + os.path.splitext(source)[1])
        path.write_bytes(data)
        return ["run", str(path), "--input-ids", "1,2", "--max-new-tokens", "2", "--devices", "host"]

    def start(self, words, limit):
        def before():
            if limit:
                kind, bounds = LIMITS[limit[0]]
                resource.setrlimit(kind, (limit[1], resource.getrlimit(kind)[1]))
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
        return subprocess.Popen([self.cleave, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", preexec_fn=before,
                                env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"),
                                     "TMPDIR": str(self.tmp)})

    def one(self):
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        words, same_as = self.words()
        limit, sent = None, None
        fate = self.random.randrange(6)
        if fate == 0:
            words, same_as = self.damaged(), None
        elif fate == 1:
            name = self.random.choice(list(LIMITS))
            limit = name, self.random.randint(*LIMITS[name][1])
        elif fate == 2:
            sent = self.random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        process = self.start(words, limit)
        if sent:
            time.sleep(self.random.uniform(0, 1.5))
            process.send_signal(sent)
        try:
            output, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            self.finds.add(f"{words} with {limit} did not end in {PATIENCE} s")
            return
        self.counts["commands"] += 1
        self.counts["commands that were ended"] += sent is not None
        self.counts["commands with a fault"] += fate < 2
        self.check(words, same_as, limit, sent, process.returncode, output, errors)

    def check(self, words, same_as, limit, sent, code, output, errors):
        what = f"{words} with {limit or sent or 'nothing'} ended with {code}: {errors[-300:]!r}"
        if limit and code in (-signal.SIGXCPU, -signal.SIGKILL) and limit[0] == "seconds of CPU":
            pass
        elif code not in (0, 1, 130, 143) and not (sent and code == -sent):
            self.finds.add(what)
        elif code == 1 and "cleave: " not in errors:
            self.finds.add("no reason: " + what)
        elif code == 1 and not limit and not sent and "damaged" not in words[1] and \
                not any(w in errors for w in REFUSALS):
            self.finds.add(what)
        if code == 0 and same_as:
            text = output.strip()
            if self.tokens.setdefault(same_as, text) != text:
                self.finds.add(f"{words} wrote {text!r}, others {self.tokens[same_as]!r}")
        left = [p.name for p in (*self.tmp.iterdir(), *self.out.rglob("*.tmp"))]
        if left:
            self.finds.add(f"{words} with {limit or sent}, exit code {code}, left {left}")
            shutil.rmtree(self.tmp)
            self.tmp.mkdir()
        if code == 1 and (parts := [p.name for p in self.out.rglob("*")]):
            self.finds.add(f"{words} with {limit or sent} failed, and left {parts}")

    def run_until(self, end):
        while time.monotonic() < end and not self.stops:
            self.one()
