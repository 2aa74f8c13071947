# SPDX-License-Identifier: Apache-2.0
"""Runs a folder with a genai_config.json in onnxruntime-genai: prints the greedy tokens after a prompt, joined by commas.

usage: genai_tokens.py FOLDER IDS NEW_TOKENS
"""

import sys

import numpy as np
import onnxruntime_genai


def main() -> None:
    folder, ids, count = sys.argv[1:4]
    prompt = [int(i) for i in ids.split(",")]
    parameters = onnxruntime_genai.GeneratorParams(model := onnxruntime_genai.Model(folder))
    parameters.set_search_options(max_length=len(prompt) + int(count), do_sample=False)
    generator = onnxruntime_genai.Generator(model, parameters)
    generator.append_tokens(np.array([prompt], np.int32))
    for _ in range(int(count)):
        generator.generate_next_token()
    print(",".join(str(t) for t in generator.get_sequence(0)[len(prompt):]))


if __name__ == "__main__":
    main()
