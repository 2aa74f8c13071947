// SPDX-License-Identifier: Apache-2.0
// hwloc's objects, freed by their owners.
#pragma once

#include <memory>

#include <hwloc.h>

#include "runtime/base/errors.h"
#include "runtime/base/reason.h"

namespace cleave::runtime {

struct FreeTopology {
    void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, FreeTopology>;

struct FreeBitmap {
    void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// Of this host, or of that which hwloc's own variables name (HWLOC_SYNTHETIC, HWLOC_XMLFILE).
// UserError where hwloc cannot say.
inline Topology load_topology() {
    hwloc_topology_t raw = nullptr;
    const auto refuse = [] {
        throw UserError("hwloc cannot say what this host has: {}", last_error().message());
    };
    if (hwloc_topology_init(&raw) != 0) refuse();
    Topology topology(raw);
    if (hwloc_topology_load(raw) != 0) refuse();
    return topology;
}

}  // namespace cleave::runtime
