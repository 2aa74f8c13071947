// SPDX-License-Identifier: Apache-2.0
#include "planner/search/cost_tables.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/analysis/storage.h"
#include "planner/build/assign_memory.h"
#include "planner/cost/collective_form.h"
#include "planner/cost/reached.h"
#include "planner/cost/simulate.h"
#include "planner/plan/foreign_op.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using namespace importer;

namespace {

// Groups with equal signatures cost the same wherever they run.
std::vector<int64_t> signature(const Analysis& a, const FusedGroup& group) {
    std::vector<int64_t> key{static_cast<int64_t>(group.kernel),
                             static_cast<int64_t>(group.split.work.axis),
                             group.split.work.units,
                             group.split.work.unit_size,
                             group.split.work.group,
                             static_cast<int64_t>(group.split.effect),
                             group.epilogue.valid(),
                             group.residual.valid()};
    for (OpId id : group.ops) {
        const Op& op = a.graph.op(id);
        key.push_back(static_cast<int64_t>(op.kind));
        for (WeightId w : op.weights) {
            const Weight& weight = a.graph.weight(w);
            key.push_back(static_cast<int64_t>(weight.dtype));
            key.push_back(static_cast<int64_t>(weight.packing));
            key.insert(key.end(), weight.shape.begin(), weight.shape.end());
        }
        if (op.kind == OpKind::kAttention) {
            const auto& t = op.as<AttentionAttrs>();
            key.insert(key.end(),
                       {t.num_heads, t.num_kv_heads, t.head_dim, t.v_head_dim, t.window});
        }
        if (op.kind == OpKind::kOpaque)
            key.insert(key.end(), {op.as<OpaqueAttrs>().flops, op.as<OpaqueAttrs>().bytes});
        if (op.kind == OpKind::kTensor) {
            key.push_back(op.as<TensorAttrs>().flops);
            if (std::optional<ForeignOp> f = foreign_op(op))
                key.insert(key.end(), {static_cast<int64_t>(f->split), f->split_units,
                                       f->flops_per_token, f->bytes, f->bytes_per_token});
            for (const TensorOperand& o : op.as<TensorAttrs>().operands)
                key.insert(key.end(), o.shape.begin(), o.shape.end());
            for (const TensorOperand& o : op.as<TensorAttrs>().results)
                key.insert(key.end(), o.shape.begin(), o.shape.end());
        }
    }
    for (const auto* values : {&group.inputs, &group.outputs})
        for (ValueId v : *values)
            key.insert(key.end(), {last_dimension(a.graph.value(v)),
                                   static_cast<int64_t>(rows_of(a.graph.value(v)))});
    return key;
}

std::vector<int64_t> signature(const DeviceInfo& d) {
    return {static_cast<int64_t>(d.kind),
            d.memory_bytes,
            d.reserved_bytes,
            d.collectives_bytes,
            d.memory_bandwidth,
            d.memory_domain,
            d.flops_f32,
            d.flops_f16,
            d.flops_f8,
            d.flops_int8,
            d.launch_overhead_ns,
            std::llround(1e6 * reached_by(d).bandwidth),
            std::llround(1e6 * reached_by(d).latency),
            d.limits.warp_width,
            d.limits.num_compute_units,
            d.measured.bandwidth,
            d.measured.widening,
            d.measured.cache_bytes,
            d.measured.cache_bandwidth,
            d.measured.flops_f32,
            d.measured.flops_narrow,
            d.measured.attention_bandwidth,
            d.measured.attention_flops,
            d.measured.launch_ns,
            d.measured.launch_alone_ns};
}

// Members with the same memory and room fit alike: one of each is enough to ask.
void keep_distinct_members(RangeTable& table) {
    std::vector<std::vector<int64_t>> memory;
    std::vector<int64_t> room;
    for (size_t m = 0; m < table.room.size(); ++m) {
        bool known = false;
        for (size_t k = 0; k < room.size() && !known; ++k)
            known = room[k] == table.room[m] && memory[k] == table.memory[m];
        if (known) continue;
        memory.push_back(std::move(table.memory[m]));
        room.push_back(table.room[m]);
    }
    table.memory = std::move(memory);
    table.room = std::move(room);
}

}  // namespace

