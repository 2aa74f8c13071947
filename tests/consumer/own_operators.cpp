// SPDX-License-Identifier: Apache-2.0
// A graph that no ONNX file describes: another compiler's operators with their bytes, operations
// and what may be divided. Prints where each ran and what moves.
#include <cleave/cleave.hpp>
#include <cstdio>
#include <string>

namespace {

constexpr int64_t kHidden = 4096, kInner = 16384, kLayers = 4;

cleave_operator op(const std::string& name, cleave_sharding sharding, int64_t columns,
                   int64_t weights) {
    cleave_operator o{};
    o.name = name.c_str();
    o.type = "mine.op";
    o.sharding = sharding;
    o.columns = columns;
    o.dtype = "f16";
    o.rows_are_tokens = 1;
    o.weight_bytes = 2 * weights;
    o.flops_per_token = 2 * weights;
    return o;
}

cleave::Graph mlp() {
    cleave::Graph graph = cleave::Graph::named("mlp");
    size_t x = graph.add(op("lookup", CLEAVE_REPEATED, kHidden, 0), {});
    for (int64_t i = 0; i < kLayers; ++i) {
        const std::string layer = "layer" + std::to_string(i) + ".";
        const std::string names[] = {layer + "norm", layer + "up", layer + "activation",
                                     layer + "down", layer + "add"};
        size_t norm = graph.add(op(names[0], CLEAVE_REPEATED, kHidden, 0), {x});
        size_t up = graph.add(op(names[1], CLEAVE_BY_OUTPUT, kInner, kHidden * kInner), {norm});
        size_t activation = graph.add(op(names[2], CLEAVE_ELEMENTWISE, kInner, 0), {up});
        size_t down =
            graph.add(op(names[3], CLEAVE_BY_INPUT, kHidden, kHidden * kInner), {activation});
        x = graph.add(op(names[4], CLEAVE_REPEATED, kHidden, 0), {down, x});
    }
    return graph;
}

}  // namespace

int main() {
    cleave::Graph graph = mlp();
    cleave_plan_options options{};
    options.tensor_parallel = 2;
    options.pipeline_stages = 2;
    cleave::Plan plan(graph, cleave::Machine::devices("sim:h100[0-3]"), options);
    plan.verify();
    for (const cleave_device_info& device : plan.devices())
        std::printf("%s %lld\n", device.name, static_cast<long long>(device.weights_bytes));
    for (const cleave_step_info& step : plan.steps(CLEAVE_DECODE))
        if (step.kind != CLEAVE_COMPUTE)
            std::printf("%s %s %lld\n", step.kind == CLEAVE_TRANSFER ? "transfer" : step.collective,
                        step.value, static_cast<long long>(step.bytes));
    return 0;
}
