// SPDX-License-Identifier: Apache-2.0
// What a mask says, found by evaluating it: for several batch sizes, lengths, pasts and paddings it
// must hide exactly what causality, a sliding window and the padding hide.
#include <algorithm>
#include <set>

#include "importer/onnx/probe/evaluate.h"
#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {
namespace {

constexpr int64_t kLargestContext = int64_t{1} << 18;
// Without a past the mask is square: windows larger than it cannot be seen.
constexpr int64_t kMostTokens = 2048;
constexpr int64_t kFewestTokens = 512;

class MaskReader {
public:
    MaskReader(const Recovery& r, const MaskUse& use) : r_(r), use_(use) {}

    MaskMeaning read() {
        MaskMeaning m = meaning();
        if (why_.empty()) return m;
        const Node* node = r_.model.producer_of(use_.value);
        m.refusal = fmt::format(
            "the attention mask made by {} is not understood: {}; causal masks, sliding windows "
            "and "
            "padding are supported",
            node ? r_.describe(*node) : "'" + r_.model.values[use_.value].name + "'", why_);
        return m;
    }

private:
    // Stops at the first thing that is in the way.
    MaskMeaning meaning() {
        MaskMeaning m;
        std::vector<Scenario> plain = {
            {2, 5, 3, {}}, {1, 1, 9, {}}, {3, 4, 0, {}}, {1, 33, 40, {}}};
        for (int64_t number : numbers_in_the_way()) plain.push_back({1, 2, number + 2, {}});
        if (!r_.has_past) {
            const auto largest = std::max_element(plain.begin(), plain.end(),
                                                  [](auto& a, auto& b) { return a.past < b.past; });
            const int64_t tokens = at_most(largest->past, m);
            for (Scenario& s : plain) s.past = 0;
            plain.push_back({1, tokens, 0, {}});
        }
        plain = that_run(plain, m);
        std::vector<Table>
            tables;  // of scenarios that differ once the file's fixed sizes are put in
        for (const Scenario& s : plain) {
            const Scenario real = r_.possible(s);
            const auto same = [&](const Table& t) {
                return t.scenario.batch == real.batch && t.scenario.tokens == real.tokens &&
                       t.scenario.past == real.past;
            };
            if (std::any_of(tables.begin(), tables.end(), same)) continue;
            tables.push_back(table(real));
            if (!why_.empty()) return m;
        }
        m.causal = !sees_later(tables[0]);
        for (const Table& t : tables) m.heads = std::max(m.heads, t.heads);
        for (const Table& t : tables) m.window = std::max(m.window, window_in(t));
        for (const Table& t : tables) expect(t, m);
        if (!why_.empty()) return m;
        const bool has_mask_input = std::find(r_.roles.begin(), r_.roles.end(),
                                              InputRole::kAttentionMask) != r_.roles.end();
        if (!has_mask_input) return m;
        std::vector<Table> padded;
        for (const Scenario& s : that_run({{2, 4, r_.has_past ? 6 : 0, {3, 0}}}, m))
            padded.push_back(table(r_.possible(s)));
        if (!why_.empty()) return m;
        const auto all_match = [&](bool padding) {
            return std::all_of(padded.begin(), padded.end(),
                               [&](const Table& t) { return matches(t, m, padding); });
        };
        m.hides_padding = all_match(true);
        if (!m.hides_padding && !all_match(false))
            refuse("it depends on the attention mask in another way");
        return m;
    }

    // A square of that many tokens may take too much to evaluate. Then nothing is known of more
    // than the given number, and no more may be asked for.
    int64_t at_most(int64_t tokens, MaskMeaning& m) const {
        if (r_.fixed_tokens != 0) return tokens;
        int64_t most = std::min(tokens, kMostTokens);
        while (most > kFewestTokens && !evaluates({1, most, 0, {}})) most /= 2;
        if (most < tokens)
            m.checked_tokens = m.checked_tokens > 0 ? std::min(m.checked_tokens, most) : most;
        return most;
    }

    bool evaluates(const Scenario& s) const {
        Probe probe = r_.make_probe(r_.possible(s));
        return probe.data(use_.value) != nullptr;
    }

    // Some files take several tokens only where there is no past (their mask has the shape of
    // neither else): each scenario of both becomes one of a whole prompt and one of its last token
    // after the others.
    std::vector<Scenario> that_run(const std::vector<Scenario>& all, MaskMeaning& m) const {
        if (!r_.has_past || evaluates({2, 5, 3, {}}) || !evaluates({2, 8, 0, {}}) ||
            !evaluates({2, 1, 7, {}}))
            return all;
        std::vector<Scenario> out;
        for (const Scenario& s : all) {
            if (s.tokens == 1 || s.past == 0) {
                out.push_back(s);
                continue;
            }
            const int64_t total = at_most(s.past + s.tokens, m);
            out.push_back({s.batch, total, 0, s.padding});
            out.push_back({s.batch, 1, total - 1, s.padding});
        }
        return out;
    }

    // Visibility of key t for token s of sequence b.
    struct Table {
        Scenario scenario;
        Tensor mask;
        Dims strides;
        int64_t heads = 1;
        bool visible(const MaskUse& use, int64_t b, int64_t s, int64_t t) const {
            const double v = mask.at(b * strides[0] + s * strides[2] + t * strides[3]);
            return use.additive ? v > -1e3 : (v != 0) != use.hides;
        }
    };

    // The first reason counts.
    void refuse(const std::string& why) {
        if (why_.empty()) why_ = why;
    }