bool RangeTable::fits(int from, int to) const {
    for (size_t m = 0; m < room.size(); ++m)
        if (memory_of(m, from, to) > room[m]) return false;
    return true;
}

CostTables::CostTables(const Analysis& analysis, const Machine& machine, const Workload& workload,
                       std::vector<DeviceId> order, int64_t slack)
    : analysis_(analysis),
      machine_(machine),
      workload_(workload),
      links_(machine),
      launches_(analysis, machine, workload),
      order_(std::move(order)),
      slack_(slack),
      generated_(generated_tokens(workload)),
      passes_(num_prefill_passes(workload)),
      decode_point_(decode_point(workload)),
      prefill_point_(prefill_point(workload)) {
    classify_groups();
    classify_devices();
    std::vector<DeviceId> devices = devices_of(0, num_devices());
    repeats_ = std::adjacent_find(devices.begin(), devices.end()) != devices.end();
    crossing_.assign(analysis.units.size(), {0, 0});
    for (size_t v = 0; v < analysis.graph.values.size(); ++v) {
        if (analysis.made_by[v] < 0) continue;
        Amount bytes = value_bytes(analysis.graph.values[v], 0, workload_);
        for (size_t u = 1; u < analysis.units.size(); ++u)
            if (analysis.made_by[v] < analysis.units[u].begin &&
                analysis.units[u].begin <= analysis.last_group[v]) {
                crossing_[u].first += bytes.at(decode_point_);
                crossing_[u].second += bytes.at(prefill_point_);
            }
    }
}

void CostTables::classify_groups() {
    std::map<std::vector<int64_t>, int> classes;
    for (size_t g = 0; g < analysis_.groups.size(); ++g) {
        auto [at, fresh] = classes.try_emplace(signature(analysis_, analysis_.groups[g]),
                                               static_cast<int>(class_example_.size()));
        if (fresh) {
            class_example_.push_back(static_cast<int>(g));
        }
        group_class_.push_back(at->second);
    }
}

void CostTables::classify_devices() {
    std::map<std::vector<int64_t>, int> classes;
    for (const DeviceInfo& d : machine_.devices)
        device_class_.push_back(
            classes.try_emplace(signature(d), static_cast<int>(classes.size())).first->second);
    hosts_tell_links_ = links_.tell_links(device_class_);
}

std::vector<DeviceId> CostTables::devices_of(int first, int count) const {
    std::vector<DeviceId> devices(order_.begin() + first, order_.begin() + first + count);
    std::sort(devices.begin(), devices.end());
    return devices;
}

bool CostTables::unequal(int first, int count) const {
    for (int i = 1; i < count; ++i)
        if (device_class_[order_[first + i].index()] != device_class_[order_[first].index()])
            return true;
    return false;
}

bool CostTables::repeats(int first, int count) const {
    if (!repeats_) return false;
    std::vector<DeviceId> devices = devices_of(first, count);
    return std::adjacent_find(devices.begin(), devices.end()) != devices.end();
}

const RangeTable& CostTables::range(int first, int count, ShareMode mode) {
    auto place = std::tuple(first, count, static_cast<int>(mode));
    if (auto at = by_place_.find(place); at != by_place_.end()) return *at->second;
    std::vector<DeviceId> devices = devices_of(first, count);
    std::vector<int64_t> key{static_cast<int64_t>(mode)};
    for (DeviceId d : devices) key.push_back(device_class_[d.index()]);
    if (hosts_tell_links_) {  // which of them are of one host
        std::map<int, int64_t> hosts;
        for (DeviceId d : devices)
            key.push_back(hosts.try_emplace(links_.node(d), static_cast<int64_t>(hosts.size()))
                              .first->second);
    } else {  // what the links between them cost, at two sizes
        for (int64_t bytes : {int64_t{1}, int64_t{1} << 30})
            for (auto form : {SumForm::kOneShot, SumForm::kTwoPhase, SumForm::kRing})
                key.push_back(links_.all_reduce_ns(devices, bytes, form));
        key.push_back(links_.num_nodes(devices));
    }
    std::unique_ptr<RangeTable>& table = ranges_[key];
    if (!table) table = make_range(devices, choose_shares(first, count, mode));
    return *(by_place_[place] = table.get());
}

