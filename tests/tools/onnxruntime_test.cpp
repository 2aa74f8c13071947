// SPDX-License-Identifier: Apache-2.0
// The bundled model, as it is and quantised in every form, against ONNX Runtime, an implementation
// that shares nothing with ours, through the command as users type it, on every shape of devices.
#include <cstdlib>

#include "tests/support/command.h"
#include "tests/support/onnx_quantize.h"
#include "tests/support/onnxruntime.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

constexpr const char* kTokenCount = "24";

struct QuantizedForm {
    const char* name;
    test::QuantizeOptions options;
    double tolerance;
};

std::vector<QuantizedForm> quantized_forms() {
    using Form = test::QuantizeOptions::Form;
    using Zeros = test::QuantizeOptions::ZeroPoints;
    // A sum of 320 products in another order than ours may put an activation on another of its 256
    // integers.
    constexpr double kOneStep = 0.25;
    return {{"MatMulNBits 4, zero points",
             {Form::kMatMulNBits, DType::kUInt4, 32, Zeros::kInteger},
             1e-3},
            {"MatMulNBits 4 in blocks that do not divide K, embedding",
             {Form::kMatMulNBits, DType::kUInt4, 128, Zeros::kNone, false, true},
             1e-3},
            {"MatMulNBits 8", {Form::kMatMulNBits, DType::kUInt8, 32, Zeros::kInteger}, 1e-3},
            {"DequantizeLinear int8 by channel",
             {Form::kDequantizeLinear, DType::kInt8, 0, Zeros::kNone},
             1e-3},
            {"DequantizeLinear uint8 by channel",
             {Form::kDequantizeLinear, DType::kUInt8, 0, Zeros::kInteger},
             1e-3},
            {"MatMulInteger int8",
             {Form::kMatMulInteger, DType::kInt8, 0, Zeros::kNone, true},
             kOneStep},
            {"MatMulInteger uint8 by channel",
             {Form::kMatMulInteger, DType::kUInt8, 0, Zeros::kInteger},
             kOneStep}};
}

}  // namespace

TEST_CASE("the bundled model gives ONNX Runtime's logits and tokens on any devices", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    const Peer peer =
        run_onnxruntime(python, bundled_model(), kPeerPrompt, kTokenCount, folder.path());
    for (const Devices& devices :
         {Devices{"host"}, Devices{"host[0-1]", "--tp", "2"}, Devices{"host[0-1]", "--pp", "2"},
          Devices{"host[0-3]", "--tp", "2", "--pp", "2"}, Devices{"host[0-2]", "--tp", "3"},
          Devices{"host[0-7]", "--tp", "8"}}) {
        INFO(devices.front());
        const Peer ours =
            run_ours(bundled_model(), devices, kPeerPrompt, kTokenCount, folder.path());
        check_same(ours, peer);
    }
}

TEST_CASE("quantised forms of the bundled model give ONNX Runtime's logits and tokens", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kNoOnnxRuntime);
    TemporaryFolder folder;
    for (const QuantizedForm& form : quantized_forms()) {
        const fs::path model = folder.path() / "quantized.onnx";
        test::quantize_onnx(bundled_model().string(), model.string(), form.options);
        // The optimiser would quantise the activations of these products, which the graph does not.
        const bool as_written = form.options.form == test::QuantizeOptions::Form::kDequantizeLinear;
        const Peer peer =
            run_onnxruntime(python, model, kPeerPrompt, kTokenCount, folder.path(), as_written);
        for (const Devices& devices : {Devices{"host"}, Devices{"host[0-2]", "--tp", "3"}}) {
            INFO(form.name << " on " << devices.front());
            const Peer ours = run_ours(model, devices, kPeerPrompt, kTokenCount, folder.path());
            check_same_but_for_ties(ours, peer, kPeerPrompt, form.tolerance);
        }
    }
}
