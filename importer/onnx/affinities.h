// SPDX-License-Identifier: Apache-2.0
// Where an ONNX file wants its nodes to run. Two notations are read: the multi-device annotations
// of ONNX 1.18 (IR 11: ModelProto.configuration and NodeProto.device_configurations; the first
// configuration counts), and a node's metadata entry "device". In: the path of an .onnx file
// or of a folder with one. Out: a device for each node that has one, by name where the file gives
// names, by position otherwise. Initializers are skipped, not read.
#pragma once

#include <string>
#include <vector>

#include "importer/graph/graph.h"

namespace cleave::importer {

struct NodeAffinity {
    std::string node;    // its name, or its first output's where it has none
    std::string device;  // as the file names it; empty where it only counts devices
    int position =
        -1;  // in the configuration's devices, or the pipeline stage; -1 with a name alone
};

struct Affinities {
    std::string path;
    std::string configuration;  // its name; empty for metadata alone
    int num_devices = 0;
    std::vector<NodeAffinity> nodes;  // in the file's order; empty: the file says nothing
};

// UserError names the file and node for a configuration that the file does not declare, and for a
// position beyond its devices. A node whose outputs are on several devices is sharded. It is left
// out: the planner decides how.
Affinities read_affinities(const std::string& path);

}  // namespace cleave::importer