bool CostTables::begins_host(int first) const {
    return first == 0 || links_.node(order_[first]) != links_.node(order_[first - 1]);
}

const std::vector<int64_t>& CostTables::entry_costs(int first, int count) {
    return crossing_costs(first - 1, first, count);
}

const std::vector<int64_t>& CostTables::crossing_costs(int from, int first, int count) {
    auto [at, fresh] = entry_.try_emplace({from, first, count});
    std::vector<int64_t>& costs = at->second;
    if (!fresh) return costs;
    costs.assign(crossing_.size() + 1, 0);
    std::map<std::pair<int64_t, int64_t>, int64_t> known;  // most cuts carry the same bytes
    for (size_t u = 1; u < crossing_.size() && from >= 0; ++u) {
        auto [cost, unknown] = known.try_emplace(crossing_[u], 0);
        if (unknown) {
            int64_t decode = 0, prefill = 0;
            for (int i = 0; i < count; ++i) {
                decode = std::max(decode, links_.transfer_ns(order_[from], order_[first + i],
                                                             crossing_[u].first));
                prefill = std::max(prefill, links_.transfer_ns(order_[from], order_[first + i],
                                                               crossing_[u].second));
            }
            cost->second = decode * generated_ + prefill * passes_;
        }
        costs[u] = cost->second;
    }
    return costs;
}

namespace {

// Where a matrix is quantised and its columns are cut, no block may be on two devices: results
// would depend on their number.
void align_to_blocks(const Analysis& a, const Workload& workload, StageShares& shares) {
    for (size_t i = 0; i < a.graph.ops.size(); ++i) {
        const Op& op = a.graph.ops[i];
        const OpSplit& split = a.splits.ops[i];
        if (split.weight != WeightCut::kColumns || op.weights.empty()) continue;
        int64_t block = column_block(a.graph.weight(op.weights[0]), workload);
        int64_t granule = block / std::gcd(block, split.work.unit_size);
        bool heads = split.work.axis == Axis::kQueryHeads;
        int64_t& aligned = heads ? shares.head_granule : shares.granule;
        aligned = std::lcm(aligned, granule);
    }
}

}  // namespace

double CostTables::time_alone(DeviceId device) {
    double& time = time_alone_.try_emplace(device_class_[device.index()], 0).first->second;
    if (time > 0) return time;
    for (int cls : group_class_) {
        const auto example = static_cast<size_t>(class_example_[cls]);
        const FusedGroup& group = analysis_.groups[example];
        const LaunchAmounts amounts =
            launch_amounts(analysis_, group, {0, group.split.work.units}, workload_, true);
        const auto ns = [&](bool is_prefill) {
            return static_cast<double>(launches_.time(device, example, amounts, is_prefill, 1).ns);
        };
        time +=
            ns(false) * static_cast<double>(generated_) + ns(true) * static_cast<double>(passes_);
    }
    return time;
}

StageShares CostTables::choose_shares(int first, int count, ShareMode mode) {
    std::vector<DeviceId> devices = devices_of(first, count);
    StageShares shares;
    shares.weights.assign(count, 1);
    align_to_blocks(analysis_, workload_, shares);
    if (unequal(first, count)) {
        for (int i = 0; i < count; ++i) {
            const DeviceInfo& d = machine_.device(devices[i]);
            if (mode == ShareMode::kByMemory) {
                shares.weights[i] = std::max<int64_t>(1, (d.memory_bytes - d.reserved_bytes) >> 20);
                continue;
            }
            shares.weights[i] =
                std::max<int64_t>(1, std::llround(1e18 / std::max(1.0, time_alone(devices[i]))));
        }
        // Small integers keep products exact and plans readable.
        int64_t largest = *std::max_element(shares.weights.begin(), shares.weights.end());
        for (int64_t& w : shares.weights)
            w = std::max<int64_t>(
                1, std::llround(static_cast<double>(w) * 10000.0 / static_cast<double>(largest)));
    }
    // Whole KV groups where that costs no more than cutting between query heads.
    if (count > 1) {
        auto total = [&](bool whole_groups) {
            StageShares s = shares;
            s.whole_groups = whole_groups;
            double cost = 0;
            std::vector<double> of_class(class_example_.size(), -1.0);
            for (int cls : group_class_) {
                if (of_class[cls] < 0) {
                    GroupCost c = group_cost(analysis_.groups[class_example_[cls]], devices, s);
                    of_class[cls] =
                        static_cast<double>(c.decode) * static_cast<double>(generated_) +
                        static_cast<double>(c.prefill) * static_cast<double>(passes_);
                }
                cost += of_class[cls];
            }
            return cost;
        };
        shares.whole_groups = total(true) <= total(false);
    }
    return shares;
}

