// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/positions.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace cleave::importer::from_onnx {
namespace {

constexpr int64_t kLargestPosition = int64_t{1} << 24;

// Numbers that the value is computed from.
std::set<int64_t> numbers_upstream(const Model& model, Ref value) {
    std::set<int64_t> numbers;
    std::set<Ref> seen;
    std::vector<Ref> stack{value};
    while (!stack.empty()) {
        const Ref v = stack.back();
        stack.pop_back();
        if (v == kNone || !seen.insert(v).second) continue;
        if (const Constant* c = model.constant_of(v); c && c->count() <= 4)
            if (const auto t = read_constant(model, *c))
                for (int64_t i = 0; i < t->count(); ++i)
                    if (t->at(i) >= 16 && t->at(i) <= kLargestPosition)
                        numbers.insert(static_cast<int64_t>(t->at(i)));
        if (const Node* node = model.producer_of(v))
            stack.insert(stack.end(), node->in.begin(), node->in.end());
    }
    return numbers;
}

}  // namespace

std::set<int64_t> positions_to_ask(const Model& model, Ref value) {
    std::set<int64_t> positions(std::begin(kProbedPositions), std::end(kProbedPositions));
    for (int64_t n : numbers_upstream(model, value)) positions.insert({n - 1, n, n + 1});
    return positions;
}

bool counts_tokens(Recovery& r, Ref value, bool with_new) {
    for (int i : {0, 1}) {
        const Scenario& s = r.probe(i).scenario();
        const Tensor* t = r.probe(i).data(value);
        const int64_t expected = s.past + (with_new ? s.tokens : 0);
        if (!t || t->real || t->count() == 0 ||
            std::any_of(t->integers.begin(), t->integers.end(),
                        [&](int64_t n) { return n != expected; }))
            return false;
    }
    return true;
}

bool row_at_is_position(Recovery& r, Ref value) {
    for (int64_t p : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}}) {
        if (r.beyond_file(p)) break;
        Probe probe = r.make_probe(r.at_position(p));
        const Tensor* t = probe.data(value);
        const int64_t rows = probe.scenario().tokens, from_end = r.has_past ? rows : rows - p;
        if (!t || t->real || t->count() < from_end || t->integers[t->count() - from_end] != p)
            return false;
    }
    return true;
}

Ref chosen_at_first(Recovery& r, Ref value, int64_t& holds_below) {
    holds_below = 0;
    const Node* node = r.model.producer_of(value);
    if (!node || !node->is("If") || node->in.size() != 3) return value;
    const auto truth = [&](int64_t p) -> std::optional<bool> {
        Probe probe = r.make_probe(r.at_position(p));
        const Tensor* t = probe.data(node->input(0));
        if (!t || t->count() != 1) return std::nullopt;
        return t->at(0) != 0;
    };
    const auto first = truth(0);
    if (!first) return value;
    int64_t good = 0;
    for (int64_t p : positions_to_ask(r.model, node->input(0))) {
        if (truth(p) == first) {
            good = p;
            continue;
        }
        holds_below = first_change(good, p, [&](int64_t at) { return truth(at) == first; });
        break;
    }
    return node->input(*first ? 1 : 2);
}

}  // namespace cleave::importer::from_onnx
