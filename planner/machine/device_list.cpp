// SPDX-License-Identifier: Apache-2.0
// The grammar of `--devices`: LIST = ENTRY {"," ENTRY}, ENTRY = KIND [":" ARCH] ["[" ITEMS "]"]
// ["/" RANGE].
#include "planner/machine/device_list.h"

#include <charconv>
#include <set>

#include "importer/graph/graph.h"
#include "planner/machine/catalogue.h"
#include "planner/machine/vendor.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using importer::Range;

constexpr int kMaxDevices = 1024;
constexpr std::string_view kGrammar =
    "supported: host, cuda, hip, simt:ARCH, sim:MODEL, null, each with an optional index list, for "
    "example "
    "host[0-3], cuda[4,5], sim:h100[0-7], simt:gfx90a[0-1], cuda[0]/0-3";

// Splits at commas outside brackets.
std::vector<std::string> split_entries(const std::string& text) {
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
    if (last - first >= kMaxDevices)
        throw UserError("$devices: the range {} in '{}' has more than {} devices", item, entry,
                        kMaxDevices);
    return {first, last + 1};
}

struct Entry {
    std::string text, kind, arch, items, logical;
};

// Cuts one entry at ':', '[', ']' and '/', each outside the brackets.
Entry cut_entry(const std::string& text) {
    Entry entry;
    entry.text = text;
    size_t open = text.find('['), close = text.find(']');
    std::string head = text.substr(0, open), tail;
    if (open != std::string::npos) {
        entry.items = text.substr(open + 1, close - open - 1);
        tail = text.substr(close + 1);
        if (entry.items.empty())
            throw UserError(
                "$devices: '{}' has an empty index list; write {}[0] or leave the brackets out",
                text, head);
    } else if (size_t at = head.find_first_of("/@"); at != std::string::npos) {
        tail = head.substr(at);
        head.resize(at);
    }
    if (tail.find('@') != std::string::npos || head.find('@') != std::string::npos)
        throw UserError(
            "$devices: '{}' names a device of another machine; the suffix @HOST is reserved and "
            "this version runs on one machine only",
            text);
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

DeviceKind parse_kind(const Entry& entry) {
    for (DeviceKind kind : kDeviceKinds)
        if (entry.kind == device_kind_name(kind)) return kind;
    throw UserError("$devices: unknown kind of device '{}' in '{}'; {}", entry.kind, entry.text,
                    kGrammar);
}

void check_arch(const Entry& entry, DeviceKind kind) {
    if (kind == DeviceKind::kSim) {
        if (entry.arch.empty())
            throw UserError(
                "$devices: '{}' needs a model, for example sim:h100; the catalogue has {}",
                entry.text, catalogue_names());
        if (!find_model(entry.arch))
            throw UserError(
                "$devices: the catalogue has no model '{}' ('{}'); it has {}. Describe other "
                "devices in a "
                "file and give it with $machine",
                entry.arch, entry.text, catalogue_names());
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
            "$devices: '{}': {} devices take no architecture; it is read from the device{}",
            entry.text, entry.kind, kind == DeviceKind::kHost ? " ($cpu_arch overrides it)" : "");
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
    if (entry.logical.empty()) {
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
        spec.text = base + "/" + std::to_string(i);
        specs.push_back(spec);
    }
}

void expand_entry(std::vector<DeviceSpec>& specs, const Entry& entry) {
    DeviceSpec spec;
    spec.kind = parse_kind(entry);
    check_arch(entry, spec.kind);
    spec.arch = entry.arch;
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

std::vector<DeviceSpec> parse_devices(const std::string& text) {
    std::vector<DeviceSpec> specs;
    for (const std::string& entry : split_entries(text)) {
        if (entry.empty()) throw UserError("$devices '{}' has an empty entry; {}", text, kGrammar);
        expand_entry(specs, cut_entry(entry));
        if (specs.size() > static_cast<size_t>(kMaxDevices))
            throw UserError("$devices {}: more than {} devices", text, kMaxDevices);
    }
    std::set<std::string> seen;
    for (const DeviceSpec& spec : specs)
        if (!seen.insert(spec.text).second)
            throw UserError("$devices {}: {} is given twice; each device can be used once", text,
                            spec.text);
    return specs;
}

}  // namespace cleave::planner
