# SPDX-License-Identifier: Apache-2.0
"""Gives what `cleave export` wrote for a tool to that tool itself, and prints what the tool makes of it as JSON.

usage: other_tools.py accelerate FOLDER CONFIG.json
       other_tools.py vllm FOLDER CONFIG.json
       other_tools.py llama.cpp FOLDER MODEL.onnx IDS NEW_TOKENS

accelerate: the model of CONFIG.json with tensors that have no bytes, checked and dispatched by accelerate: {parameter:
device}. vllm: {"layers": [[first, end) of each pipeline rank], "vocabulary": its padded size, "visible", "arguments"}, by
vLLM's get_pp_indices and pad_vocab_size. llama.cpp: the folder $CLEAVE_LLAMA_CPP has llama-server and ggml-rpc-server, and
a CPU behind each of these stands for a GPU: {"layers": the device of each layer and of the output, "overridden": {tensor:
device}, "tokens"}.
"""

import ast
import builtins
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request


def in_place_of(tool: str, program: str, folder: pathlib.Path, arguments: list[str], **more):
    """Runs serve.sh with a program of ours in place of `tool`; what that prints."""
    with tempfile.TemporaryDirectory() as shims:
        shim = pathlib.Path(shims) / tool
        shim.write_text(f"#!{sys.executable}\n{program}")
        shim.chmod(0o755)
        environment = {**os.environ, "PATH": f"{shims}:{os.environ['PATH']}", **more}
        done = subprocess.run(["sh", str(folder / "serve.sh"), *arguments], env=environment, check=True, capture_output=True)
        return json.loads(done.stdout)


def accelerate_devices(folder: pathlib.Path, config: str) -> None:
    import accelerate
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from transformers import AutoConfig, AutoModelForCausalLM

    modeling = accelerate.utils.modeling
    # accelerate makes parameters anew by their type, and tells tied ones by their address; without
    # bytes neither says much.
    FakeTensor.data_ptr = lambda tensor: id(tensor)
    modeling.type = lambda x: torch.nn.Parameter if isinstance(x, FakeTensor) else builtins.type(x)
    device_map = json.loads((folder / "device_map.json").read_text())
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config, tie_word_embeddings=False))
        modeling.check_device_map(model, device_map)
        model = accelerate.dispatch_model(model, device_map, force_hooks=True)
        print(json.dumps({name: str(p.device) for name, p in model.named_parameters()}))


def vllm_ranks(folder: pathlib.Path, config: str) -> None:
    print_environment = "import json, os, sys; print(json.dumps({'argv': sys.argv[1:], **os.environ}))"
    seen = in_place_of("vllm", print_environment, folder, ["MODEL"])
    os.environ["VLLM_PP_LAYER_PARTITION"] = seen["VLLM_PP_LAYER_PARTITION"]
    arguments = seen["argv"]
    from vllm.distributed import utils

    stages = int(arguments[arguments.index("--pipeline-parallel-size") + 1])
    shape = json.loads(pathlib.Path(config).read_text())
    # The embedding's module imports kernels; its rule stands alone.
    layers = pathlib.Path(utils.__file__).parents[1] / "model_executor" / "layers"
    source = ast.parse((layers / "vocab_parallel_embedding.py").read_text())
    rule = [n for n in source.body if getattr(n, "name", "") == "pad_vocab_size" or
            isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "DEFAULT_VOCAB_PADDING_SIZE"]
    names: dict = {}
    exec(compile(ast.Module(rule, []), "vocab_parallel_embedding.py", "exec"), names)
    print(json.dumps({
        "layers": [utils.get_pp_indices(shape["num_hidden_layers"], rank, stages) for rank in range(stages)],
        "vocabulary": names["pad_vocab_size"](shape["vocab_size"]),
        "visible": seen["CUDA_VISIBLE_DEVICES"],
        "arguments": arguments,
    }))


