# SPDX-License-Identifier: Apache-2.0
"""The planner for other compilers: a graph and a machine go in, a proven plan comes out.

    import cleave
    plan = cleave.Plan("model.onnx", "sim:h100[0-3]", tensor_parallel=2)
    print(plan)
    plan.export("onnx", "out")

With a library that has an engine (libcleave_engine.so), a plan over devices of this machine runs:

    with cleave.Engine(cleave.Plan("model.onnx", "host[0-1]", batch=8)) as engine:
        for event in engine.generate("Once upon a time", max_new_tokens=40):
            print(event.text, end="")

Everything goes through libcleave's C ABI (tools/libcleave/include/cleave.h), which lies beside this file in a wheel; CLEAVE_LIBRARY
names another. Calls release Python's lock; objects may be used by several threads at once, a Graph once it is built.
"""

import ctypes as _c
import json as _json
import os as _os
import pathlib as _pathlib
from itertools import count as _count, takewhile as _takewhile

from cleave import _abi
from cleave._abi import DeviceFailed, DoesNotFit, Error, QueueFull
from cleave._engine import Engine, Event, Logprobs, Request, Result

__all__ = ["BY_INPUT", "BY_OUTPUT", "ELEMENTWISE", "ONCE", "REPEATED", "Device", "DeviceFailed", "DoesNotFit", "Engine",
           "Error", "Event", "Graph", "Logprobs", "Machine", "Plan", "QueueFull", "Request", "Result", "Stage", "Step",
           "formats", "version"]

ONCE, REPEATED, BY_OUTPUT, BY_INPUT, ELEMENTWISE = range(5)
_OBJECTIVES = tuple(name.decode() for name in _takewhile(bool, map(_abi.lib.cleave_objective_name, _count())))
_STEP_KINDS = ("compute", "transfer", "collective")

version = _abi.lib.cleave_version().decode()


def formats():
    """The names that Plan.export takes, each with what it writes."""
    lib = _abi.lib
    return {lib.cleave_format_name(i).decode(): lib.cleave_format_summary(i).decode()
            for i in range(lib.cleave_num_formats())}


class Graph(_abi.Handle):
    """What is to be planned: an ONNX file, a Llama by its shape, or the operators of another compiler."""

    _free = _abi.lib.cleave_graph_free

    @classmethod
    def load(cls, path, weights_may_be_absent=False):
        """Of an .onnx file, a folder with one, a Hugging Face folder or a GGUF file. Weights are located, not read."""
        options = _abi.sized(_abi.ImportOptions, weights_may_be_absent=bool(weights_may_be_absent))
        return cls._make(_abi.lib.cleave_graph_import, _os.fsencode(path), _c.byref(options))

    @classmethod
    def shape(cls, name, dtype=None):
        """Of a name such as "llama-3-8b", or of a Hugging Face config.json."""
        return cls._make(_abi.lib.cleave_graph_from_shape, _os.fsencode(name), _abi.text(dtype))

    @classmethod
    def new(cls, name):
        """Empty, for add()."""
        return cls._make(_abi.lib.cleave_graph_new, _abi.text(name))

    def add(self, name, inputs=(), *, columns, sharding=ONCE, type=None, dtype=None, split_units=0, layer=0,
            rows_are_tokens=True, flops_per_token=0, flops=0, weight_bytes=0, bytes_per_token=0, bytes=0):
        """Adds an operator, and gives the number by which later ones name it in `inputs` (tools/libcleave/include/cleave.h)."""
        numbers = (_c.c_size_t * len(inputs))(*inputs)
        op = _abi.sized(_abi.Operator, name=_abi.text(name), type=_abi.text(type), layer=layer, sharding=sharding,
                        split_units=split_units, columns=columns, dtype=_abi.text(dtype),
                        rows_are_tokens=bool(rows_are_tokens), flops_per_token=flops_per_token, flops=flops,
                        weight_bytes=weight_bytes, bytes_per_token=bytes_per_token, bytes=bytes, inputs=numbers,
                        num_inputs=len(inputs))
        index = _c.c_size_t()
        _abi.check(_abi.lib.cleave_graph_add_operator(self._handle, _c.byref(op), _c.byref(index)))
        return index.value

    def __len__(self):
        return _abi.number(_abi.lib.cleave_graph_num_operators, self._handle)

    def operator(self, index):
        name = _c.c_char_p()
        _abi.check(_abi.lib.cleave_graph_operator_name(self._handle, index, _c.byref(name)))
        return name.value.decode()

    def __str__(self):
        return _abi.owned_text(_abi.lib.cleave_graph_to_text, self._handle)


