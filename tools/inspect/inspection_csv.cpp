// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/view/csv.h"
#include "planner/view/step_words.h"
#include "tools/inspect/inspection.h"

namespace cleave::tools {

using namespace planner;

namespace {

class Tables {
public:
    explicit Tables(const Inspection& inspection) : i_(inspection), plan_(*inspection.plan) {}

    std::vector<NamedTable> run() {
        std::vector<NamedTable> tables{
            {"layers", layers()}, {"memory", memory()}, {"kernels", kernels()}};
        for (NamedTable& table : plan_tables(plan_)) tables.push_back(std::move(table));
        if (!i_.measured) return tables;
        tables.push_back({"measured", measured()});
        tables.push_back({"differences", differences()});
        return tables;
    }

private:
    const std::string& name(DeviceId id) const { return plan_.machine.device(id).name; }
    static CsvCell begin(const Range& r) { return r.empty() ? CsvCell() : CsvCell(r.begin); }
    static CsvCell end(const Range& r) { return r.empty() ? CsvCell() : CsvCell(r.end); }

    std::string layers() const {
        CsvTable table({"first_layer", "last_layer", "stage", "device", "query_heads_begin",
                        "query_heads_end", "kv_heads_begin", "kv_heads_end", "mlp_features_begin",
                        "mlp_features_end", "weights_bytes", "kv_bytes", "compute_us",
                        "exchange_us"});
        for (const LayerRun& run : i_.layers)
            for (const LayerShare& s : run.shares)
                table.row({run.first, run.last, run.stage, name(s.device), begin(s.query_heads),
                           end(s.query_heads), begin(s.kv_heads), end(s.kv_heads), begin(s.mlp),
                           end(s.mlp), s.weight_bytes, s.kv_bytes, microseconds(run.compute_ns),
                           microseconds(run.exchange_ns)});
        return table.text();
    }

    std::string memory() const {
        CsvTable table({"device", "arena", "what", "buffers", "bytes"});
        for (size_t d = 0; d < i_.memory.size(); ++d)
            for (const MemoryItem& item : i_.memory[d].items)
                table.row({name(DeviceId(d)), arena_name(item.arena), item.what, item.buffers,
                           item.bytes});
        return table.text();
    }

    std::string kernels() const {
        CsvTable table({"device", "phase", "name", "arch", "fused", "launches", "predicted_us",
                        "bytes", "grid_x", "grid_y", "grid_z", "threads", "shared_memory_bytes",
                        "limit_shared_memory_bytes", "warps", "most_warps"});
        for (const KernelUse& k : i_.kernels)
            table.row({name(k.device), k.is_prefill ? "prefill" : "decode", k.name, k.arch,
                       fmt::format("{}", fmt::join(k.fused, " ")), k.launches,
                       microseconds(k.predicted_ns), k.bytes, k.grid[0], k.grid[1], k.grid[2],
                       k.threads, k.shared_bytes, k.shared_limit,
                       k.is_gpu ? CsvCell(k.occupancy.warps) : CsvCell(),
                       k.is_gpu ? CsvCell(k.occupancy.most_warps) : CsvCell()});
        return table.text();
    }

    std::string measured() const {
        CsvTable table({"phase", "device", "id", "what", "layer", "start_us", "ready_us", "end_us",
                        "predicted_start_us", "predicted_end_us"});
        for (bool is_prefill : {true, false}) {
            const auto& pass = i_.measured->pass[is_prefill ? 1 : 0];
            if (!pass) continue;
            for (const MeasuredDevice& device : pass->devices)
                for (const MeasuredStep& s : device.steps) {
                    const Step& step = plan_.phase(is_prefill).steps[s.step.index()];
                    table.row({is_prefill ? "prefill" : "decode", name(device.device),
                               s.step.index(), step_words(plan_.graph, step), step.layer,
                               microseconds(s.start_ns), microseconds(s.ready_ns),
                               microseconds(s.end_ns), microseconds(s.predicted_start_ns),
                               microseconds(s.predicted_end_ns)});
                }
        }
        return table.text();
    }

    std::string differences() const {
        CsvTable table({"phase", "device", "cause", "what", "steps", "measured_us", "predicted_us",
                        "difference_us", "says"});
        for (bool is_prefill : {true, false}) {
            const auto& pass = i_.measured->pass[is_prefill ? 1 : 0];
            if (!pass) continue;
            for (const Difference& d : pass->differences)
                table.row({is_prefill ? "prefill" : "decode", name(d.device), cause_name(d.cause),
                           d.what, d.steps, microseconds(d.measured_ns),
                           microseconds(d.predicted_ns), microseconds(d.difference_ns()), d.says});
        }
        return table.text();
    }

    const Inspection& i_;
    const Plan& plan_;
};

}  // namespace

std::vector<NamedTable> inspection_tables(const Inspection& inspection) {
    return Tables(inspection).run();
}

}  // namespace cleave::tools
