# SPDX-License-Identifier: Apache-2.0
"""tools/libcleave/include/cleave.h in ctypes: the library, its structs and prototypes, and errors as exceptions."""

import ctypes as c
import json
import os
import pathlib

ABI_VERSION = 1
(OK, INVALID_INPUT, INTERNAL_ERROR, DOES_NOT_FIT, INVALID_ARGUMENT, OUT_OF_MEMORY, QUEUE_FULL, DRAINING,
 DEVICE_FAILED) = range(9)


def _open():
    """Beside this file in a wheel; CLEAVE_LIBRARY names another; else what the loader finds, with an engine first."""
    folder = pathlib.Path(__file__).parent
    beside = next((f for f in (folder / "lib/libcleave_engine.so.1", folder / "libcleave.so") if f.exists()), None)
    name = os.environ.get("CLEAVE_LIBRARY") or (str(beside) if beside else "libcleave.so.1")
    try:
        try:
            found = c.CDLL("libcleave_engine.so.1" if name == "libcleave.so.1" else name)
        except OSError:
            found = c.CDLL(name)
    except OSError as error:
        raise ImportError(f"libcleave cannot be opened: {error}; install the wheel's library and what it needs "
                          "(METIS, Protobuf, fmt), or name one in CLEAVE_LIBRARY") from error
    found.cleave_abi_version.restype = c.c_int32
    if found.cleave_abi_version() < ABI_VERSION:
        raise ImportError(f"{name} is libcleave with ABI {found.cleave_abi_version()}; {ABI_VERSION} is needed")
    return found


lib = _open()


class Error(Exception):
    """A call that failed: what is wrong, what is supported, how to mend it."""


class DoesNotFit(Error):
    """No plan fits in memory: `devices` with each one's needed, capacity and deficit bytes, `fixes` that would fit."""

    def __init__(self, message, details=None):
        super().__init__(message)
        details = details or {}
        self.devices = details.get("devices", [])
        self.fixes = details.get("fixes", [])


class QueueFull(Error):
    """The engine's queue is full; the same request may be accepted later."""


class DeviceFailed(Error):
    """A device failed and the engine is dead: the step and the device."""


class ImportOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("weights_may_be_absent", c.c_int32)]


class Operator(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("type", c.c_char_p), ("layer", c.c_int32),
                ("sharding", c.c_int32), ("split_units", c.c_int64), ("columns", c.c_int64), ("dtype", c.c_char_p),
                ("rows_are_tokens", c.c_int32), ("flops_per_token", c.c_int64), ("flops", c.c_int64),
                ("weight_bytes", c.c_int64), ("bytes_per_token", c.c_int64), ("bytes", c.c_int64),
                ("inputs", c.POINTER(c.c_size_t)), ("num_inputs", c.c_size_t)]


class PlanOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("objective", c.c_int32), ("tensor_parallel", c.c_int32),
                ("pipeline_stages", c.c_int32), ("no_metis", c.c_int32), ("seed", c.c_int64), ("batch", c.c_int64),
                ("context", c.c_int64), ("prompt_tokens", c.c_int64), ("prefill_chunk", c.c_int64),
                ("dtype", c.c_char_p), ("kv_dtype", c.c_char_p), ("pins", c.POINTER(c.c_char_p)),
                ("num_pins", c.c_size_t), ("kv_tokens", c.c_int64), ("compute", c.c_char_p),
                ("activation_dtype", c.c_char_p)]


class PlanInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("model", c.c_char_p), ("graph_digest", c.c_char_p),
                ("num_devices", c.c_size_t), ("num_stages", c.c_size_t), ("num_prefill_steps", c.c_size_t),
                ("num_decode_steps", c.c_size_t), ("prefill_ns", c.c_int64), ("decode_ns_per_token", c.c_int64),
                ("objective_ns", c.c_int64), ("lower_bound_ns", c.c_int64), ("binding", c.c_char_p)]


class DeviceInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("kind", c.c_char_p), ("arch", c.c_char_p),
                ("host", c.c_char_p), ("memory_bytes", c.c_int64), ("weights_bytes", c.c_int64),
                ("kv_bytes", c.c_int64), ("activation_bytes", c.c_int64), ("staging_bytes", c.c_int64),
                ("scratch_bytes", c.c_int64), ("reserved_bytes", c.c_int64), ("free_bytes", c.c_int64),
                ("decode_busy_ns", c.c_int64), ("collectives_bytes", c.c_int64)]


class StageInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("num_devices", c.c_size_t), ("devices", c.POINTER(c.c_size_t)),
                ("first_operator", c.c_char_p), ("last_operator", c.c_char_p), ("first_layer", c.c_int32),
                ("last_layer", c.c_int32)]