class Machine(_abi.Handle):
    """The devices: a list such as "sim:h100[0-3]" or "host[0-1]", or a machine file as `cleave devices -o` writes it."""

    _free = _abi.lib.cleave_machine_free

    def __new__(cls, devices):
        return cls._make(_abi.lib.cleave_machine_from_devices, _abi.text(devices))

    @classmethod
    def load(cls, path):
        return cls._make(_abi.lib.cleave_machine_load, _os.fsencode(path))

    @classmethod
    def from_json(cls, value):
        """Of the file's text, or of what json.loads makes of it."""
        return cls._make(_abi.lib.cleave_machine_from_json,
                         _abi.text(value if isinstance(value, str) else _json.dumps(value)))

    def __len__(self):
        return _abi.number(_abi.lib.cleave_machine_num_devices, self._handle)

    def to_json(self):
        return _json.loads(_abi.owned_text(_abi.lib.cleave_machine_to_json, self._handle))

    def __repr__(self):
        return f"<cleave.Machine of {', '.join(d['name'] for d in self.to_json()['devices'])}>"


def _graph_of(value):
    """A Graph, a path of a model, or a shape name."""
    if isinstance(value, Graph):
        return value
    if not isinstance(value, (str, _os.PathLike)):
        raise TypeError(f"a Graph, the path of a model or a shape name is needed, not {type(value).__name__}")
    is_file = _os.path.exists(value) and _pathlib.Path(value).suffix != ".json"
    return Graph.load(value) if is_file else Graph.shape(value)


def _machine_of(value):
    """A Machine, or its device list."""
    if isinstance(value, Machine):
        return value
    if not isinstance(value, str):
        raise TypeError(f"a Machine or a device list such as 'host[0-1]' is needed, not {type(value).__name__}")
    return Machine(value)


