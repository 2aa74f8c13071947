// SPDX-License-Identifier: Apache-2.0
// Machines as JSON: every field by the name it has in planner/machine/machine.h, devices and links
// by device name.
#include "planner/machine/machine_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "planner/machine/arch_limits.h"
#include "planner/machine/fabric.h"
#include "planner/machine/gpu_arch.h"
#include "planner/machine/prices.h"
#include "runtime/base/control_characters.h"
#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"

namespace cleave::planner {
namespace {

using Json = nlohmann::ordered_json;

// Reads fields of one object and says which file, object and field was wrong.
class Reader {
public:
    Reader(const Json& json, std::string path, std::string where)
        : json_(json), path_(std::move(path)), where_(std::move(where)) {
        if (!json.is_object()) throw UserError("{}: {} is no JSON object", path_, where_);
    }

    std::string text(const char* key) {
        const Json& v = at(key);
        if (!v.is_string()) throw UserError("{}: {}.{} is no text", path_, where_, key);
        const auto text = v.get<std::string>();
        if (has_control_characters(text))
            throw UserError("{}: {}.{} has a control character", path_, where_, key);
        return text;
    }
    std::string text_or(const char* key, const std::string& fallback) {
        return has(key) ? text(key) : fallback;
    }
    int64_t number(const char* key, int64_t least) {
        const Json& v = at(key);
        // Measured rates may be written as 2.5e10.
        if (!v.is_number()) throw UserError("{}: {}.{} is no number", path_, where_, key);
        double d = v.get<double>();
        if (!(d >= static_cast<double>(least) && d < 9.2e18))
            throw UserError("{}: {}.{} is {}, which is less than {} or too large", path_, where_,
                            key, d, least);
        return v.is_number_integer() ? v.get<int64_t>() : static_cast<int64_t>(d);
    }
    int64_t number_or(const char* key, int64_t fallback, int64_t least = 0) {
        return has(key) ? number(key, least) : fallback;
    }

    double real_or(const char* key, double fallback) {
        if (!has(key)) return fallback;
        const Json& v = at(key);
        if (!v.is_number()) throw UserError("{}: {}.{} is no number", path_, where_, key);
        return v.get<double>();
    }

    bool flag_or(const char* key, bool fallback) {
        if (!has(key)) return fallback;
        const Json& v = at(key);
        if (!v.is_boolean()) throw UserError("{}: {}.{} is not true or false", path_, where_, key);
        return v.get<bool>();
    }

    // Every key must be one that was asked for, present or not: a misspelt field is an error, not a
    // default.
    void finish() const {
        for (const auto& [key, value] : json_.items())
            if (!asked_.count(key)) {
                std::string known;
                for (const std::string& k : asked_) known += (known.empty() ? "" : ", ") + k;
                throw UserError("{}: {} has an unknown field '{}'; known are {}", path_, where_,
                                key, known);
            }
    }
    bool has(const char* key) {
        asked_.insert(key);
        return json_.contains(key);
    }

