// SPDX-License-Identifier: Apache-2.0
// Ways of breaking what a plan says of many users, and of the replicas that serve them.
#include "planner/plan/kv_room.h"
#include "tests/planner/support/mutations.h"

namespace cleave::test {

namespace {

bool serves(const Plan& p) { return p.prediction.serving.users > 0; }

std::vector<Mutation> user_mutations() {
    return {
        {"a user more than there is KV for", "serving-memory",
         [](Plan& p) {
             return serves(p) &&
                    (p.prediction.serving.users = p.num_replicas() * p.workload.batch + 1);
         }},
        {"all groups in flight have as many users as one", "serving-memory",
         [](Plan& p) {
             Serving& s = p.prediction.serving;
             return s.groups > 1 && (s.users *= s.groups);
         }},
        {"a pool of whole contexts loses one", "serving-memory",
         [](Plan& p) {
             if (!serves(p) || p.kv_slabs.empty()) return false;
             for (const KvSlab& s : p.kv_slabs) {
                 int64_t& bytes = p.buffers[s.buffer.index()].size;
                 bytes -= bytes / p.kv_pool.num_blocks * p.workload.blocks_per_slot();
             }
             p.kv_pool.num_blocks -= p.workload.blocks_per_slot();
             return true;
         }},
        {"a group more than there are stages", "serving-groups",
         [](Plan& p) {
             return serves(p) &&
                    (p.prediction.serving.groups = static_cast<int64_t>(p.stages.size()) + 1);
         }},
        {"no group at all", "serving-groups",
         [](Plan& p) { return serves(p) && (p.prediction.serving.groups = 0, true); }},
        {"a limit below the time of a round", "serving-limits",
         [](Plan& p) {
             return serves(p) && (p.options.max_tpot_ns = p.prediction.serving.tpot_ns - 1);
         }},
        {"a limit below the time to the first token", "serving-limits",
         [](Plan& p) {
             return serves(p) && (p.options.max_ttft_ns = p.prediction.serving.ttft_ns - 1);
         }},
        {"a round in no time", "serving-round",
         [](Plan& p) {
             return serves(p) && p.prediction.serving.groups == 1 &&
                    (p.prediction.serving.tpot_ns = 1);
         }},
    };
}

std::vector<Mutation> make_mutations() {
    return {
        {"a replica of another make has another context", "replica-requests",
         [](Plan& p) { return !p.others.empty() && (p.others[0].workload.context += 16); }},
        {"a replica of another make has another model", "replica-requests",
         [](Plan& p) { return !p.others.empty() && (p.others[0].graph_digest += "0", true); }},
        {"a replica of another make has no users", "replica-requests",
         [](Plan& p) {
             return !p.others.empty() && (p.others[0].prediction.serving.users = 0, true);
         }},
        {"a replica of another make has such replicas, too", "replica-requests",
         [](Plan& p) {
             if (p.others.empty()) return false;
             p.others[0].others.resize(1);
             return true;
         }},
        {"a device is in replicas of two makes", "replica-devices",
         [](Plan& p) {
             return !p.others.empty() &&
                    (p.others[0].machine.devices[0].name = p.machine.devices[0].name, true);
         }},
        {"a user more than another make has KV for", "serving-memory",
         [](Plan& p) {
             return !p.others.empty() &&
                    (p.others[0].prediction.serving.users =
                         p.others[0].num_alike() * p.others[0].workload.batch + 1);
         }},
        {"a step of another make is lost", "op-missing",
         [](Plan& p) {
             if (p.others.empty()) return false;
             std::erase_if(p.others[0].decode.steps,
                           [](const Step& s) { return s.compute() && s.layer == 3; });
             return true;
         }},
    };
}

std::vector<Mutation> replica_mutations() {
    return {
        {"a replica lacks a device", "replica-devices",
         [](Plan& p) { return !p.copies.empty() && (p.copies.back().devices.pop_back(), true); }},
        {"a device is in two replicas", "replica-devices",
         [](Plan& p) {
             return !p.copies.empty() &&
                    (p.copies.back().devices[0].name = p.machine.devices[0].name, true);
         }},
        {"a replica's device has another architecture", "replica-devices",
         [](Plan& p) {
             return !p.copies.empty() && (p.copies.back().devices[0].arch = "sm_70", true);
         }},
        {"a replica's device has too little memory", "replica-memory",
         [](Plan& p) {
             if (p.copies.empty()) return false;
             p.copies.back().devices[0].memory_bytes = p.memory[0].needed() - 1;
             return true;
         }},
        {"a replica lacks a link", "replica-links",
         [](Plan& p) {
             return !p.copies.empty() && !p.copies.back().links.empty() &&
                    (p.copies.back().links.pop_back(), true);
         }},
        {"a replica's link is slower", "replica-links",
         [](Plan& p) {
             return !p.copies.empty() && !p.copies.back().links.empty() &&
                    (p.copies.back().links[0].bandwidth /= 2);
         }},
    };
}

}  // namespace

std::vector<Mutation> serving_mutations() {
    return joined({user_mutations(), replica_mutations(), make_mutations()});
}

}  // namespace cleave::test
