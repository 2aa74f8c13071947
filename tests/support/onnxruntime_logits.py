# SPDX-License-Identifier: Apache-2.0
"""Runs an ONNX Llama in ONNX Runtime: greedy tokens after a prompt, and the logits of every token that it saw.

usage: onnxruntime_logits.py MODEL.onnx IDS NEW_TOKENS OUT.f32 [--as-written]
Prints the new token ids joined by commas; writes little-endian float32 rows to OUT.f32: one for each prompt token,
then one for each new token but the last. --as-written: without the optimiser, which turns products of dequantised
weights into ones that quantise the activations too.
"""

import sys

import numpy as np
import onnxruntime


def empty_past(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """Past keys and values of length 0 for a batch of 1."""
    past = {}
    for value in session.get_inputs():
        if value.name.startswith("past_key_values"):
            shape = [1, value.shape[1], 0, value.shape[3]]
            past[value.name] = np.zeros(shape, np.float16 if "float16" in value.type else np.float32)
    return past


def step(session: onnxruntime.InferenceSession, ids: list[int], past: dict[str, np.ndarray]) -> np.ndarray:
    """Logits [tokens, vocab] of `ids`; `past` is brought up to date."""
    length = next(iter(past.values())).shape[2]
    feeds = {
        "input_ids": np.array([ids], np.int64),
        "attention_mask": np.ones((1, length + len(ids)), np.int64),
        "position_ids": np.arange(length, length + len(ids), dtype=np.int64)[None],
        **past,
    }
    names = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    results = dict(zip(outputs, session.run(outputs, {name: feeds[name] for name in names})))
    for name in past:
        past[name] = results[name.replace("past_key_values", "present")]
    return results["logits"][0].astype(np.float32)


def main() -> None:
    model, ids, new_tokens, out = sys.argv[1:5]
    options = onnxruntime.SessionOptions()
    # Without VNNI, the default kernels saturate sums of two products at 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if "--as-written" in sys.argv[5:]:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    past = empty_past(session)
    rows = [step(session, [int(i) for i in ids.split(",")], past)]
    tokens = [int(rows[0][-1].argmax())]
    for _ in range(int(new_tokens) - 1):
        rows.append(step(session, tokens[-1:], past))
        tokens.append(int(rows[-1][-1].argmax()))
    np.concatenate(rows).astype("<f4").tofile(out)
    print(",".join(map(str, tokens)))


if __name__ == "__main__":
    main()
