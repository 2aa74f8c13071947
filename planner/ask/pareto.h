// SPDX-License-Identifier: Apache-2.0
// What users of a machine can have: tokens/s a device against tokens/s a user. In: a request. Out:
// points such that no other has more of both, each a plan of a replica for a number of users. A
// replica is a part of the machine, as search/replicas.h divides it; limits of the request hold.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/ask/basis.h"
#include "planner/ask/case.h"

namespace cleave::planner {

struct ParetoPoint {
    std::string shape;                    // of a replica: "tp 4 x pp 1"
    int64_t devices = 0;                  // of a replica
    int64_t replicas = 1, users = 0;      // that the machine holds; of all of them
    double per_device = 0, per_user = 0;  // tokens/s
    int64_t ttft_ns = 0, tpot_ns = 0;
    double cost_per_million = 0;  // tokens; 0: not all devices have prices
    Grounds grounds;
};

struct Pareto {
    std::string model;
    std::vector<ParetoPoint> points;  // by falling tokens/s a user; at most kMostPoints
    std::string refusal;              // why there is none
};
inline constexpr size_t kMostPoints = 12;

// Plans for objective throughput, whatever the request's is, for numbers of users that double as
// long as there is KV for them, and for the number that the planner chooses where it is free to.
// `progress(done, of)` after each size of a replica.
Pareto pareto(const Case& base, const std::function<void(size_t, size_t)>& progress = {});

// Of points those that no other beats in one figure and equals in the other, by falling tokens/s a
// user; of very many those at the ends, and between them evenly by the ratio of tokens/s a user.
std::vector<ParetoPoint> best_points(std::vector<ParetoPoint> points);

}  // namespace cleave::planner
