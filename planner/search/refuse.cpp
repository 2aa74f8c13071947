// SPDX-License-Identifier: Apache-2.0
#include "planner/search/refuse.h"

#include <algorithm>
#include <map>

#include "planner/build/communicator_memory.h"
#include "planner/machine/device_names.h"
#include "planner/machine/vendor.h"
#include "planner/plan/kv_room.h"
#include "planner/plan/objective.h"
#include "planner/plan/text_table.h"

namespace cleave::planner {
namespace {

// The largest value in [low, high) for which `fits` holds, or 0; fits is monotone. Steps of
// `granule`.
template <class Test>
int64_t largest_that_fits(int64_t low, int64_t high, int64_t granule, Test&& fits) {
    int64_t a = low / granule, b = (high - 1) / granule;
    if (a < 1) a = 1;
    if (b < a || !fits(a * granule)) return 0;
    while (a < b) {
        int64_t middle = a + (b - a + 1) / 2;
        if (fits(middle * granule))
            a = middle;
        else
            b = middle - 1;
    }
    return a * granule;
}

std::string fix_batch(const Plan& p, const Fits& fits) {
    Workload w = p.workload;
    int64_t batch = largest_that_fits(1, w.batch, 1, [&](int64_t n) {
        w.batch = n;
        return fits(p.machine, w, p.options);
    });
    if (batch == 0) return "";
    if (!row_of(p.options.objective).serves)
        return fmt::format("$batch {} (the largest batch that fits)", batch);
    return fmt::format("$concurrency {} (the most users who fit)",
                       batch * std::max<int64_t>(p.options.replicas, 1));
}

// A pool of fewer tokens than every sequence at its longest would take.
std::string fix_kv_tokens(const Plan& p, const Fits& fits) {
    // Many users have a whole context each.
    if (p.kv_slabs.empty() || row_of(p.options.objective).serves) return "";
    constexpr int64_t kGranule = 16 * kKvBlock;
    Workload w = p.workload;
    const int64_t least = w.blocks_per_slot() * kKvBlock;
    const int64_t tokens =
        largest_that_fits(least, kv_tokens(p.kv_pool.num_blocks), kGranule, [&](int64_t n) {
            w.kv_tokens = std::max(n, least);
            return fits(p.machine, w, p.options);
        });
    if (tokens == 0) return "";
    return fmt::format("$kv_tokens {} (the most that fit{})", std::max(tokens, least),
                       p.workload.kv_tokens == 0
                           ? fmt::format("; {} sequences of {} take {}", p.workload.batch,
                                         p.workload.context, kv_tokens(p.kv_pool.num_blocks))
                           : "");
}

// Keys and values in fewer bits.
std::string fix_kv_dtype(const Plan& p, const Fits& fits) {
    if (p.kv_slabs.empty() || !p.workload.kv_dtype) return "";
    const int now = dtype_bits(*p.workload.kv_dtype);
    Workload w = p.workload;
    for (DType dtype : {DType::kBF16, DType::kInt8}) {
        if (dtype_bits(dtype) >= now) continue;
        w.kv_dtype = dtype;
        if (fits(p.machine, w, p.options))
            return fmt::format("$kv_dtype {} ({} bits an element of the KV cache instead of {})",
                               dtype, dtype_bits(dtype), now);
    }
    return "";
}

// Only of one that was asked for: what the usual one takes is little.
std::string fix_chunk(const Plan& p, const Fits& fits) {
    constexpr int64_t kUsual = 512;
    Workload w = p.workload;
    const int64_t chunk = largest_that_fits(kUsual, w.max_tokens(), kUsual, [&](int64_t n) {
        w.prefill_chunk = n;
        return fits(p.machine, w, p.options);
    });
    return chunk > 0 ? fmt::format("$prefill_chunk {} (the largest that fits)", chunk) : "";
}

std::string fix_context(const Plan& p, const Fits& fits) {
    Workload w = p.workload;
    int64_t granule = w.context > 512 ? 64 : 1;
    int64_t context = largest_that_fits(std::min(p.workload.prompt_tokens + 1, w.context - 1),
                                        w.context, granule, [&](int64_t n) {
                                            w.context = n;
                                            w.prompt_tokens = std::min(p.workload.prompt_tokens, n);
                                            return fits(p.machine, w, p.options);
                                        });
    return context > 0
               ? fmt::format("$context {} (the longest that fits{})", context,
                             context < p.workload.prompt_tokens ? ", with a shorter prompt" : "")
               : "";
}

std::string fix_dtype(const Plan& p, const Fits& fits) {
    DType now = p.workload.dtype.value_or(p.graph.weights.empty() ? DType::kF32
                                                                  : p.graph.weights.front().dtype);
    for (DType dtype : {DType::kF16, DType::kF8E4M3, DType::kInt4}) {
        if (dtype_bits(dtype) >= dtype_bits(now)) continue;
        Workload w = p.workload;
        w.dtype = now == DType::kF32 || dtype != DType::kF16 ? dtype : DType::kBF16;
        if (fits(p.machine, w, p.options))
            return fmt::format("$dtype {} ({} bits a weight instead of {})", *w.dtype,
                               dtype_bits(*w.dtype), dtype_bits(now));
    }
    return "";
}

// Another device like the last one, linked as the last one is.
Machine with_one_more(const Machine& machine, int number) {
    Machine more = machine;
    DeviceId like(machine.devices.size() - 1), fresh(more.devices.size());
    DeviceInfo device = machine.device(like);
    device.name += fmt::format(" + {}", number);
    more.devices.push_back(device);
    std::vector<Link> links = more.links;
    for (const Link& l : machine.links) {
        if (l.from == like)
            links.push_back({fresh, l.to, l.kind, l.bandwidth, l.latency_ns, l.domain});
        if (l.to == like)
            links.push_back({l.from, fresh, l.kind, l.bandwidth, l.latency_ns, l.domain});
    }
    // Between the pair: as the last device is linked to its nearest neighbour.
    const Link* near = nullptr;
    for (const Link& l : machine.links)
        if (l.from == like && (!near || l.bandwidth > near->bandwidth)) near = &l;
    if (near) {
        links.push_back({like, fresh, near->kind, near->bandwidth, near->latency_ns, near->domain});
        links.push_back({fresh, like, near->kind, near->bandwidth, near->latency_ns, near->domain});
    }
    std::stable_sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
        return std::pair(a.from, a.to) < std::pair(b.from, b.to);
    });
    more.links = std::move(links);
    return more;
}

