// SPDX-License-Identifier: Apache-2.0
// The whole import: wire format, parser, functions, branches, tensors, probe, recovery, and the
// Graph as text.
#include <cstdlib>

#include "importer/onnx/import.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/mutate.h"

void cleave::fuzz::run_input(std::string_view bytes) {
    // Half of the corpus has its weights in a file that is absent.
    const importer::Graph graph = importer::import_onnx(write_file(bytes, "model.onnx").string(),
                                                        {.weights_may_be_absent = true});
    if (importer::to_text(graph).empty()) std::abort();
}

// Names of libFuzzer.
// NOLINTBEGIN(readability-identifier-naming)

// Four of five changes are to the model, which stays one that Protobuf reads; the others are to its
// bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    if (seed % 5 == 0) return LLVMFuzzerMutate(data, size, max_size);
    onnx::ModelProto model;
    if (!model.ParseFromArray(data, static_cast<int>(size)))
        return LLVMFuzzerMutate(data, size, max_size);
    cleave::fuzz::mutate_model(model, seed);
    const size_t changed = model.ByteSizeLong();
    if (changed > max_size || !model.SerializeToArray(data, static_cast<int>(max_size)))
        return size;
    return changed;
}

// NOLINTEND(readability-identifier-naming)
