// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <sstream>

#include "planner/export/model/exporters.h"
#include "tools/cli/spelling.h"
#include "tools/libcleave/handles.h"

using namespace cleave;
using namespace cleave::c_api;
using namespace cleave::planner;

namespace {

ExportResult run(const cleave_plan* plan, const char* format) {
    const std::vector<Exporter> exporters = all_exporters();
    ExportResult result =
        export_plan(find_exporter(exporters, text_of(format, "format")), needed(plan, "plan").plan);
    for (std::string& what : result.not_expressed) what = tools::spell_for_api(what);
    return result;
}

// Names and summaries are literals, which outlive the list.
const char* text_of_format(size_t index, std::string_view Exporter::* member) noexcept {
    try {
        const std::vector<Exporter> exporters = all_exporters();
        return index < exporters.size() ? (exporters[index].*member).data() : nullptr;
    } catch (...) {
        return nullptr;
    }
}

}  // namespace

size_t cleave_num_formats(void) {
    size_t count = 0;
    while (cleave_format_name(count)) ++count;
    return count;
}

const char* cleave_format_name(size_t index) { return text_of_format(index, &Exporter::name); }
const char* cleave_format_summary(size_t index) { return text_of_format(index, &Exporter::writes); }

cleave_status cleave_plan_export(const cleave_plan* plan, const char* format, cleave_export** out) {
    return guard([&] {
        needed(out, "out") = nullptr;
        auto made = std::make_unique<cleave_export>();
        made->result = run(plan, format);
        made->manifest = export_manifest(format, made->result);
        for (ExportFile& file : made->result.files) {
            if (!file.write) continue;
            std::ostringstream bytes;
            file.write(bytes);
            file.contents = std::move(bytes).str();
            file.write = {};
        }
        *out = made.release();
    });
}

cleave_status cleave_plan_export_to(const cleave_plan* plan, const char* format,
                                    const char* folder) {
    return guard([&] {
        const std::string to = text_of(folder, "folder");
        write_export(text_of(format, "format"), run(plan, format), to);
    });
}

void cleave_export_free(cleave_export* exported) { delete exported; }

cleave_status cleave_export_manifest(const cleave_export* exported, const char** json) {
    return guard([&] { needed(json, "json") = needed(exported, "export").manifest.c_str(); });
}

cleave_status cleave_export_num_files(const cleave_export* exported, size_t* out) {
    return guard([&] { needed(out, "out") = needed(exported, "export").result.files.size(); });
}

cleave_status cleave_export_file(const cleave_export* exported, size_t index, const char** name,
                                 const char** data, size_t* size) {
    return guard([&] {
        const auto& files = needed(exported, "export").result.files;
        if (index >= files.size())
            throw ArgumentError(fmt::format("file {} of {}", index, files.size()));
        if (name) *name = files[index].name.c_str();
        if (data) *data = files[index].contents.data();
        if (size) *size = files[index].contents.size();
    });
}