std::string fix_devices(const Plan& p, const Fits& fits) {
    const DeviceInfo& last = p.machine.devices.back();
    // Host devices share one memory: more of them hold no more.
    if (last.kind == DeviceKind::kHost || last.kind == DeviceKind::kSimt ||
        last.kind == DeviceKind::kNull)
        return "";
    Machine machine = p.machine;
    PlanOptions options = p.options;
    options.tensor_parallel = options.pipeline_stages = 0;
    for (int n = 1; n <= 16; ++n) {
        machine = with_one_more(machine, n);
        if (fits(machine, p.workload, options))
            return fmt::format("{} more device{} like {} ({} in all)", n, n == 1 ? "" : "s",
                               last.name, machine.devices.size());
    }
    return "";
}

std::string fix_shape(const Plan& p, const Fits& fits) {
    if (p.options.tensor_parallel == 0 && p.options.pipeline_stages == 0) return "";
    PlanOptions options = p.options;
    options.tensor_parallel = options.pipeline_stages = 0;
    return fits(p.machine, p.workload, options) ? "leave $tensor_parallel and $pipeline_stages to "
                                                  "the planner: it finds a shape that fits"
                                                : "";
}

std::string fix_pins(const Plan& p, const Fits& fits) {
    if (p.options.pins.empty()) return "";
    PlanOptions options = p.options;
    options.pins.clear();
    return fits(p.machine, p.workload, options) ? "leave out $pins: without the pins it fits" : "";
}

// Cards exchange without a library, too. Of those that reach each other by kernels, else through
// the host.
std::string fix_library(const Plan& p, const Fits& fits) {
    const auto with = std::find_if(p.memory.begin(), p.memory.end(), [&](const DeviceMemory& m) {
        return m.collectives > 0 && is_card(p.machine.device(m.device).kind);
    });
    if (with == p.memory.end()) return "";
    const DeviceInfo& card = p.machine.device(with->device);
    Machine machine = p.machine;
    for (DeviceInfo& d : machine.devices) d.collectives.clear();
    if (!fits(machine, p.workload, p.options)) return "";
    return fmt::format(
        "exchange without {}: name a library that is not there, CLEAVE_{}_LIBRARY=none, or leave "
        "`collectives` out of the machine file",
        library_name(card), vendor_of(card.kind)->collectives);
}

// "12.5 GB", or of alike devices "12.5-13.1 GB".
std::string amount_text(const std::vector<const DeviceMemory*>& devices,
                        int64_t (*of)(const DeviceMemory&)) {
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (const DeviceMemory* m : devices) {
        least = std::min(least, of(*m));
        most = std::max(most, of(*m));
    }
    return span_text(bytes_text(least), bytes_text(most));
}

