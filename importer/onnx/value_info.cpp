// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/value_info.h"

namespace cleave::importer {

void set_tensor_type(onnx::ValueInfoProto& info, int type, const OnnxDims& dims) {
    auto* tensor = info.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const auto& dim : dims) {
        auto* d = tensor->mutable_shape()->add_dim();
        if (const auto* number = std::get_if<int64_t>(&dim))
            d->set_dim_value(*number);
        else
            d->set_dim_param(std::get<std::string>(dim));
    }
}

}  // namespace cleave::importer
