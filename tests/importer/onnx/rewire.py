# SPDX-License-Identifier: Apache-2.0
"""Rewires single edges of ONNX Llamas, and judges what was recovered from them by ONNX Runtime.

usage: rewire.py make BASE.onnx FOLDER COUNT SEED
       rewire.py judge FOLDER
`make` writes COUNT changed copies of BASE to FOLDER (NNNN.onnx, with NNNN.txt saying what was changed). Every change
keeps types and shapes as far as ONNX Runtime can tell, so that nothing but the graph's meaning gives it away.
`judge` runs every NNNN.onnx that has a NNNN.json {"tokens", "padding": may be left-padded} and NNNN.f64 (the logits
[tokens, vocab] of those tokens that were recovered) and prints the ones that ONNX Runtime gives other logits for:
in one piece, in two pieces with the cache between them, and left-padded beside another sequence.
"""

import json
import pathlib
import random
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HEAD_DIM = 16  # where a file leaves it open
FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def open_session(model: bytes | str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds_of(session, ids: np.ndarray, mask: np.ndarray, past: dict) -> dict:
    """Inputs for `ids` [batch, tokens]; `mask` [batch, past + tokens]; `past` by input name, or empty."""
    batch, tokens = ids.shape
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, -tokens:]
    known = {
        "input_ids": ids.astype(np.int64),
        "attention_mask": mask.astype(np.int64),
        "position_ids": positions.astype(np.int64),
        "use_cache_branch": np.array([True]),
    }
    feeds = {}
    for value in session.get_inputs():
        if value.name in known:
            feeds[value.name] = known[value.name]
        elif value.name in past:
            feeds[value.name] = past[value.name]
        else:
            width = value.shape[3] if isinstance(value.shape[3], int) else HEAD_DIM
            feeds[value.name] = np.zeros((batch, value.shape[1], 0, width), FLOATS[value.type])
        if value.type == "tensor(int32)":
            feeds[value.name] = feeds[value.name].astype(np.int32)
    return feeds


def run(session, ids, mask, past):
    """Logits [batch, tokens, vocab] and the new past."""
    names = [value.name for value in session.get_outputs()]
    results = session.run(None, feeds_of(session, ids, mask, past))
    inputs = [value.name for value in session.get_inputs() if value.name.startswith("past")]
    made = dict(zip(names, results))
    cache = {name: made[name.replace("past_key_values", "present")] for name in inputs}
    return results[0].astype(np.float64), cache


# ---- make
# --------------------------------------------------------------------------------------------


def initializers(graph):
    return {t.name: t for t in graph.initializer}