class _Record:
    """Values by name, as the C struct has them."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.__dict__.items())})"


class Device(_Record):
    """name, kind, arch, host; memory_bytes and what takes it; decode_busy_ns."""


class Stage(_Record):
    """devices (indices), first_operator, last_operator, first_layer, last_layer."""


class Step(_Record):
    """kind, stage, layer, devices and operators (indices), value, implementation, collective; bytes, link_bytes;
    start_ns, predicted_ns."""


class Plan(_abi.Handle):
    """What runs where, every transfer and collective, proved. Prints as `cleave plan` does."""

    _free = _abi.lib.cleave_plan_free

    def __new__(cls, graph, machine, *, objective="latency", tensor_parallel=0, pipeline_stages=0, metis=True, seed=0,
                batch=0, context=0, prompt_tokens=0, prefill_chunk=0, dtype=None, kv_dtype=None, pins=(), kv_tokens=0,
                compute=None, activation_dtype=None):
        """`graph`: a Graph, the path of a model or a shape name. `machine`: a Machine or a device list.
        0 and None leave the choice to the planner. `pins`: {"layers.0-15": "cuda[0]"}, or "layers.0-15=cuda[0]"s.
        `kv_dtype`: of the KV cache, f32, f16, bf16, f8e4m3 or int8. `kv_tokens`: that the KV cache has room for, or "auto": all that is left on the devices.
        `compute`: "exact" or "fast", how products treat their activations on hosts; by default fast where all devices are hosts. `activation_dtype`: f32, f16 or bf16, on GPUs."""
        graph, machine = _graph_of(graph), _machine_of(machine)
        if objective not in _OBJECTIVES:
            raise ValueError(f"objective {objective!r}: it is one of {', '.join(_OBJECTIVES)}")
        words = [f"{k}={v}" for k, v in pins.items()] if hasattr(pins, "items") else list(pins)
        array = (_c.c_char_p * len(words))(*(_abi.text(w) for w in words))
        options = _abi.sized(
            _abi.PlanOptions, objective=_OBJECTIVES.index(objective), tensor_parallel=tensor_parallel,
            pipeline_stages=pipeline_stages, no_metis=not metis, seed=seed, batch=batch, context=context,
            prompt_tokens=prompt_tokens, prefill_chunk=prefill_chunk, dtype=_abi.text(dtype),
            kv_dtype=_abi.text(kv_dtype), pins=array, num_pins=len(words),
            kv_tokens=-1 if kv_tokens == "auto" else kv_tokens, compute=_abi.text(compute),
            activation_dtype=_abi.text(activation_dtype))
        return cls._make(_abi.lib.cleave_plan_make, graph._handle, machine._handle, _c.byref(options))

    @classmethod
    def load(cls, path):
        """Of a .plan file, which is proved as it is read."""
        return cls._make(_abi.lib.cleave_plan_load, _os.fsencode(path))

    def save(self, path):
        _abi.check(_abi.lib.cleave_plan_save(self._handle, _os.fsencode(path)))

    def verify(self):
        """Raises Error with what is unsound."""
        _abi.check(_abi.lib.cleave_plan_verify(self._handle, None))

    def __str__(self):
        return _abi.owned_text(_abi.lib.cleave_plan_to_text, self._handle)

    def __repr__(self):
        stages = " | ".join(",".join(self.devices[d].name for d in s.devices) for s in self.stages)
        return f"<cleave.Plan of {self.model}: {stages}; {self.info.decode_ns_per_token / 1e6:.3g} ms a token>"

    def to_json(self):
        """As `cleave plan --json` (schema plan.schema.json)."""
        return _json.loads(_abi.owned_text(_abi.lib.cleave_plan_to_json, self._handle))

    @property
    def why(self):
        """What was weighed, as to_json() has it."""
        return self.to_json()["why"]

    @property
    def gap(self):
        """How far the plan's time is above the lower bound: 0.1 is 10 %."""
        return self.to_json()["gap"]

    @property
    def info(self):
        return _abi.record(_Record, _abi.PlanInfo, _abi.lib.cleave_plan_get_info, self._handle)

    @property
    def model(self):
        return self.info.model

    @property
    def devices(self):
        return [_abi.record(Device, _abi.DeviceInfo, _abi.lib.cleave_plan_get_device, self._handle, i)
                for i in range(self.info.num_devices)]

    @property
    def stages(self):
        return [_abi.record(Stage, _abi.StageInfo, _abi.lib.cleave_plan_get_stage, self._handle, i)
                for i in range(self.info.num_stages)]

    def steps(self, phase="decode"):
        number = {"prefill": 0, "decode": 1}[phase]
        count = self.info.num_decode_steps if number else self.info.num_prefill_steps
        steps = [_abi.record(Step, _abi.StepInfo, _abi.lib.cleave_plan_get_step, self._handle, number, i)
                 for i in range(count)]
        for step in steps:
            step.kind = _STEP_KINDS[step.kind]
        return steps

    def export(self, format, folder=None):
        """Writes the plan for another tool into `folder`, and gives the manifest; without a folder, {name: bytes}."""
        if folder is not None:
            _abi.check(_abi.lib.cleave_plan_export_to(self._handle, _abi.text(format), _os.fsencode(folder)))
            return _json.loads((_pathlib.Path(folder) / "manifest.json").read_text(encoding="utf-8"))
        exported = _abi.Export._make(_abi.lib.cleave_plan_export, self._handle, _abi.text(format))
        return exported.files()
