# SPDX-License-Identifier: Apache-2.0
"""The engine: many requests at once over one plan, each an iterator of events."""

import ctypes as c
import dataclasses
import itertools
import queue
import threading

from . import _abi
from . import _engine_abi as _e

_FINISHES = (None, "stop", "length", "cancelled", "fault")


@dataclasses.dataclass
class Logprobs:
    """Of a token, in the model's own distribution. `top`: (id, logprob) of the most likely tokens."""

    id: int
    logprob: float
    rank: int
    top: list


@dataclasses.dataclass
class Event:
    """New tokens and text of one copy of a request. `finish`, on a copy's last event: "stop", "length", "cancelled" or
    "fault", with `message`. `usage` is on the request's last event."""

    copy: int
    tokens: list
    text: str
    logprobs: list
    prompt_logprobs: list
    finish: str
    message: str
    usage: dict


@dataclasses.dataclass
class Result:
    """A copy's whole text."""

    tokens: list
    text: str
    logprobs: list
    finish: str


def _logprobs(items, count):
    return [Logprobs(t.chosen.id, t.chosen.logprob, t.rank, [(o.id, o.logprob) for o in t.top[:t.num_top]])
            for t in items[:count]]


def _event(given):
    usage = None
    if given.ends_request:
        usage = {name: getattr(given, name) for name in (
            "prompt_tokens", "cached_tokens", "new_tokens", "queue_seconds", "prefill_seconds", "decode_seconds")}
    return Event(given.copy, given.tokens[:given.num_tokens], given.text.decode(),
                 _logprobs(given.logprobs, given.num_logprobs),
                 _logprobs(given.prompt_logprobs, given.num_prompt_logprobs), _FINISHES[given.finish],
                 given.message.decode(errors="replace"), usage)


class Request:
    """Events as they come. Leaving the loop early, close() or the end of a `with` cancels what has not ended."""

    def __init__(self, engine, number):
        self._engine, self._number = engine, number
        self._events, self._ended = queue.SimpleQueue(), False
        self.id = None

    def __iter__(self):
        return self

    def __next__(self):
        if self._ended:
            raise StopIteration
        event = self._events.get()
        self._ended = event.usage is not None
        return event

    def cancel(self):
        """The events of copies that have not ended end with "cancelled"."""
        if not self._ended:
            self._engine._cancel(self.id)

    def close(self):
        self.cancel()
        self._ended = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def result(self):
        """Waits for the end. The Results of the copies in a list; raises Error where one ended with a fault."""
        results = {}
        for event in self:
            if event.finish == "fault":
                raise _abi.Error(event.message)
            whole = results.setdefault(event.copy, Result([], "", [], None))
            whole.tokens += event.tokens
            whole.text += event.text
            whole.logprobs += event.logprobs
            whole.finish = event.finish
        return [results[copy] for copy in sorted(results)]


