# SPDX-License-Identifier: Apache-2.0
"""How each file of this folder is exported: one Recipe a file, in the Python environment that it names."""

import dataclasses
import importlib.metadata
import os
import pathlib
import runpy
import sys

import derived
import models
import onnx
import torch
import transformers


@dataclasses.dataclass
class Recipe:
    file: str
    environment: str
    model: str
    exporter: str
    options: dict = dataclasses.field(default_factory=dict)
    tolerance: float = 1e-4
    own_reference: bool = False  # quantised: judged by ONNX Runtime on the file itself
    windows: list | None = None  # where the file says others than the configuration
    opaque: bool = False  # no language model: imported for planning alone
    refused: str = ""  # a part of the error that importing it gives
    stopped: str = ""  # opaque: a part of the reason, which its node carries

    def export(self, scratch: pathlib.Path) -> onnx.ModelProto:
        return EXPORTERS[self.exporter](self, scratch)

    def tool(self) -> str:
        if self.exporter == "genai":
            version = f"onnxruntime-genai {self.environment.split('-')[1]}"
        elif self.exporter == "optimum":
            version = " ".join(f"{p} {_version(p)}" for p in ("optimum", "optimum-onnx") if _version(p))
        elif self.exporter == "derived":
            packages = dict(onnxsim="onnxsim", onnxslim="onnxslim", onnxscript="onnxscript", script_opset="onnxscript")
            package = packages.get(self.options["by"], "onnx" if self.options["by"] == "opset" else "onnxruntime")
            return f"{package} {_version(package)}, of {self.options['file']}"
        else:
            version = f"torch {_version('torch')} {self.exporter}"
        return f"{version}, transformers {_version('transformers')}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


