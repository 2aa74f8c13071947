// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/grammar.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include "runtime/base/errors.h"
#include "tools/serve/schema.h"
#include "tools/serve/tool_call.h"

namespace {

// What xgrammar warned of in this thread: something that its grammar leaves out.
thread_local std::string warnings;

}  // namespace

// xgrammar is built to call these (XGRAMMAR_LOG_CUSTOMIZE in tools/lib/sources.sh).
// NOLINTBEGIN(readability-identifier-naming): its names.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*lineno*/, const std::string& message) {
    throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/, int /*lineno*/, int /*level*/,
                    const std::string& message) {
    if (warnings.empty()) warnings = message;
}

}  // namespace xgrammar
// NOLINTEND(readability-identifier-naming)

namespace cleave::serve {
namespace {

constexpr int64_t kMostCacheBytes = int64_t{256} << 20;  // of compiled grammars

class GrammarRule : public runtime::TokenRule {
public:
    GrammarRule(const xgrammar::CompiledGrammar& grammar, int64_t vocab, bool has_stops)
        : matcher_(grammar, std::nullopt, !has_stops),
          words_(static_cast<size_t>(xgrammar::GetBitmaskSize(static_cast<int>(vocab)))) {}

    std::span<const uint32_t> allowed() override {
        std::ranges::fill(words_, -1);
        int64_t shape = static_cast<int64_t>(words_.size());
        DLTensor tensor{words_.data(), {kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(),
                        &shape,        nullptr,     0};
        matcher_.FillNextTokenBitmask(&tensor);
        return {reinterpret_cast<const uint32_t*>(words_.data()), words_.size()};
    }

    bool take(int32_t token) override {
        CLEAVE_CHECK(matcher_.AcceptToken(token)) << "token " << token << " is not allowed";
        return matcher_.IsTerminated();
    }

private:
    xgrammar::GrammarMatcher matcher_;
    std::vector<int32_t> words_;
};

// The first byte decides: a brace begins a call, anything else a text that is free.
class OptionalRule : public runtime::TokenRule {
public:
    // `begins`: tokens whose text begins with a brace. `silent`: tokens without a text.
    OptionalRule(GrammarRule rule, std::shared_ptr<const std::vector<uint32_t>> begins,
                 std::shared_ptr<const std::vector<uint32_t>> silent)
        : rule_(std::move(rule)), begins_(std::move(begins)), silent_(std::move(silent)) {}

    std::span<const uint32_t> allowed() override {
        if (state_ == State::kFree) return {};
        const std::span<const uint32_t> calls = rule_.allowed();
        if (state_ == State::kCall) return calls;
        words_.assign(calls.begin(), calls.end());
        for (size_t i = 0; i < words_.size(); ++i) words_[i] |= ~(*begins_)[i];
        return words_;
    }

    bool take(int32_t token) override {
        const auto is_in = [&](const std::vector<uint32_t>& set) {
            return (set[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
        };
        if (state_ == State::kOpen && !is_in(*silent_))
            state_ = is_in(*begins_) ? State::kCall : State::kFree;
        return state_ == State::kCall && rule_.take(token);
    }

private:
    enum class State : uint8_t { kOpen, kCall, kFree };
    GrammarRule rule_;
    const std::shared_ptr<const std::vector<uint32_t>> begins_, silent_;
    std::vector<uint32_t> words_;
    State state_ = State::kOpen;
};

xgrammar::Grammar grammar_of(const Json& schema, const std::string& param) {
    const std::string text = kept_schema(schema, param).dump();
    return xgrammar::Grammar::FromJSONSchema(text, false);
}

xgrammar::Grammar literal(const std::string& text) {
    return xgrammar::Grammar::FromEBNF("root ::= " + Json(text).dump());
}

// What the library says against a schema, or leaves out of it, is the client's to mend.
template <class Make>
auto checked(const std::string& param, Make&& make) {
    ApiError error{.param = param};
    warnings.clear();
    try {
        auto made = make();
        if (warnings.empty()) return made;
        error.message = warnings;
    } catch (const ApiError&) {
        throw;
    } catch (const std::exception& failure) {
        error.message = failure.what();
    }
    error.message = fmt::format("{}: {}", param, error.message);
    throw error;
}

// Whether a text between two others that fit is UTF-8 (RFC 3629) without control characters, which
// JSON escapes. The library allows both in texts of limited length, and takes three bytes of no
// character for one. A token that ends behind a first byte whose second is not free to be any is
// left out, too.
bool is_part_of_json(std::string_view text) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    size_t i = 0;
    while (i < text.size() && i < 3 && (byte(i) & 0xC0) == 0x80) ++i;
    while (i < text.size()) {
        const unsigned char first = byte(i);
        if (first < 0x80) {
            if (first < 0x20) return false;
            ++i;
            continue;
        }
        if (first < 0xC2 || first > 0xF4) return false;
        const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        const unsigned char least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        const unsigned char most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        if (i + 1 == text.size()) return least == 0x80 && most == 0xBF;
        if (byte(i + 1) < least || byte(i + 1) > most) return false;
        for (size_t k = 2; k < length && i + k < text.size(); ++k)
            if ((byte(i + k) & 0xC0) != 0x80) return false;
        i += length;
    }
    return true;
}

}  // namespace

struct Grammars::Impl {
    // Of the vocabulary; made with the first grammar, for it takes a while.
    struct Tables {
        std::optional<xgrammar::GrammarCompiler> compiler;
        std::shared_ptr<const std::vector<uint32_t>> begins, silent;
    };