    template <class Kind, size_t N>
    Kind kind(const char* key, const std::array<Kind, N>& kinds, std::string_view (*name)(Kind)) {
        std::string value = text(key), known;
        for (Kind k : kinds) {
            if (value == name(k)) return k;
            known += (known.empty() ? "" : ", ") + std::string(name(k));
        }
        throw UserError("{}: {}.{} is '{}'; known are {}", path_, where_, key, value, known);
    }

private:
    const Json& at(const char* key) {
        if (!has(key)) throw UserError("{}: {} lacks the field '{}'", path_, where_, key);
        return json_[key];
    }
    const Json& json_;
    std::string path_, where_;
    std::set<std::string> asked_;
};

constexpr const char* kMaxGrid[] = {"max_grid_x", "max_grid_y", "max_grid_z"};

// Numbers that check_device_limits judges.
constexpr int64_t kAnyNumber = INT64_MIN;
struct LimitField {
    const char* name;
    int64_t DeviceLimits::* field;
};
constexpr LimitField kLimitFields[] = {
    {"shared_memory_per_block", &DeviceLimits::shared_memory_per_block},
    {"registers_per_block", &DeviceLimits::registers_per_block},
    {"max_threads_per_block", &DeviceLimits::max_threads_per_block},
    {"warp_width", &DeviceLimits::warp_width},
    {"num_compute_units", &DeviceLimits::num_compute_units}};

struct MeasuredField {
    const char* name;
    int64_t MeasuredRates::* field;
};
constexpr MeasuredField kMeasuredFields[] = {
    {"bandwidth", &MeasuredRates::bandwidth},
    {"bandwidth_alone", &MeasuredRates::bandwidth_alone},
    {"widening", &MeasuredRates::widening},
    {"cache_bytes", &MeasuredRates::cache_bytes},
    {"cache_bandwidth", &MeasuredRates::cache_bandwidth},
    {"flops_f32", &MeasuredRates::flops_f32},
    {"flops_narrow", &MeasuredRates::flops_narrow},
    {"attention_bandwidth", &MeasuredRates::attention_bandwidth},
    {"attention_flops", &MeasuredRates::attention_flops},
    {"launch_ns", &MeasuredRates::launch_ns},
    {"launch_alone_ns", &MeasuredRates::launch_alone_ns}};

MeasuredRates read_measured(const Json& json, const std::string& path, const std::string& where) {
    Reader r(json, path, where + ".measured");
    MeasuredRates measured;
    for (const MeasuredField& f : kMeasuredFields) measured.*f.field = r.number(f.name, 1);
    r.finish();
    return measured;
}

DeviceInfo read_device(const Json& json, const std::string& path, size_t index,
                       size_t num_domains) {
    Reader r(json, path, fmt::format("devices[{}]", index));
    DeviceInfo d;
    d.name = r.text("name");
    d.kind = r.kind("kind", kDeviceKinds, device_kind_name);
    d.arch = r.text_or("arch", "");
    if ((d.arch.starts_with("sm_") || d.arch.starts_with("gfx")) && !find_gpu_arch(d.arch))
        throw UserError(
            "{}: devices[{}].arch is '{}', a GPU architecture that Cleave has no kernels for; "
            "supported are {}",
            path, index, d.arch, gpu_arch_names());
    d.model = r.text_or("model", "");
    d.host = r.text_or("host", "localhost");
    d.identity = r.text_or("identity", "");
    d.pci = r.text_or("pci", "");
    d.collectives = r.text_or("collectives", "");
    d.collectives_bytes = r.number_or("collectives_bytes", 0);
    d.index = static_cast<int>(r.number_or("index", static_cast<int64_t>(index)));
    d.memory_bytes = r.number("memory_bytes", 1);
    d.reserved_bytes = r.number_or("reserved_bytes", 0);
    d.memory_bandwidth = r.number("memory_bandwidth", 1);
    d.memory_domain = static_cast<int>(r.number_or("memory_domain", -1, -1));
    if (d.memory_domain >= static_cast<int>(num_domains))
        throw UserError("{}: devices[{}].memory_domain is {} and there are {} domains", path, index,
                        d.memory_domain, num_domains);
    d.flops_f32 = r.number("flops_f32", 1);
    d.flops_f16 = r.number_or("flops_f16", d.flops_f32, 1);
    d.flops_f8 = r.number_or("flops_f8", d.flops_f16, 1);
    d.flops_int8 = r.number_or("flops_int8", d.flops_f16, 1);
    d.launch_overhead_ns = r.number_or("launch_overhead_ns", 3000);
    if (const double price = r.real_or("price_per_hour", 0); price != 0) {
        if (!is_price(price))
            throw UserError("{}: devices[{}].price_per_hour is {}; {}", path, index, price,
                            kPrices);
        d.price_micros = price_micros(price);
    }
    d.host_cores = r.number_or("host_cores", 0);
    d.limits = default_limits(d.kind, d.arch);
    for (const LimitField& f : kLimitFields)
        d.limits.*f.field = r.number_or(f.name, d.limits.*f.field, kAnyNumber);
    for (size_t axis = 0; axis < 3; ++axis)
        d.limits.max_grid[axis] = r.number_or(kMaxGrid[axis], d.limits.max_grid[axis], kAnyNumber);
    check_device_limits(d, fmt::format("{}: devices[{}]", path, index));
    if (r.has("measured"))
        d.measured = read_measured(json["measured"], path, fmt::format("devices[{}]", index));
    r.finish();
    return d;
}

DeviceId find_device(const Machine& machine, const std::string& name, const std::string& path,
                     const std::string& where) {
    for (size_t i = 0; i < machine.devices.size(); ++i)
        if (machine.devices[i].name == name) return DeviceId(i);
    throw UserError("{}: {} names the device '{}', which 'devices' does not have", path, where,
                    name);
}

Link read_link(const Json& json, const std::string& path, size_t index, const Machine& machine) {
    std::string where = fmt::format("links[{}]", index);
    Reader r(json, path, where);
    Link l;
    l.from = find_device(machine, r.text("from"), path, where + ".from");
    l.to = find_device(machine, r.text("to"), path, where + ".to");
    if (l.from == l.to)
        throw UserError("{}: {} links {} with itself", path, where, machine.device(l.from).name);
    l.kind = r.kind("kind", kLinkKinds, link_kind_name);
    l.bandwidth = r.number("bandwidth", 1);
    l.latency_ns = r.number_or("latency_ns", 5000);
    l.domain = static_cast<int>(r.number_or("domain", -1, -1));
    l.exchange_bandwidth = r.number_or("exchange_bandwidth", 0);
    l.exchange_latency_ns = r.number_or("exchange_latency_ns", 0);
    l.peer_access = r.flag_or("peer_access", false);
    if (l.domain >= static_cast<int>(machine.domains.size()))
        throw UserError("{}: {}.domain is {} and there are {} domains", path, where, l.domain,
                        machine.domains.size());
    r.finish();
    return l;
}

const Json& array_of(const Json& json, const char* key, const std::string& path) {
    static const Json kEmpty = Json::array();
    if (!json.contains(key)) return kEmpty;
    if (!json[key].is_array()) throw UserError("{}: '{}' is no array", path, key);
    return json[key];
}

}  // namespace

Machine load_machine(const std::string& path) {
    return parse_machine(read_regular_file(path), path);
}

Machine parse_machine(const std::string& text, const std::string& path) {
    const Json json = parse_json(
        text, path, "a machine file is JSON as $save_machine writes it: start from one of those");
    Reader top(json, path, "the machine");
    // "measurement": how far the rates are to be trusted; nothing of the machine depends on it.
    // "absent": what `cleave devices --json` says of kinds that are not there.
    for (const char* key : {"domains", "devices", "links", "measurement", "absent"}) top.has(key);
    Machine machine;
    machine.name = top.text_or("name", "");
    machine.fabric = top.text_or("fabric", "");
    if (!machine.fabric.empty() && !find_fabric(machine.fabric))
        throw UserError("{}: the machine.fabric is '{}'; known are {}", path, machine.fabric,
                        fabric_names());
    machine.network_measured = top.flag_or("network_measured", false);
    machine.sum_skew_ns = top.number_or("sum_skew_ns", 0);
    if (machine.sum_skew_ns > kMostSumSkewNs)
        throw UserError("{}: the machine.sum_skew_ns is {}; it is {} at most", path,
                        machine.sum_skew_ns, kMostSumSkewNs);
    top.finish();
    size_t i = 0;
    for (const Json& d : array_of(json, "domains", path)) {
        Reader r(d, path, fmt::format("domains[{}]", i++));
        machine.domains.push_back({r.text("name"), r.number("bandwidth", 1)});
        r.finish();
    }
    i = 0;
    if (const size_t count = array_of(json, "devices", path).size(); count > kMostDevices)
        throw UserError("{}: the machine has {} devices; {} at most are planned for", path, count,
                        kMostDevices);
    for (const Json& d : array_of(json, "devices", path))
        machine.devices.push_back(read_device(d, path, i++, machine.domains.size()));
    if (machine.devices.empty())
        throw UserError("{}: the machine has no devices; 'devices' lists at least one", path);
    std::set<std::string> names;
    for (const DeviceInfo& d : machine.devices)
        if (!names.insert(d.name).second)
            throw UserError("{}: two devices are called '{}'", path, d.name);
    i = 0;
    std::set<std::pair<DeviceId, DeviceId>> pairs;
    for (const Json& l : array_of(json, "links", path)) {
        machine.links.push_back(read_link(l, path, i++, machine));
        const Link& link = machine.links.back();
        if (!pairs.insert({link.from, link.to}).second)
            throw UserError("{}: two links lead from {} to {}", path,
                            machine.device(link.from).name, machine.device(link.to).name);
    }
    std::stable_sort(machine.links.begin(), machine.links.end(), [](const Link& a, const Link& b) {
        return std::pair(a.from, a.to) < std::pair(b.from, b.to);
    });
    return machine;
}

std::string machine_to_json(const Machine& machine) {
    Json json;
    json["name"] = machine.name;
    if (!machine.fabric.empty()) json["fabric"] = machine.fabric;
    if (machine.network_measured) json["network_measured"] = true;
    if (machine.sum_skew_ns > 0) json["sum_skew_ns"] = machine.sum_skew_ns;
    json["domains"] = Json::array();
    for (const BandwidthDomain& d : machine.domains)
        json["domains"].push_back({{"name", d.name}, {"bandwidth", d.bandwidth}});
    json["devices"] = Json::array();
    for (const DeviceInfo& d : machine.devices) {
        json["devices"].push_back({{"name", d.name},
                                   {"kind", device_kind_name(d.kind)},
                                   {"arch", d.arch},
                                   {"model", d.model},
                                   {"host", d.host},
                                   {"identity", d.identity},
                                   {"index", d.index},
                                   {"memory_bytes", d.memory_bytes},
                                   {"reserved_bytes", d.reserved_bytes},
                                   {"memory_bandwidth", d.memory_bandwidth},
                                   {"memory_domain", d.memory_domain},
                                   {"flops_f32", d.flops_f32},
                                   {"flops_f16", d.flops_f16},
                                   {"flops_f8", d.flops_f8},
                                   {"flops_int8", d.flops_int8},
                                   {"launch_overhead_ns", d.launch_overhead_ns}});
        for (const LimitField& f : kLimitFields) json["devices"].back()[f.name] = d.limits.*f.field;
        if (!d.pci.empty()) json["devices"].back()["pci"] = d.pci;
        if (d.limits.max_grid != DeviceLimits{}.max_grid)
            for (size_t axis = 0; axis < 3; ++axis)
                json["devices"].back()[kMaxGrid[axis]] = d.limits.max_grid[axis];
        if (!d.collectives.empty()) json["devices"].back()["collectives"] = d.collectives;
        if (d.collectives_bytes > 0)
            json["devices"].back()["collectives_bytes"] = d.collectives_bytes;
        if (d.is_numa_node()) json["devices"].back()["host_cores"] = d.host_cores;
        if (d.price_micros > 0)
            json["devices"].back()["price_per_hour"] = static_cast<double>(d.price_micros) / 1e6;
        if (d.measured.bandwidth <= 0) continue;
        Json& measured = json["devices"].back()["measured"];
        for (const MeasuredField& f : kMeasuredFields) measured[f.name] = d.measured.*f.field;
    }
    json["links"] = Json::array();
    for (const Link& l : machine.links) {
        json["links"].push_back({{"from", machine.device(l.from).name},
                                 {"to", machine.device(l.to).name},
                                 {"kind", link_kind_name(l.kind)},
                                 {"bandwidth", l.bandwidth},
                                 {"latency_ns", l.latency_ns},
                                 {"domain", l.domain}});
        if (l.peer_access) json["links"].back()["peer_access"] = true;
        if (l.exchange_latency_ns <= 0) continue;
        json["links"].back()["exchange_bandwidth"] = l.exchange_bandwidth;
        json["links"].back()["exchange_latency_ns"] = l.exchange_latency_ns;
    }
    return json.dump(2) + "\n";
}

HostCalibration calibration_of(const Machine& machine, const std::string& path) {
    for (const Link& link : machine.links) {
        const DeviceInfo& from = machine.device(link.from);
        if (from.kind != DeviceKind::kHost || from.measured.bandwidth <= 0 ||
            link.kind != LinkKind::kSameMemory || link.exchange_latency_ns <= 0)
            continue;
        return {from.measured, link.bandwidth, link.latency_ns, link.exchange_bandwidth,
                link.exchange_latency_ns};
    }
    throw UserError(
        "{}: no two host devices with measured rates and a measured link between them; write it "
        "with $measure_machine",
        path);
}

}  // namespace cleave::planner
