# SPDX-License-Identifier: Apache-2.0
"""Runs one rank of this folder's models; all ranks run at once: mpirun -n N python3 run_rank.py --input-ids 1,2,3. Needs
numpy and an onnxruntime built with NCCL and MPI (--use_cuda --enable_nccl --use_mpi), which has com.microsoft's collectives.

usage: run_rank.py --input-ids 1,2,3 [--max-new-tokens N] [--dump-logits FILE]

Rank 0 prints {"token_ids": [...]}. FILE gets its logits, little-endian float32 rows of the vocabulary: one for each prompt
token, then one for each new token but the last. Every rank gathers the logits, and so chooses the same tokens.
"""

import argparse
import json
import os
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent


def open_session(model: pathlib.Path, device: int):
    import onnxruntime

    return onnxruntime.InferenceSession(model, providers=[("CUDAExecutionProvider", {"device_id": device})])


class Rank:
    """One rank's model; keys and values stay from call to call."""

    def __init__(self, rank: int, opened=open_session) -> None:
        self.description = json.loads((FOLDER / "ranks.json").read_text())
        here = self.description["ranks"][rank]
        self.session = opened(FOLDER / here["model"], here["device"])
        self.outputs = [output.name for output in self.session.get_outputs()]
        self.past = {i.name: np.zeros([1, i.shape[1], 0, i.shape[3]], np.float16 if "float16" in i.type else np.float32)
                     for i in self.session.get_inputs() if i.name.startswith("past_key_values.")}

    def forward(self, ids: list[int], start: int) -> np.ndarray:
        """Logits [len(ids), vocabulary] of tokens at positions start, start + 1, ..."""
        given = {"input_ids": np.array([ids], np.int64), "attention_mask": np.ones([1, start + len(ids)], np.int64),
                 "position_ids": np.arange(start, start + len(ids), dtype=np.int64)[None], **self.past}
        feeds = {i.name: given[i.name] for i in self.session.get_inputs()}
        made = dict(zip(self.outputs, self.session.run(self.outputs, feeds)))
        self.past = {name: made[name.replace("past_key_values.", "present.")] for name in self.past}
        return made[self.description["output"]][0]

    def generate(self, prompt: list[int], count: int) -> tuple[list[int], np.ndarray]:
        rows = [self.forward(prompt, 0)]
        tokens = [int(rows[0][-1].argmax())]
        while len(tokens) < count:
            rows.append(self.forward(tokens[-1:], len(prompt) + len(tokens) - 1))
            tokens.append(int(rows[-1][-1].argmax()))
        return tokens, np.concatenate(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input-ids", required=True, help="token ids, joined by commas")
    parser.add_argument("--max-new-tokens", type=int, default=16)
    parser.add_argument("--dump-logits", help="file for the logits")
    arguments = parser.parse_args()
    rank = next((int(os.environ[name]) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ), None)
    if rank is None:
        raise SystemExit("this is one rank of several: start all with mpirun, as manifest.json does")
    model = Rank(rank)
    prompt = [int(i) for i in arguments.input_ids.split(",")]
    limit = model.description["context"]
    if len(prompt) + arguments.max_new_tokens > limit:
        raise SystemExit(f"prompt and new tokens exceed the context of {limit} that was exported: "
                         "export with a larger --context")
    tokens, logits = model.generate(prompt, arguments.max_new_tokens)
    if rank > 0:
        return
    if arguments.dump_logits:
        logits.astype("<f4").tofile(arguments.dump_logits)
    print(json.dumps({"token_ids": tokens}))


if __name__ == "__main__":
    main()
