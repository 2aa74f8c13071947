// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/spelling.h"

#include <algorithm>

namespace cleave::tools {
namespace {

constexpr Spelling kSpellings[] = {
    {"activation_dtype", "--activation-dtype"},
    {"batch", "--batch"},
    {"compile_only", "`cleave emit --compile`", "the command cleave emit"},
    {"compute", "--compute"},
    {"concurrency", "--concurrency", "batch"},
    {"context", "--context"},
    {"convert", "`cleave convert`", "the command cleave convert"},
    {"copy", "--copy"},
    {"cpu_arch", "--cpu-arch"},
    {"devices", "--devices"},
    {"dtype", "--dtype"},
    {"export_onnx", "`cleave export --format onnx`", "cleave_plan_export as onnx"},
    {"export_plan", "`cleave export`", "cleave_plan_export"},
    {"fabric", "--fabric", "a machine with a fabric"},
    {"format", "--format"},
    {"frequency_penalty", "--frequency-penalty"},
    {"gpu_compiler", "--gpu-compiler"},
    {"ignore_affinities", "--ignore-affinities"},
    {"input_ids", "--input-ids"},
    {"kv_dtype", "--kv-dtype"},
    {"kv_tokens", "--kv-tokens"},
    {"logit_bias", "--logit-bias"},
    {"logprobs", "--logprobs"},
    {"machine", "--machine"},
    {"max_new_tokens", "--max-new-tokens"},
    {"max_tpot", "--max-tpot"},
    {"max_ttft", "--max-ttft"},
    {"measure_machine", "`cleave devices --measure`", "the command cleave devices, measuring"},
    {"min_p", "--min-p"},
    {"nvrtc", "--nvrtc"},
    {"objective", "--objective"},
    {"output", "-o", "as its path"},
    {"pass_ms", "--pass-ms"},
    {"pcie_group", "--pcie-group", "a machine whose links share domains"},
    {"pins", "--pin"},
    {"pipeline_stages", "--pp"},
    {"plan_only", "`cleave plan`", "cleave_plan_make"},
    {"prefill_chunk", "--prefill-chunk"},
    {"presence_penalty", "--presence-penalty"},
    {"price", "--price", "price_per_hour of a machine's devices"},
    {"prompt_tokens", "--prompt-tokens"},
    {"repetition_penalty", "--repetition-penalty"},
    {"replicas", "--replicas"},
    {"save_machine", "`cleave devices -o FILE.json`", "cleave_machine_to_json"},
    {"save_plan", "`cleave plan MODEL -o FILE.plan`", "cleave_plan_save"},
    {"step_by_step", "--step-by-step"},
    {"sum_skew", "--sum-skew", "sum_skew_ns of a machine"},
    {"temperature", "--temperature"},
    {"tensor_parallel", "--tp"},
    {"threads", "--threads"},
    {"tokenizer", "--tokenizer"},
    {"top_k", "--top-k"},
    {"top_p", "--top-p"},
    {"weights_may_be_absent", "--weights none"},
    {"whole_layers", "--whole-layers"},
    {"write_empty_model", "`cleave model SHAPE -o DIR --weights none`",
     "the command cleave model, without weights"},
    {"write_model", "`cleave model SHAPE -o DIR --weights random`", "the command cleave model"},
};

constexpr bool is_of_name(char c) { return c == '_' || (c >= 'a' && c <= 'z'); }

std::string spell(std::string_view text, std::string_view Spelling::* spelling) {
    std::string out;
    while (true) {
        const size_t mark = text.find('$');
        out += text.substr(0, mark);
        if (mark == std::string_view::npos) return out;
        text.remove_prefix(mark);
        const auto end = std::find_if_not(text.begin() + 1, text.end(), is_of_name);
        const std::string_view name(text.begin() + 1, end);
        const auto at = std::ranges::lower_bound(kSpellings, name, {}, &Spelling::name);
        const bool known = at != std::end(kSpellings) && at->name == name;
        out += known ? (*at).*spelling : text.substr(0, name.size() + 1);
        text.remove_prefix(name.size() + 1);
    }
}

}  // namespace

std::span<const Spelling> spellings() { return kSpellings; }

std::string spell_for_command_line(std::string_view text) {
    return spell(text, &Spelling::command);
}

std::string spell_for_api(std::string_view text) { return spell(text, &Spelling::api); }

}  // namespace cleave::tools
