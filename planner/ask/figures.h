// SPDX-License-Identifier: Apache-2.0
// A plan in the figures that people compare plans by: shape, times, memory, and where a token's
// time goes. In: a sound plan. All of them follow from its steps and accounts; nothing is planned.
#pragma once

#include <string>
#include <vector>

#include "planner/ask/basis.h"
#include "planner/ask/room.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct Figures;

// "tp 4 x pp 2", "pp 2 of tp 3, 2", "2 replicas of tp 4 x pp 1".
std::string shape_of(const Plan& plan);

std::string rate_text(const Figures& figures);  // tokens/s: "12475", "36.2"

// The time of one pass of a phase, from its first step to its last, by what its critical path does:
// of each step, the one that its devices waited for. The parts add up to the whole.
struct TimeParts {
    int64_t compute_ns = 0, transfer_ns = 0, collective_ns = 0;
    int64_t sharing_ns = 0;  // steps that others slow: they want one memory or one link
    int64_t whole() const { return compute_ns + transfer_ns + collective_ns + sharing_ns; }
};
TimeParts time_parts(const Plan& plan, bool is_prefill);

// The same path by what is computed or exchanged: "attention", "gate and up projections",
// "all_reduce". Longest first.
struct WorkTime {
    std::string work;
    int64_t ns = 0, steps = 0;
};
std::vector<WorkTime> time_by_work(const Plan& plan, bool is_prefill);

// A device's own decode pass: at work, exchanging, and waiting for others.
struct DeviceTime {
    DeviceId device;
    int64_t compute_ns = 0, exchange_ns = 0, waiting_ns = 0;
};
std::vector<DeviceTime> device_times(const Plan& plan);

struct LinkLoad {
    DeviceId from, to;
    int64_t bytes = 0;      // of one decode pass
    int64_t bandwidth = 0;  // bytes/s; 0: no link, staged by the hosts
    int64_t ns = 0;         // that the bytes take of the link, by its bandwidth alone
};
// Those that a decode pass uses, the busiest first.
std::vector<LinkLoad> link_loads(const Plan& plan);

struct Figures {
    std::string shape;
    int64_t devices = 0;  // that the plan uses, of all replicas
    int64_t given = 0;    // that it could use
    int64_t decode_ns = 0, prefill_ns = 0, objective_ns = 0;
    double tokens_per_second = 0;
    int64_t users = 0, ttft_ns = 0, tpot_ns = 0;  // where the objective serves many; else 0
    // Of the device with the least free memory.
    std::string fullest;
    int64_t needed = 0, capacity = 0;
    int64_t weights = 0, kv = 0;  // of all devices of a replica
    int64_t link_bytes = 0;       // that a decode pass moves between devices
    TimeParts decode;
    int64_t replicas = 1;
    int64_t price_micros = 0;     // of those devices an hour; 0: not all have prices
    double cost_per_million = 0;  // tokens, at that price
    Room room;                    // of one replica, the first
    int64_t sequences = 0, kv_tokens = 0, kv_tokens_now = 0;  // room of all replicas together
    std::string sequences_bound, context_bound, kv_bound;     // names of its devices, or empty
    Grounds grounds;
};
Figures figures_of(const Plan& plan);

// Of the time that plans are compared by, ours - theirs over theirs: tokens/s where many are
// served, else the objective. Positive: `b` is slower.
double slower_by(const Figures& a, const Figures& b);
// Of that share: "1.2 % slower", "12 % faster", "as fast", "3.4 times as slow".
std::string slower_text(double slower);
// "14.2 ms a token", or "882 tokens/s" where many are served.
std::string speed_text(const Figures& figures);
// "5 instead of 4", "4 as before".
std::string changed_text(const std::string& before, const std::string& after);
// Devices without work, and why: "sim:h100[8] (a plan without them is faster: ...)"; or empty.
std::string unused_text(const Plan& plan);
// What makes `b`'s decode pass longer or shorter: "computing +1.2 ms, transfers -0.1 ms".
std::string causes_text(const Figures& a, const Figures& b);

}  // namespace cleave::planner
