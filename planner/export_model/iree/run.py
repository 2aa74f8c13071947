# SPDX-License-Identifier: Apache-2.0
"""Runs the compiled module of this folder: greedy tokens after a prompt. Needs numpy and iree-base-runtime, and model.vmfb,
which the first command of manifest.json makes.

usage: run.py --input-ids 1,2,3 [--max-new-tokens N] [--dump-logits FILE]

Prints {"token_ids": [...]}. FILE gets little-endian float32 rows of the vocabulary: one for each prompt token, then one
for each new token but the last.
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

    def forward(self, ids: list[int], past: int) -> np.ndarray:
        """Logits [len(ids), vocabulary] of tokens at positions past, past + 1, ..."""
        array = np.array(ids, np.int32)
        copies = [iree.runtime.asdevicearray(self.devices[d], array) for d in self.description["ids"]]
        return self.function(*copies, past).to_host()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input-ids", required=True, help="token ids, joined by commas")
    parser.add_argument("--max-new-tokens", type=int, default=16)
    parser.add_argument("--dump-logits", help="file for the logits")
    arguments = parser.parse_args()
    prompt = [int(i) for i in arguments.input_ids.split(",")]
    module = Module()
    limit = module.description["context"]
    if len(prompt) + arguments.max_new_tokens > limit:
        raise SystemExit(f"prompt and new tokens exceed the context of {limit} that was exported: "
                         "export with a larger --context")
    rows = [module.forward(prompt, 0)]
    tokens = [int(rows[0][-1].argmax())]
    while len(tokens) < arguments.max_new_tokens:
        rows.append(module.forward(tokens[-1:], len(prompt) + len(tokens) - 1))
        tokens.append(int(rows[-1][-1].argmax()))
    if arguments.dump_logits:
        np.concatenate(rows).astype("<f4").tofile(arguments.dump_logits)
    print(json.dumps({"token_ids": tokens}))


if __name__ == "__main__":
    main()
