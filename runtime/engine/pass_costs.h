// SPDX-License-Identifier: Apache-2.0
// What a pass of any size costs on a plan, by stage: the planner's own event simulation at the
// pass's point of the workload. In: rows, logits and keys of a pass. Out: nanoseconds of each
// stage. Simulates at powers of two and interpolates between them, so a long trace needs few
// simulations. The same pass always costs the same. One thread uses an object at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/plan/plan.h"
#include "runtime/execute/batch.h"

namespace cleave::runtime {

struct PassSize {
    int64_t tokens = 0;
    int64_t outputs = 0;  // rows of logits
    int64_t keys = 0;     // summed over tokens: the keys that each sees
    bool is_prefill = false;
    // Of `tokens` and `keys` of a prefill pass: those alone in their sequences, which attend as in
    // decode.
    int64_t singles = 0, single_keys = 0;
};
PassSize size_of(const Batch& batch);

// Of a stage in a pass. Another pass may begin there when its own steps have ended, while what it
// has made is on its way.
struct StageTime {
    double whole_ns = 0;  // from its first step to the next stage's; the last one: to the end
    double own_ns = 0;    // from its first step to the end of its last
};

class PassCosts {
public:
    explicit PassCosts(const planner::Plan& plan);

    // [stages]
    std::vector<StageTime> stage_times(const PassSize& pass);

    // [stages] The hosts, by number, whose cores a stage computes on. A stage has all cores of its
    // hosts (planner::core_shares), so stages that share one take turns.
    const std::vector<std::vector<size_t>>& hosts_of_stages() const { return hosts_of_stages_; }
    size_t num_hosts() const { return num_hosts_; }

    // Most tokens of a pass that takes at most `ms`: one of each sequence of the workload, half way
    // through its text, the others the end of a prompt of the workload's length. UserError where
    // already the sequences' tokens take longer, with their time.
    int64_t tokens_within(double ms);

private:
    // Exponents of tokens and of keys a token, and of outputs in a prefill pass.
    using Node = std::array<int, 4>;
    const std::vector<StageTime>& at(const Node& node);
    std::vector<StageTime> attention_of_singles(const PassSize& pass);

    planner::Workload workload_;
    planner::Plan plan_;  // its workload is that of the last simulation
    planner::Analysis analysis_;
    std::map<Node, std::vector<StageTime>> known_;
    std::vector<std::vector<size_t>> hosts_of_stages_;
    size_t num_hosts_ = 0;
};

}  // namespace cleave::runtime
