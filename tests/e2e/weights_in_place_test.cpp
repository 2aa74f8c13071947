// SPDX-License-Identifier: Apache-2.0
// Which weights the host uses where their file is mapped, and which it copies.
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "importer/weights/weight_reader.h"
#include "models/convert.h"
#include "models/llama_graph.h"
#include "models/shapes.h"
#include "models/stand_in_weights.h"
#include "runtime/cards/open_devices.h"
#include "runtime/load/upload.h"
#include "tests/e2e/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;

namespace {

// Whether the address lies in a mapping of a file of that name.
bool is_mapped_from(DeviceAddress address, const std::string& file) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream words(line);
        DeviceAddress begin = 0, end = 0;
        char dash = 0;
        words >> std::hex >> begin >> dash >> end;
        if (begin <= address && address < end) return line.ends_with("/" + file);
    }
    return false;
}

// Uploads, compares every shard with what the reader copies, and counts those in place, by
// whether they could be: whole rows of the type that is stored.
std::map<bool, int> shards_in_place(const planner::Plan& plan) {
    Drivers drivers;
    const std::vector<std::unique_ptr<Device>> devices = open_devices(plan, drivers, {1, true});
    Arenas arenas(plan, devices);
    upload_weights(plan, arenas, devices, {});
    const importer::WeightReader reader(plan.graph);
    std::map<bool, int> in_place;
    for (const planner::WeightShard& shard : plan.weights) {
        const importer::Weight& weight = plan.graph.weight(shard.weight);
        INFO(weight.name);
        const bool matrix = weight.shape.size() == 2;
        const int64_t columns = matrix ? shard.columns.size() : 1;
        std::vector<std::byte> want(
            static_cast<size_t>(dtype_bytes(shard.dtype, shard.rows.size() * columns))),
            got(want.size());
        reader.read(shard.weight, shard.rows, shard.columns, shard.dtype, want);
        const DeviceAddress address = arenas.address(shard.buffer);
        devices[shard.device.index()]->download(address, got);
        CHECK(got == want);
        if (!is_mapped_from(address, "model.safetensors")) continue;
        ++in_place[shard.dtype == weight.dtype && (!matrix || columns == weight.shape[1])];
    }
    return in_place;
}

planner::Plan plan_of_folder(const DeviceShape& shape, std::optional<DType> dtype) {
    planner::Workload workload = all_logits_workload(1, 32, 12);
    workload.dtype = dtype;
    return plan_for(models::import_folder((source_root() / "tests/files/families/llama").string()),
                    shape, workload);
}

}  // namespace

TEST_CASE("weights that their file has as the host reads them are used there, others are copied",
          "[e2e]") {
    const planner::Plan one = plan_of_folder({"one", "host[0]", 1, 1}, {});
    // All but the file's last, behind which no vector's worth of bytes lies.
    CHECK(shards_in_place(one) ==
          std::map<bool, int>{{true, static_cast<int>(one.weights.size()) - 1}});
    const planner::Plan split = plan_of_folder({"two", "host[0-1]", 2, 1}, {});
    const std::map<bool, int> of_two = shards_in_place(split);
    CHECK(of_two.contains(true));
    CHECK_FALSE(of_two.contains(false));  // cut columns, among others
    // Norms stay f32, matrices become bf16.
    const std::map<bool, int> of_bf16 =
        shards_in_place(plan_of_folder({"bf16", "host[0]", 1, 1}, DType::kBF16));
    CHECK(of_bf16.contains(true));
    CHECK_FALSE(of_bf16.contains(false));
    CHECK(shards_in_place(plan_of_folder({"simt", "simt:sm_90a[0]", 1, 1}, {})).empty());
}

TEST_CASE(
    "stand-ins, which share one file, have memory of their own for each weight: what is "
    "measured reads as much as a model does",
    "[e2e]") {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
        INFO(dtype_name(dtype));
        importer::Graph graph =
            models::build_llama_graph(*models::find_shape("stories-260k"), dtype);
        const models::StandInWeights weights(graph);
        const planner::Plan plan =
            plan_for(graph, {"one", "host[0]", 1, 1}, all_logits_workload(1, 32, 12));
        Drivers drivers;
        const std::vector<std::unique_ptr<Device>> devices = open_devices(plan, drivers, {1, true});
        Arenas arenas(plan, devices);
        upload_weights(plan, arenas, devices, {});
        std::vector<std::pair<DeviceAddress, DeviceAddress>> places;
        for (const planner::WeightShard& shard : plan.weights) {
            const int64_t columns =
                plan.graph.weight(shard.weight).shape.size() == 2 ? shard.columns.size() : 1;
            const DeviceAddress begin = arenas.address(shard.buffer);
            places.emplace_back(begin, begin + static_cast<DeviceAddress>(dtype_bytes(
                                                   shard.dtype, shard.rows.size() * columns)));
        }
        std::ranges::sort(places);
        REQUIRE(places.size() > 40);
        for (size_t i = 1; i < places.size(); ++i) CHECK(places[i - 1].second <= places[i].first);
    }
}