class Engine:
    """Runs a plan for many requests at once, on devices of this machine. Any threads may use it. Needs a libcleave with
    an engine (libcleave_engine.so)."""

    _handle = None

    def __init__(self, plan, *, tokenizer=None, threads=0, overcommit=False, share_prefixes=True, groups=0, max_queue=0,
                 token_budget=0, reproducible=False):
        """`tokenizer`: a file or folder; None: beside the model; "": none. `reproducible`: on hosts a request's logits
        have the same bits whatever runs beside it; passes of up to 8 tokens are slower."""
        if not _e.has_engine:
            raise _abi.Error(f"{_abi.lib._name} has no engine: name libcleave_engine.so in CLEAVE_LIBRARY")
        options = _abi.sized(_e.EngineOptions, tokenizer=_abi.text(tokenizer), threads=threads, overcommit=overcommit,
                             no_prefix_sharing=not share_prefixes, groups=groups, max_queue=max_queue,
                             token_budget=token_budget, reproducible=reproducible)
        self._requests, self._numbers, self._lock = {}, itertools.count(1), threading.Lock()
        self._callback = _e.Callback(self._take)
        handle = c.c_void_p()
        _abi.check(_abi.lib.cleave_engine_new(plan._handle, c.byref(options), c.byref(handle)))
        self._handle = handle

    def _take(self, number, event):
        """On the engine's thread."""
        event = _event(event.contents)
        with self._lock:
            request = self._requests[number] if event.usage is None else self._requests.pop(number)
        request._events.put(event)

    def generate(self, prompt, *, max_new_tokens=128, n=1, temperature=0.0, top_p=1.0, top_k=0, min_p=0.0,
                 repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, logit_bias=None, seed=0, stop=(),
                 stop_ids=(), ignore_eos=False, logprobs=None, prompt_logprobs=None, salt=0):
        """Queues a request and gives it at once: an iterator of Events. `prompt`: text, or token ids. `logprobs`,
        `prompt_logprobs`: how many most likely tokens are told beside each; None: nothing is told. max_new_tokens 0
        with prompt_logprobs tells of the prompt alone. Raises QueueFull, DeviceFailed, or Error."""
        for name, value in (("top_p", top_p), ("repetition_penalty", repetition_penalty)):
            if not value > 0:
                raise ValueError(f"{name} {value}: it is above 0, and 1 stands for none")
        is_text = isinstance(prompt, str)
        ids, count = _e.array(c.c_int32, [] if is_text else prompt)
        stop = [stop] if isinstance(stop, str) else list(stop)
        texts, num_texts = _e.array(c.c_char_p, [_abi.text(t) for t in stop])
        stops, num_stops = _e.array(c.c_int32, stop_ids)
        biases = dict(logit_bias or {})
        bias_ids, num_biases = _e.array(c.c_int32, biases.keys())
        bias_values, _ = _e.array(c.c_float, biases.values())
        what = _abi.sized(
            _e.Request, text=_abi.text(prompt) if is_text else None, prompt=ids, num_prompt=count,
            max_new_tokens=max_new_tokens, prompt_only=max_new_tokens == 0, copies=n, ignore_eos=ignore_eos,
            temperature=temperature, top_p=top_p, min_p=min_p, top_k=top_k, repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty, frequency_penalty=frequency_penalty, seed=seed, bias_ids=bias_ids,
            bias_values=bias_values, num_biases=num_biases, stop_ids=stops, num_stop_ids=num_stops, stop_texts=texts,
            num_stop_texts=num_texts, with_logprobs=logprobs is not None, top_logprobs=logprobs or 0,
            with_prompt_logprobs=prompt_logprobs is not None, top_prompt_logprobs=prompt_logprobs or 0, salt=salt)
        number, made = next(self._numbers), c.c_int64()
        request = Request(self, number)
        with self._lock:
            self._requests[number] = request
        try:
            _abi.check(_abi.lib.cleave_engine_add(self._handle, c.byref(what), self._callback, number, c.byref(made)))
        except BaseException:
            with self._lock:
                self._requests.pop(number, None)
            raise
        request.id = made.value
        return request

    def _cancel(self, request):
        if self._handle:
            _abi.check(_abi.lib.cleave_engine_cancel(self._handle, request))

    def drain(self, seconds):
        """Takes no more requests. True where all have ended within that time."""
        ended = c.c_int32()
        _abi.check(_abi.lib.cleave_engine_drain(self._handle, seconds, c.byref(ended)))
        return bool(ended.value)

    @property
    def statistics(self):
        """A dict: requests, blocks of the KV pool, tokens, passes."""
        struct = _abi.sized(_e.Statistics)
        _abi.check(_abi.lib.cleave_engine_get_statistics(self._handle, c.byref(struct)))
        return {name: getattr(struct, name) for name, _ in _e.Statistics._fields_ if name != "struct_size"}

    @property
    def runs_alone(self):
        """Why requests run one after another; "" where they run together."""
        why = c.c_char_p()
        _abi.check(_abi.lib.cleave_engine_runs_alone(self._handle, c.byref(why)))
        return why.value.decode()

    def close(self):
        """Cancels all requests; their last events are given before this returns."""
        handle, self._handle = self._handle, None
        if handle:
            _abi.lib.cleave_engine_free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()
