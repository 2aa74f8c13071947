// SPDX-License-Identifier: Apache-2.0
// What attention in pieces and the fused attention operators share.
#pragma once

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

struct AttentionParts {
    View q, k, v;  // k and v: of caches, or of this step's rows where the graph has no past
    AttentionAttrs attrs;
    bool hides_padding = false;  // of the attention mask that the graph takes
    int64_t mask_heads = 1;      // of a mask that is none for any number of heads
    std::string mask_refusal;    // MaskMeaning::refusal of one of the masks
};

// Heads along all axes of a view but the last two (the batched dimensions of a MatMul).
struct Heads {
    bool batch = false;
    int64_t count = 1;   // distinct heads, as features
    int64_t repeat = 1;  // each comes so many times in a row
    int64_t stride = 0;
};

// `like`: the other operand, along whose axes an empty one is broadcast; may be null.
std::optional<Heads> read_heads(const View& view, const View* like);

// What a mask hides is what the attention does not see.
void add_mask(AttentionParts& parts, const MaskMeaning& mask);

// Makes the attention term. Its id in `out`; when the parts do not fit, `out` stays invalid and the
// result says why.
Meaning finish_attention(Recovery& r, const Node& node, const AttentionParts& parts, TermId& out);

// The cache that a view of keys or values reads. If there is none, makes one without past.
TermId cache_of(Recovery& r, const Node& node, const View& keys);

// x rotated by a table: the first rotary_dim features of each head of head_dim turn.
Meaning finish_rope(Recovery& r, const Node& node, const View& x, int64_t heads, int64_t head_dim,
                    int64_t rotary_dim, bool interleaved, RopeTableId table);

}  // namespace cleave::importer::from_onnx
