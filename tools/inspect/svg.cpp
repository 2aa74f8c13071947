// SPDX-License-Identifier: Apache-2.0
#include "tools/inspect/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::tools {

namespace {

// UTF-8 whatever the file had, as the page's JSON: what is none is replaced.
std::string valid_utf8(std::string_view text) {
    using Json = nlohmann::json;
    return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
        .get<std::string>();
}

// Whether the character at `i` turns the text around it or has no shape; Unicode's bidirectional
// controls and separators are three bytes. 0: no; else its bytes.
size_t unseen(std::string_view text, size_t i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return 1;
    if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0)
        return 2;
    if (c != 0xe2 || i + 2 >= text.size()) return 0;
    const auto b = static_cast<unsigned char>(text[i + 1]);
    const auto d = static_cast<unsigned char>(text[i + 2]);
    const bool marks = b == 0x80 && (d >= 0x8b && d <= 0x8f);
    const bool turns = b == 0x80 && d >= 0xa8 && d <= 0xae;
    const bool isolates = b == 0x81 && d >= 0xa0 && d <= 0xa9;
    return marks || turns || isolates ? 3 : 0;
}

std::string xml(std::string_view raw) {
    const std::string text = valid_utf8(raw);
    std::string out;
    for (size_t i = 0; i < text.size();) {
        if (const size_t bytes = unseen(text, i)) {
            for (size_t k = 0; k < bytes; ++k)
                out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i + k]));
            i += bytes;
            continue;
        }
        switch (text[i]) {
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '&': out += "&amp;"; break;
            case '"': out += "&quot;"; break;
            default: out += text[i];
        }
        ++i;
    }
    return out;
}

std::string hex(double hue, double saturation, double lightness) {
    const auto channel = [&](double n) {
        const double k = std::fmod(n + hue / 30.0, 12.0);
        const double a = saturation * std::min(lightness, 1 - lightness);
        return lightness - a * std::max(-1.0, std::min({k - 3, 9 - k, 1.0}));
    };
    const auto byte = [](double v) { return static_cast<int>(std::lround(255 * v)); };
    return fmt::format("#{:02x}{:02x}{:02x}", byte(channel(0)), byte(channel(8)), byte(channel(4)));
}

}  // namespace

std::string stage_hex(int stage, bool light) {
    const double hue = std::fmod(stage * 137.5 + 212, 360.0);
    return light ? hex(hue, 0.5, 0.9) : hex(hue, 0.52, 0.66);
}

std::string load_hex(double load) {
    const double t = std::min(1.0, std::sqrt(std::max(load, 0.0)));
    return hex(48 - 44 * t, 0.12 + 0.68 * t, 0.68 - 0.18 * t);
}

SvgWriter::SvgWriter(double width, double height, std::string_view title) {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\">\n<title>{2}</title>\n",
        width, height, xml(title));
}

void SvgWriter::rect(double x, double y, double width, double height, std::string_view fill,
                     std::string_view more) {
    fmt::format_to(
        std::back_inserter(out_),
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}/>\n", x,
        y, std::max(width, 0.1), std::max(height, 0.1), fill, more);
}

void SvgWriter::line(double x1, double y1, double x2, double y2, std::string_view stroke,
                     double width, std::string_view more) {
    fmt::format_to(std::back_inserter(out_),
                   "<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"{}\" "
                   "stroke-width=\"{:.2f}\"{}/>\n",
                   x1, y1, x2, y2, stroke, width, more);
}

void SvgWriter::path(std::string_view d, std::string_view stroke, double width,
                     std::string_view more) {
    fmt::format_to(std::back_inserter(out_),
                   "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.2f}\" "
                   "stroke-linecap=\"round\"{}/>\n",
                   d, stroke, width, more);
}

void SvgWriter::text(double x, double y, std::string_view text, std::string_view anchor,
                     double size, std::string_view fill, std::string_view more) {
    fmt::format_to(std::back_inserter(out_),
                   "<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\" font-size=\"{:g}\" "
                   "fill=\"{}\"{}>{}</text>\n",
                   x, y, anchor, size, fill, more, xml(text));
}

void SvgWriter::open(std::string_view title) {
    out_ += fmt::format("<g><title>{}</title>\n", xml(title));
}

void SvgWriter::close() { out_ += "</g>\n"; }

void SvgWriter::embed(double x, double y, const std::string& svg) {
    // A picture inside of a picture is an element as any other.
    out_ += fmt::format("<svg x=\"{:.0f}\" y=\"{:.0f}\"{}", x, y, svg.substr(4));
}

std::string SvgWriter::finish() { return std::move(out_) + "</svg>\n"; }

std::string plan_svg(const Inspection& inspection) {
    const std::array<std::string, 2> pictures{machine_svg(inspection), grid_svg(inspection)};
    std::array<std::pair<double, double>, 2> sizes;
    for (size_t i = 0; i < 2; ++i) {
        const auto number = [&](std::string_view key) {
            const size_t at = pictures[i].find(key) + key.size();
            return std::stod(pictures[i].substr(at, pictures[i].find('"', at) - at));
        };
        sizes[i] = {number(" width=\""), number(" height=\"")};
    }
    const double width = std::max(sizes[0].first, sizes[1].first);
    SvgWriter svg(width, sizes[0].second + 12 + sizes[1].second, inspection.plan->graph.name);
    svg.embed((width - sizes[0].first) / 2, 0, pictures[0]);
    svg.embed((width - sizes[1].first) / 2, sizes[0].second + 12, pictures[1]);
    return svg.finish();
}

}  // namespace cleave::tools
