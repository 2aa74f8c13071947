// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/texts.h"

#include <fmt/format.h>

#include "tools/gpu_check/output.h"

namespace cleave::gpu_check {

namespace {

// Largest difference from the host's logits, as a share of the largest: an error of a kernel is far
// larger. That of bf16 is the one of tests/e2e.
constexpr double kF32Bound = 2e-3, kBf16Bound = 8e-2;

constexpr const char* kShortPrompt = "Once upon a time";
// Over 128 tokens of the bundled tokenizer: a prompt that takes the kernels of many tokens.
constexpr const char* kLongPrompt =
    "Once upon a time there was a little girl named Lily who lived in a small house near the "
    "forest. Every morning she went outside to play with her dog Max and her friend Tom. One day "
    "they found a big red ball under a tree. Tom wanted to keep it, but Lily said that somebody "
    "must be looking for it. They walked from door to door and asked everyone they met. At last an "
    "old man smiled and said that the ball was his. He was so happy that he gave them three sweet "
    "apples and told them a long story about a brave rabbit. That evening Lily told her mom";

}  // namespace

std::vector<std::string> Texts::command_of(const TextPart& part, const std::string& program) {
    std::vector<std::string> command{program,
                                     "run",
                                     part.model,
                                     "--devices",
                                     part.devices,
                                     "--prompt",
                                     part.bf16 ? kLongPrompt : kShortPrompt,
                                     "--max-new-tokens",
                                     "64",
                                     "--ignore-eos",
                                     "--json"};
    if (part.tp > 1) command.insert(command.end(), {"--tp", std::to_string(part.tp)});
    if (part.bf16) command.insert(command.end(), {"--dtype", "bf16", "--kv-dtype", "bf16"});
    return command;
}

void Texts::run(const TextPart& part) {
    const bool has_host = runner_.no_host().empty();
    const std::vector<std::string> command = command_of(part, runner_.program("cleave"));
    const std::string dump = runner_.temporary(part.name + ".logits");
    std::vector<std::string> checked = command;
    checked.insert(checked.end(), {"--dump-logits", dump});
    if (has_host)
        checked.emplace_back("--check");
    else
        report_.skip(part.name + " on the host", runner_.no_host());
    const Outcome first = runner_.start(part.name, checked);
    runner_.keep_result(part.name, first);
    const Json with_logits = runner_.json_of(part.name, first);
    if (with_logits.empty()) return explain(part.name, command);
    const auto difference = number_of(with_logits, "check_max_difference");
    if (has_host && !difference) {
        report_.fail(part.name, "its difference from the host's logits is no finite number: " +
                                    with_logits.value("check_reason", "no reason is given"));
        explain(part.name, command);
    }
    const Logits logits(dump, with_logits.at("prompt_ids").size(),
                        with_logits.at("token_ids").size());
    const double bound = (part.bf16 ? kBf16Bound : kF32Bound) * logits.largest();
    report_.part(part.name)["largest_logit"] = logits.largest();
    report_.part(part.name)["bound"] = bound;
    if (has_host && difference && !(*difference < bound)) {
        report_.fail(part.name, fmt::format("its logits differ from the host's by {}, over {}",
                                            *difference, bound));
        explain(part.name, command);
    }
    check_own_choice(part, command, with_logits, logits, bound);
}

void Texts::check_own_choice(const TextPart& part, const std::vector<std::string>& command,
                             const Json& with_logits, const Logits& logits, double bound) {
    const std::vector<int32_t> tokens = with_logits.at("token_ids");
    Json& own = report_.part(part.name)["own_choice"] = Json::object();
    const Outcome outcome = runner_.run(part.name, command);
    own["seconds"] = outcome.seconds;
    if (!runner_.judge(part.name, outcome)) return explain(part.name, command);
    const Json result = runner_.json_of(part.name, outcome);
    if (result.empty()) return;
    own["result"] = result;
    const std::vector<int32_t> chosen = result.at("token_ids");
    if (const std::string wrong = logits.disagreement(tokens, chosen, part.bf16 ? 2 * bound : 0);
        !wrong.empty()) {
        report_.fail(part.name, "the GPU's own choice of tokens: " + wrong);
        explain(part.name, command);
    }
    compare_with_one_device(part, logits, tokens, bound);
    if (part.tp == 1) compare_without_overlap(part, command, chosen);
    report_.write();
}

void Texts::compare_without_overlap(const TextPart& part, const std::vector<std::string>& command,
                                    const std::vector<int32_t>& chosen) {
    const Outcome outcome = runner_.run(part.name, command, {"CLEAVE_GPU_OVERLAP=0"});
    Json& entry = report_.part(part.name)["without_overlap"] = Json::object();
    entry["seconds"] = outcome.seconds;
    if (!runner_.judge(part.name, outcome)) return;
    const Json result = runner_.json_of(part.name, outcome);
    if (result.empty()) return;
    entry["result"] = result;
    if (result.at("token_ids") != Json(chosen))
        report_.fail(part.name,
                     "its tokens are others where launches do not overlap (CLEAVE_GPU_OVERLAP=0)");
}

void Texts::compare_with_one_device(const TextPart& part, const Logits& logits,
                                    const std::vector<int32_t>& tokens, double bound) {
    if (part.name == "bundled_model") one_device_ = tokens;
    if (part.tp == 1 || one_device_.empty()) return;
    if (const std::string wrong = logits.disagreement(tokens, one_device_, 2 * bound);
        !wrong.empty())
        report_.fail(part.name, "its tokens are not those of one device: " + wrong);
}

void Texts::explain(const std::string& part, std::vector<std::string> command) {
    if (report_.part(part).contains("step_by_step")) return;  // it was run already
    if (!runner_.stuck().empty() || !runner_.has_time()) return;
    command.emplace_back("--step-by-step");
    const Outcome outcome = runner_.run(part, command);
    report_.part(part)["step_by_step"] =
        fmt::format("exit code {}: {}", outcome.code,
                    tail(outcome.code == 0 ? outcome.output : outcome.errors));
    report_.write();
}

}  // namespace cleave::gpu_check
