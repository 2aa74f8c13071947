// SPDX-License-Identifier: Apache-2.0
// The grammar of `--devices`: LIST = ENTRY {"," ENTRY}, ENTRY = KIND [":" ARCH] ["[" ITEMS "]"]
// ["/" RANGE] ["@numa"] ["@" HOST]. RANGE behind sim: devices is a number, those of one server.
#include "planner/machine/device_list.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include <fmt/ranges.h>

#include "importer/graph/graph.h"
#include "planner/machine/catalogue.h"
#include "planner/machine/device_hints.h"
#include "planner/machine/vendor.h"
#include "runtime/base/errors.h"
#include "runtime/base/suggest.h"

namespace cleave::planner {
namespace {

using importer::Range;

constexpr std::string_view kGrammar =
    "supported: host, cuda, hip, simt:ARCH, sim:MODEL, null, each with an optional index list, for "
    "example "
    "host[0-3], cuda[4,5], sim:h100[0-7], simt:gfx90a[0-1], cuda[0]/0-3, in servers of four "
    "sim:h100[0-15]/4, NUMA nodes host@numa or host[0-1]@numa, and of another machine host[0]@b";

constexpr std::string_view kNuma = "@numa";

int parse_index(const std::string& digits, const std::string& entry) {
    int value = -1;
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
        throw UserError(
            "$devices: '{}' in '{}' is no device index; write a number, a range such as 0-3, "
            "a UUID (GPU-...) or a PCI address (0000:3b:00.0)",
            digits, entry);
    return value;
}

// "3" or "0-3".
Range parse_range(const std::string& item, const std::string& entry) {
    size_t dash = item.find('-');
    if (dash == std::string::npos) {
        int index = parse_index(item, entry);
        return {index, index + 1};
    }
    int first = parse_index(item.substr(0, dash), entry);
    int last = parse_index(item.substr(dash + 1), entry);
    if (last < first)
        throw UserError(
            "$devices: the range {} in '{}' runs backwards; write {}-{} or list the indices in "
            "the order you want, [{},...,{}]",
            item, entry, last, first, first, last);
    if (last - first >= kMostDevices)
        throw UserError("$devices: the range {} in '{}' has more than {} devices", item, entry,
                        kMostDevices);
    return {first, last + 1};
}

struct Entry {
    std::string text, kind, arch, items, logical, machine;
    bool numa = false;
};

// A host name (RFC 1123, section 2.1) or a rank.
void check_machine(const Entry& entry) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '.';
    };
    if (entry.machine.empty() || entry.machine.size() > 255 ||
        !std::all_of(entry.machine.begin(), entry.machine.end(), allowed))
        throw UserError(
            "$devices: '{}' in '{}' is no host; behind the @ write a host's name or a rank's "
            "number, for example host[0]@b or host[0]@1",
            entry.machine, entry.text);
}

// Cuts one entry at ':', '[', ']', '/' and '@', each outside the brackets.
Entry cut_entry(const std::string& text) {
    Entry entry;
    entry.text = text;
    std::string where = text;
    const auto ends_with_at = [&] {
        const size_t at = where.rfind('@');
        return at != std::string::npos && where.find(']', at) == where.npos ? at : where.npos;
    };
    if (size_t at = ends_with_at(); at != where.npos && where.substr(at) != kNuma) {
        entry.machine = where.substr(at + 1);
        where.resize(at);
        check_machine(entry);
    }
    if (size_t at = ends_with_at(); at != where.npos && where.substr(at) == kNuma) {
        entry.numa = true;
        where.resize(at);
    }
    size_t open = where.find('['), close = where.find(']');
    std::string head = where.substr(0, open), tail;
    if (open != std::string::npos) {
        entry.items = where.substr(open + 1, close - open - 1);
        tail = where.substr(close + 1);
        if (entry.items.empty())
            throw UserError(
                "$devices: '{}' has an empty index list; write {}[0] or leave the brackets out",
                text, head);
    } else if (size_t at = head.find('/'); at != std::string::npos) {
        tail = head.substr(at);
        head.resize(at);
    }
    if (!tail.empty()) {
        if (tail[0] != '/' || tail.size() < 2)
            throw UserError("$devices: '{}' is not understood after the bracket in '{}'; {}", tail,
                            text, kGrammar);
        entry.logical = tail.substr(1);
    }
    size_t colon = head.find(':');
    entry.kind = head.substr(0, colon);
    if (colon != std::string::npos) entry.arch = head.substr(colon + 1);
    return entry;
}

std::string likely(const Entry& entry) {
    const std::string device = likely_device(entry.text);
    return device.empty() || device == entry.text ? "" : " (did you mean " + device + "?)";
}

