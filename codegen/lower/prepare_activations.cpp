// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/prepare_activations.h"

#include <algorithm>

#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

const WeightFormat& format_of(const LinearSpec& s) { return s.weight; }
const WeightFormat& format_of(const GateUpSpec& s) { return s.gate; }
const WeightFormat& format_of(const QkvSpec& s) { return s.q; }

// Takes the argument of that name out of a product's.
Arg take_arg(std::vector<Arg>& args, std::string_view name) {
    const auto at =
        std::find_if(args.begin(), args.end(), [&](const Arg& arg) { return arg.name == name; });
    CLEAVE_CHECK(at != args.end()) << "a product without " << name;
    Arg taken = *at;
    args.erase(at);
    return taken;
}

// Copies of the rows as they lie give what the product reads.
template <class Spec>
void check_copied(const Spec& s, DType activations) {
    bool selects = false;
    if constexpr (requires { s.select; }) selects = s.select;
    CLEAVE_CHECK(!s.norm && !selects && format_of(s).staged() == activations)
        << "a product copies activations that are not what it reads";
}

template <class Spec>
Preparation take_preparation(Spec& s, std::vector<Arg>& args, planner::BufferId scratch) {
    Preparation made;
    PrepareSpec& p = made.spec;
    p.in = s.in;
    p.x = s.x;
    p.norm = s.norm;
    p.to = format_of(s).staged();
    p.to_offset = planner::kCounterBytes / dtype_bytes(p.to, 1);
    made.args.push_back(take_arg(args, "x"));
    if (s.norm) made.args.push_back(take_arg(args, "norm"));
    if constexpr (requires { s.select; }) {
        p.select = s.select;
        p.count = s.count;
        if (s.select) made.args.push_back(take_arg(args, "rows"));
        s.select = false;
    }
    made.args.push_back(scratch_arg(scratch, "out"));
    args.insert(args.begin(), scratch_arg(scratch, "x"));
    s.norm.reset();
    s.x = {p.in, p.to_offset};
    s.prepared = true;
    s.factors = p.factors();
    return made;
}

}  // namespace

std::optional<Preparation> prepare_activations(const planner::Compute& compute, DType activations,
                                               Lowered& lowered) {
    using planner::ActivationPath;
    if (compute.activations == ActivationPath::kConverted) return std::nullopt;
    return std::visit(
        [&](auto& s) -> std::optional<Preparation> {
            if constexpr (requires { s.prepared; }) {
                if (compute.activations == ActivationPath::kPrepared) {
                    CLEAVE_CHECK(compute.scratch.valid())
                        << "activations are prepared without scratch";
                    return take_preparation(s, lowered.args, compute.scratch);
                }
                check_copied(s, activations);
                s.prepared = true;
                return std::nullopt;
            }
            CLEAVE_CHECK(false) << "only products have activations to prepare";
            return std::nullopt;
        },
        lowered.spec);
}

}  // namespace cleave::codegen
