// SPDX-License-Identifier: Apache-2.0
// The walk over one phase's steps, in order: which columns of which placed value hold what, on
// which device, after each step. In: a plan whose indices are sound. Out: violations and a
// PhaseTrace.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/verify/report.h"

namespace cleave::planner::verify {

// What a value on one device is known to hold.
struct Known {
    Range columns;            // of the last dimension
    bool complete = true;     // false: a summand over `contraction` only
    bool has_bias = true;     // false: `source` has a bias that is not in yet
    Range contraction{0, 1};  // the part of source's summed axis that is in
    OpId source;              // the operator that sums; invalid when none did
};

class PhaseWalk {
public:
    PhaseWalk(const Plan& plan, bool is_prefill, Report& report);
    PhaseTrace run();

    // Reads `id` on `device` in this step; reports a value elsewhere, not yet there, or a mere
    // summand.
    Known read(PlacedId id, DeviceId device);
    // The same, of a summand or a complete value.
    Known read_summand(PlacedId id);
    // Stores `known` of `value`, computed on `device`, in `id`.
    void write(PlacedId id, ValueId value, DeviceId device, const Known& known,
               bool repeats = false);
    void execute(OpId op, DeviceId device, Range columns, Range contraction = {0, 1});

    template <class... Args>
    void fail(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
        report_.add(rule, "{}: {}", where(), fmt::format(format, std::forward<Args>(args)...));
    }
    std::string device_name(DeviceId id) const { return plan_.machine.device(id).name; }
    std::string value_name(ValueId id) const { return plan_.graph.value(id).name; }

    const Plan& plan() const { return plan_; }
    const Graph& graph() const { return plan_.graph; }
    const PlacedValue& placed(PlacedId id) const { return phase_.values[id.index()]; }
    PhaseTrace& trace() { return trace_; }

private:
    std::string where() const;
    void check_boxes();
    void start_inputs();
    void compute(const Compute& compute);
    void transfer(const Transfer& transfer);
    void collective(const Collective& collective);
    // A launch of so many tokens with the step's tile.
    void check_launch(const Compute& compute, int64_t tokens);
    void all_reduce(const Collective& collective);
    void all_gather(const Collective& collective);
    Known reduce(const Collective& collective);
    void epilogue(const Collective& collective, size_t member, const Known& reduced);
    void norm(const Collective& collective, size_t member, Range columns);
    bool check_norm(const Collective& collective);
    void check_peers(const std::vector<DeviceId>& devices);
    void check_vendor(const Collective& c);
    void check_library_form(const Collective& c);
    void check_gather_room(const Collective& c);
    void check_arrivals(const std::vector<PlacedId>& sent, const std::vector<DeviceId>& receivers);
    void check_departures(const std::vector<PlacedId>& sent, Path path);
    int64_t payload_bytes(const PlacedValue& p, bool of_phase) const;
    bool check_group(const Collective& collective);
    void check_bytes(const Amount& bytes, ValueId value, Range columns);
    void finish();

    const Plan& plan_;
    const Phase& phase_;
    const bool is_prefill_;
    Report& report_;
    PhaseTrace trace_;
    size_t step_ = 0;
    std::vector<RangeSet> written_;  // columns, of Phase::values
    std::vector<Known> content_;     // of Phase::values
    std::vector<int> reductions_;    // collectives that took the summand, of Phase::values
    std::map<std::pair<DeviceId, ValueId>, RangeSet> held_;  // complete columns
};

// One Compute step by the meaning of its operators (planner/verify/compute.cpp).
void walk_compute(PhaseWalk& walk, const Compute& compute);

// Whether it multiplies by matrices of weights.
bool is_product(const Compute& compute);
// Tokens of a step's largest launch, or rows of those whose logits are wanted.
int64_t most_rows(const Plan& plan, bool is_prefill, const Compute& compute);
// Blocks of a GPU launch of so many tokens in x, y and z, at least: what its tile leaves of the
// work.
std::array<int64_t, 3> least_grid(const Plan& plan, const Compute& compute, int64_t tokens);
// Why a launch cannot have the main loop and the stages of its tile; empty where it can.
std::string wrong_main_loop(const Plan& plan, const Compute& compute);
// Why a launch cannot come by its activations as its step says; empty where it can.
std::string wrong_activations(const Plan& plan, const Phase& phase, const Compute& compute);
// Bytes of a launch of so many tokens in the step's scratch: activations that a launch in front
// prepares, partial results of attention whose keys are split. 0 where there are none.
int64_t least_scratch(const Plan& plan, const Compute& compute, int64_t tokens);
// Bytes that a thread of a host takes for its tile of a product: a block of tokens, their sums, a
// strip of widened weights. 0 for what is no product.
int64_t least_thread_scratch(const Plan& plan, const Compute& compute);
// Why a step cannot have its tiles for few tokens; empty where it can.
std::string wrong_narrow_tiles(const Plan& plan, bool is_prefill, const Compute& compute);

// Whether the operators are what a kernel of that kind computes.
bool kernel_fits(const Graph& graph, const Compute& compute);
// The same of operators over tensors (planner/verify/tensors.cpp).
bool tensors_fit(const Graph& graph, const Compute& compute);

}  // namespace cleave::planner::verify
