// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sampling_flags.h"

#include <charconv>
#include <random>

#include "runtime/base/errors.h"
#include "tools/cli/groups.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

runtime::LogitBias parse_bias(const std::string& text) {
    runtime::LogitBias bias;
    const char* end = text.data() + text.size();
    const auto [behind, error] = std::from_chars(text.data(), end, bias.id);
    char* last = nullptr;
    if (error == std::errc() && behind + 1 < end && *behind == '=')
        bias.value = std::strtof(behind + 1, &last);
    if (last == nullptr || last != end)
        throw UserError("--logit-bias {}: expected a token id and a number, as in 128=-100", text);
    return bias;
}

}  // namespace

bool SamplingFlags::given() const {
    return !runtime::takes_largest_logit(options) || !logit_bias.empty();
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
    runtime::SamplingOptions& o = flags.options;
    app.add_option(
           "--temperature", o.temperature,
           "draw tokens by their probabilities, flatter the higher it is; default: 0, always "
           "the likeliest")
        ->check(real_number(0.0, 100.0))
        ->group(kTextGroup);
    app.add_option("--top-p", o.top_p,
                   "draw from the likeliest tokens that are this probable together; default: 1, "
                   "all")
        ->check(real_number(1e-6, 1.0))
        ->group(kTextGroup);
    app.add_option("--top-k", o.top_k, "draw from this many likeliest tokens; default: 0, all")
        ->check(whole_number(0, 1 << 30))
        ->group(kTextGroup);
    app.add_option("--seed", flags.seed,
                   "of drawn tokens: the same one gives the same text; default: a new one each "
                   "time, which is printed")
        ->group(kTextGroup);
    app.add_option("--min-p", o.min_p,
                   "draw from tokens this many times as likely as the likeliest; default: 0, all")
        ->check(real_number(0.0, 1.0))
        ->group(kForExperts);
    app.add_option("--repetition-penalty", o.repetition_penalty,
                   "divides logits of tokens that the prompt or the text has; default: 1, none")
        ->check(real_number(1e-3, 10.0))
        ->group(kForExperts);
    app.add_option("--presence-penalty", o.presence_penalty,
                   "off the logits of tokens that the new text has; default: 0")
        ->check(real_number(-2.0, 2.0))
        ->group(kForExperts);
    app.add_option("--frequency-penalty", o.frequency_penalty,
                   "the same, for each time that it has them; default: 0")
        ->check(real_number(-2.0, 2.0))
        ->group(kForExperts);
    app.add_option("--logit-bias", flags.logit_bias,
                   "added to a token's logit, -100 to 100; may be repeated")
        ->type_name("ID=VALUE")
        ->allow_extra_args(false)
        ->group(kForExperts);
}

void draw_seed(SamplingFlags& flags) {
    if (flags.options.temperature == 0 || flags.seed) return;
    flags.seed = std::random_device{}();  // 32 bits, which are typed again more easily than 64
    flags.is_seed_drawn = true;
}

void say_seed(const SamplingFlags& flags) {
    if (flags.is_seed_drawn) say("seed {0}; --seed {0} gives this text again\n", *flags.seed);
}

runtime::SamplingOptions sampling_options(const SamplingFlags& flags) {
    runtime::SamplingOptions options = flags.options;
    if (options.temperature == 0 &&
        (options.top_p != 1.0f || options.top_k != 0 || options.min_p != 0.0f || flags.seed))
        throw UserError(
            "--top-p, --top-k, --min-p and --seed shape sampled tokens: give a --temperature above "
            "0, too");
    options.seed = flags.seed.value_or(0);
    for (const std::string& text : flags.logit_bias) options.logit_bias.push_back(parse_bias(text));
    return options;
}

}  // namespace cleave::tools
