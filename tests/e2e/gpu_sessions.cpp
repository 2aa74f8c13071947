// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/gpu_sessions.h"

#include "runtime/generate/generate.h"

namespace cleave::test {

using namespace runtime;
using planner::DeviceKind;

const GpuCalls kBothVendors[2] = {
    {DeviceKind::kCuda,
     {"one", "cuda[0]", 1, 1},
     {"two", "cuda[0-1]", 1, 2},
     {"logical", "cuda[0]/0-1", 2, 1},
     "cuLaunchKernel",
     "cuGraphLaunch",
     "cuMemcpyHtoDAsync_v2",
     "cuMemcpyDtoHAsync_v2",
     "cuEventRecord",
     {"cuMemPoolCreate", "cuMemAllocFromPoolAsync", "cuMemHostAlloc", "cuModuleLoadData",
      "cuModuleGetFunction", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuLaunchKernel",
      "cuStreamQuery", "cuEventCreate", "cuEventQuery", "cuStreamBeginCapture_v2",
      "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"}},
    {DeviceKind::kHip,
     {"one", "hip[0]", 1, 1},
     {"two", "hip[0-1]", 1, 2},
     {"logical", "hip[0]/0-1", 2, 1},
     "hipModuleLaunchKernel",
     "hipGraphLaunch",
     "hipMemcpyAsync",
     "hipMemcpyAsync",
     "hipEventRecord",
     {"hipMemPoolCreate", "hipMallocFromPoolAsync", "hipHostMalloc", "hipModuleLoadData",
      "hipModuleGetFunction", "hipMemcpyAsync", "hipModuleLaunchKernel", "hipStreamQuery",
      "hipEventCreateWithFlags", "hipEventQuery", "hipStreamBeginCapture", "hipStreamEndCapture",
      "hipGraphInstantiate", "hipGraphLaunch"}}};

const importer::Graph& small_model() {
    static const importer::Graph kGraph = random_model(small_shape(), 1);
    return kGraph;
}

void run_model(const DeviceShape& shape, const SessionOptions& options, int64_t new_tokens,
               const std::function<void(int)>& at_token) {
    planner::Plan plan = plan_for(small_model(), shape, all_logits_workload(1, 32, 32));
    Session session(plan, options);
    GenerateOptions generation;
    generation.max_new_tokens = new_tokens;
    int made = 0;
    generation.on_token = [&](size_t, int32_t) {
        if (at_token) at_token(++made);
        return true;
    };
    generate(session, plan, {{1, 17, 23, 5}}, generation);
}

}  // namespace cleave::test