class Flat(torch.nn.Module):
    """A model whose cache is a list of tensors: keys and values of each layer in turn."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, position_ids, past):
        cache = None
        if past is not None:
            cache = transformers.DynamicCache()
            for i in range(len(past) // 2):
                cache.update(past[2 * i], past[2 * i + 1], i)
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=cache is not None,
            return_dict=True,
        )
        if cache is None:
            return (out.logits,)
        cache = out.past_key_values
        if isinstance(cache, tuple):  # transformers before 4.42
            return (out.logits, *[tensor for layer in cache for tensor in layer])
        flat = []
        for i in range(len(past) // 2):
            layer = cache.layers[i] if hasattr(cache, "layers") else None
            flat += [layer.keys, layer.values] if layer else [cache.key_cache[i], cache.value_cache[i]]
        return (out.logits, *flat)


def _flat(recipe: Recipe):
    """The model, example inputs, and names and dynamic axes of all of them."""
    options = recipe.options
    model = models.make(recipe.model, options.get("attention", "eager"))
    c = model.config
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    layers = c.num_hidden_layers if options.get("past", True) else 0
    names = ["input_ids"] + options.get("inputs", ["attention_mask", "position_ids"])
    batch, tokens, length = 2, 3, 5 if layers else 0
    if "fixed" in options:
        batch, tokens = 1, options["fixed"]
    ids = torch.randint(0, 64, (batch, tokens))
    values = {
        "input_ids": ids,
        "attention_mask": torch.ones(batch, length + tokens, dtype=torch.int64),
        "position_ids": torch.arange(length, length + tokens)[None].repeat(batch, 1),
    }
    axes = {
        "input_ids": {0: "batch", 1: "tokens"},
        "attention_mask": {0: "batch", 1: "all_tokens"},
        "position_ids": {0: "batch", 1: "tokens"},
    }
    args = [values[n] if n in names else None for n in ("input_ids", "attention_mask", "position_ids")]
    past, caches = [], []
    for i in range(layers):
        for kind in ("key", "value"):
            name = f"past_key_values.{i}.{kind}"
            past.append(name)
            axes[name] = {0: "batch", 2: "past_tokens"}
            caches.append(torch.randn(batch, c.num_key_value_heads, length, head_dim))
    outputs = ["logits"] + [p.replace("past_key_values", "present") for p in past]
    return Flat(model).eval(), (*args, caches or None), names + past, outputs, axes


def torchscript(recipe: Recipe, scratch: pathlib.Path) -> onnx.ModelProto:
    model, args, inputs, outputs, axes = _flat(recipe)
    out_axes = {o: {0: "batch", 1: "tokens"} if o == "logits" else {0: "batch", 2: "all_tokens"} for o in outputs}
    newer = {"dynamo": False} if "dynamo" in torch.onnx.export.__code__.co_varnames else {}
    with torch.no_grad():
        torch.onnx.export(
            model,
            args,
            str(scratch / "model.onnx"),
            opset_version=recipe.options["opset"],
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={**{i: axes[i] for i in inputs}, **out_axes},
            do_constant_folding=recipe.options.get("fold", True),
            **newer,
        )
    return onnx.load(str(scratch / "model.onnx"))


def dynamo(recipe: Recipe, scratch: pathlib.Path) -> onnx.ModelProto:
    model, args, inputs, outputs, axes = _flat(recipe)
    if recipe.options.get("symbols") == "named":
        dims = {n: torch.export.Dim(n, min=2, max=99) for n in ("batch", "tokens", "past_tokens", "all_tokens")}
        shapes = {i: {d: dims[s] for d, s in axes[i].items()} for i in inputs}
    else:
        shapes = {i: {d: torch.export.Dim.DYNAMIC for d in axes[i]} for i in inputs}
    if "fixed" in recipe.options:
        shapes = {}
    flat = [shapes.get(n) for n in ("input_ids", "attention_mask", "position_ids")]
    flat.append([shapes.get(i) for i in inputs if i.startswith("past")] or None)
    with torch.no_grad():
        program = torch.onnx.export(
            model,
            args,
            None,
            opset_version=recipe.options["opset"],
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=tuple(flat),
            dynamo=True,
            optimize=recipe.options.get("optimize", True),
            verbose=False,
        )
    program.save(str(scratch / "model.onnx"))
    return onnx.load(str(scratch / "model.onnx"))


def _folder(recipe: Recipe, scratch: pathlib.Path) -> pathlib.Path:
    """The model as a Hugging Face folder, with a tokenizer that nobody uses."""
    import tokenizers

    folder = scratch / "hf"
    models.make(recipe.model).save_pretrained(str(folder))
    vocabulary = {f"t{i}": i for i in range(64)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="t0"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t0").save_pretrained(str(folder))
    return folder


def optimum(recipe: Recipe, scratch: pathlib.Path) -> onnx.ModelProto:
    from optimum.exporters.onnx import main_export

    options = dict(recipe.options)
    file = options.pop("file", "model.onnx")
    main_export(str(_folder(recipe, scratch)), output=str(scratch / "out"), do_validation=False, **options)
    return onnx.load(str(scratch / "out" / file))


def genai(recipe: Recipe, scratch: pathlib.Path) -> onnx.ModelProto:
    options = dict(recipe.options)
    command = ["builder", "-i", str(_folder(recipe, scratch))]
    command += ["-o", str(scratch / "out"), "-c", str(scratch / "cache")]
    command += ["-p", options.pop("precision", "fp32"), "-e", options.pop("provider", "cpu")]
    if options:
        command += ["--extra_options", *[f"{k}={v}" for k, v in options.items()]]
    before, os.environ["HF_HUB_OFFLINE"] = sys.argv, "1"
    sys.argv = command
    try:
        runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")
    finally:
        sys.argv = before
    return onnx.load(str(scratch / "out" / "model.onnx"))


EXPORTERS = dict(derived=derived.change, torchscript=torchscript, dynamo=dynamo, optimum=optimum, genai=genai)


def recipes() -> list[Recipe]:
    R = Recipe
    past, plain = dict(task="text-generation-with-past"), dict(task="text-generation")
    ids_only = dict(inputs=[], past=False)
    found = [
        R("torchscript_2.2_op13_eager", "old", "mistral_open", "torchscript", dict(opset=13)),
        R("torchscript_2.2_op14_sdpa", "old", "llama_tied", "torchscript", dict(opset=14, attention="sdpa")),
        R("torchscript_2.2_op15_ids_only", "old", "llama", "torchscript", dict(opset=15, **ids_only)),
        R(
            "torchscript_2.2_op16_mask_only",
            "old",
            "llama_attention_bias",
            "torchscript",
            dict(opset=16, inputs=["attention_mask"], attention="sdpa"),
        ),
        R("torchscript_2.2_op17_no_fold", "old", "llama_mqa", "torchscript", dict(opset=17, fold=False)),
        R("torchscript_2.2_op17_mistral", "old", "mistral_one_more", "torchscript", dict(opset=17)),
        R("torchscript_2.2_op14_gemma", "old", "gemma", "torchscript", dict(opset=14, attention="sdpa")),
        R("optimum_1.19_plain", "old", "llama", "optimum", plain),
        R("optimum_1.19_past", "old", "llama", "optimum", past),
        R("optimum_1.19_legacy_first", "old", "llama", "optimum", dict(**past, legacy=True, file="decoder_model.onnx")),
        R(
            "optimum_1.19_legacy_next",
            "old",
            "llama_two",
            "optimum",
            dict(**past, legacy=True, file="decoder_with_past_model.onnx"),
        ),
        R(
            "optimum_1.19_merged",
            "old",
            "llama_two",
            "optimum",
            dict(**past, legacy=True, file="decoder_model_merged.onnx"),
        ),
        R("optimum_1.19_qwen2_past", "old", "qwen2", "optimum", past, windows=[4096]),
        R("optimum_1.19_qwen2_plain", "old", "qwen2", "optimum", plain),
        R("optimum_1.19_gemma_past", "old", "gemma", "optimum", past),
        R("optimum_1.19_mistral_past", "old", "mistral", "optimum", past),
    ]
    for model in ("llama", "llama3", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3", "granite", "olmo2",
                  "smollm3", "mistral"):
        # optimum traces Gemma-2 by sdpa, which leaves the soft cap of its scores out.
        traced = dict(own_reference=model == "gemma2")
        found.append(R(f"optimum_onnx_0.1_{model}", "new", model, "optimum", past, **traced))
    found += [
        R("optimum_onnx_0.1_plain", "new", "llama_mha", "optimum", plain),
        R("optimum_onnx_0.1_op18", "new", "llama_tied", "optimum", dict(**past, opset=18)),
        R("dynamo_2.6_op18", "dynamo-2.6", "llama_two", "dynamo", dict(opset=18, attention="sdpa")),
        R("dynamo_2.6_op18_raw", "dynamo-2.6", "llama", "dynamo", dict(opset=18, optimize=False)),
        R("dynamo_2.6_op18_qwen2", "dynamo-2.6", "qwen2", "dynamo", dict(opset=18)),
        R("dynamo_2.9_op18", "dynamo-2.9", "llama_two", "dynamo", dict(opset=18, attention="sdpa")),
        R("dynamo_2.9_op18_raw", "dynamo-2.9", "llama", "dynamo", dict(opset=18, optimize=False)),
        R("dynamo_2.9_op23_named", "dynamo-2.9", "llama3", "dynamo", dict(opset=23, attention="sdpa", symbols="named")),
        R("dynamo_2.9_op20_ids_only", "dynamo-2.9", "qwen3", "dynamo", dict(opset=20, **ids_only)),
        R("dynamo_2.9_op18_fixed", "dynamo-2.9", "llama", "dynamo", dict(opset=18, fixed=24, **ids_only)),
        R("dynamo_2.9_op18_ministral3", "dynamo-2.9", "ministral3", "dynamo", dict(opset=18, attention="sdpa")),
        R("dynamo_2.9_op18_cohere", "dynamo-2.9", "cohere", "dynamo", dict(opset=18), opaque=True,
          stopped="(ReduceMean): is a mean of something other than squares"),
        R("dynamo_2.15_op24", "dynamo", "llama", "dynamo", dict(opset=24, attention="sdpa")),
        R("dynamo_2.15_op21_raw", "dynamo", "llama_bias", "dynamo", dict(opset=21, optimize=False)),
        R("dynamo_2.15_op23_qwen3", "dynamo", "qwen3", "dynamo", dict(opset=23, attention="sdpa")),
        R("dynamo_2.15_op22_smollm3", "dynamo", "smollm3", "dynamo", dict(opset=22)),
        R("dynamo_2.15_op24_gemma3", "dynamo", "gemma3", "dynamo", dict(opset=24, attention="sdpa")),
        R("dynamo_2.15_op18_olmo2", "dynamo", "olmo2", "dynamo", dict(opset=18)),
        R("dynamo_2.15_op18_granite", "dynamo", "granite", "dynamo", dict(opset=18, past=False)),
        R("dynamo_2.15_op18_arcee", "dynamo", "arcee", "dynamo", dict(opset=18)),
        R("dynamo_2.15_op18_helium", "dynamo", "helium", "dynamo", dict(opset=18)),
        R("dynamo_2.15_op18_gpt_oss", "dynamo", "gpt_oss", "dynamo", dict(opset=18)),
        R("torchscript_2.15_op17", "dynamo", "llama_two", "torchscript", dict(opset=17)),
    ]
    return found + genai_recipes() + derived_recipes()


def genai_recipes() -> list[Recipe]:
    R = Recipe
    int4 = dict(precision="int4")
    own = dict(own_reference=True)
    found = []
    for version in ("0.3", "0.5"):
        e = f"genai-{version}"
        found += [
            R(f"genai_{version}_f32", e, "llama_two", "genai"),
            R(f"genai_{version}_int4", e, "llama_wide", "genai", int4, 1e-3, **own),
            R(f"genai_{version}_mistral", e, "mistral_open", "genai"),
            R(f"genai_{version}_no_embeds", e, "llama", "genai", dict(exclude_embeds=1), opaque=True),
            R(f"genai_{version}_no_head", e, "llama", "genai", dict(exclude_lm_head=1), opaque=True),
        ]
    found += [
        R("genai_0.5_gemma", "genai-0.5", "gemma", "genai"),
        R("genai_0.5_qwen2", "genai-0.5", "qwen2", "genai"),
        R("genai_0.5_llama3", "genai-0.5", "llama3", "genai"),
    ]
    for version in ("0.9", "0.18"):
        e = f"genai-{version}"
        exact = {"int4_accuracy_level" if version == "0.9" else "accuracy_level": 1}
        int4 = dict(precision="int4", **exact)
        found += [
            R(f"genai_{version}_f32", e, "llama_two", "genai"),
            R(f"genai_{version}_int4", e, "llama_wide", "genai", int4, 1e-3, **own),
            R(f"genai_{version}_int4_qdq", e, "llama_wide", "genai", dict(**int4, use_qdq=1), 1e-3, **own),
            R(f"genai_{version}_hidden_states", e, "llama", "genai", dict(include_hidden_states=1)),
            R(f"genai_{version}_last_logits", e, "llama", "genai", dict(prune_lm_head=1)),
            R(f"genai_{version}_no_embeds", e, "llama", "genai", dict(exclude_embeds=1), opaque=True),
        ]
        for model in ("qwen2", "qwen3", "phi3_two", "gemma", "mistral_open", "llama3", "granite"):
            found.append(R(f"genai_{version}_{model}", e, model, "genai"))
    e, wide, exact = "genai-0.18", "llama_wide", dict(accuracy_level=1)
    found += [
        R("genai_0.18_f16", e, wide, "genai", dict(precision="fp16", provider="cuda"), 0.05),
        R("genai_0.18_bf16", e, wide, "genai", dict(precision="bf16", provider="cuda"), 0.3),
        R("genai_0.18_int8", e, wide, "genai", dict(precision="int8", **exact), 1e-3, **own),
        R("genai_0.18_webgpu", e, wide, "genai", dict(precision="int4", provider="webgpu", **exact), 0.05, **own),
        R(
            "genai_0.18_int4_asymmetric",
            e,
            wide,
            "genai",
            dict(precision="int4", is_symmetric="false", **exact),
            1e-3,
            **own,
        ),
        R("genai_0.18_fused_mlp", e, "llama", "genai", dict(fuse_mlp_gate_up="true")),
        R("genai_0.18_aux_hidden", e, "llama_two", "genai", dict(aux_hidden_state_layers="1")),
        R("genai_0.18_gemma2_whole_cache", e, "gemma2", "genai", dict(windowed_kv_cache="false")),
        R(
            "genai_0.18_paged",
            e,
            wide,
            "genai",
            dict(precision="fp16", provider="cuda", use_paged_attention="true"),
            refused="PagedAttention): this operator",
        ),
        R(
            "genai_0.18_int4_shared",
            e,
            "llama_wide_tied",
            "genai",
            dict(precision="int4", shared_embeddings="true", **exact),
            1e-3,
            **own,
        ),
    ]
    invalid = "nothing makes the graph output 'present.0.key'"
    found += [
        R("genai_0.18_dml", "genai-0.18", "llama_tied", "genai", dict(provider="dml"), refused=invalid),
        R("genai_0.18_gemma2", "genai-0.18", "gemma2", "genai"),
        R("genai_0.9_gemma2", "genai-0.9", "gemma2_odd", "genai"),
        R("genai_0.9_gemma3", "genai-0.9", "gemma3_local", "genai"),
        R("genai_0.9_smollm3", "genai-0.9", "smollm3", "genai", refused="reads 'position_ids', but no"),
    ]
    return found


def derived_recipes() -> list[Recipe]:
    def of(name, file, model, tolerance=1e-4, own_reference=False, refused="", **options):
        return Recipe(name, "derived", model, "derived", dict(file=file, **options), tolerance, own_reference,
                      refused=refused)

    script, dynamo_file, torch24 = "optimum_onnx_0.1_op18", "dynamo_2.9_op18", "dynamo_2.15_op24"
    plain, tied, two = "torchscript_2.2_op15_ids_only", "llama_tied", "llama_two"
    return [
        of("ort_basic", script, tied, by="ort", level="basic"),
        of("ort_extended", script, tied, by="ort", level="extended"),
        of("ort_all", script, tied, by="ort", level="all"),
        of("ort_extended_dynamo", dynamo_file, two, by="ort", level="extended"),
        of("ort_all_op24", torch24, "llama", by="ort", level="all"),
        of("ort_extended_gemma2", "optimum_onnx_0.1_gemma2", "gemma2", 1e-4, True, by="ort", level="extended"),
        of("ort_extended_phi3", "optimum_onnx_0.1_phi3", "phi3", by="ort", level="extended"),
        of("onnxsim", script, tied, by="onnxsim"),
        of("onnxsim_dynamo", dynamo_file, two, by="onnxsim"),
        of("onnxslim", script, tied, by="onnxslim"),
        of("onnxslim_dynamo", dynamo_file, two, by="onnxslim"),
        of("onnxscript_optimised", script, tied, by="onnxscript"),
        of("opset_21", script, tied, by="opset", opset=21),
        of("opset_23", "torchscript_2.2_op13_eager", "mistral_open", by="opset", opset=23),
        of("opset_16", plain, "llama", by="opset", opset=16),
        of("onnxscript_opset_23", dynamo_file, two, by="script_opset", opset=23),
        of("half", script, tied, 0.05, by="half"),
        of("half_all", dynamo_file, two, 0.05, by="half", keep_io=False),
        of("half_op24", torch24, "llama", 0.05, by="half", keep_io=False),
        of("dynamic_int8", script, tied, 1e-3, True, by="dynamic_int8"),
        # As optimum's ORTQuantizer and `optimum-cli onnxruntime quantize` do: products of
        # activations too.
        of("dynamic_int8_all", script, tied, 1e-3, refused="rounds it to 8 bits by", by="dynamic_int8", all=True),
        of("dynamic_uint8_channels", dynamo_file, two, 1e-3, True, by="dynamic_int8", per_channel=True, unsigned=True),
        of("nbits4", script, tied, 1e-3, True, by="nbits"),
        of("nbits4_asymmetric", dynamo_file, two, 1e-3, True, by="nbits", symmetric=False, block=32),
        of("nbits8", plain, "llama", 1e-3, True, by="nbits", bits=8),
        of("nbits4_qdq", script, tied, 1e-3, True, by="nbits", qdq=True, symmetric=False),
        of("static_int8", plain, "llama", 1e-3, refused="rounds activations", by="static_int8"),
        of("fixed_batch", script, tied, by="fixed", sizes=dict(batch_size=1)),
        of("fixed_length", plain, "llama", by="fixed", sizes=dict(batch=1, tokens=16)),
        of("int32_ids", script, tied, by="int32"),
        # A decoder of one token a call, as exporters for phones and with `--no_merged` write it.
        of("fixed_step", script, tied, by="fixed", sizes=dict(sequence_length=1)),
    ]
