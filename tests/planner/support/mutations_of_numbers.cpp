// SPDX-License-Identifier: Apache-2.0
// Numbers that no plan comes near, each of which some rule adds or multiplies: they are refused
// before any rule does.
#include <algorithm>
#include <climits>

#include "tests/planner/support/mutations.h"

namespace cleave::test {

namespace {

std::vector<Mutation> placed_number_mutations() {
    return {
        {"a stage is said to end in another layer", "stage",
         [](Plan& p) { return p.stages.back().last_layer = INT_MAX, true; }},
        {"a stage is said to have no layer", "stage",
         [](Plan& p) {
             Stage& s = p.stages.front();
             return s.first_layer <= s.last_layer && (s.last_layer = -1);
         }},
        {"a weight shard's rows have no end", "index",
         [](Plan& p) { return p.weights.back().rows.end = INT64_MAX, true; }},
        {"a weight shard's columns have no end", "index",
         [](Plan& p) { return p.weights.back().columns.end = INT64_MAX, true; }},
        {"a slab's heads have no end", "index",
         [](Plan& p) { return p.kv_slabs.back().kv_heads.end = INT64_MAX, true; }},
        {"a head of a slab has 2^50 features", "index",
         [](Plan& p) { return p.kv_slabs.back().v_head_dim = int64_t{1} << 50, true; }},
        {"an account has 2^63 - 1 bytes of weights", "index",
         [](Plan& p) {
             if (p.memory.empty()) return false;
             return p.memory.back().weights = INT64_MAX, true;
         }},
        {"an account has less than nothing", "index",
         [](Plan& p) {
             if (p.memory.empty()) return false;
             return p.memory.back().scratch = INT64_MIN, true;
         }},
        {"a pool of 2^63 - 1 tokens", "workload",
         [](Plan& p) { return p.workload.kv_tokens = INT64_MAX, true; }},
        {"a device shares a domain that is not there", "index",
         [](Plan& p) { return p.machine.devices.back().memory_domain = INT_MAX, true; }},
        {"a link shares a domain that is not there", "index",
         [](Plan& p) {
             if (p.machine.links.empty()) return false;
             return p.machine.links.back().domain = static_cast<int>(p.machine.domains.size()),
                    true;
         }},
        {"a domain lets nothing through", "index",
         [](Plan& p) {
             const int used = p.machine.devices.front().memory_domain;
             if (used < 0) return false;
             return p.machine.domains[static_cast<size_t>(used)].bandwidth = 0, true;
         }},
        {"a pass of 2^63 - 1 ns", "index",
         [](Plan& p) { return p.prediction.decode_ns_per_token = INT64_MAX, true; }},
    };
}

// What an exchange leaves from is there, and large enough.
bool change_departures(Plan& p, bool by_peers, void (*change)(Buffer&)) {
    const auto path = [](const Step& step) {
        const Transfer* t = step.transfer();
        const Collective* c = step.collective();
        return t ? t->path : c ? c->path : Path::kVendor;
    };
    const bool is_used = std::ranges::any_of(p.decode.steps, [&](const Step& step) {
        return path(step) != Path::kVendor && (path(step) == Path::kPeer) == by_peers;
    });
    if (!is_used) return false;
    for (Buffer& b : p.buffers)
        if (b.role == (by_peers ? BufferRole::kPeerPayloads : BufferRole::kExchange))
            return change(b), true;
    return false;
}

std::vector<Mutation> departure_mutations() {
    const auto smaller = [](Buffer& b) { b.size = 16; };
    const auto other = [](Buffer& b) { b.role = BufferRole::kArrivals; };
    return {
        {"what goes through the host has room for 16 bytes", "exchange-departures",
         [=](Plan& p) { return change_departures(p, false, smaller); }},
        {"what goes through the host has another's room", "exchange-departures",
         [=](Plan& p) { return change_departures(p, false, other); }},
        {"what peers read has room for 16 bytes", "exchange-departures",
         [=](Plan& p) { return change_departures(p, true, smaller); }},
        {"what peers read has another's room", "exchange-departures",
         [=](Plan& p) { return change_departures(p, true, other); }},
    };
}

std::vector<Mutation> step_number_mutations() {
    return {
        {"a step takes 2^63 - 1 ns", "index",
         [](Plan& p) { return p.decode.steps.back().predicted_ns = INT64_MAX, true; }},
        {"a step begins before all time", "index",
         [](Plan& p) { return p.prefill.steps.back().start_ns = INT64_MIN, true; }},
        {"a launch has heads without end", "index",
         [](Plan& p) {
             Compute* c = find_kernel(p.decode, KernelKind::kAttention);
             if (!c) return false;
             return c->heads.end = INT64_MAX, true;
         }},
        {"a value's columns end far away", "index",
         [](Plan& p) { return p.decode.values.back().box.back().end = INT64_MAX - 1, true; }},
    };
}

std::vector<Mutation> graph_number_mutations() {
    return {
        {"blocks of a weight have 2^63 - 1 elements", "graph",
         [](Plan& p) { return p.graph.weights.back().quantization.block = INT64_MAX, true; }},
        {"a model of 2^63 - 1 layers", "graph",
         [](Plan& p) { return p.graph.config.num_layers = INT64_MAX, true; }},
        {"a vocabulary of 2^63 - 1 tokens", "graph",
         [](Plan& p) { return p.graph.config.vocab_size = INT64_MAX, true; }},
        {"a rotation of 2^50 features", "graph",
         [](Plan& p) {
             if (p.graph.rope_tables.empty()) return false;
             return p.graph.rope_tables.back().rotary_dim = int64_t{1} << 50, true;
         }},
        {"a rotation of more features than a head has", "graph",
         [](Plan& p) {
             for (importer::Op& op : p.graph.ops)
                 if (op.kind == importer::OpKind::kRope)
                     return std::get<importer::RopeAttrs>(op.attrs).rotary_dim = INT_MAX, true;
             return false;
         }},
        {"a rotation of more features than its table has", "graph",
         [](Plan& p) {
             if (p.graph.rope_tables.empty()) return false;
             return p.graph.rope_tables.back().rotary_dim += 2, true;
         }},
        {"a rotation that lacks a frequency", "graph",
         [](Plan& p) {
             if (p.graph.rope_tables.empty() || p.graph.rope_tables.back().frequencies.empty())
                 return false;
             return p.graph.rope_tables.back().frequencies.pop_back(), true;
         }},
        {"attention of 2^40 heads of 2^40 features", "graph",
         [](Plan& p) {
             for (importer::Op& op : p.graph.ops)
                 if (op.kind == importer::OpKind::kAttention) {
                     auto& a = std::get<importer::AttentionAttrs>(op.attrs);
                     a.num_heads = a.num_kv_heads = a.v_head_dim = int64_t{1} << 40;
                     return true;
                 }
             return false;
         }},
    };
}

Mutation of_stored(const char* what, void (*change)(importer::Weight&)) {
    return {what, "graph", [=](Plan& p) {
                for (importer::Weight& w : p.graph.weights)
                    if (w.data.has_data() && w.shape.size() == 2) return change(w), true;
                return false;
            }};
}

// What loading would read past, or take for something else.
std::vector<Mutation> stored_weight_mutations() {
    using importer::Weight;
    return {
        of_stored("a stored shape has twice the rows that its bytes have",
                  [](Weight& w) { w.source_shape.front() *= 2; }),
        of_stored("a stored shape has less than nothing",
                  [](Weight& w) { w.source_shape.front() = -1; }),
        of_stored("a stored shape has 2^124 elements",
                  [](Weight& w) { w.source_shape = {int64_t{1} << 62, int64_t{1} << 62}; }),
        of_stored("a weight begins before what is stored",
                  [](Weight& w) { w.rows = {-1, w.shape[0] - 1}; }),
        of_stored("a weight ends after what is stored",
                  [](Weight& w) { w.columns = {1, w.shape[1] + 1}; }),
        of_stored("a matrix is said to be of integers", [](Weight& w) { w.dtype = DType::kInt8; }),
    };
}

}  // namespace

std::vector<Mutation> number_mutations() {
    return joined({placed_number_mutations(), departure_mutations(), step_number_mutations(),
                   graph_number_mutations(), stored_weight_mutations()});
}

}  // namespace cleave::test