double CostTables::domain_slowdown(const std::vector<DeviceId>& devices) const {
    double worst = 1.0;
    for (size_t domain = 0; domain < machine_.domains.size(); ++domain) {
        double wanted = 0;
        for (DeviceId d : devices)
            if (machine_.device(d).memory_domain == static_cast<int>(domain))
                wanted += static_cast<double>(machine_.device(d).memory_bandwidth);
        worst = std::max(worst, wanted / static_cast<double>(std::max<int64_t>(
                                             1, machine_.domains[domain].bandwidth)));
    }
    return worst;
}

CostTables::GroupCost CostTables::group_cost(const FusedGroup& group,
                                             const std::vector<DeviceId>& devices,
                                             const StageShares& shares) const {
    GroupCost cost;
    std::vector<Range> work(devices.size());
    if (!group.split.work.whole()) work = ranges_of(shares, group.split.work);
    bool sum = is_partial(group) && devices.size() > 1;
    auto number = static_cast<size_t>(&group - analysis_.groups.data());
    double slowdown = domain_slowdown(devices);
    auto hosts = static_cast<size_t>(std::count_if(devices.begin(), devices.end(), [&](DeviceId d) {
        return machine_.device(d).kind == DeviceKind::kHost;
    }));
    auto slowed = [&](LaunchCosts::Time t) {
        return t.fixed_ns + std::llround(static_cast<double>(t.ns - t.fixed_ns) * slowdown);
    };
    // Of members of one class those with as much of the group, at the same place in a KV group, are
    // alike, unless an operator of it is split in another way.
    const Split& whole = group.split.work;
    const bool one_split = std::ranges::all_of(group.ops, [&](OpId id) {
        const Split& split = analysis_.splits.ops[id.index()].work;
        return split.whole() || split.axis == whole.axis ||
               (split.group == whole.group && whole.group > 1);
    });
    std::map<std::tuple<int, int64_t, int64_t>, size_t> seen;
    for (size_t i = 0; i < devices.size(); ++i) {
        const auto [like, fresh] =
            seen.try_emplace({device_class_[devices[i].index()], work[i].size(),
                              work[i].begin % std::max<int64_t>(1, whole.group)},
                             i);
        if (one_split && !fresh) {
            const int64_t bytes = cost.memory[like->second];
            cost.memory.push_back(bytes);
            continue;
        }
        cost.memory.push_back(shard_memory(group, work, i, shares));
        if (!group.split.work.whole() && work[i].empty()) continue;
        LaunchAmounts amounts = launch_amounts(analysis_, group, work[i], workload_, !sum);
        cost.decode = std::max<int64_t>(
            cost.decode, slowed(launches_.time(devices[i], number, amounts, false, hosts)));
        cost.prefill = std::max<int64_t>(
            cost.prefill, slowed(launches_.time(devices[i], number, amounts, true, hosts)));
    }
    if (devices.size() == 1) return cost;
    if (sum) {
        const importer::Value& partial = analysis_.graph.value(group.partial);
        Amount payload = value_bytes(partial, 0, workload_);
        const bool is_rows = partial.kind != importer::ValueKind::kTensor;
        auto exchange = [&](const PassPoint& point, bool is_prefill) {
            return choose_all_reduce(links_, devices, payload.at(point), is_prefill, is_rows).ns;
        };
        cost.decode += exchange(decode_point_, false);
        cost.prefill += exchange(prefill_point_, true);
    } else if (is_gathered(group)) {
        const Amount payload = value_bytes(analysis_.graph.value(group.outputs[0]), 0, workload_);
        cost.decode += links_.gather_ns(devices, devices, payload.at(decode_point_));
        cost.prefill += links_.gather_ns(devices, devices, payload.at(prefill_point_));
    } else if (group.split.work.axis == Axis::kVocabulary && !group.outputs.empty()) {
        Amount payload = value_bytes(analysis_.graph.value(group.outputs[0]), 0, workload_);
        cost.decode += links_.gather_ns(devices, {devices.data(), 1}, payload.at(decode_point_));
        cost.prefill += links_.gather_ns(devices, {devices.data(), 1}, payload.at(prefill_point_));
    }
    return cost;
}