    Table table(const Scenario& s) {
        Probe probe = r_.make_probe(s);
        const Tensor* t = probe.data(use_.value);
        if (!t) return refused("it cannot be evaluated" + r_.blocked_by(use_.value));
        if (t->count() == 0) return refused("it is empty");
        Dims dims = t->dims;
        while (dims.size() < 4) dims.insert(dims.begin(), 1);
        const Dims want{s.batch, dims[1], s.tokens, s.past + s.tokens};
        if (product(want) > kMostElements)
            return refused("the file's sizes make it too large to be evaluated");
        const bool fits = dims.size() == 4 && (dims[0] == 1 || dims[0] == want[0]) &&
                          (dims[2] == 1 || dims[2] == want[2]) &&
                          (dims[3] == 1 || dims[3] == want[3]);
        if (!fits) return refused("its shape is not [batch, heads, tokens, keys]");
        Table table{s, *t, broadcast_strides(dims, want), dims[1]};
        check_heads_alike(table.mask, dims);
        for (int64_t i = 0; use_.additive && i < t->count(); ++i)
            if (t->at(i) != 0 && !(t->at(i) < -1e3))
                refuse("it adds numbers that are neither 0 nor very negative");
        return table;
    }

    Table refused(const std::string& why) {
        refuse(why);
        return {};
    }

    void check_heads_alike(const Tensor& t, const Dims& dims) {
        if (dims[1] == 1) return;
        const int64_t one = dims[2] * dims[3];
        for (int64_t i = 0; i < t.count(); ++i) {
            const int64_t first = i / (dims[1] * one) * dims[1] * one + i % one;
            if (t.at(i) != t.at(first)) refuse("it differs from head to head");
        }
    }

    bool sees_later(const Table& t) const {
        const Scenario& s = t.scenario;
        for (int64_t i = 0; i < s.tokens; ++i)
            for (int64_t k = s.past + i + 1; k < s.past + s.tokens; ++k)
                if (t.visible(use_, 0, i, k)) return true;
        return false;
    }

    // The window that the last token's row shows, 0 when it sees the first key.
    int64_t window_in(const Table& t) {
        const Scenario& s = t.scenario;
        const int64_t position = s.past + s.tokens - 1;
        for (int64_t k = 0; k <= position; ++k)
            if (t.visible(use_, 0, s.tokens - 1, k)) return k == 0 ? 0 : position - k + 1;
        refuse("it hides every key of a token");
        return 0;
    }

    bool matches(const Table& t, const MaskMeaning& m, bool padding) const {
        const Scenario& s = t.scenario;
        for (int64_t b = 0; b < s.batch; ++b)
            for (int64_t i = 0; i < s.tokens; ++i) {
                const int64_t position = s.past + i;
                if (position < s.pad(b)) continue;  // a padding token itself; nobody asks
                for (int64_t k = 0; k < s.past + s.tokens; ++k) {
                    bool expected =
                        (!m.causal || k <= position) && (m.window == 0 || k > position - m.window);
                    if (padding && k < s.pad(b)) expected = false;
                    if (t.visible(use_, b, i, k) != expected) return false;
                }
            }
        return true;
    }

    void expect(const Table& t, const MaskMeaning& m) {
        if (!matches(t, m, false))
            refuse(fmt::format("for {} tokens after {} it hides other keys than {} would",
                               t.scenario.tokens, t.scenario.past,
                               m.window ? fmt::format("a causal mask with a window of {}", m.window)
                                        : std::string(m.causal ? "a causal mask" : "no mask")));
    }

    // Integer constants that the mask is computed from: a window of 4096 shows only near 4096.
    std::set<int64_t> numbers_in_the_way() const {
        std::set<int64_t> numbers;
        std::set<Ref> seen;
        std::vector<Ref> stack{use_.value};
        while (!stack.empty()) {
            const Ref v = stack.back();
            stack.pop_back();
            if (v == kNone || !seen.insert(v).second) continue;
            if (const Constant* c = r_.model.constant_of(v); c && c->count() <= 8)
                if (const auto t = read_constant(r_.model, *c))
                    for (int64_t i = 0; i < t->count(); ++i) {
                        // What hides a key (-65504 in f16, -10000) is no window.
                        if (t->real && t->at(i) <= -1e3) continue;
                        const double n = std::abs(t->at(i));
                        if (n >= 2 && n <= kLargestContext) numbers.insert(static_cast<int64_t>(n));
                    }
            const Node* node = r_.model.producer_of(v);
            if (!node || node->is("Shape")) continue;
            stack.insert(stack.end(), node->in.begin(), node->in.end());
        }
        while (numbers.size() > 16) numbers.erase(numbers.begin());
        return numbers;
    }

    const Recovery& r_;
    const MaskUse& use_;
    std::string why_;  // it is none of the masks that a Llama has; empty: it is
};

}  // namespace

bool Recovery::padding_must_be_hidden() const {
    for (const Node& node : model.nodes)
        for (Ref in : node.in)
            if (in != kNone && model.values[in].input >= 0 &&
                roles[model.values[in].input] == InputRole::kAttentionMask)
                return true;
    return false;
}

MaskMeaning Recovery::mask_meaning(const MaskUse& use) {
    if (auto found = masks_.find(use); found != masks_.end()) return found->second;
    const MaskMeaning m = masks_[use] = MaskReader(*this, use).read();
    if (m.checked_tokens > 0)
        longest_context =
            longest_context > 0 ? std::min(longest_context, m.checked_tokens) : m.checked_tokens;
    return m;
}

}  // namespace cleave::importer::from_onnx