int64_t lacks(const DeviceMemory& m) { return std::max<int64_t>(0, m.needed() - m.capacity); }

std::string account_text(const Plan& plan, const std::vector<const DeviceMemory*>& alike) {
    std::vector<DeviceId> devices;
    for (const DeviceMemory* m : alike) devices.push_back(m->device);
    const DeviceMemory& first = *alike.front();
    const bool any_lacks =
        std::any_of(alike.begin(), alike.end(), [](const auto* m) { return lacks(*m) > 0; });
    const std::string needs = fmt::format(
        "{}: {}needs {} (weights {}, KV cache {}, activations {}, {}other {}),",
        folded_names(plan.machine, devices), alike.size() > 1 ? "each " : "",
        amount_text(alike, [](const DeviceMemory& m) { return m.needed(); }),
        amount_text(alike, [](const DeviceMemory& m) { return m.weights; }),
        amount_text(alike, [](const DeviceMemory& m) { return m.kv; }),
        amount_text(alike, [](const DeviceMemory& m) { return m.activations; }),
        first.collectives > 0
            ? fmt::format("{}'s buffers {}, ", library_name(plan.machine.device(first.device)),
                          amount_text(alike, [](const DeviceMemory& m) { return m.collectives; }))
            : "",
        amount_text(alike,
                    [](const DeviceMemory& m) { return m.staging + m.scratch + m.reserved; }));
    const std::string has = fmt::format(
        "has {}{}", amount_text(alike, [](const DeviceMemory& m) { return m.capacity; }),
        any_lacks ? ": " + amount_text(alike, lacks) + " short" : "");
    constexpr size_t kColumns = 120;
    const bool one_line = 2 + needs.size() + 1 + has.size() <= kColumns;
    return "\n  " + needs + (one_line ? " " : "\n    ") + has;
}

// Each device's need and deficit, those alike on one line: first what is shown has to be the same,
// and where that leaves too many lines, only the model and whether memory is lacking.
std::string accounts_text(const Plan& plan) {
    constexpr size_t kMostLines = 12;
    std::vector<std::vector<const DeviceMemory*>> groups;
    for (const bool exact : {true, false}) {
        std::map<std::string, size_t> at;
        groups.clear();
        for (const DeviceMemory& m : plan.memory) {
            const std::string& model = plan.machine.device(m.device).model;
            std::string key = fmt::format("{} {}", model, lacks(m) > 0);
            if (exact)
                for (const int64_t bytes : {m.needed(), m.weights, m.kv, m.activations, m.capacity})
                    key += " " + bytes_text(bytes);
            const auto [found, fresh] = at.try_emplace(key, groups.size());
            if (fresh) groups.emplace_back();
            groups[found->second].push_back(&m);
        }
        if (groups.size() <= kMostLines) break;
    }
    std::string lines;
    for (const auto& alike : groups) lines += account_text(plan, alike);
    return lines;
}

}  // namespace

void refuse(const Plan& nearest, const Fits& fits) {
    std::vector<Deficit> deficits;
    int64_t lacking = 0;
    for (const DeviceMemory& m : nearest.memory) {
        deficits.push_back(
            {nearest.machine.device(m.device).name, m.needed(), m.capacity, lacks(m)});
        lacking += lacks(m);
    }
    std::vector<std::string> fixes;
    for (const std::string& fix :
         {fix_shape(nearest, fits), fix_pins(nearest, fits), fix_library(nearest, fits),
          fix_chunk(nearest, fits), fix_kv_tokens(nearest, fits), fix_kv_dtype(nearest, fits),
          nearest.workload.batch > 1 ? fix_batch(nearest, fits) : std::string(),
          fix_context(nearest, fits), fix_dtype(nearest, fits), fix_devices(nearest, fits)})
        if (!fix.empty()) fixes.push_back(fix);
    std::string message = fmt::format(
        "{} does not fit: at batch {} and context {}{} the nearest plan lacks {} on {} device{}{}",
        nearest.graph.name, nearest.workload.batch, nearest.workload.context,
        nearest.kv_slabs.empty() || nearest.workload.kv_tokens == 0
            ? ""
            : fmt::format(", with KV of {} tokens,", kv_tokens(nearest.kv_pool.num_blocks)),
        bytes_text(lacking), nearest.memory.size(), nearest.memory.size() == 1 ? "" : "s",
        accounts_text(nearest));
    if (fixes.empty())
        fixes.push_back(
            "use devices with more memory: no batch, context or dtype makes it fit here");
    message += "\nwhat would fit:";
    for (const std::string& fix : fixes) message += "\n  " + fix;
    throw DoesNotFit(message, std::move(deficits), std::move(fixes));
}

}  // namespace cleave::planner
