// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/sweep.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "planner/ask/at_once.h"
#include "planner/ask/limits.h"
#include "planner/search/check_sizes.h"

namespace cleave::planner {
namespace {

constexpr size_t kMostRows = 4096;

// The first devices of a machine, or further ones like its last.
Machine first_devices(const Machine& machine, size_t count) {
    if (count <= machine.devices.size()) {
        std::vector<DeviceId> first;
        for (size_t d = 0; d < count; ++d) first.emplace_back(d);
        Machine part = part_of(machine, first);
        return part;
    }
    Machine more = machine;
    while (more.devices.size() < count) {
        const std::string next = next_device(more, DeviceId(more.devices.size() - 1));
        if (next.empty())
            throw UserError("devices={}: there are {}; name as many in $devices", count,
                            machine.devices.size());
        more = with_devices(more, next);
    }
    return more;
}

void set_value(Case& asked, const std::string& axis, const std::string& value) {
    if (axis == "dtype" || axis == "kv-dtype") {
        (axis == "dtype" ? asked.workload.dtype : asked.workload.kv_dtype) = parse_dtype(value);
        return;
    }
    const int64_t number = parse_size(value).value_or(0);
    if (axis == "devices") {
        if (static_cast<size_t>(number) != asked.machine.devices.size())
            asked.options.tensor_parallel = asked.options.pipeline_stages = 0;
        asked.machine = first_devices(asked.machine, static_cast<size_t>(number));
    } else if (axis == "batch") {
        asked.workload.batch = number;
        asked.options.most_users = false;
    } else if (axis == "context") {
        asked.workload.context = number;
    } else if (axis == "prompt") {
        asked.workload.prompt_tokens = number;
    } else {
        (axis == "tp" ? asked.options.tensor_parallel : asked.options.pipeline_stages) =
            static_cast<int>(number);
    }
}

SweepRow row_of_values(const Case& base, const std::vector<SweepAxis>& axes,
                       std::vector<std::string> values) {
    SweepRow row{.values = std::move(values), .figures = {}, .refusal = {}};
    Case asked = base;
    // Devices first: they free a shape, which an axis of its own may force.
    for (const bool devices : {true, false})
        for (size_t i = 0; i < axes.size(); ++i)
            if ((axes[i].name == "devices") == devices)
                set_value(asked, axes[i].name, row.values[i]);
    row.refusal = why_no_context(asked.graph, asked.workload.context);
    if (!row.refusal.empty()) return row;
    const Outcome outcome = outcome_of(asked);
    row.refusal = outcome.refusal;
    row.lacks_memory = outcome.lacks_memory;
    if (!outcome.plan) return row;
    row.figures = figures_of(*outcome.plan);
    return row;
}

}  // namespace

Sweep sweep(const Case& base, const std::vector<SweepAxis>& axes,
            const std::function<void(size_t, size_t)>& progress) {
    Sweep all{base.graph.name, axes, {}};
    size_t rows = 1;
    std::set<std::string> names;
    for (const SweepAxis& axis : axes) {
        if (!names.insert(axis.name).second)
            throw UserError("{} is swept twice; give all its values in one", axis.name);
        rows *= axis.values.size();
        if (rows > kMostRows)
            throw UserError("the sweep has more than {} rows; give fewer values", kMostRows);
    }
    all.rows.resize(rows);
    std::mutex one_at_a_time;
    size_t done = 0;
    at_once(rows, [&](size_t r) {
        std::vector<std::string> values(axes.size());
        size_t rest = r;
        for (size_t i = axes.size(); i-- > 0;) {
            values[i] = axes[i].values[rest % axes[i].values.size()];
            rest /= axes[i].values.size();
        }
        all.rows[r] = row_of_values(base, axes, std::move(values));
        if (!progress) return;
        const std::lock_guard lock(one_at_a_time);
        progress(++done, rows);
    });
    return all;
}

}  // namespace cleave::planner
