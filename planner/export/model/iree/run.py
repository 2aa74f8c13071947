# SPDX-License-Identifier: Apache-2.0
"""Runs the compiled module of this folder: greedy tokens after a prompt. Needs numpy and iree-base-runtime, and model.vmfb,
which the first command of manifest.json makes.

usage: run.py --input-ids 1,2,3 [--max-new-tokens N] [--dump-logits FILE]

Prints {"token_ids": [...]}. FILE gets little-endian float32 rows of the vocabulary: one for each prompt token, then one
for each new token but the last. --input-ids may be repeated up to the exported batch: {"sequences": [{"token_ids"}, ...]}.
"""

import argparse
import json
import pathlib

import iree.runtime
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent


class Module:
    """The module on its devices; keys and values stay in it from call to call."""

    def __init__(self) -> None:
        self.description = json.loads((FOLDER / "module.json").read_text())
        # Uncached: each entry is a device of its own, also where their names are equal.
        self.devices = [iree.runtime.get_device(uri, cache=False) for uri in self.description["devices"]]
        config = iree.runtime.Config(device=self.devices[0])
        instance = config.vm_instance
        config.default_vm_modules = (iree.runtime.create_hal_module(instance, devices=self.devices),)
        providers = []
        for scope, name in self.description["parameters"].items():
            index = iree.runtime.ParameterIndex()
            index.load(str(FOLDER / name))
            providers.append(index.create_provider(scope=scope))
        context = iree.runtime.SystemContext(
            vm_modules=[
                iree.runtime.create_io_parameters_module(instance, *providers),
                iree.runtime.VmModule.mmap(instance, str(FOLDER / "model.vmfb")),
            ],
            config=config,
        )
        self.function = context.modules.cleave["forward"]

    def forward(self, ids: list[int], past: int, sequence: int) -> np.ndarray:
        """Logits [len(ids), vocabulary] of a sequence's tokens at positions past, past + 1, ..."""
        array = np.array(ids, np.int32)
        copies = [iree.runtime.asdevicearray(self.devices[d], array) for d in self.description["ids"]]
        which = [sequence] if self.description["batch"] > 1 else []
        return self.function(*copies, past, *which).to_host()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input-ids", action="append", required=True, help="token ids, joined by commas")
    parser.add_argument("--max-new-tokens", type=int, default=16)
    parser.add_argument("--dump-logits", help="file for the logits")
    arguments = parser.parse_args()
    prompts = [[int(i) for i in ids.split(",")] for ids in arguments.input_ids]
    module = Module()
    batch = module.description["batch"]
    if len(prompts) > batch:
        raise SystemExit(f"{len(prompts)} prompts for a batch of {batch} that was exported: export with a larger --batch")
    limit = module.description["context"]
    if max(map(len, prompts)) + arguments.max_new_tokens > limit:
        raise SystemExit(f"prompt and new tokens exceed the context of {limit} that was exported: "
                         "export with a larger --context")
    rows = [[module.forward(prompt, 0, s)] for s, prompt in enumerate(prompts)]
    tokens = [[int(r[0][-1].argmax())] for r in rows]
    while len(tokens[0]) < arguments.max_new_tokens:
        for s, prompt in enumerate(prompts):  # in turns: each sequence has its own state
            rows[s].append(module.forward(tokens[s][-1:], len(prompt) + len(tokens[s]) - 1, s))
            tokens[s].append(int(rows[s][-1][-1].argmax()))
    if arguments.dump_logits:
        np.concatenate([part for r in rows for part in r]).astype("<f4").tofile(arguments.dump_logits)
    print(json.dumps({"token_ids": tokens[0]} if len(tokens) == 1 else
                     {"sequences": [{"token_ids": t} for t in tokens]}))


if __name__ == "__main__":
    main()
