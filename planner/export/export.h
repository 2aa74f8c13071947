// SPDX-License-Identifier: Apache-2.0
// A proven plan in the form that another tool reads. In: a Plan. Out: files, the commands that use
// them, and what the other tool's form cannot say. One exporter a file: those that need the plan
// alone lie in planner/export/, those that read or write ONNX in planner/export/model/, a library
// of its own, so that the planner links no ONNX.
//
// Invariants: an exporter writes nothing itself and is deterministic; what its form cannot say
// stands in `not_expressed` when the other tool computes the same without it, and is a UserError
// (what, where, the fix) when it would not.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct ExportFile {
    std::string name;      // relative to the output folder, '/' between parts
    std::string contents;  // or, for what is large,
    std::function<void(std::ostream&)> write = {};  // called once, when the file is made
};

struct ExportResult {
    std::vector<ExportFile> files;
    std::vector<std::vector<std::string>> commands;  // argv each, run in the output folder
    std::vector<std::string> not_expressed;          // a sentence each
};

// The plan has been proved. The ONNX file it came from is plan.graph.path, empty for a shape name.
using ExportFunction = ExportResult (*)(const Plan& plan);

struct Exporter {
    std::string_view name;    // of --format
    std::string_view writes;  // "a device_map of Hugging Face accelerate"
    ExportFunction run;
    bool replicas = false;      // writes all of a plan; others write the first, and it is noted
    bool whole_layers = false;  // takes plans of whole layers only: make them so
};

ExportResult export_plan(const Exporter& exporter, const Plan& plan);

// Those of planner/export/.
std::span<const Exporter> plan_exporters();

// UserError that lists the names for one that is not among them.
const Exporter& find_exporter(std::span<const Exporter> exporters, std::string_view name);

// {"format", "files", "commands", "not_expressed"} (CLI.md; schema
// tools/schema/export.schema.json).
std::string export_manifest(std::string_view format, const ExportResult& result);

// Makes `folder` and writes every file, each whole or not at all, and manifest.json last: where it
// stands, the export is complete. A file of that name that was there is replaced. UserError naming
// what cannot be written.
void write_export(std::string_view format, const ExportResult& result, const std::string& folder);

}  // namespace cleave::planner
