# SPDX-License-Identifier: Apache-2.0
"""A server and its random clients, for soak.py.

With `--reproducible` a greedy answer is the same whoever else is served: each is compared with the
first of its kind. Half of the clients leave in the middle of something.
"""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import threading
import time

TEXTS = ["Once upon a time", "The little dog", "Lily and Tom went", "One day", "A bird saw"]
WRONG = ['{"prompt"', '{"prompt": 5.5}', '{"prompt": "a", "max_tokens": -1}', "[]", "",
         '{"prompt": "a", "n": 1000}', '{"prompt": "a", "max_tokens": 100000}', '{"messages": []}',
         '{"prompt": "a", "suffix": "b"}']
CLIENTS, SECONDS, PATIENCE = 6, 12, 120


class Server:
    def __init__(self, root, cleave, folder, seed, finds):
        self.root, self.cleave, self.folder, self.finds = root, cleave, folder, finds
        self.random = random.Random(seed)
        self.lock, self.answers = threading.Lock(), {}
        self.counts = {"requests": 0, "clients that left": 0, "wrong requests": 0}

    def start(self):
        (self.folder / "tmp").mkdir(parents=True)
        shape = self.random.choice([["--devices", "host[0-1]", "--tp", "2"],
                                    ["--devices", "host[0-1]", "--pp", "2"], ["--devices", "host"]])
        # A pool that is too small for all: requests wait, and are preempted.
        words = [self.cleave, "serve", str(self.root / "models/bundled"), "--port", "0", *shape,
                 "--batch", "4", "--kv-tokens", "1024", "--overcommit", "--reproducible"]
        self.errors = open(self.folder / "stderr", "w")
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self.errors,
                                        env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"),
                                             "TMPDIR": str(self.folder / "tmp")})
        for _ in range(10 * PATIENCE):
            said = re.search(r"listening on http://[\d.]+:(\d+)", (self.folder / "stderr").read_text())
            if said:
                self.port = int(said[1])
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit("the server does not start: " + (self.folder / "stderr").read_text())

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def request(self, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET" if body is None else "POST", path, body,
                           {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def client(self, seed, end):
        choose = random.Random(seed)
        while time.monotonic() < end:
            try:
                self.one(choose)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.finds.add(f"a client of seed {seed}: {type(error).__name__}: {error}")
                return

    def one(self, choose):
        kind = choose.randrange(6)
        self.count("requests")
        if kind == 0:
            self.count("wrong requests")
            connection, response = self.request(
                choose.choice(["/v1/completions", "/v1/chat/completions", "/nothing"]), choose.choice(WRONG))
            if not 400 <= response.status < 500:
                self.finds.add(f"a wrong request has status {response.status}")
            return connection.close()
        greedy = kind < 4
        text = choose.choice(TEXTS)
        body = {"prompt": text * choose.randint(1, 3), "max_tokens": choose.choice([1, 8, 40, 160]),
                "temperature": 0 if greedy else 1.2, "seed": choose.randrange(1000),
                "n": 1 if greedy else choose.randint(1, 3), "stream": choose.random() < 0.5}
        connection, response = self.request("/v1/completions", json.dumps(body))
        if choose.random() < 0.5:
            self.count("clients that left")
            if choose.random() < 0.5:
                response.read(choose.randint(1, 400))
            return connection.close()
        if response.status == 503:  # the queue is full: come again
            response.read()
            return connection.close()
        if response.status != 200:
            self.finds.add(f"{json.dumps(body)} has status {response.status}")
        elif greedy:
            self.compare(body, response.read().decode())
        else:
            response.read()
        connection.close()

    def compare(self, body, answer):
        if body["stream"]:
            events = [line[6:] for line in answer.splitlines() if line.startswith("data: {")]
            text = "".join(json.loads(e)["choices"][0]["text"] for e in events if json.loads(e)["choices"])
        else:
            text = json.loads(answer)["choices"][0]["text"]
        key = body["prompt"], body["max_tokens"]
        with self.lock:
            first = self.answers.setdefault(key, text)
        if text != first:
            self.finds.add(f"{key} was answered {first!r}, and then {text!r}")

    def round(self):
        end = time.monotonic() + SECONDS
        clients = [threading.Thread(target=self.client, args=(self.random.randrange(1 << 32), end))
                   for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        self.wait_until_idle()

    def metrics(self):
        connection, response = self.request("/metrics")
        text = response.read().decode()
        connection.close()
        return {name: float(value)
                for name, value in re.findall(r"^cleave:(\w+)\{[^}]*\} (\S+)$", text, re.M)}

    def wait_until_idle(self):
        for _ in range(10 * PATIENCE):
            told = self.metrics()
            if not told["num_requests_running"] and not told["num_requests_waiting"] and \
                    told["connections"] == 1:  # this one
                if told["kv_cache_usage_perc"]:
                    self.finds.add(f"an idle server holds {told['kv_cache_usage_perc']:.1%} of its pool")
                return
            time.sleep(0.1)
        self.finds.add(f"the server is not idle {PATIENCE} s after its clients")

    def sample(self):
        process = f"/proc/{self.process.pid}"
        status = open(process + "/status").read()
        files = [p for p in self.folder.rglob("*") if p.is_file()]
        return {"memory, kB": int(re.search(r"VmRSS:\s+(\d+)", status)[1]),
                "descriptors": len(os.listdir(process + "/fd")),
                "threads": len(os.listdir(process + "/task")), "files": len(files)}

    def stop(self):
        if not hasattr(self, "process") or self.process.poll() is not None:
            self.finds.add("the server ended by itself: " + (self.folder / "stderr").read_text()[-500:])
            return
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        if code != 0:
            self.finds.add(f"the server ended with {code} after SIGTERM")
        if left := list((self.folder / "tmp").iterdir()):
            self.finds.add(f"the server left {left}")
