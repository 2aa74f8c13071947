// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include <fmt/format.h>

#include "planner/plan/plan_queries.h"
#include "tools/inspect/svg.h"

namespace cleave::tools {

using namespace planner;

namespace {

constexpr double kPageWidth = 1000, kPad = 14, kCardHead = 26, kGapX = 26;
constexpr std::string_view kDim = "#5a6470", kLine = "#d9dee4";

struct Place {
    double x = 0, y = 0;
};

struct HostBox {
    std::string name;
    std::vector<DeviceId> devices;
    std::vector<Place> places;  // from the corner of what is inside
    double inside_width = 0, inside_height = 0, width = 0;
    bool round = false;
    double x = 0, y = 0;
    size_t row = 0;
    int64_t sent = 0, taken = 0;  // over the network, in a pass
};

// One device in the middle, few in a row, more around a circle, so that every link between two is
// a chord.
void place_devices(HostBox& host, double size) {
    const size_t n = host.devices.size();
    const auto count = static_cast<double>(n);
    host.round = n > 3;
    if (!host.round) {
        for (size_t i = 0; i < n; ++i)
            host.places.push_back({size / 2 + static_cast<double>(i) * size * 2.6, size / 2});
        host.inside_width = size + (count - 1) * size * 2.6;
        host.inside_height = size;
    } else {
        const double radius = std::max(size * 1.25, count * size * 1.3 / (2 * std::numbers::pi));
        for (size_t i = 0; i < n; ++i) {
            const double a = -std::numbers::pi / 2 +
                             2 * std::numbers::pi * (static_cast<double>(i) + 0.5) / count;
            host.places.push_back({radius + size / 2 + radius * std::cos(a),
                                   radius + size / 2 + radius * std::sin(a)});
        }
        host.inside_width = host.inside_height = 2 * radius + size;
    }
    host.width = std::max(host.inside_width + 2 * kPad, 92.0);
}

class MachinePicture {
public:
    explicit MachinePicture(const Inspection& inspection)
        : inspection_(inspection),
          plan_(*inspection.plan),
          traffic_(link_traffic(plan_, false)),
          pass_s_(std::max<double>(1, static_cast<double>(inspection.pass_ns[0])) / 1e9) {
        std::map<std::string, size_t> known;
        for (size_t d = 0; d < plan_.machine.devices.size(); ++d) {
            const std::string& name = plan_.machine.devices[d].host;
            auto [at, fresh] = known.try_emplace(name, hosts_.size());
            if (fresh) hosts_.emplace_back().name = name;
            hosts_[at->second].devices.push_back(DeviceId(d));
            host_of_.push_back(at->second);
        }
        size_ = hosts_.size() > 8 ? 17 : hosts_.size() > 2 ? 24 : 40;
        for (HostBox& host : hosts_) place_devices(host, size_);
        layout();
    }

