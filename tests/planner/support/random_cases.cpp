// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/support/random_cases.h"

#include "planner/machine/build_machine.h"

#include <array>

#include <fmt/format.h>

namespace cleave::test {

using namespace planner;

models::Shape Drawer::model(const ModelRanges& ranges) {
    models::Shape shape;
    shape.name = "random";
    auto& c = shape.config;
    c.num_layers = pick(1, ranges.layers);
    c.num_kv_heads = pick(1, ranges.kv_heads);
    c.num_heads = c.num_kv_heads * pick(1, ranges.queries_of_a_kv_head);
    c.head_dim = int64_t{ranges.head_dim_step} * pick(1, ranges.head_dims);
    c.hidden_size = ranges.hidden_steps > 0 ? int64_t{8} * pick(2, ranges.hidden_steps)
                                            : c.num_heads * c.head_dim;
    c.intermediate_size = pick(8, ranges.intermediate);
    c.vocab_size = pick(10, ranges.vocab);
    c.max_positions = 4096;
    c.rope_theta = 1e4;
    c.tied_embeddings = pick(0, 1) == 1;
    shape.qkv_bias = ranges.biases && pick(0, 1) == 1;
    shape.o_bias = ranges.biases && pick(0, 1) == 1;
    shape.mlp_bias = ranges.biases && pick(0, 1) == 1;
    shape.dtype = ranges.bf16 && pick(0, 1) ? DType::kBF16 : DType::kF32;
    return shape;
}

Machine Drawer::catalogue_machine(int most) {
    constexpr std::array<const char*, 3> kFirst{"sim:h100", "sim:a100-40", "sim:l40s"};
    constexpr std::array<const char*, 3> kSecond{"sim:mi300x", "sim:rtx4090", "sim:host"};
    int count = pick(1, most), first = pick(1, count);
    std::string list = fmt::format("{}[0-{}]", one_of(kFirst), first - 1);
    if (first < count) list += fmt::format(",{}[0-{}]", one_of(kSecond), count - first - 1);
    return machine_of(list);
}

Machine Drawer::any_machine(int most) {
    constexpr std::array<const char*, 3> kKinds{"host", "sim:h100", "sim:a40"};
    int count = pick(1, most);
    std::string list = fmt::format("{}[0-{}]", one_of(kKinds), count - 1);
    if (list[0] == 's' && pick(0, 1)) list += fmt::format(",sim:mi300x[0-{}]", pick(0, 2));
    Machine m = build_machine(parse_devices(list),
                              {8, int64_t{64} << 30, 20'000'000'000, 100'000'000'000, "x86-64-v3"});
    if (pick(0, 2) > 0) return m;
    vary(m);
    return m;
}

void Drawer::vary(Machine& m) {
    if (m.domains.empty()) m.domains.push_back({"drawn", int64_t{1'000'000'000} * pick(5, 5000)});
    for (DeviceInfo& d : m.devices) {
        d.memory_bandwidth = int64_t{1'000'000'000} * pick(2, 3000);
        d.flops_f32 = int64_t{1'000'000'000} * pick(20, 90'000);
        d.flops_f16 = d.flops_f32 * pick(1, 8);
        d.launch_overhead_ns = pick(0, 5000);
        if (pick(0, 1)) d.memory_domain = 0;
    }
    for (Link& l : m.links) {
        l.bandwidth = int64_t{1'000'000'000} * pick(1, 900);
        l.latency_ns = pick(100, 40'000);
    }
}

}  // namespace cleave::test
