// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <set>

#include <onnx/inliner/inliner.h>

#include "importer/onnx/read/passes.h"
#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {
namespace {

using Name = std::array<std::string, 3>;  // domain, name, overload

constexpr int kMostDepth = 100;  // calls in calls, graphs in graphs; exporters stay below 5

// The number of nodes that a function's body comes to when everything in it is inlined.
class Expansion {
public:
    Expansion(const onnx::ModelProto& proto, const std::string& path) : path_(path) {
        for (const onnx::FunctionProto& f : proto.functions())
            if (!functions_.emplace(Name{f.domain(), f.name(), f.overload()}, &f).second)
                throw UserError("{}: the function {}.{} is defined twice; names must be unique",
                                path_, f.domain(), f.name());
    }

    // Functions that nobody calls are inlined by nobody, but ONNX's inliner looks at them.
    void check_all() {
        for (const auto& [name, function] : functions_) of_function(name, *function);
    }

    // Saturates far below overflow.
    double nodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& body) {
        double total = 0;
        for (const onnx::NodeProto& node : body) {
            total += 1;
            for (const onnx::AttributeProto& a : node.attribute()) {
                if (a.has_g()) total += nodes(a.g().node());
                for (const onnx::GraphProto& g : a.graphs()) total += nodes(g.node());
            }
            auto function = functions_.find({node.domain(), node.op_type(), node.overload()});
            if (function != functions_.end())
                total += of_function(function->first, *function->second);
        }
        return total;
    }

private:
    double of_function(const Name& name, const onnx::FunctionProto& function) {
        if (auto known = sizes_.find(name); known != sizes_.end()) return known->second;
        if (!open_.insert(name).second)
            throw UserError("{}: the function {}.{} calls itself; recursion is not allowed in ONNX",
                            path_, name[0], name[1]);
        if (open_.size() > kMostDepth)
            throw UserError("{}: the function {}.{} stands {} calls deep; up to {} are supported",
                            path_, name[0], name[1], open_.size(), kMostDepth);
        double total = nodes(function.node());
        open_.erase(name);
        return sizes_[name] = total;
    }

    const std::string& path_;
    std::map<Name, const onnx::FunctionProto*> functions_;
    std::map<Name, double> sizes_;
    std::set<Name> open_;
};

// Since this opset, what changed in the operators that are read here is only which types they take
// and whether axes are an attribute or an input, and those are read both ways.
constexpr int64_t kStableOpset = 13;

int64_t standard_opset(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& sets) {
    for (const onnx::OperatorSetIdProto& set : sets)
        if (set.domain().empty() || set.domain() == "ai.onnx") return set.version();
    return 0;
}

// ONNX's inliner converts a function of another opset than the model's, which fails wherever it
// cannot infer a type. Nothing needs converting between opsets that are read alike.
void take_models_opset(onnx::ModelProto& proto) {
    const int64_t version = standard_opset(proto.opset_import());
    for (onnx::FunctionProto& f : *proto.mutable_functions())
        for (onnx::OperatorSetIdProto& set : *f.mutable_opset_import())
            if ((set.domain().empty() || set.domain() == "ai.onnx") &&
                std::min(set.version(), version) >= kStableOpset)
                set.set_version(version);
}

}  // namespace

void inline_functions(onnx::ModelProto& proto, const std::string& path,
                      std::vector<std::string>& notes) {
    if (proto.functions_size() == 0) return;
    constexpr double kMostNodes = 2e6;
    Expansion expansion(proto, path);
    expansion.check_all();
    if (expansion.nodes(proto.graph().node()) > kMostNodes)
        throw UserError("{}: its functions expand to more than {} nodes", path,
                        static_cast<int64_t>(kMostNodes));
    std::string names;
    for (const onnx::FunctionProto& f : proto.functions())
        names +=
            (names.empty() ? "" : ", ") + (f.domain().empty() ? "" : f.domain() + ".") + f.name();
    take_models_opset(proto);
    try {
        onnx::inliner::InlineLocalFunctions(proto, true);
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {  // its shape inference trusts counts of inputs
        throw UserError("{}: its functions ({}) cannot be inlined: {}", path, names, error.what());
    }
    notes.push_back("inlined functions: " + names);
}

}  // namespace cleave::importer::from_onnx