    std::string svg() {
        SvgWriter svg(kPageWidth, height_, plan_.graph.name + ": machine");
        for (const HostBox& host : hosts_) {
            svg.rect(host.x, host.y, host.width, tall_, "#f6f7f9",
                     fmt::format(" rx=\"8\" stroke=\"{}\"", kLine));
            svg.text(host.x + 10, host.y + 17, host.name, "start", 12, "#16191d",
                     " font-weight=\"bold\"");
        }
        network(svg);
        for (bool used : {false, true})
            for (const HostBox& host : hosts_)
                for (size_t i = 0; i < host.devices.size(); ++i)
                    for (size_t k = i + 1; k < host.devices.size(); ++k)
                        link(svg, host, i, k, used);
        for (const HostBox& host : hosts_)
            for (size_t i = 0; i < host.devices.size(); ++i) device(svg, host, i);
        svg.text(kPageWidth / 2, height_ - 8,
                 "Lines: links, as wide as their rate; grey to red: the part of a decode pass that "
                 "their bytes take. Devices: colour their stage.",
                 "middle", 11, kDim);
        return svg.finish();
    }

private:
    void layout() {
        double wide = 0;
        for (const HostBox& h : hosts_) {
            wide = std::max(wide, h.width);
            tall_ = std::max(tall_, h.inside_height + 2 * kPad + kCardHead);
        }
        gap_ = hosts_.size() > 1 ? 54 : 20;
        const auto most = static_cast<size_t>((kPageWidth - 20 + kGapX) / (wide + kGapX));
        const size_t per_row = std::clamp<size_t>(most, 1, std::max<size_t>(1, hosts_.size()));
        rows_ = (hosts_.size() + per_row - 1) / per_row;
        const size_t even = (hosts_.size() + rows_ - 1) / rows_;
        for (size_t i = 0; i < hosts_.size(); ++i) {
            HostBox& host = hosts_[i];
            host.row = i / even;
            const auto in_row =
                static_cast<double>(std::min(even, hosts_.size() - host.row * even));
            const double left = (kPageWidth - (in_row * wide + (in_row - 1) * kGapX)) / 2;
            host.x =
                left + static_cast<double>(i % even) * (wide + kGapX) + (wide - host.width) / 2;
            host.y = 10 + static_cast<double>(host.row) * (tall_ + gap_);
        }
        height_ = 10 + static_cast<double>(rows_) * (tall_ + gap_) + 24;
    }

    Place place(const HostBox& host, size_t i) const {
        return {
            host.x + (host.width - host.inside_width) / 2 + host.places[i].x,
            host.y + kCardHead + (tall_ - kCardHead - host.inside_height) / 2 + host.places[i].y};
    }

    int64_t bytes(DeviceId from, DeviceId to) const {
        const auto found = traffic_.find({from, to});
        return found == traffic_.end() ? 0 : found->second;
    }
    // Part of a pass; small where no rate is known.
    double load(int64_t bytes, int64_t rate) const {
        return bytes == 0 ? 0.0
               : rate > 0 ? static_cast<double>(bytes) / static_cast<double>(rate) / pass_s_
                          : 0.2;
    }

    void link(SvgWriter& svg, const HostBox& host, size_t i, size_t k, bool used) const {
        const DeviceId a = host.devices[i], b = host.devices[k];
        const Link* link = plan_.machine.link(a, b);
        const int64_t most = std::max(bytes(a, b), bytes(b, a));
        if ((most > 0) != used || (!link && most == 0)) return;
        const int64_t rate = link ? link->bandwidth : 0;
        const Place p = place(host, i), q = place(host, k);
        const double bow = host.round ? 0 : std::min(34.0, std::abs(q.x - p.x) * 0.32);
        const double width =
            rate > 0 ? std::clamp(std::log10(static_cast<double>(rate) / 1e9) * 1.7, 1.0, 6.0)
                     : 1.0;
        svg.open(fmt::format(
            "{} and {}: {}{}, {} bytes a pass", plan_.machine.device(a).name,
            plan_.machine.device(b).name, link ? link_kind_name(link->kind) : "through the host",
            rate > 0 ? fmt::format(" {:.3g} GB/s", static_cast<double>(rate) / 1e9) : "", most));
        svg.path(fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", p.x, p.y,
                             (p.x + q.x) / 2, (p.y + q.y) / 2 - bow, q.x, q.y),
                 used ? load_hex(load(most, rate)) : std::string(kLine), width,
                 link && link->kind == LinkKind::kPcie ? " stroke-dasharray=\"6 3\""
                 : link                                ? ""
                                                       : " stroke-dasharray=\"2 3\"");
        svg.close();
    }