// What a stage on `devices` asks of the vendor's library, as planner/build/steps.cpp will.
CommunicatorUse CostTables::library_use(const std::vector<DeviceId>& devices) const {
    CommunicatorUse use;
    if (devices.size() == 1) return use;
    for (int example : class_example_) {
        const FusedGroup& group = analysis_.groups[example];
        if (is_partial(group)) {
            const importer::Value& partial = analysis_.graph.value(group.partial);
            const Amount payload = value_bytes(partial, 0, workload_);
            const bool is_rows = partial.kind != importer::ValueKind::kTensor;
            for (const bool is_prefill : {true, false})
                use.sums = use.sums || choose_all_reduce(
                                           links_, devices,
                                           payload.at(is_prefill ? prefill_point_ : decode_point_),
                                           is_prefill, is_rows)
                                               .form >= SumForm::kRing;
        } else if (group.split.work.axis == Axis::kVocabulary && !group.outputs.empty()) {
            use.messages = use.messages || gathers_by_library(links_, devices, true);
        }
    }
    return use;
}

// Weights and KV that `member` holds for the group.
int64_t CostTables::shard_memory(const FusedGroup& group, const std::vector<Range>& work,
                                 size_t member, const StageShares& shares) const {
    if (!group.split.work.whole() && work[member].empty()) return 0;
    int64_t bytes = 0;
    for (OpId id : group.ops) {
        const Op& op = analysis_.graph.op(id);
        const OpSplit& split = analysis_.splits.ops[id.index()];
        Range units = split.work.whole()               ? Range{}
                      : split.work == group.split.work ? work[member]
                                                       : ranges_of(shares, split.work)[member];
        for (WeightId w : op.weights) {
            const Weight& weight = analysis_.graph.weight(w);
            WeightBox box = weight_box(weight, split, units);
            bytes += align_up(shard_bytes(weight, box.rows.size(), box.columns.size(),
                                          device_dtype(weight, workload_)));
        }
        if (op.kind == OpKind::kKvAppend) {
            const auto& t = op.as<KvAppendAttrs>();
            bytes += align_up(kv_slab_bytes(split.work.whole() ? t.num_kv_heads : units.size(),
                                            t.head_dim, t.v_head_dim, workload_,
                                            workload_.pool_blocks()));
        }
    }
    return bytes;
}

// At most so much of the weights in a range is there once and counts for several operators, as a
// tied embedding does.
int64_t CostTables::counted_again() const {
    std::vector<int64_t> readers(analysis_.graph.weights.size(), 0);
    for (const Op& op : analysis_.graph.ops)
        for (WeightId w : op.weights) ++readers[w.index()];
    int64_t bytes = 0;
    for (size_t w = 0; w < readers.size(); ++w) {
        const Weight& weight = analysis_.graph.weights[w];
        const int64_t rows = weight.shape.empty() ? 1 : weight.shape[0];
        if (readers[w] > 1)
            bytes += (readers[w] - 1) *
                     align_up(shard_bytes(weight, rows, rows > 0 ? weight.num_elements() / rows : 0,
                                          device_dtype(weight, workload_)));
    }
    return bytes;
}

