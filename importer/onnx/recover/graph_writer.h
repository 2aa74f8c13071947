// SPDX-License-Identifier: Apache-2.0
// Writes terms as the Graph's operators: one function for each, in the order of calling.
#pragma once

#include <map>

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

class GraphWriter {
public:
    GraphWriter(Recovery& recovery, Model& model);

    // Names and numbers of the operators that follow: "layers.N.".
    void begin_layer(int layer);
    void begin_layer(int layer, const std::string& prefix);

    ValueId embedding(TermId term);
    ValueId norm(const std::string& name, TermId term, ValueId x);
    ValueId linear(const std::string& name, TermId term, ValueId x);
    ValueId rope(const std::string& name, TermId term, ValueId x);
    ValueId kv_append(TermId attention, TermId k_cache, TermId v_cache, ValueId k, ValueId v);
    ValueId attention(TermId term, ValueId q, ValueId state);
    ValueId gated(TermId term, ValueId gate, ValueId up);
    ValueId add(const std::string& name, TermId term, ValueId a, ValueId b);
    ValueId scale(const std::string& name, TermId term, ValueId x);
    ValueId select(TermId term, ValueId x);  // an invalid term: the file has no such node
    void logits(TermId linear, TermId scale, ValueId x);  // an invalid scale: none

    Graph finish(std::vector<std::string> notes);

private:
    Op& op(OpKind kind, const std::string& name, TermId term, OpAttrs attrs,
           std::vector<ValueId> inputs);
    ValueId output(Op& op, ValueKind kind, std::vector<Dim> shape);
    ValueId activation(Op& op, int64_t features) {
        return output(op, ValueKind::kActivation, {Dim("num_tokens"), Dim(features)});
    }
    // `linear`: the view is [in, out] and the weight [out, in].
    WeightId weight(const WeightView& view, bool linear);
    std::vector<int64_t> source_shape(const WeightView& view) const;
    void orient_scales(const WeightView& view, Weight& w) const;
    DataRef data(const DataRef& of_model);
    RopeTableId table(RopeTableId of_recovery);
    void fill_config();
    // Contexts longer than the masks are known for are refused.
    void limit_context(std::vector<std::string>& notes);

    Recovery& r_;
    Model& model_;
    Graph g_;
    int layer_ = -1;
    std::string prefix_;
    std::map<std::string, WeightId> weights_;  // by what they view
    std::map<BlobId, BlobId> blobs_;
    std::map<RopeTableId, RopeTableId> tables_;
};

}  // namespace cleave::importer::from_onnx
