// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "planner/machine/device_names.h"
#include "planner/plan/text_table.h"
#include "tools/inspect/svg.h"

namespace cleave::tools {

using namespace planner;

namespace {

constexpr double kRow = 22, kHead = 26, kLabel = 200, kWidth = 1000;
constexpr double kFoot = 34;

// What a device has of a run, as parts of one.
struct Parts {
    double attention = 0, mlp = 0, weights = 0;
    bool decoder = false;  // else the weights alone
    double largest() const { return std::max({attention, mlp, weights}); }
};

struct Cell {
    const LayerRun* run = nullptr;
    Parts parts;
    std::string heads;  // "heads 0-7", or empty
};

// Rows and columns of the picture, from the runs of an inspection.
class Grid {
public:
    explicit Grid(const Inspection& inspection) : inspection_(inspection) {
        std::set<int> layers;
        for (const LayerRun& run : inspection.layers)
            for (int l = run.first; l <= run.last; ++l) layers.insert(l);
        for (int l : layers) columns_.emplace(l, static_cast<int>(columns_.size()));
        cells_.resize(inspection.plan->machine.devices.size());
        for (const LayerRun& run : inspection.layers) add(run);
        group();
    }

    std::string svg() const {
        const double unit =
            (kWidth - kLabel - 8) / std::max(1.0, static_cast<double>(columns_.size()));
        const double height = kHead + kRow * static_cast<double>(rows_.size()) + kFoot;
        const Plan& plan = *inspection_.plan;
        SvgWriter svg(kWidth, height, plan.graph.name + ": layers and devices");
        ticks(svg, unit);
        for (size_t i = 0; i < rows_.size(); ++i)
            row(svg, unit, rows_[i], kHead + kRow * static_cast<double>(i));
        svg.text(kLabel, height - 10,
                 fmt::format("{}, {}. A colour: a stage. Above in a cell: the share of attention, "
                             "below: of the MLP.",
                             plan.graph.name, count_text(std::ssize(plan.stages), "stage")),
                 "start", 11, "#5a6470");
        return svg.finish();
    }

private:
    double x(int layer, double unit) const { return kLabel + unit * columns_.at(layer); }

    void add(const LayerRun& run) {
        double heads = 0, mlp = 0, weights = 0;
        for (const LayerShare& s : run.shares) {
            heads += static_cast<double>(s.query_heads.size());
            mlp += static_cast<double>(s.mlp.size());
            weights += static_cast<double>(s.weight_bytes);
        }
        for (const LayerShare& s : run.shares) {
            Cell cell{&run, {}, ""};
            cell.parts.decoder = heads > 0 || mlp > 0;
            if (heads > 0) cell.parts.attention = static_cast<double>(s.query_heads.size()) / heads;
            if (mlp > 0) cell.parts.mlp = static_cast<double>(s.mlp.size()) / mlp;
            if (!cell.parts.decoder && weights > 0)
                cell.parts.weights = static_cast<double>(s.weight_bytes) / weights;
            if (s.query_heads.size() > 0)
                cell.heads = fmt::format("heads {}-{}", s.query_heads.begin, s.query_heads.end - 1);
            largest_ = std::max(largest_, cell.parts.largest());
            cells_[s.device.index()].push_back(cell);
        }
    }

    // Of many devices those with the same shares are one row.
    void group() {
        std::map<std::string, size_t> known;
        const bool fold = cells_.size() > 16;
        for (size_t d = 0; d < cells_.size(); ++d) {
            std::string key = fold ? inspection_.plan->machine.devices[d].arch : std::to_string(d);
            for (const Cell& c : cells_[d])
                key += fmt::format("|{} {} {} {}", fmt::ptr(c.run), c.parts.attention, c.parts.mlp,
                                   c.parts.weights);
            auto [at, fresh] = known.try_emplace(key, rows_.size());
            if (fresh) rows_.emplace_back();
            rows_[at->second].push_back(DeviceId(d));
        }
    }

    void ticks(SvgWriter& svg, double unit) const {
        const int layers = static_cast<int>(inspection_.plan->graph.config.num_layers);
        int every = 1;
        for (int step : {1, 2, 5, 10, 20, 50, 100})
            if (every = step; step * unit >= 24) break;
        svg.text(4, kHead - 9, "layer", "start", 11, "#5a6470");
        for (const auto& [layer, column] : columns_)
            if (layer >= 0 && layer < layers && layer % every == 0)
                svg.text(x(layer, unit) + unit / 2, kHead - 9, std::to_string(layer), "middle", 11,
                         "#5a6470");
    }

    void row(SvgWriter& svg, double unit, const std::vector<DeviceId>& devices, double y) const {
        svg.text(kLabel - 8, y + kRow / 2 + 4, folded_names(inspection_.plan->machine, devices),
                 "end");
        for (const Cell& c : cells_[devices[0].index()]) cell(svg, unit, c, devices.size(), y);
    }

    void cell(SvgWriter& svg, double unit, const Cell& c, size_t devices, double y) const {
        const double left = x(c.run->first, unit) + 0.5;
        const double width = unit * (c.run->last - c.run->first + 1) - 1, tall = kRow - 4;
        const std::string colour = stage_hex(c.run->stage);
        svg.open(fmt::format("stage {}, layers {}-{}", c.run->stage, c.run->first, c.run->last));
        svg.rect(left, y + 2, width, tall, stage_hex(c.run->stage, true), " rx=\"2\"");
        const auto strip = [&](double from, double height, double part) {
            if (part <= 0) return;
            const double thick = std::max(1.5, height * part / largest_);
            svg.rect(left, from + height - thick, width, thick, colour);
        };
        if (c.parts.decoder) {
            strip(y + 2, tall / 2 - 0.5, c.parts.attention);
            strip(y + 2 + tall / 2 + 0.5, tall / 2 - 0.5, c.parts.mlp);
        } else {
            strip(y + 2, tall, c.parts.weights);
        }
        if (const double part = c.parts.largest(); part > 0 && width > 44) {
            std::string words = devices > 1 ? fmt::format("{} x ", devices) : "";
            words += fmt::format("{:.3g} %", 100 * part);
            if (width > 180 && devices == 1 && !c.heads.empty()) words += ", " + c.heads;
            svg.text(left + width / 2, y + kRow / 2 + 4, words, "middle", 11);
        }
        svg.close();
    }

    const Inspection& inspection_;
    std::map<int, int> columns_;  // by layer
    std::vector<std::vector<Cell>> cells_;
    std::vector<std::vector<DeviceId>> rows_;
    double largest_ = 1e-9;
};

}  // namespace

std::string grid_svg(const Inspection& inspection) { return Grid(inspection).svg(); }

}  // namespace cleave::tools
