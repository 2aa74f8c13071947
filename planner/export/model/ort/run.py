# SPDX-License-Identifier: Apache-2.0
"""Runs the models of this folder as pipeline.json orders them: greedy tokens after a prompt. Needs numpy and onnxruntime.

usage: run.py --input-ids 1,2,3 [--max-new-tokens N] [--dump-logits FILE] [--provider CPUExecutionProvider]

Prints {"token_ids": [...]}. FILE gets little-endian float32 rows of the vocabulary: one for each prompt token, then one
for each new token but the last. --input-ids may be repeated: a batch, padded on the left. With a provider that counts
its devices (CUDAExecutionProvider), each device of the plan becomes the one of its index.
"""

import argparse
import json
import pathlib

import numpy as np
import onnxruntime

FOLDER = pathlib.Path(__file__).resolve().parent


class Pipeline:
    """The plan's devices, each with the values that lie on it, and the steps between them."""

    def __init__(self, provider: str) -> None:
        self.description = json.loads((FOLDER / "pipeline.json").read_text())
        self.sessions = {}
        for step in self.description["steps"]:
            if "run" in step:
                self.sessions[step["run"]] = self.open(step["run"], step["device"], provider)
        self.past: list[dict[str, np.ndarray]] = [{} for _ in self.description["devices"]]

    def open(self, model: str, device: int, provider: str) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        chosen = provider if provider.startswith("CPU") else (
            provider, {"device_id": self.description["devices"][device]["index"]})
        session = onnxruntime.InferenceSession(FOLDER / model, options, providers=[chosen])
        if session.get_providers()[0] != provider:
            raise SystemExit(f"this onnxruntime has no {provider}: it has {session.get_providers()}")
        return session

    def reset(self, batch: int) -> None:
        """Forgets every sequence."""
        for step in self.description["steps"]:
            if "run" not in step:
                continue
            for value in self.sessions[step["run"]].get_inputs():
                if value.name.startswith("past_key_values."):
                    kind = np.float16 if "float16" in value.type else np.float32
                    self.past[step["device"]][value.name] = np.zeros(
                        [batch, value.shape[1], 0, value.shape[3]], kind)

    def forward(self, ids: np.ndarray, mask: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Logits [batch, sequence, vocabulary]; the past grows by `ids`."""
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        values = [dict(given) for _ in self.past]
        for step in self.description["steps"]:
            if "run" in step:
                self.run(step, values[step["device"]])
                continue
            # Partial sums are added in the order of the plan, which is that of its devices.
            parts = [values[d][name] for d, name in zip(step["from"], step["sources"])]
            if step["exchange"] == "all_reduce":
                moved = parts[0].copy()
                for part in parts[1:]:
                    moved += part
            elif step["exchange"] == "all_gather":
                moved = np.concatenate(parts, axis=-1)
            else:
                moved = parts[0]
            for d in step["to"]:
                values[d][step["result"]] = moved
        output = self.description["output"]
        return values[output["device"]][output["name"]]

    def run(self, step: dict, values: dict[str, np.ndarray]) -> None:
        session, past = self.sessions[step["run"]], self.past[step["device"]]
        names = [output.name for output in session.get_outputs()]
        feeds = {i.name: past[i.name] if i.name in past else values[i.name] for i in session.get_inputs()}
        for name, value in zip(names, session.run(names, feeds)):
            values[name] = value
            if name.startswith("present."):
                past[name.replace("present.", "past_key_values.")] = value


def generate(pipeline: Pipeline, prompts: list[list[int]], count: int) -> tuple[list[list[int]], list[np.ndarray]]:
    """Greedy tokens of each prompt, and each sequence's rows of logits."""
    batch, longest = len(prompts), max(map(len, prompts))
    ids = np.zeros([batch, longest], np.int64)
    mask = np.zeros([batch, longest], np.int64)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt):] = prompt
        mask[row, longest - len(prompt):] = 1
    pipeline.reset(batch)
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0)
    logits = pipeline.forward(ids, mask, positions)
    rows = [[logits[b, longest - len(prompt):]] for b, prompt in enumerate(prompts)]
    tokens = [logits[:, -1].argmax(axis=-1)]
    while len(tokens) < count:
        mask = np.concatenate([mask, np.ones([batch, 1], np.int64)], axis=1)
        logits = pipeline.forward(tokens[-1][:, None].astype(np.int64), mask, mask.sum(axis=1, keepdims=True) - 1)
        for b in range(batch):
            rows[b].append(logits[b])
        tokens.append(logits[:, -1].argmax(axis=-1))
    new = np.stack(tokens, axis=1)[:, :count].tolist()
    return new, [np.concatenate(r) for r in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input-ids", action="append", required=True, help="token ids, joined by commas")
    parser.add_argument("--max-new-tokens", type=int, default=16)
    parser.add_argument("--dump-logits", help="file for the logits")
    parser.add_argument("--provider", default="CPUExecutionProvider")
    arguments = parser.parse_args()
    pipeline = Pipeline(arguments.provider)
    prompts = [[int(i) for i in ids.split(",")] for ids in arguments.input_ids]
    limit = pipeline.description["context"]
    if max(map(len, prompts)) + arguments.max_new_tokens > limit:
        raise SystemExit(f"prompt and new tokens exceed the context of {limit} that was exported: "
                         "export with a larger --context")
    tokens, logits = generate(pipeline, prompts, arguments.max_new_tokens)
    if arguments.dump_logits:
        np.concatenate(logits).astype("<f4").tofile(arguments.dump_logits)
    print(json.dumps({"token_ids": tokens[0]} if len(tokens) == 1 else
                     {"sequences": [{"token_ids": t} for t in tokens]}))


if __name__ == "__main__":
    main()
