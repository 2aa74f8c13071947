# SPDX-License-Identifier: Apache-2.0
"""onnxruntime-genai beside Cleave: `tools/bench cpu --peers` runs it.

  python3 ort_peer.py make CLEAVE SHAPE FOLDER TYPE
  python3 ort_peer.py run FOLDER TYPE THREADS PROMPT DEPTH NEW_TOKENS

make writes FOLDER/TYPE: SHAPE with random weights in the operators of onnxruntime-genai's own builder
(GroupQueryAttention, SkipSimplifiedLayerNormalization); f32, or int8 and int4 as MatMulNBits with blocks of
32 and accuracy level 4, which rounds activations to int8, as that builder does. run prints tokens/s of a
prompt, and of new tokens behind DEPTH others, as JSON.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path


def write_config(folder, model):
    past, present = "past_key_values.%d.{}", "present.%d.{}"
    heads = model["num_attention_heads"]
    config = {
        "model": {
            "type": "llama",
            "vocab_size": model["vocab_size"],
            "context_length": model["max_position_embeddings"],
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "decoder": {
                "filename": "model.onnx",
                "head_size": model.get("head_dim", model["hidden_size"] // heads),
                "hidden_size": model["hidden_size"],
                "num_attention_heads": heads,
                "num_hidden_layers": model["num_hidden_layers"],
                "num_key_value_heads": model["num_key_value_heads"],
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": past.format("key"),
                    "past_value_names": past.format("value"),
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": present.format("key"),
                    "present_value_names": present.format("value"),
                },
            },
        },
        "search": {"max_length": model["max_position_embeddings"], "past_present_share_buffer": True},
    }
    (folder / "genai_config.json").write_text(json.dumps(config, indent=1))


def quantize(source, target, bits):
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4, bits=bits)
    quantizer = MatMulNBitsQuantizer(onnx.load(source / "model.onnx"), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target / "model.onnx"), use_external_data_format=True)


def make(cleave, shape, folder, kind):
    target = Path(folder) / kind
    original = target if kind == "f32" else Path(folder) / "original"
    original.mkdir(parents=True)
    subprocess.run([cleave, "model", shape, "--form", "gqa", "-o", original], check=True, stdout=subprocess.DEVNULL)
    if kind != "f32":
        target.mkdir()
        quantize(original, target, {"int8": 8, "int4": 4}[kind])
    write_config(target, json.loads((original / "config.json").read_text()))
    if kind != "f32":
        shutil.rmtree(original)


def run(folder, kind, threads, prompt, depth, new_tokens):
    import numpy
    import onnxruntime_genai

    config = onnxruntime_genai.Config(str(Path(folder) / kind))
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
    model = onnxruntime_genai.Model(config)

    def timed(tokens, more):
        """Seconds of reading so many tokens, and of making so many more."""
        params = onnxruntime_genai.GeneratorParams(model)
        # A new token may be the one that ends a text: at least so many, then.
        length = tokens + more + 1
        params.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator = onnxruntime_genai.Generator(model, params)
        ids = (numpy.arange(tokens, dtype=numpy.int32) * 37 + 11) % 1000 + 3
        began = time.perf_counter()
        generator.append_tokens(ids.reshape(1, -1))
        generator.generate_next_token()
        read = time.perf_counter()
        for _ in range(more):
            generator.generate_next_token()
        return read - began, time.perf_counter() - read

    timed(8, 2)
    print(json.dumps({"prefill": prompt / timed(prompt, 0)[0], "decode": new_tokens / timed(depth, new_tokens)[1]}))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(*sys.argv[2:])
    else:
        run(*sys.argv[2:4], *map(int, sys.argv[4:]))
