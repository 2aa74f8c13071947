// SPDX-License-Identifier: Apache-2.0
// Pictures of a plan for papers, as SVG 1.1 without scripts or style sheets: what the page draws of
// the same plan, in light colours. Names come from files: they are escaped, and control characters
// in them are shown as codes.
#pragma once

#include <string>
#include <string_view>

#include "tools/inspect/inspection.h"

namespace cleave::tools {

// Layers from left to right, devices below each other; colour: the stage. A cell has two bars,
// attention's above and the MLP's below, as thick as the device's share of it. Alike devices are
// one row.
std::string grid_svg(const Inspection& inspection);

// Hosts, devices and links: a line as wide as its rate, and the redder the larger the part of a
// decode pass that its bytes take.
std::string machine_svg(const Inspection& inspection);

// One of them below the other.
std::string plan_svg(const Inspection& inspection);

// Elements one after the other, and their text as XML.
class SvgWriter {
public:
    SvgWriter(double width, double height, std::string_view title);

    // `more`: further attributes, ` rx="4"`, from constants of the program alone.
    void rect(double x, double y, double width, double height, std::string_view fill,
              std::string_view more = {});
    void line(double x1, double y1, double x2, double y2, std::string_view stroke, double width,
              std::string_view more = {});
    void path(std::string_view d, std::string_view stroke, double width,
              std::string_view more = {});
    // `anchor`: start, middle or end.
    void text(double x, double y, std::string_view text, std::string_view anchor = "start",
              double size = 12, std::string_view fill = "#16191d", std::string_view more = {});
    // What follows up to close() has this text for who points at it.
    void open(std::string_view title);
    void close();
    // Another picture, as it is, at a place of this one.
    void embed(double x, double y, const std::string& svg);
    std::string finish();

private:
    std::string out_;
};

// The hue of a stage, as "#rrggbb"; `light`: a tint of it.
std::string stage_hex(int stage, bool light = false);
// From grey over amber to red, of a part of 1 on a root scale.
std::string load_hex(double load);

}  // namespace cleave::tools