def write_gguf(model: str, out: str) -> None:
    """The bundled model as llama.cpp reads it: rotary pairs side by side, every matrix [out, in]."""
    import gguf
    import onnx
    from onnx import numpy_helper

    config = json.loads((pathlib.Path(model).parent / "config.json").read_text())
    graph = onnx.load(model).graph
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    # Prompts and answers are numbers: the words are never seen.
    writer.add_tokenizer_model("llama")
    pieces = [f"<0x{b:02X}>" for b in range(256)]
    pieces = ["<s>", "</s>", *pieces, *(f"t{i}" for i in range(config["vocab_size"] - 258))]
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * len(pieces))
    writer.add_token_types([3, 3] + [6] * 256 + [1] * (len(pieces) - 258))
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])

    def side_by_side(weight, heads):
        return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)

    kinds = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
             "up_proj": "ffn_up", "down_proj": "ffn_down"}
    for node in graph.node:
        at = re.search(r"layers\.(\d+)/\w+/(\w+_proj)/MatMul", node.name)
        if at:
            weight = stored[node.input[1]].T.copy()
            if at[2] in ("q_proj", "k_proj"):
                weight = side_by_side(weight, heads if at[2] == "q_proj" else kv_heads)
            writer.add_tensor(f"blk.{at[1]}.{kinds[at[2]]}.weight", weight)
    for name, value in stored.items():
        if at := re.search(r"layers\.(\d+)\.(\w+)_layernorm\.weight", name):
            writer.add_tensor(f"blk.{at[1]}.{'attn' if at[2] == 'input' else 'ffn'}_norm.weight", value)
        elif name.endswith("embed_tokens.weight"):
            writer.add_tensor("token_embd.weight", value)
            writer.add_tensor("output.weight", value)
        elif name.endswith("model.norm.weight"):
            writer.add_tensor("output_norm.weight", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answer(port: int, ids: str, count: str, server: subprocess.Popen) -> list[int]:
    body = {"prompt": [int(i) for i in ids.split(",")], "n_predict": int(count), "temperature": 0, "ignore_eos": True,
            "return_tokens": True, "cache_prompt": False}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    for _ in range(300):
        try:
            return json.load(urllib.request.urlopen(request, timeout=60))["tokens"]
        except (urllib.error.URLError, ConnectionError):  # it is still loading the model
            if server.poll() is not None:
                break
            time.sleep(0.2)
    raise SystemExit("llama-server gave no answer")


def llama_cpp_placement(folder: pathlib.Path, model: str, ids: str, count: str) -> None:
    tools = pathlib.Path(os.environ["CLEAVE_LLAMA_CPP"])
    words = (folder / "serve.sh").read_text()
    gpus = sorted(set(re.findall(r"CUDA\d+", words)))
    ends = {gpu: f"127.0.0.1:{free_port()}" for gpu in gpus}
    names = {gpu: f"RPC{i}" for i, gpu in enumerate(gpus)}
    workers = []
    try:
        for end in ends.values():
            workers.append(subprocess.Popen([tools / "ggml-rpc-server", "-H", "127.0.0.1", "-p", end.split(":")[1]],
                                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(1)
        # A device's name is RPCn, that of its memory RPC0[its server].
        argv = in_place_of("llama-server", "import json, sys; print(json.dumps(sys.argv[1:]))", folder, ["model.gguf"])
        for i, word in enumerate(argv):
            for gpu in gpus:
                argv[i] = argv[i].replace(f"={gpu}", f"=RPC0[{ends[gpu]}]") if argv[i - 1] == "-ot" else argv[i].replace(gpu, names[gpu])
        write_gguf(model, str(folder / "model.gguf"))
        port = free_port()
        with open(folder / "log", "w+") as log:
            server = subprocess.Popen([tools / "llama-server", "--rpc", ",".join(ends.values()), *argv, "--host", "127.0.0.1",
                                       "--port", str(port), "-lv", "5", "--no-warmup"], cwd=folder, stdout=log, stderr=log)
            workers.append(server)
            tokens = answer(port, ids, count, server)
            log.seek(0)
            said = log.read()
    finally:
        for worker in workers:
            worker.terminate()
    called = {name: gpu for gpu, name in names.items()}
    called.update({f"RPC0[{end}]": gpu for gpu, end in ends.items()})
    layers = dict(re.findall(r"layer +(\d+) assigned to device (\S+),", said))
    moved = re.findall(r"tensor (\S+) .*buffer type overridden to (\S+)", said)
    print(json.dumps({
        "layers": [called.get(layers[str(i)], layers[str(i)]) for i in range(len(layers))],
        "overridden": {tensor: called.get(device, device) for tensor, device in moved},
        "tokens": tokens,
    }))


if __name__ == "__main__":
    actions = {"accelerate": accelerate_devices, "vllm": vllm_ranks, "llama.cpp": llama_cpp_placement}
    actions[sys.argv[1]](pathlib.Path(sys.argv[2]), *sys.argv[3:])