DeviceKind parse_kind(const Entry& entry) {
    for (DeviceKind kind : kDeviceKinds)
        if (entry.kind == device_kind_name(kind)) return kind;
    throw UserError("$devices: unknown kind of device '{}' in '{}'{}; {}", entry.kind, entry.text,
                    likely(entry), kGrammar);
}

std::vector<std::string> catalogue_words() {
    std::vector<std::string> names;
    for (const CatalogueModel& model : catalogue()) names.emplace_back(model.name);
    return names;
}

void check_arch(const Entry& entry, DeviceKind kind, bool any_model) {
    if (kind == DeviceKind::kSim) {
        if (entry.arch.empty())
            throw UserError(
                "$devices: '{}' needs a model, for example sim:h100; the catalogue has {}",
                entry.text, catalogue_names());
        if (!any_model && !find_model(entry.arch))
            throw UserError(
                "$devices: the catalogue has no model '{}' ('{}'){}; it has {}. Describe other "
                "devices in a "
                "file and give it with $machine",
                entry.arch, entry.text, did_you_mean(entry.arch, catalogue_words()),
                catalogue_names());
    } else if (kind == DeviceKind::kSimt) {
        if (entry.arch.empty())
            throw UserError(
                "$devices: '{}' needs the architecture whose kernels it runs, for example "
                "simt:gfx90a; "
                "supported: {}",
                entry.text, gpu_arch_names());
        if (!find_gpu_arch(entry.arch))
            throw UserError(
                "$devices: simt does not know the architecture '{}' ('{}'); supported: {}",
                entry.arch, entry.text, gpu_arch_names());
    } else if (!entry.arch.empty()) {
        throw UserError(
            "$devices: '{}': {} devices take no architecture; it is read from the device{}{}",
            entry.text, entry.kind, kind == DeviceKind::kHost ? " ($cpu_arch overrides it)" : "",
            std::isdigit(static_cast<unsigned char>(entry.arch[0])) ? likely(entry) : "");
    }
}

bool is_identity(const std::string& item) {
    return item.starts_with("GPU-") || item.starts_with("MIG-") ||
           item.find(':') != std::string::npos;
}

std::vector<std::string> split_items(const std::string& items, const Entry& entry) {
    std::vector<std::string> out(1);
    for (char c : items) {
        if (c == ',')
            out.emplace_back();
        else
            out.back() += c;
    }
    for (const std::string& item : out)
        if (item.empty())
            throw UserError("$devices: an empty index in '{}'; {}", entry.text, kGrammar);
    return out;
}

// One physical device, or its logical ones.
void append_device(std::vector<DeviceSpec>& specs, DeviceSpec spec, const Entry& entry) {
    std::string where = spec.index >= 0 ? std::to_string(spec.index) : spec.identity;
    std::string base =
        entry.kind + (entry.arch.empty() ? "" : ":" + entry.arch) + "[" + where + "]";
    const std::string host = entry.machine.empty() ? "" : "@" + entry.machine;
    if (entry.numa) base += kNuma;
    if (entry.logical.empty()) {
        spec.text = base + host;
        specs.push_back(spec);
        return;
    }
    if (spec.kind == DeviceKind::kSim) {
        spec.per_node = parse_index(entry.logical, entry.text);
        if (spec.per_node < 1)
            throw UserError(
                "$devices: '{}': a server has one device at least; write for example {}/4",
                entry.text, entry.text.substr(0, entry.text.find('/')));
        if (!entry.machine.empty())
            throw UserError(
                "$devices: '{}': servers of so many devices have hosts of their own; give a size "
                "or a host, as in sim:h100[0-15]/8 or sim:h100[0-7]@a,sim:h100[0-7]@b",
                entry.text);
        spec.text = base;
        specs.push_back(spec);
        return;
    }
    if (!is_card(spec.kind))
        throw UserError(
            "$devices: '{}': logical devices exist on cuda and hip cards only; give several {} "
            "devices "
            "instead, for example {}[0-3]",
            entry.text, entry.kind, entry.kind);
    Range range = parse_range(entry.logical, entry.text);
    for (int64_t i = range.begin; i < range.end; ++i) {
        spec.logical = static_cast<int>(i);
        spec.text = fmt::format("{}/{}{}", base, i, host);
        specs.push_back(spec);
    }
}

