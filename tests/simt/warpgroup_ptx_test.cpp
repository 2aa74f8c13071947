// SPDX-License-Identifier: Apache-2.0
// What NVRTC and ptxas make of products of warpgroups, read from the PTX and from ptxas's log:
// rules of registers that simt, which has none, cannot see. PTX ISA, "wgmma.fence": an instruction
// that writes registers of a product stands before the fence in front of it; the compiler may move
// it unless it is held.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "codegen/compile/vendor.h"
#include "codegen/compile/worker_pool.h"
#include "tests/simt/kernel_case.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

// "%f1" and the like in a list of operands.
std::vector<std::string> registers_in(std::string_view operands) {
    std::vector<std::string> found;
    for (size_t at = 0; (at = operands.find('%', at)) != std::string_view::npos;) {
        const size_t end =
            std::min(operands.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789", at + 1),
                     operands.size());
        found.emplace_back(operands.substr(at, end - at));
        at = end;
    }
    return found;
}

// "{%f1,%f2}", or "%f1", that the text begins with.
std::string_view first_operand(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
    return text.substr(0, text.find_first_of(text.starts_with('{') ? "}" : ",;"));
}

// Registers that the instruction writes, as far as its first operand says: memory and labels are
// none.
std::vector<std::string> written_by(std::string_view line) {
    if (line.starts_with('@')) line.remove_prefix(std::min(line.find(' '), line.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.starts_with('.') || line.starts_with("//")) return {};
    const std::string_view operand =
        first_operand(line.substr(std::min(line.find_first_of(" \t"), line.size())));
    return operand.starts_with('%') || operand.starts_with('{') ? registers_in(operand)
                                                                : std::vector<std::string>{};
}

// Registers of a product: its sums, and its left operand where that is no descriptor.
std::vector<std::string> registers_of_product(std::string_view line) {
    const std::string_view sums = first_operand(line.substr(line.find('{')));
    std::vector<std::string> all = registers_in(sums);
    const std::string_view left = first_operand(line.substr(line.find('}') + 2));
    if (left.starts_with('{'))
        for (std::string& r : registers_in(left)) all.push_back(std::move(r));
    return all;
}

struct Products {
    int count = 0;
    std::string
        wrong;  // the first that is not fenced, or whose registers are written behind the fence
};

Products read_products(std::string_view ptx) {
    Products found;
    bool is_fenced = false;
    std::map<std::string, std::string> written;  // since the fence: register, line
    for (size_t at = 0; at < ptx.size() && found.wrong.empty();) {
        const size_t end = std::min(ptx.find('\n', at), ptx.size());
        std::string_view line = ptx.substr(at, end - at);
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
        at = end + 1;
        if (line.starts_with("wgmma.fence")) {
            is_fenced = true;
            written.clear();
        } else if (line.starts_with("wgmma.commit_group")) {
            is_fenced = false;
        } else if (line.starts_with("wgmma.mma_async")) {
            ++found.count;
            if (!is_fenced) found.wrong = "a product without a fence: " + std::string(line);
            for (const std::string& r : registers_of_product(line))
                if (found.wrong.empty() && written.contains(r))
                    found.wrong = "behind the fence: " + written[r];
        } else if (is_fenced) {
            for (const std::string& r : written_by(line)) written[r] = line;
        }
    }
    return found;
}

// Lines of ptxas's that are of these products: waits that it adds, and products that it makes wait
// for each other (C7510, C7517, C7519 and their like).
std::string remarks_in(std::string_view log) {
    std::string found;
    for (size_t at = 0; at < log.size();) {
        const size_t end = std::min(log.find('\n', at), log.size());
        const std::string line(log.substr(at, end - at));
        for (const char* word : {"GMMA", "wgmma", "warpgroup"})
            if (line.find(word) != std::string::npos) {
                found += line + "\n";
                break;
            }
        at = end + 1;
    }
    return found;
}

class Nvrtc {
public:
    Nvrtc() : workers_("nvrtc", {codegen::nvrtc_info({}).library}, 60, nullptr) {}
    codegen::WorkerResult operator()(const std::string& source) {
        codegen::WorkerResult result =
            workers_.compile("kernel.cu", source,
                             {"--gpu-architecture=sm_90a", "--std=c++17", "--ptxas-options=-v"});
        INFO(result.log);
        REQUIRE(result.status == codegen::WorkerResult::Status::kOk);
        return result;
    }

private:
    codegen::CompileWorkers workers_;
};

std::string changed(std::string source, const std::string& text, const std::string& to) {
    const size_t at = source.find(text);
    REQUIRE(at != std::string::npos);
    return source.replace(at, text.size(), to);
}

}  // namespace

TEST_CASE(
    "what writes registers of a warpgroup's product stands before its fence in the PTX, and "
    "ptxas adds no wait",
    "[simt]") {
    if (std::string why = codegen::nvrtc_info({}).reason; !why.empty())
        CLEAVE_SKIP("no NVRTC: " + why);
    Nvrtc compile;
    int products = 0;
    std::string attention;
    for (const auto& make : warpgroup_cases()) {
        const KernelCase c = make();
        INFO(c.name);
        const std::string source = make_kernel(c, {"sm_90a", 1, {}}).source;
        const codegen::WorkerResult result = compile(source);
        const Products found = read_products(result.ptx);
        CHECK(found.wrong == "");
        CHECK(remarks_in(result.log) == "");
        CHECK(found.count > 0);
        products += found.count;
        if (attention.empty() && source.find("attention_warpgroups<Config>") != std::string::npos)
            attention = source;
    }
    CHECK(products > 50);

    // Both are found where they are.
    const std::string moved = changed(attention, "v[i] = 0.0f;\n        hold();", "v[i] = 0.0f;");
    CHECK_THAT(read_products(compile(moved).ptx).wrong,
               Catch::Matchers::StartsWith("behind the fence: mov"));
    const std::string early =
        changed(attention, "wgmma_wait<1>();\n        s.hold();", "s.hold();");
    CHECK_THAT(remarks_in(compile(early).log),
               Catch::Matchers::Contains("serialized") || Catch::Matchers::Contains("is injected"));
}
