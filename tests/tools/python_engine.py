# SPDX-License-Identifier: Apache-2.0
"""usage: python_engine.py SOURCE_ROOT IDS PLAN: the package's Engine on the bundled model. IDS: what `cleave run`
continues 1,40,7 with. PLAN: a plan of the model on two replicas. Exits 1 with what does not hold."""

import json
import pathlib
import sys
import threading

import cleave

root = pathlib.Path(sys.argv[1])
alone = [int(i) for i in sys.argv[2].split(",")]
failures = []


def expect(holds, promise):
    if not holds:
        failures.append(promise)


def raises(kind, piece, call):
    try:
        call()
    except kind as error:
        expect(piece in str(error), f"{error} has {piece!r}")
        return
    failures.append(f"{kind.__name__} with {piece!r}")


def many(engine):
    """Requests beside each other, from several threads, each as it is alone."""
    results = {}

    def ask(number):
        results[number] = engine.generate([1, 40, 7], max_new_tokens=len(alone), ignore_eos=True).result()[0]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect([results[n].tokens for n in range(6)] == [alone] * 6, "requests in company have the tokens of each alone")
    expect(results[0].finish == "length" and results[0].text, "a text ends by its length")


def streams(engine):
    pieces, usage = [], None
    for event in engine.generate("Once upon a time", max_new_tokens=24, temperature=1.0, seed=3, top_k=20):
        pieces.append(event.text)
        usage = event.usage or usage
    text = "".join(pieces)
    expect(len(pieces) == 24 and usage["new_tokens"] == 24 and usage["prompt_tokens"] > 3, "an event for each token")
    again = engine.generate("Once upon a time", max_new_tokens=24, temperature=1.0, seed=3, top_k=20, stop=text[5:9])
    expect(again.result()[0].text == text[:text.index(text[5:9])], "a text ends before its stop text")
    with engine.generate([1, 40, 7], max_new_tokens=40) as request:
        next(request)
    expect(next(iter(request), None) is None, "a request that was left gives nothing more")
    cancelled = engine.generate([1, 40, 7], max_new_tokens=200, n=2, ignore_eos=True)
    next(cancelled)
    cancelled.cancel()
    results = cancelled.result()
    expect([r.finish for r in results] == ["cancelled"] * 2, "cancelled copies say so")


def logprobs(engine):
    request = engine.generate([1, 40, 7], max_new_tokens=0, prompt_logprobs=2)
    told = [t for event in request for t in event.prompt_logprobs]
    expect([t.id for t in told] == [40, 7] and all(len(t.top) == 2 for t in told), "a prompt's log-probabilities")
    result = engine.generate([1, 40, 7], max_new_tokens=3, logprobs=1, logit_bias={5: 100}).result()[0]
    expect(result.tokens == [5, 5, 5] and all(t.id == 5 and t.logprob <= 0 for t in result.logprobs),
           "a biased token is forced, and its log-probability is the model's")


def reproducible(plan):
    """Log-probabilities to the bit: alone, from a cached prefix, and in chunks beside others that come and go."""
    prompt = [1] + [40, 7, 300, 12] * 20

    def told(request):
        return [(t.id, t.logprob) for t in request.result()[0].logprobs]

    def ask(engine, **other):
        return engine.generate(prompt, max_new_tokens=16, logprobs=0, ignore_eos=True, **other)

    with cleave.Engine(plan, reproducible=True) as engine:
        first = told(ask(engine))
        expect(told(ask(engine)) == first, "a cached prefix changes no bit")
        expect(engine.statistics["prefix_hits"] >= 64, "the prompt's full blocks were found")
    with cleave.Engine(plan, reproducible=True, token_budget=7, groups=2, overcommit=True) as engine:
        others = [engine.generate([n, 5, 9] * (n + 2), max_new_tokens=9 * n, ignore_eos=True) for n in range(1, 5)]
        asked = [ask(engine, salt=n) for n in range(3)]
        expect([told(request) for request in asked] == [first] * 3, "company and chunks change no bit")
        for request in others:
            request.result()


def model_files():
    """A Hugging Face folder and a GGUF file run as they lie."""
    files = root / "tests" / "files"
    for path in (files / "families" / "qwen3", files / "gguf" / "qwen3.gguf"):
        expected = json.loads((files / "families" / "expectations.json").read_text())["qwen3"]
        with cleave.Engine(cleave.Plan(path, "host[0-1]", tensor_parallel=2, kv_dtype="f32"), tokenizer="") as engine:
            given = engine.generate(expected["prompt"], max_new_tokens=5, ignore_eos=True).result()[0].tokens
            expect(given == expected["new_tokens"], f"{path} writes {given}")


def replicas(plan):
    """Requests go to both replicas of a plan, and have the tokens of one."""
    with cleave.Engine(plan) as engine:
        asked = [engine.generate([1, 40, 7], max_new_tokens=len(alone), ignore_eos=True) for _ in range(6)]
        expect([request.result()[0].tokens for request in asked] == [alone] * 6, "replicas have the tokens of one")
        statistics = engine.statistics
        expect(statistics["accepted"] == 6 and statistics["blocks_held"] == 0, "replicas are counted together")
        last = engine.generate([1, 40, 7], max_new_tokens=100, ignore_eos=True)
        last.cancel()
        expect(last.result()[0].finish == "cancelled", "a request is cancelled where it is")
        expect(engine.drain(60), "all requests of all replicas end")


def main():
    graph = cleave.Graph.load(root / "models" / "bundled")
    plan = cleave.Plan(graph, cleave.Machine("host[0-1]"), pipeline_stages=2, batch=4, context=256, prefill_chunk=32)
    raises(cleave.Error, "has no weights to run", lambda: cleave.Engine(
        cleave.Plan(cleave.Graph.shape("stories-260k"), cleave.Machine("host"))))
    with cleave.Engine(plan, groups=2) as engine:
        expect(engine.runs_alone == "", "a float model's requests run together")
        many(engine)
        streams(engine)
        logprobs(engine)
        raises(cleave.Error, "top_k -1", lambda: engine.generate([1], top_k=-1))
        raises(cleave.Error, "256", lambda: engine.generate([1], max_new_tokens=1000))
        raises(ValueError, "top_p", lambda: engine.generate([1], top_p=0))
        expect(engine.drain(60), "all requests end")
        statistics = engine.statistics
        expect(statistics["requests"] == 0 and statistics["blocks_held"] == 0, "nothing is held")
        expect(statistics["blocks_free"] + statistics["blocks_cached"] == statistics["blocks"], "every block is back")
        expect(statistics["finished_cancelled"] == 3 and statistics["finished_fault"] == 0, "ends are counted")
        raises(cleave.Error, "takes no more requests", lambda: engine.generate([1]))
    reproducible(plan)
    model_files()
    replicas(cleave.Plan.load(sys.argv[3]))
    for failure in failures:
        print("does not hold:", failure)
    return 1 if failures else 0


sys.exit(main())