class StepInfo(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("kind", c.c_int32), ("stage", c.c_int32), ("layer", c.c_int32),
                ("num_devices", c.c_size_t), ("devices", c.POINTER(c.c_size_t)), ("num_operators", c.c_size_t),
                ("operators", c.POINTER(c.c_size_t)), ("value", c.c_char_p), ("implementation", c.c_char_p),
                ("collective", c.c_char_p), ("bytes", c.c_int64), ("link_bytes", c.c_int64), ("start_ns", c.c_int64),
                ("predicted_ns", c.c_int64)]


def _declare():
    handle, string, size = c.c_void_p, c.c_char_p, c.c_size_t
    out = c.POINTER
    status = {
        "graph_import": [string, out(ImportOptions), out(handle)],
        "graph_from_shape": [string, string, out(handle)],
        "graph_new": [string, out(handle)],
        "graph_num_operators": [handle, out(size)],
        "graph_operator_name": [handle, size, out(string)],
        "graph_to_text": [handle, out(handle)],
        "graph_add_operator": [handle, out(Operator), out(size)],
        "machine_from_devices": [string, out(handle)],
        "machine_load": [string, out(handle)],
        "machine_from_json": [string, out(handle)],
        "machine_num_devices": [handle, out(size)],
        "machine_to_json": [handle, out(handle)],
        "plan_make": [handle, handle, out(PlanOptions), out(handle)],
        "plan_load": [string, out(handle)],
        "plan_save": [handle, string],
        "plan_verify": [handle, out(handle)],
        "plan_to_text": [handle, out(handle)],
        "plan_to_json": [handle, out(handle)],
        "plan_get_info": [handle, out(PlanInfo)],
        "plan_get_device": [handle, size, out(DeviceInfo)],
        "plan_get_stage": [handle, size, out(StageInfo)],
        "plan_get_step": [handle, c.c_int32, size, out(StepInfo)],
        "plan_export": [handle, string, out(handle)],
        "plan_export_to": [handle, string, string],
        "export_manifest": [handle, out(string)],
        "export_num_files": [handle, out(size)],
        "export_file": [handle, size, out(string), out(handle), out(size)],
    }
    for name, arguments in status.items():
        function = getattr(lib, "cleave_" + name)
        function.argtypes, function.restype = arguments, c.c_int32
    for name in ("graph_free", "machine_free", "plan_free", "export_free", "string_free"):
        function = getattr(lib, "cleave_" + name)
        function.argtypes, function.restype = [handle], None
    for name in ("version", "last_error", "last_error_json"):
        getattr(lib, "cleave_" + name).restype = string
    lib.cleave_num_formats.restype = size
    for name in ("format_name", "format_summary", "objective_name"):
        function = getattr(lib, "cleave_" + name)
        function.argtypes, function.restype = [size], string


_declare()


def check(status):
    """The last error of this thread, which is the one that called."""
    if status == OK:
        return
    message = lib.cleave_last_error().decode(errors="replace")
    if status == DOES_NOT_FIT:
        raise DoesNotFit(message, json.loads(lib.cleave_last_error_json()))
    if status == OUT_OF_MEMORY:
        raise MemoryError(message)
    if status == QUEUE_FULL:
        raise QueueFull(message)
    if status == DEVICE_FAILED:
        raise DeviceFailed(message)
    raise Error(message)


def text(value):
    return None if value is None else str(value).encode()


def sized(struct, **values):
    return struct(struct_size=c.sizeof(struct), **values)


def number(call, *arguments):
    result = c.c_size_t()
    check(call(*arguments, c.byref(result)))
    return result.value


def owned_text(call, *arguments):
    result = c.c_void_p()
    check(call(*arguments, c.byref(result)))
    try:
        return c.string_at(result).decode(errors="replace")
    finally:
        lib.cleave_string_free(result)


def _python(struct, name, value):
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, c._Pointer):
        return list(value[:getattr(struct, "num_" + name)])
    return value


def record(cls, struct_type, call, *arguments):
    """A filled struct as an object; lists in place of pointers with counts."""
    struct = sized(struct_type)
    check(call(*arguments, c.byref(struct)))
    names = [name for name, _ in struct_type._fields_ if name != "struct_size"]
    lists = {"num_" + n for n in names if isinstance(getattr(struct, n), c._Pointer)}
    return cls(**{n: _python(struct, n, getattr(struct, n)) for n in names if n not in lists})


class Handle:
    """Owns a handle of the library."""

    _handle = None

    @classmethod
    def _make(cls, call, *arguments):
        handle = c.c_void_p()
        check(call(*arguments, c.byref(handle)))
        made = object.__new__(cls)
        made._handle = handle
        return made

    def __del__(self):
        if self._handle:
            type(self)._free(self._handle)


class Export(Handle):
    _free = lib.cleave_export_free

    def files(self):
        found = {}
        for i in range(number(lib.cleave_export_num_files, self._handle)):
            name, data, size = c.c_char_p(), c.c_void_p(), c.c_size_t()
            check(lib.cleave_export_file(self._handle, i, c.byref(name), c.byref(data), c.byref(size)))
            found[name.value.decode()] = c.string_at(data, size.value) if size.value else b""
        return found
