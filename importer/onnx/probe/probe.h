// SPDX-License-Identifier: Apache-2.0
// Evaluates, for one concrete batch size, sequence length, past length and padding, what a graph
// computes about shapes, positions and masks. Exporters spell these in endless ways; what they mean
// is found by asking what they give. Activations have a shape here, but no data; token ids neither.
//
// Data is computed when it is asked for and kept. Not thread-safe. Refs are those of the Model,
// which must outlive the probe.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "importer/onnx/model.h"
#include "importer/onnx/probe/tensor.h"

namespace cleave::importer::from_onnx {

// What each graph input is for. Found by use, never by name (see roles.h).
// kPastLengths and kTotalLengths: of each sequence, before and with the new tokens (static caches).
// kKeptLogits: how many of the last tokens get logits, 0 for all, which is what we ask.
enum class InputRole {
    kTokenIds,
    kAttentionMask,
    kPositionIds,
    kPast,
    kPastLengths,
    kTotalLengths,
    kKeptLogits,
    kOther
};

struct Scenario {
    int64_t batch = 1;
    int64_t tokens = 1;  // new ones, of every sequence
    int64_t past = 0;
    std::vector<int64_t> padding;  // left padding of each sequence; empty: none
    // 0 also beyond the batch: a file may declare a mask of more sequences than its tokens have.
    int64_t pad(int64_t sequence) const {
        return sequence < std::ssize(padding) ? padding[sequence] : 0;
    }
};

class Probe {
public:
    Probe(const Model& model, const std::vector<InputRole>& roles, Scenario scenario);
    ~Probe();

    const Scenario& scenario() const { return scenario_; }
    // The shape, or nullptr when it is not known.
    const Dims* shape(Ref value);
    // The data, or nullptr when it depends on activations, weights or something not understood.
    const Tensor* data(Ref value);

private:
    friend class Evaluation;
    struct Known {
        bool shape_tried = false, data_tried = false;
        std::optional<Dims> shape;
        std::unique_ptr<Tensor> data;
    };
    void evaluate(int node, bool with_data);
    void count_work(const Node& node);
    bool fill_source(Ref value, bool with_data);
    std::unique_ptr<Tensor> input_data(const ModelInput& input, InputRole role, const Dims& dims);

    const Model& model_;
    const std::vector<InputRole>& roles_;
    Scenario scenario_;
    std::vector<Known> known_;
    int depth_ = 0;
    int64_t held_ = 0;  // numbers, of those that the model's probe_work counts
};

// Whether dimensions are none of negative and so large that their products overflow.
bool is_reasonable(const Dims& dims);

// Floating elements of any type as double.
void to_doubles(DType dtype, const std::byte* bytes, double* out, int64_t count);

// Elements of a constant as a Tensor; nullopt for types that are no plain numbers.
std::optional<Tensor> read_constant(const Model& model, const Constant& constant);

}  // namespace cleave::importer::from_onnx