def value_kinds(model: onnx.ModelProto, folder: pathlib.Path) -> dict[str, tuple]:
    """Type and shape of every value, by running the model with all of them as outputs."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    known = {value.name for value in probe.graph.output}
    for node in probe.graph.node:
        for name in node.output:
            if name and name not in known:
                probe.graph.output.append(helper.make_empty_tensor_value_info(name))
    path = folder / "probe.onnx"
    onnx.save(probe, path)
    session = open_session(str(path))
    path.unlink()
    has_past = any(value.name.startswith("past") for value in session.get_inputs())
    past = {}
    if has_past:
        for value in session.get_inputs():
            if value.name.startswith("past"):
                width = value.shape[3] if isinstance(value.shape[3], int) else HEAD_DIM
                past[value.name] = np.zeros((1, value.shape[1], 3, width), FLOATS[value.type])
    length = 3 if has_past else 0
    feeds = feeds_of(session, np.arange(1, 6)[None], np.ones((1, length + 5)), past)
    names = [value.name for value in session.get_outputs()]
    kinds = {name: (str(a.dtype), a.shape) for name, a in zip(names, session.run(names, feeds))}
    kinds |= {name: (str(a.dtype), a.shape) for name, a in feeds.items()}
    for tensor in model.graph.initializer:
        kinds[tensor.name] = (str(helper.tensor_dtype_to_np_dtype(tensor.data_type)), tuple(tensor.dims))
    return kinds


def sorted_nodes(nodes):
    """In topological order, or nothing when there is a cycle."""
    makers = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    state, order = {}, []
    for start in range(len(nodes)):
        stack = [(start, False)]
        while stack:
            i, done = stack.pop()
            if done:
                state[i] = 2
                order.append(i)
                continue
            if state.get(i) == 2:
                continue
            if state.get(i) == 1:
                return None
            state[i] = 1
            stack.append((i, True))
            for name in nodes[i].input:
                j = makers.get(name)
                if j is not None and state.get(j) != 2:
                    if state.get(j) == 1:
                        return None
                    stack.append((j, False))
    return [nodes[i] for i in order]


class Rewirer:
    """Changes one thing of a model."""

    def __init__(self, model: onnx.ModelProto, kinds: dict, seed: int):
        self.model, self.kinds, self.random = model, kinds, random.Random(seed)
        self.by_kind = {}
        for name, kind in sorted(kinds.items()):
            self.by_kind.setdefault(kind, []).append(name)

    def mutant(self):
        changes = [(self.edge, 50), (self.swap, 10), (self.bypass, 18), (self.attribute, 9), (self.constant, 7),
                   (self.output, 3), (self.exchange, 3)]
        while True:
            model = onnx.ModelProto()
            model.CopyFrom(self.model)
            change = self.random.choices([c for c, _ in changes], [w for _, w in changes])[0]
            what = change(model.graph)
            if what is None:
                continue
            nodes = sorted_nodes(list(model.graph.node))
            if nodes is None:
                continue
            nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
            del model.graph.value_info[:]  # what the exporter said of shapes may not hold any more
            del model.graph.node[:]
            model.graph.node.extend(nodes)
            return model, what

    def other(self, name):
        alike = [n for n in self.by_kind.get(self.kinds.get(name), []) if n != name]
        return self.random.choice(alike) if alike else None

    def an_edge(self, graph):
        node = self.random.choice(graph.node)
        if not node.input:
            return None
        i = self.random.randrange(len(node.input))
        return (node, i) if node.input[i] else None

    def edge(self, graph):
        found = self.an_edge(graph)
        to = found and self.other(found[0].input[found[1]])
        if not to:
            return None
        node, i = found
        what = f"{label(node)} input {i}: {node.input[i]} -> {to}"
        node.input[i] = to
        return what

    def swap(self, graph):
        a, b = self.an_edge(graph), self.an_edge(graph)
        if not a or not b:
            return None
        x, y = a[0].input[a[1]], b[0].input[b[1]]
        if x == y or self.kinds.get(x) != self.kinds.get(y) or x not in self.kinds:
            return None
        a[0].input[a[1]], b[0].input[b[1]] = y, x
        return f"swapped {x} of {label(a[0])} and {y} of {label(b[0])}"

    def bypass(self, graph):
        node = self.random.choice(graph.node)
        alike = [n for n in node.input if n and self.kinds.get(n) == self.kinds.get(node.output[0])
                 and n in self.kinds]
        if not alike or not node.output[0]:
            return None
        to = self.random.choice(alike)
        for other in graph.node:
            for i, name in enumerate(other.input):
                if name == node.output[0]:
                    other.input[i] = to
        return f"bypassed {label(node)} by {to}"

    def attribute(self, graph):
        node = self.random.choice(graph.node)
        if not node.attribute:
            return None
        a = self.random.choice(node.attribute)
        before = str(helper.get_attribute_value(a))[:60]
        if a.type == onnx.AttributeProto.INT:
            a.i += self.random.choice([-1, 1])
        elif a.type == onnx.AttributeProto.FLOAT:
            a.f = self.random.choice([a.f * 2, a.f * 0.5, -a.f, 0.0, a.f + 1])
        elif a.type == onnx.AttributeProto.INTS and len(a.ints) > 1:
            i, j = self.random.sample(range(len(a.ints)), 2)
            a.ints[i], a.ints[j] = a.ints[j], a.ints[i]
        else:
            return None
        return f"{label(node)} {a.name}: {before} -> {str(helper.get_attribute_value(a))[:60]}"

    def constant(self, graph):
        """One element of a small constant, for all its readers."""
        tensors = [t for t in graph.initializer if np.prod(t.dims, dtype=np.int64) <= 8
                   and t.data_location != TensorProto.EXTERNAL]
        tensors += [a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute
                    if a.name == "value" and np.prod(a.t.dims, dtype=np.int64) <= 8]
        if not tensors:
            return None
        tensor = self.random.choice(tensors)
        array = numpy_helper.to_array(tensor).copy()
        if array.size == 0 or array.dtype.kind not in "if":
            return None
        flat = array.reshape(-1)
        i = self.random.randrange(flat.size)
        before = flat[i].item()
        after = self.random.choice([before + 1, before - 1, -before, before * 2, before * 0.5])
        if array.dtype.kind == "i" and abs(after) > np.iinfo(array.dtype).max:
            return None
        with np.errstate(over="ignore"):
            flat[i] = after
        if flat[i] == before:
            return None
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(array, name))
        return f"constant {name or '(of a node)'}[{i}]: {before} -> {flat[i]}"

    def output(self, graph):
        value = self.random.choice(graph.output)
        to = self.other(value.name)
        if not to or to in {v.name for v in graph.output} or to in initializers(graph):
            return None
        for node in graph.node:
            if to in node.output:
                old = value.name
                # The output's own maker and readers keep their value under another name.
                for n in graph.node:
                    for names in (n.input, n.output):
                        for i, name in enumerate(names):
                            if name == old:
                                names[i] = "was_" + old
                            elif name == to:
                                names[i] = old
                return f"graph output {old} is what {to} was"
        return None

    def exchange(self, graph):
        """Two inputs of one node."""
        node = self.random.choice(graph.node)
        if len(node.input) < 2:
            return None
        i, j = self.random.sample(range(len(node.input)), 2)
        if node.input[i] == node.input[j]:
            return None
        node.input[i], node.input[j] = node.input[j], node.input[i]
        return f"{label(node)}: inputs {i} and {j} exchanged"


def label(node) -> str:
    return f"{node.op_type} '{node.name or node.output[0]}'"


def make(base: pathlib.Path, folder: pathlib.Path, count: int, seed: int) -> None:
    model = onnx.load(base, load_external_data=False)
    rewirer = Rewirer(model, value_kinds(model, base.parent), seed)
    seen, tries = set(), 0
    while len(seen) < count and tries < 50 * count:
        tries += 1
        changed, what = rewirer.mutant()
        if what in seen:
            continue
        name = f"{len(seen):05d}"
        seen.add(what)
        onnx.save(changed, folder / f"{name}.onnx")
        (folder / f"{name}.txt").write_text(what + "\n")


# ---- judge
# -------------------------------------------------------------------------------------------


def largest_difference(ours: np.ndarray, theirs: np.ndarray, padded: bool = False) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    if padded and np.isnan(theirs).any():
        # A padding row sees no key; what it computes (NaN, where nothing guards the softmax)
        # spreads through the cache in ONNX Runtime. Here padding is removed before anything is
        # computed.
        return 0.0
    if not np.array_equal(np.isnan(ours), np.isnan(theirs)):
        return float("inf")
    scale = max(1.0, np.nanmax(np.abs(theirs), initial=0.0))
    return float(np.nanmax(np.abs(ours - theirs), initial=0.0)) / scale


def verdict(path: pathlib.Path) -> str:
    """Empty when ONNX Runtime gives the same logits."""
    said = json.loads(path.with_suffix(".json").read_text())
    ids = np.array([said["tokens"]])
    tokens = ids.shape[1]
    ours = np.fromfile(path.with_suffix(".f64")).reshape(tokens, -1)
    try:
        session = open_session(str(path))
    except Exception as error:  # noqa: BLE001: whatever it throws, it refuses the file
        return f"ONNX Runtime refuses the file: {str(error)[:300]}"
    has_past = any(value.name.startswith("past") for value in session.get_inputs())
    bound = 2e-3
    try:
        whole, _ = run(session, ids, np.ones((1, tokens)), {})
        if (d := largest_difference(ours, whole[0])) > bound:
            return f"differs by {d:.3g} in one piece"
        if has_past:
            first = tokens // 2
            a, past = run(session, ids[:, :first], np.ones((1, first)), {})
            rows = [a]
            for i in range(first, tokens):
                b, past = run(session, ids[:, i : i + 1], np.ones((1, i + 1)), past)
                rows.append(b)
            if (d := largest_difference(ours, np.concatenate(rows, axis=1)[0])) > bound:
                return f"differs by {d:.3g} with a cache"
        if said["padding"]:
            short = tokens - 3
            batch = np.stack([ids[0], np.concatenate([[0] * 3, ids[0, :short]])])
            mask = np.ones_like(batch)
            mask[1, :3] = 0
            padded, past = run(session, batch, mask, {})
            if (d := largest_difference(ours, padded[0], True)) > bound:
                return f"differs by {d:.3g} beside a padded sequence"
            if (d := largest_difference(ours[:short], padded[1, 3:], True)) > bound:
                return f"differs by {d:.3g} where left-padded"
            if has_past:
                mask = np.concatenate([mask, [[1], [1]]], axis=1)
                # The long sequence goes on with any token; the short one with its next.
                step, _ = run(session, np.array([[ids[0, 0]], [ids[0, short]]]), mask, past)
                if (d := largest_difference(ours[short : short + 1], step[1], True)) > bound:
                    return f"differs by {d:.3g} with a cache, left-padded"
    except Exception as error:  # noqa: BLE001
        return f"ONNX Runtime fails: {str(error)[:300]}"
    return ""


def judge(folder: pathlib.Path) -> int:
    wrong = 0
    for path in sorted(folder.glob("*.json")):
        said = verdict(path.with_suffix(".onnx"))
        if said:
            wrong += 1
            print(f"{path.with_suffix('.onnx')}: {path.with_suffix('.txt').read_text().strip()}\n    {said}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    else:
        sys.exit(judge(pathlib.Path(sys.argv[2])))