    Tables& tables();
    GrammarRule rule(const xgrammar::CompiledGrammar& grammar) const {
        return {grammar, vocab, !stop_ids.empty()};
    }

    const runtime::Tokenizer& tokenizer;
    const int64_t vocab;
    const std::vector<int32_t> stop_ids;
    std::once_flag once;
    Tables made;
};

Grammars::Impl::Tables& Grammars::Impl::tables() {
    std::call_once(once, [&] {
        std::vector<std::string> texts(static_cast<size_t>(vocab));
        std::vector<uint32_t> begins((texts.size() + 31) / 32), silent(begins.size());
        for (int32_t id = 0; id < vocab; ++id) {
            const auto i = static_cast<size_t>(id);
            const uint32_t bit = 1u << (i % 32);
            std::string text;
            runtime::DecodeState state{false, 0};
            if (id < tokenizer.vocab_size()) tokenizer.append_token(id, true, state, text);
            if (text.empty()) silent[i / 32] |= bit;
            if (text.starts_with('{')) begins[i / 32] |= bit;
            if (is_part_of_json(text)) texts[i] = std::move(text);
        }
        const xgrammar::TokenizerInfo info(texts, xgrammar::VocabType::RAW, static_cast<int>(vocab),
                                           stop_ids);
        made.compiler.emplace(info, 1, true, kMostCacheBytes);
        made.begins = std::make_shared<const std::vector<uint32_t>>(std::move(begins));
        made.silent = std::make_shared<const std::vector<uint32_t>>(std::move(silent));
    });
    return made;
}

Grammars::Grammars(const runtime::Tokenizer& tokenizer, int64_t vocab,
                   std::vector<int32_t> stop_ids)
    : impl_(new Impl{tokenizer, vocab, std::move(stop_ids), {}, {}}) {}

Grammars::~Grammars() = default;

runtime::TokenRuleMaker Grammars::json(const Json& schema, const std::string& param) const {
    const xgrammar::Grammar grammar = checked(param, [&] { return grammar_of(schema, param); });
    Impl::Tables& tables = impl_->tables();
    const auto compiled = checked(param, [&] { return tables.compiler->CompileGrammar(grammar); });
    return [impl = impl_.get(), compiled] {
        return std::make_unique<GrammarRule>(impl->rule(compiled));
    };
}

runtime::TokenRuleMaker Grammars::tool_call(const std::vector<Tool>& tools, bool optional) const {
    std::vector<xgrammar::Grammar> calls;
    for (const Tool& tool : tools)
        calls.push_back(checked(tool.param, [&] {
            return xgrammar::Grammar::Concat({literal(tool_call_head(tool.name)),
                                              grammar_of(tool.parameters, tool.param),
                                              literal(std::string(kToolCallTail))});
        }));
    Impl::Tables& tables = impl_->tables();
    const auto compiled = checked(
        "tools", [&] { return tables.compiler->CompileGrammar(xgrammar::Grammar::Union(calls)); });
    return [impl = impl_.get(), compiled, optional,
            &tables]() -> std::unique_ptr<runtime::TokenRule> {
        if (!optional) return std::make_unique<GrammarRule>(impl->rule(compiled));
        return std::make_unique<OptionalRule>(impl->rule(compiled), tables.begins, tables.silent);
    };
}

}  // namespace cleave::serve