    void device(SvgWriter& svg, const HostBox& host, size_t i) const {
        const DeviceId id = host.devices[i];
        const Place p = place(host, i);
        int stage = -1;
        for (size_t s = 0; s < plan_.stages.size() && stage < 0; ++s)
            if (std::ranges::find(plan_.stages[s].devices, id) != plan_.stages[s].devices.end())
                stage = static_cast<int>(s);
        const double busy = std::min(
            1.0, static_cast<double>(inspection_.time[0][id.index()].compute_ns) / 1e9 / pass_s_);
        const double half = size_ / 2;
        svg.open(fmt::format("{}, computes {:.3g} % of a pass", plan_.machine.device(id).name,
                             100 * busy));
        svg.rect(p.x - half, p.y - half, size_, size_,
                 stage < 0 ? std::string(kLine) : stage_hex(stage, true),
                 fmt::format(" rx=\"{:.1f}\" stroke=\"{}\"", half * 0.3, kLine));
        if (stage >= 0)
            svg.rect(p.x - half, p.y + half - size_ * busy, size_, size_ * busy, stage_hex(stage),
                     fmt::format(" rx=\"{:.1f}\"", half * 0.3));
        const std::string& name = plan_.machine.device(id).name;
        const size_t open = name.rfind('['), close = name.find(']', open);
        // Numbers alone do not tell models apart.
        const std::string& model = plan_.machine.device(id).model;
        const bool mixed = std::ranges::any_of(
            plan_.machine.devices, [&](const DeviceInfo& d) { return d.model != model; });
        if (mixed && size_ > 30) svg.text(p.x, p.y + size_ / 2 - 4, model, "middle", 8);
        svg.text(p.x, p.y + 4,
                 open != std::string::npos && close != std::string::npos
                     ? name.substr(open + 1, close - open - 1)
                     : name.substr(0, 5),
                 "middle", size_ > 30 ? 13 : 9.5);
        svg.close();
    }

    // A bus under each row of hosts, and each host's line to it.
    void network(SvgWriter& svg) {
        if (hosts_.size() < 2) return;
        for (const auto& [pair, moved] : traffic_) {
            const size_t from = host_of_[pair.first.index()], to = host_of_[pair.second.index()];
            if (from == to) continue;
            hosts_[from].sent += moved;
            hosts_[to].taken += moved;
        }
        int64_t rate = 0;
        for (const Link& l : plan_.machine.links)
            if (l.kind == LinkKind::kNetwork) rate = std::max(rate, l.bandwidth);
        const auto bus = [&](size_t row) {
            return 10 + static_cast<double>(row) * (tall_ + gap_) + tall_ + gap_ * 0.62;
        };
        for (size_t row = 0; row < rows_; ++row) {
            svg.line(14, bus(row), kPageWidth - 14, bus(row), kLine, 4);
            if (row > 0) svg.line(14, bus(row - 1), 14, bus(row), kLine, 4);
        }
        for (const HostBox& host : hosts_) {
            const int64_t most = std::max(host.sent, host.taken);
            svg.open(fmt::format("network of {}: sends {} and takes {} bytes in a pass", host.name,
                                 host.sent, host.taken));
            svg.line(host.x + host.width / 2, host.y + tall_, host.x + host.width / 2,
                     bus(host.row),
                     most > 0 ? load_hex(load(most, rate * std::ssize(host.devices)))
                              : std::string(kLine),
                     most > 0 ? 5 : 2);
            svg.close();
        }
        svg.text(
            kPageWidth - 14, bus(rows_ - 1) + 15,
            fmt::format("{}{}", plan_.machine.fabric.empty() ? "network" : plan_.machine.fabric,
                        rate > 0
                            ? fmt::format(", {:.3g} GB/s a device", static_cast<double>(rate) / 1e9)
                            : ""),
            "end", 11, kDim);
    }

    const Inspection& inspection_;
    const Plan& plan_;
    LinkTraffic traffic_;
    double pass_s_;
    std::vector<HostBox> hosts_;
    std::vector<size_t> host_of_;  // by device
    double size_ = 40, tall_ = 0, gap_ = 20, height_ = 0;
    size_t rows_ = 1;
};

}  // namespace

std::string machine_svg(const Inspection& inspection) { return MachinePicture(inspection).svg(); }

}  // namespace cleave::tools