// Rotary tables, activations, staging and scratch of a member, from above.
int64_t CostTables::fixed_bytes(size_t count) const {
    PassPoint largest{workload_.max_tokens(), workload_.max_outputs(), 0};
    int64_t widest = 0, payload = 0;
    for (int example : class_example_) {
        const FusedGroup& group = analysis_.groups[example];
        int64_t live = 0;
        auto add = [&](ValueId v, bool may_split) {
            if (!v.valid()) return;
            int64_t bytes = value_bytes(analysis_.graph.value(v), 0, workload_).at(largest);
            bool split = may_split && !analysis_.splits.values[v.index()].whole();
            live += split ? bytes / static_cast<int64_t>(count) + bytes / 8 : bytes;
            if (!split) payload = std::max(payload, bytes);
        };
        for (ValueId v : group.inputs) add(v, true);
        for (ValueId v : group.outputs) add(v, true);
        add(group.residual, true);
        if (count > 1) add(group.partial, false);
        // What is gathered is there whole beside its parts, and passes no staging.
        const bool logits = group.split.work.axis == Axis::kVocabulary && !is_partial(group);
        if ((count > 1 && is_gathered(group)) || logits)
            live += value_bytes(analysis_.graph.value(group.outputs[0]), 0, workload_).at(largest);
        widest = std::max(widest, live);
    }
    int64_t ropes = 0;
    for (const RopeTable& table : analysis_.graph.rope_tables)
        ropes += align_up(rope_bytes(table, workload_));
    return widest + payload + ropes + batch_bytes(workload_) + (int64_t{1} << 20);
}

std::unique_ptr<RangeTable> CostTables::make_range(const std::vector<DeviceId>& devices,
                                                   StageShares shares) const {
    auto table = std::make_unique<RangeTable>();
    std::vector<GroupCost> of_class(class_example_.size());
    std::vector<bool> known(class_example_.size(), false);
    int units = num_units();
    table->decode.assign(units + 1, 0);
    table->prefill.assign(units + 1, 0);
    table->cost.assign(units + 1, 0);
    table->memory.assign(devices.size(), std::vector<int64_t>(units + 1, 0));
    for (int u = 0; u < units; ++u) {
        table->decode[u + 1] = table->decode[u];
        table->prefill[u + 1] = table->prefill[u];
        for (size_t m = 0; m < devices.size(); ++m) table->memory[m][u + 1] = table->memory[m][u];
        for (int g = analysis_.units[u].begin; g < analysis_.units[u].end; ++g) {
            int cls = group_class_[g];
            if (!known[cls])
                of_class[cls] = group_cost(analysis_.groups[class_example_[cls]], devices, shares);
            known[cls] = true;
            table->decode[u + 1] += of_class[cls].decode;
            table->prefill[u + 1] += of_class[cls].prefill;
            for (size_t m = 0; m < devices.size(); ++m)
                table->memory[m][u + 1] += of_class[cls].memory[m];
        }
        table->cost[u + 1] = table->decode[u + 1] * generated_ + table->prefill[u + 1] * passes_;
    }
    const int64_t fixed = fixed_bytes(devices.size()), again = counted_again();
    const CommunicatorUse library = library_use(devices);
    std::map<std::pair<int, int>, int64_t> of_alike;  // by class and host
    const auto communicator_of = [&](DeviceId d) -> int64_t {
        if (!library.sums && !library.messages) return 0;
        const auto count = [&] { return only_communicator_bytes(machine_, devices, d, library); };
        if (!hosts_tell_links_) return count();
        const auto [bytes, is_new] =
            of_alike.try_emplace({device_class_[d.index()], links_.node(d)}, 0);
        if (is_new) bytes->second = count();
        return bytes->second;
    };
    for (DeviceId d : devices) {
        const DeviceInfo& device = machine_.device(d);
        const int64_t room = device.memory_bytes - device.reserved_bytes;
        if (slack_ < 0) {
            table->room.push_back(slack_ == kShardsAlone ? room + again : 2 * room);
            continue;
        }
        int64_t scratch = device.kind == DeviceKind::kHost
                              ? device.limits.num_compute_units * (int64_t{4} << 20)
                              : 0;
        table->room.push_back(device.memory_bytes - device.reserved_bytes - fixed - scratch -
                              communicator_of(d) - device.memory_bytes / 1000 * slack_);
    }
    keep_distinct_members(*table);
    table->shares = std::move(shares);
    table->first_fit.assign(units + 1, 0);
    for (int end = 1, from = 0; end <= units; ++end) {
        while (from < end && !table->fits(from, end)) ++from;
        table->first_fit[end] = from;
    }
    return table;
}

}  // namespace cleave::planner
