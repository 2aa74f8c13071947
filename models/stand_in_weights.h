// SPDX-License-Identifier: Apache-2.0
// Weights for a Graph that has none (models/llama_graph.h), for measurements: every tensor views
// the beginning of one temporary file of small random numbers, as long as the largest of them;
// vectors (norms) view numbers around 1 at its end. A device has a copy of each, as nothing in the
// file is aligned. The file has no name but its descriptor's in /proc, and ends with the object,
// which must outlive all readers. In: a graph of dense weights of one floating dtype. UserError
// when there is no room for the file.
#pragma once

#include "importer/graph/graph.h"
#include "runtime/base/descriptor.h"

namespace cleave::models {

class StandInWeights {
public:
    explicit StandInWeights(importer::Graph& graph);

private:
    Descriptor file_;
};

}  // namespace cleave::models