void expand_entry(std::vector<DeviceSpec>& specs, const Entry& entry, bool any_model) {
    DeviceSpec spec;
    spec.kind = parse_kind(entry);
    check_arch(entry, spec.kind, any_model);
    spec.arch = entry.arch;
    spec.machine = entry.machine;
    spec.numa = entry.numa;
    if (spec.numa && spec.kind != DeviceKind::kHost)
        throw UserError("$devices: '{}': only host devices are NUMA nodes; leave @numa out",
                        entry.text);
    if (spec.numa && entry.items.empty()) {
        if (!entry.machine.empty())
            throw UserError(
                "$devices: '{}': how many NUMA nodes another machine has is not known here; name "
                "them, for example host[0-1]@numa@{}",
                entry.text, entry.machine);
        spec.index = -1;
        spec.text = "host@numa";
        specs.push_back(spec);
        return;
    }
    if (entry.items.empty()) {
        append_device(specs, spec, entry);
        return;
    }
    for (const std::string& item : split_items(entry.items, entry)) {
        if (is_identity(item)) {
            if (!is_card(spec.kind))
                throw UserError(
                    "$devices: '{}': only cuda and hip devices have a UUID or a PCI address",
                    entry.text);
            DeviceSpec chosen = spec;
            chosen.index = -1;
            chosen.identity = item;
            append_device(specs, chosen, entry);
            continue;
        }
        Range range = parse_range(item, entry.text);
        for (int64_t i = range.begin; i < range.end; ++i) {
            spec.index = static_cast<int>(i);
            append_device(specs, spec, entry);
        }
    }
}

}  // namespace

std::vector<std::string> device_entries(const std::string& text) {
    std::vector<std::string> entries(1);
    int depth = 0;
    for (char c : text) {
        if (c == '[') ++depth;
        if (c == ']') --depth;
        if (depth < 0 || depth > 1)
            throw UserError("$devices {}: brackets do not match in '{}'; {}", text,
                            entries.back() + c, kGrammar);
        if (c == ',' && depth == 0) {
            entries.emplace_back();
        } else if (c != ' ') {
            entries.back() += c;
        }
    }
    if (depth != 0)
        throw UserError("$devices {}: '{}' lacks its closing bracket; {}", text, entries.back(),
                        kGrammar);
    return entries;
}

std::vector<DeviceSpec> parse_devices(const std::string& text, bool any_model) {
    std::vector<DeviceSpec> specs;
    for (const std::string& entry : device_entries(text)) {
        if (entry.empty()) throw UserError("$devices '{}' has an empty entry; {}", text, kGrammar);
        expand_entry(specs, cut_entry(entry), any_model);
        if (specs.size() > static_cast<size_t>(kMostDevices))
            throw UserError("$devices: with {} there are more than {} devices, the most a plan has",
                            entry, kMostDevices);
    }
    std::set<std::string> seen;
    for (const DeviceSpec& spec : specs)
        if (!seen.insert(spec.text).second)
            throw UserError("$devices: {} is given twice; each device can be used once", spec.text);
    return specs;
}

namespace {

// The number of the rank that `spec` names.
size_t host_of(const DeviceSpec& spec, const std::vector<std::string>& hosts) {
    size_t found = hosts.size();
    for (size_t r = 0; r < hosts.size(); ++r)
        if (hosts[r] == spec.machine || std::to_string(r) == spec.machine) found = r;
    if (found == hosts.size())
        throw UserError(
            "$devices: {} is on '{}', which takes no part in this run; its hosts, by rank, are {}",
            spec.text, spec.machine, fmt::join(hosts, ", "));
    return found;
}

}  // namespace

std::vector<DeviceSpec> devices_on_hosts(const std::vector<DeviceSpec>& specs,
                                         const std::vector<std::string>& hosts) {
    std::vector<DeviceSpec> placed;
    for (size_t first = 0; first < specs.size();) {
        if (!specs[first].machine.empty()) {
            placed.push_back(specs[first]);
            placed.back().machine = hosts[host_of(specs[first++], hosts)];
            continue;
        }
        size_t end = first;
        while (end < specs.size() && specs[end].machine.empty()) ++end;
        for (const std::string& host : hosts)
            for (size_t i = first; i < end; ++i) {
                placed.push_back(specs[i]);
                placed.back().machine = host;
                placed.back().text += "@" + host;
            }
        first = end;
    }
    std::set<std::pair<std::string, std::string>> seen;
    std::set<std::string> busy;
    for (const DeviceSpec& spec : placed) {
        busy.insert(spec.machine);
        if (!seen.emplace(spec.machine, spec.text.substr(0, spec.text.rfind('@'))).second)
            throw UserError("$devices: {} is given twice; each device can be used once", spec.text);
    }
    for (const std::string& host : hosts)
        if (!busy.contains(host))
            throw UserError(
                "$devices has no device of the host '{}'; add one, for example host[0]@{}, or "
                "start no rank there",
                host, host);
    return placed;
}

}  // namespace cleave::planner
