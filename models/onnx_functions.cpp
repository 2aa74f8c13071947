// SPDX-License-Identifier: Apache-2.0
// The model-local functions of the form kFunctions: RMSNorm and the rotation, as torch's exporters
// once wrote them.
#include "models/onnx_forms.h"

namespace cleave::models {

using onnx::TensorProto;

void add_functions(onnx::ModelProto& model, OnnxBuilder& builder) {
    builder.opset(kFunctionDomain, 1);
    auto begin = [&](const char* name, const std::vector<std::string>& inputs) {
        onnx::FunctionProto* f = model.add_functions();
        f->set_domain(kFunctionDomain);
        f->set_name(name);
        for (const std::string& i : inputs) f->add_input(i);
        f->add_output("y");
        auto* import = f->add_opset_import();
        import->set_domain("");
        import->set_version(18);
        return f;
    };
    auto add = [](onnx::FunctionProto* f, const char* type, const std::vector<std::string>& in,
                  const char* out, const std::vector<Attribute>& attributes = {}) {
        onnx::NodeProto* n = f->add_node();
        n->set_op_type(type);
        for (const std::string& i : in) n->add_input(i);
        n->add_output(out);
        for (const Attribute& a : attributes) set_attribute(*n, a);
        return n;
    };
    onnx::FunctionProto* f = begin("RmsNorm", {"x", "weight"});
    f->add_attribute("epsilon");
    add(f, "Cast", {"x"}, "wide", {{"to", int64_t{TensorProto::FLOAT}}});
    add(f, "Mul", {"wide", "wide"}, "square");
    add(f, "Constant", {}, "axes", {{"value_ints", std::vector<int64_t>{-1}}});
    add(f, "ReduceMean", {"square", "axes"}, "mean", {{"keepdims", int64_t{1}}});
    onnx::AttributeProto* a = add(f, "Constant", {}, "epsilon_value")->add_attribute();
    a->set_name("value_float");
    a->set_ref_attr_name("epsilon");
    a->set_type(onnx::AttributeProto::FLOAT);
    add(f, "Add", {"mean", "epsilon_value"}, "shifted");
    add(f, "Sqrt", {"shifted"}, "root");
    add(f, "Div", {"wide", "root"}, "scaled");
    add(f, "CastLike", {"scaled", "x"}, "narrow");
    add(f, "Mul", {"narrow", "weight"}, "y");

    f = begin("Rope", {"x", "cos", "sin"});
    add(f, "Split", {"x"}, "low", {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}})
        ->add_output("high");
    add(f, "Neg", {"high"}, "negated");
    add(f, "Concat", {"negated", "low"}, "rotated", {{"axis", int64_t{-1}}});
    add(f, "Mul", {"x", "cos"}, "first");
    add(f, "Mul", {"rotated", "sin"}, "second");
    add(f, "Add", {"first", "second"}, "y");
}

}  // namespace cleave::models
