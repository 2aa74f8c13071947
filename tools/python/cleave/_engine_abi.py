# SPDX-License-Identifier: Apache-2.0
"""tools/libcleave/include/cleave_engine.h in ctypes: the structs and prototypes of the engine."""

import ctypes as c

from . import _abi


class EngineOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("tokenizer", c.c_char_p), ("threads", c.c_int32),
                ("overcommit", c.c_int32), ("no_prefix_sharing", c.c_int32), ("groups", c.c_int64),
                ("max_queue", c.c_int64), ("token_budget", c.c_int64), ("reproducible", c.c_int32)]


class TokenLogprob(c.Structure):
    _fields_ = [("id", c.c_int32), ("logprob", c.c_float)]


class TokenLogprobs(c.Structure):
    _fields_ = [("chosen", TokenLogprob), ("rank", c.c_int32), ("num_top", c.c_size_t),
                ("top", c.POINTER(TokenLogprob))]


class Request(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("text", c.c_char_p), ("prompt", c.POINTER(c.c_int32)),
                ("num_prompt", c.c_size_t), ("max_new_tokens", c.c_int64), ("prompt_only", c.c_int32),
                ("copies", c.c_int64), ("ignore_eos", c.c_int32), ("temperature", c.c_float), ("top_p", c.c_float),
                ("min_p", c.c_float), ("top_k", c.c_int32), ("repetition_penalty", c.c_float),
                ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float), ("seed", c.c_uint64),
                ("bias_ids", c.POINTER(c.c_int32)), ("bias_values", c.POINTER(c.c_float)), ("num_biases", c.c_size_t),
                ("stop_ids", c.POINTER(c.c_int32)), ("num_stop_ids", c.c_size_t),
                ("stop_texts", c.POINTER(c.c_char_p)), ("num_stop_texts", c.c_size_t), ("with_logprobs", c.c_int32),
                ("top_logprobs", c.c_int32), ("with_prompt_logprobs", c.c_int32),
                ("top_prompt_logprobs", c.c_int32), ("salt", c.c_uint64)]


class Event(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("request", c.c_int64), ("copy", c.c_int64),
                ("tokens", c.POINTER(c.c_int32)), ("num_tokens", c.c_size_t), ("text", c.c_char_p),
                ("logprobs", c.POINTER(TokenLogprobs)), ("num_logprobs", c.c_size_t),
                ("prompt_logprobs", c.POINTER(TokenLogprobs)), ("num_prompt_logprobs", c.c_size_t),
                ("finish", c.c_int32), ("message", c.c_char_p), ("ends_request", c.c_int32),
                ("prompt_tokens", c.c_int64), ("cached_tokens", c.c_int64), ("new_tokens", c.c_int64),
                ("queue_seconds", c.c_double), ("prefill_seconds", c.c_double), ("decode_seconds", c.c_double)]


class Statistics(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), *((name, c.c_int64) for name in (
        "requests", "waiting", "running", "blocks", "blocks_free", "blocks_held", "blocks_cached", "accepted",
        "refused", "finished_stop", "finished_length", "finished_cancelled", "finished_fault", "prompt_tokens",
        "new_tokens", "prefix_queries", "prefix_hits", "preemptions", "passes")),
        ("pass_seconds", c.c_double), ("oldest_pass_seconds", c.c_double)]


Callback = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Event))


def _declare(lib):
    handle, out = c.c_void_p, c.POINTER
    prototypes = {
        "new": [handle, out(EngineOptions), out(handle)],
        "runs_alone": [handle, out(c.c_char_p)],
        "add": [handle, out(Request), Callback, handle, out(c.c_int64)],
        "cancel": [handle, c.c_int64],
        "drain": [handle, c.c_double, out(c.c_int32)],
        "get_statistics": [handle, out(Statistics)],
    }
    for name, arguments in prototypes.items():
        function = getattr(lib, "cleave_engine_" + name)
        function.argtypes, function.restype = arguments, c.c_int32
    lib.cleave_engine_free.argtypes, lib.cleave_engine_free.restype = [handle], None


has_engine = hasattr(_abi.lib, "cleave_engine_new")
if has_engine:
    _declare(_abi.lib)


def array(kind, values):
    values = list(values)
    return (kind * len(values))(*values), len(values)
