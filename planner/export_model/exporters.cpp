// SPDX-License-Identifier: Apache-2.0
#include "planner/export_model/exporters.h"

namespace cleave::planner {

std::vector<Exporter> all_exporters() {
    std::vector<Exporter> exporters;
    for (const Exporter& exporter : plan_exporters()) exporters.push_back(exporter);
    return exporters;
}

}  // namespace cleave::planner
