// SPDX-License-Identifier: Apache-2.0
// Operators that stand alone, written once for hosts and GPUs: a spec -> constants, views and
// parameters. `Stub` (host/stub.h, gpu/stub.h) has what differs: the launch, pointers, the
// epilogue.
#pragma once

#include <fmt/format.h>

#include "codegen/text/stub_writer.h"

namespace cleave::codegen {

template <class Stub>
Kernel make_elementwise(const RmsNormSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    stub.rows(s.out, s.count, {s.group, s.x.stride, s.x.offset}, s.epilogue, s.out / s.group);
    w.note(fmt::format("shapes: x [rows, {}], weight [{}]", s.out, s.group));
    w.note(fmt::format("dtype: weight {}, activations {}, sums {}", s.norm.weight,
                       stub.activation_type(), Stub::kNormSums));
    w.constant("kGroup", s.group);
    stub.claim_norm_sums();
    w.type("Weight", element_type(s.norm.weight, "the norm's weight"));
    w.real(Stub::kEpsilonType, "kEpsilon", s.norm.epsilon);
    w.real("float", "kOffset", s.norm.offset);
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg(element_pointer(s.norm.weight, "the norm's weight"), "weight");
    w.arg(stub.out_pointer(), "out");
    return stub.finish_rows("rms_norm", &s.epilogue);
}

template <class Stub>
Kernel make_elementwise(const RopeOnlySpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    stub.rows(s.out, RowCount::kTokens, {1}, s.epilogue);
    w.note(fmt::format("shapes: x [num_tokens, {}], heads of {}, {} of them turn", s.out,
                       s.head_dim, s.rope.rotary));
    w.note(fmt::format("dtype: activations {}, table f32", stub.activation_type()));
    w.constant("kHeadDim", s.head_dim);
    w.constant("kRotary", s.rope.rotary);
    w.constant("kInterleaved", s.rope.interleaved);
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg("const float*", "table");
    w.arg("i64", "context");
    w.arg("const i32*", "positions");
    w.arg(stub.out_pointer(), "out");
    return stub.finish_rows("rope", &s.epilogue);
}

template <class Stub>
Kernel make_elementwise(const KvAppendSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    stub.rows_of_cache(
        s.kv_heads.size() * (s.slab.head_dim + s.slab.v_head_dim),
        {s.slab.head_dim, s.slab.v_head_dim, s.k.stride, s.k.offset, s.v.stride, s.v.offset});
    w.note(fmt::format("shapes: {} KV heads of {} ({} for v)", s.kv_heads.size(), s.slab.head_dim,
                       s.slab.v_head_dim));
    w.note(fmt::format("dtype: KV cache {}, activations {}", s.slab.dtype, stub.activation_type()));
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kKvHeads", s.kv_heads.size());
    w.view("K", s.k);
    w.view("V", s.v);
    w.arg(stub.x_pointer(), "k");
    w.arg(stub.x_pointer(), "v");
    w.arg("Config::Kv*", "kv");
    write_block_table(w);
    w.arg("const i32*", "positions");
    w.arg("const i32*", "slots");
    return stub.finish_rows("kv_append");
}

template <class Stub>
Kernel make_elementwise(const GatedActivationSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    stub.rows(s.out, RowCount::kTokens,
              {s.out, s.gate.stride, s.gate.offset, s.up.stride, s.up.offset}, s.epilogue);
    w.note(fmt::format("shapes: gate, up, out [num_tokens, {}]; dtype: {}{}", s.out,
                       Stub::kActivations, stub.activation_type()));
    w.activation("kActivation", s.activation);
    w.view("X", s.gate);
    w.view("Y", s.up);
    w.arg(stub.x_pointer(), "gate");
    w.arg(stub.x_pointer(), "up");
    w.arg(stub.out_pointer(), "out");
    return stub.finish_rows("gated_activation", &s.epilogue);
}

template <class Stub>
Kernel make_elementwise(const AddSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    stub.rows(s.out, s.count, {s.out, s.x.stride, s.x.offset, s.y.stride, s.y.offset}, s.epilogue);
    w.note(fmt::format("shapes: x, y, out [rows, {}]; dtype: {}{}", s.out, Stub::kActivations,
                       stub.activation_type()));
    w.view("X", s.x);
    w.view("Y", s.y);
    w.arg(stub.x_pointer(), "x");
    w.arg(stub.x_pointer(), "y");
    w.arg(stub.out_pointer(), "out");
    return stub.finish_rows("add", &s.epilogue);
}

template <class Stub>
Kernel make_elementwise(const ScaleSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    stub.rows(s.out, s.count, {s.out, s.x.stride, s.x.offset}, s.epilogue);
    w.note(fmt::format("shapes: x, out [rows, {}]; dtype: {}{}", s.out, Stub::kActivations,
                       stub.activation_type()));
    w.real("float", "kScale", s.factor);
    w.real("float", "kSoftcap", s.softcap);
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg(stub.out_pointer(), "out");
    return stub.finish_rows("scale", &s.epilogue);
}

template <class Stub>
Kernel make_elementwise(const SelectTokensSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    stub.rows(s.out, RowCount::kOutputs, {s.out, s.x.stride, s.x.offset}, s.epilogue);
    w.note(fmt::format("shapes: x [num_tokens, {}], out [num_outputs, {}]; dtype: {}{}", s.out,
                       s.out, Stub::kActivations, stub.activation_type()));
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg("const i32*", "rows");
    w.arg(stub.out_pointer(), "out");
    return stub.finish_rows("select_tokens", &s.epilogue);
}

}  // namespace cleave::codegen
