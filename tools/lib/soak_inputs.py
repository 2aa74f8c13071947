# SPDX-License-Identifier: Apache-2.0
"""Random models and machines for soak_commands.py, each from the generator that is given."""

import array
import json
import struct


def write_model(random, folder):
    """A small Llama of random sizes and weights, as transformers would save it."""
    heads = random.choice([1, 2, 3, 4, 6, 8])
    kv_heads = random.choice([n for n in range(1, heads + 1) if heads % n == 0])
    head_dim, hidden = random.choice([8, 16, 32]), random.choice([16, 24, 48, 64])
    inner, layers, vocab = random.choice([24, 40, 96]), random.randint(1, 4), random.choice([64, 100])
    tied = random.random() < 0.3
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
              "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
              "vocab_size": vocab, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": tied}
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    if not tied:
        shapes["lm_head.weight"] = vocab, hidden
    for i in range(layers):
        layer = f"model.layers.{i}."
        shapes |= {layer + "input_layernorm.weight": (hidden,),
                   layer + "post_attention_layernorm.weight": (hidden,),
                   layer + "self_attn.q_proj.weight": (heads * head_dim, hidden),
                   layer + "self_attn.k_proj.weight": (kv_heads * head_dim, hidden),
                   layer + "self_attn.v_proj.weight": (kv_heads * head_dim, hidden),
                   layer + "self_attn.o_proj.weight": (hidden, heads * head_dim),
                   layer + "mlp.gate_proj.weight": (inner, hidden),
                   layer + "mlp.up_proj.weight": (inner, hidden),
                   layer + "mlp.down_proj.weight": (hidden, inner)}
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = array.array("f", (random.gauss(len(shape) == 1, 0.2) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_machine(random, path):
    """One to six simulated cards, not alike, with links that are not alike."""
    def card(i):
        flops = random.uniform(5e12, 1e14)
        return {"name": f"card{i}", "kind": "sim", "arch": random.choice(["sm_80", "sm_90a", "gfx942"]),
                "memory_bytes": random.randint(4 << 30, 200 << 30),
                "memory_bandwidth": random.uniform(2e11, 8e12), "flops_f32": flops,
                "flops_f16": flops * random.uniform(1, 16), "launch_overhead_ns": random.randint(0, 9000)}
    cards = [card(i) for i in range(random.randint(1, 6))]
    links = [{"from": a["name"], "to": b["name"], "kind": random.choice(["nvlink", "pcie", "network"]),
              "bandwidth": random.uniform(1e9, 9e11), "latency_ns": random.randint(500, 60_000)}
             for a in cards for b in cards if a is not b]
    path.write_text(json.dumps({"devices": cards, "links": links}))
