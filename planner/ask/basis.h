// SPDX-License-Identifier: Apache-2.0
// What a plan's predictions rest on, and how far such predictions were off where that was checked.
// In: a plan. Out: an entry for each class of launches and of exchanges in it, and one for the plan
// whole where published speeds of such plans are known. The rows are in basis.cpp, each with its
// source; those of published speeds in planner/cost/published_classes.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

// How the reader's names of options are put into a text (tools/cli/spelling.h).
using Speller = std::string (*)(std::string_view text);

struct Basis {
    std::string_view part;          // "launches", "exchanges", "plan"
    std::string_view name;          // "host_assumed"
    std::vector<DeviceId> devices;  // that launch, or exchange; of "plan": all that have a stage
    std::string says;               // "rates that nobody measured"
    // Mean error of a time in per cent, from the best to the worst case that was checked.
    std::optional<std::pair<double, double>> error_percent;
    // Predicted speed over real speed: 80 % of the published rows of the class are within.
    std::optional<std::pair<double, double>> speed_ratio;
    std::string_view source;  // of the error; empty: it is not known
    std::string fix;          // what would make it better; empty: nothing, or no speller
};

std::vector<Basis> bases_of(const Plan& plan, Speller spell = nullptr);

// A line an entry, for the summary's lines "rests on".
std::vector<std::string> basis_lines(const Plan& plan, Speller spell = nullptr);
// The entries as JSON text: a list of objects.
std::string basis_json(const Plan& plan, Speller spell = nullptr);

// What the figures of a plan rest on, where many plans are told together.
struct Grounds {
    // Between its nodes (network_name); empty: a network without a name, or one node.
    std::string fabric;
    int64_t nodes = 1;           // of the replica that has most
    std::vector<Basis> classes;  // each once, without devices; fixes as `$names`
};
Grounds grounds_of(const Plan& plan);
// The names of its classes, a space apart.
std::string class_names(const Grounds& grounds);
// What every figure across nodes says of the network; empty of a plan in one node.
std::string network_text(const Grounds& grounds);
// The networks of these plans, then each class: a line for each, once.
std::vector<std::string> rests_on(const std::vector<const Grounds*>& plans);

}  // namespace cleave::planner
