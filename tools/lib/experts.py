# SPDX-License-Identifier: Apache-2.0
"""experts.py CLEAVE AICONFIGURATOR [--only TEXT]: shapes for many users, beside NVIDIA's AIConfigurator.

In: 24 questions (two models, eight cards of three kinds, four pairs of lengths). AIConfigurator
answers from tables of kernels measured with vLLM: its first three shapes, each with the users that
it thinks best. Out: what `cleave plan` predicts for those shapes and users, beside it; what Cleave
itself would take; how many questions have the same order and figures within 20 %. Neither ran.
"""
import argparse
import csv
import glob
import json
import os
import subprocess
import tempfile

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
         "vocab_size": 128256, "num_key_value_heads": 8, "max_position_embeddings": 131072,
         "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "torch_dtype": "bfloat16"}
MODELS = {
    "llama-3.1-8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                     "num_hidden_layers": 32},
    "llama-3.1-70b": {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
                      "num_hidden_layers": 80},
}
CARDS = {"h100_sxm": "h100", "h200_sxm": "h200", "a100_sxm": "a100-80"}
LENGTHS = [(512, 3584), (512, 1024), (2048, 512), (4096, 256)]  # of prompts, of outputs
NUM_CARDS = 8
# As vLLM runs: its activations, its passes, members of a sum that come late.
AS_VLLM = ["--activation-dtype", "bf16", "--prefill-chunk", "8192", "--sum-skew", "2"]
TIE = 1.03  # figures so close have no order


def asked(program, model, card, prompt, output):
    """The expert's first three: (tp, pp, replicas, users, tokens/s), the best first."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, model)
        os.mkdir(path)
        with open(os.path.join(path, "config.json"), "w") as file:
            json.dump(LLAMA | MODELS[model], file)
        ran = subprocess.run(
            [program, "cli", "default", "--no-color", "--model-path", path, "--total-gpus", str(NUM_CARDS),
             "--system", card, "--backend", "vllm", "--serving-mode", "agg", "--isl", str(prompt),
             "--osl", str(output), "--ttft", "1000000", "--tpot", "100000", "--save-dir", folder],
            capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        found = glob.glob(os.path.join(folder, "*", "agg", "best_config_topn.csv"))
        if not found:
            raise SystemExit(f"AIConfigurator has no answer for {model} on {card}:\n{ran.stderr[-2000:]}")
        with open(found[0]) as file:
            rows = list(csv.DictReader(file))
    answers = []
    for row in rows[:3]:
        tp, pp = int(row["tp"]), int(row["pp"])
        replicas = NUM_CARDS // (tp * pp)
        answers.append((tp, pp, replicas, int(row["concurrency"]) * replicas,
                        float(row["tokens/s/gpu_cluster"]) * NUM_CARDS))
    return answers


def planned(cleave, model, card, prompt, output, more):
    """The plan's JSON, or what refuses it."""
    ran = subprocess.run(
        [cleave, "plan", model, "--devices", f"sim:{CARDS[card]}[0-{NUM_CARDS - 1}]", "--objective",
         "throughput", "--prompt-tokens", str(prompt), "--context", str(prompt + output), *AS_VLLM, "--json",
         *more], capture_output=True, text=True)
    return json.loads(ran.stdout) if ran.returncode == 0 else ran.stderr.strip()


def shape(tp, pp, replicas):
    return f"{replicas} x tp {tp}" + (f" pp {pp}" if pp > 1 else "")


def compare(flags, model, card, prompt, output):
    """Prints a question; whether the order holds, and whether all figures are within 20 %."""
    print(f"{model}, {NUM_CARDS} {CARDS[card]}, {prompt} in, {output} out")
    theirs, ours = [], []
    for tp, pp, replicas, users, speed in asked(flags.aiconfigurator, model, card, prompt, output):
        plan = planned(flags.cleave, model, card, prompt, output,
                       ["--tp", str(tp), "--pp", str(pp), "--replicas", str(replicas), "--concurrency", str(users)])
        theirs.append(speed)
        ours.append(0 if isinstance(plan, str) else plan["predicted"]["tokens_per_second"])
        said = plan.splitlines()[0][:90] if isinstance(plan, str) else f"{ours[-1]:9,.0f}  {ours[-1] / speed:.2f}"
        print(f"  {shape(tp, pp, replicas):14}{users:6} users {speed:9,.0f} {said}")
    own = planned(flags.cleave, model, card, prompt, output, [])
    if isinstance(own, str):
        print(f"  Cleave's own: {own.splitlines()[0]}")
    else:
        p = own["predicted"]
        taken = shape(len(own["stages"][0]["devices"]), len(own["stages"]), p["replicas"])
        print(f"  {taken:14}{p['concurrency']:6} users           {p['tokens_per_second']:9,.0f}  Cleave's own choice")
    pairs = [(i, j) for i in range(len(theirs)) for j in range(i + 1, len(theirs))]
    ordered = all(ours[i] > ours[j] or theirs[i] < TIE * theirs[j] for i, j in pairs)
    close = all(0.8 <= o / t <= 1.25 for o, t in zip(ours, theirs))
    return ordered, close


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cleave")
    parser.add_argument("aiconfigurator")
    parser.add_argument("--only", default="", help="questions whose name has this text")
    flags = parser.parse_args()
    results = []
    print("                              AIConfigurator    Cleave  ratio, in tokens/s")
    for model in MODELS:
        for card in CARDS:
            for prompt, output in LENGTHS:
                if flags.only in f"{model} {CARDS[card]} {prompt} {output}":
                    results.append(compare(flags, model, card, prompt, output))
    both = sum(ordered and close for ordered, close in results)
    print(f"of {len(results)} questions: {sum(o for o, _ in results)} in the same order (but for ties of 3 %), "
          f"{sum(c for _, c in results)} with all figures within 20 %, {both} both")


main()
