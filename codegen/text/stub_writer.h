// SPDX-License-Identifier: Apache-2.0
// Writes the generated part of a kernel: a Config of constants, and the entry that calls the
// template; of a host kernel it unpacks `args`, of a GPU kernel it takes parameters. In: constants,
// arguments and the call; out: a Kernel with text, name and hash.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel/program.h"
#include "codegen/text/templates.h"

namespace cleave::codegen {

// "float", "f16", "bf16" or "f8e4m3"; UserError naming `what` for another dtype.
std::string_view element_type(DType dtype, std::string_view what);

// "const f16*"
std::string element_pointer(DType dtype, std::string_view what);

// ceil(rows x blocks / divisor), with as many rows as the batch has of `count`.
Extent rows_extent(RowCount count, int64_t divisor = 1, int64_t blocks = 1);

// "bf16", "uint4 in blocks of 32, scales f16, zero points".
std::string describe(const WeightFormat& format);

class StubWriter {
public:
    // Of Config.
    void constant(std::string_view name, int64_t value);
    void constant(std::string_view name, bool value);
    void real(std::string_view type, std::string_view name, double value);
    void activation(std::string_view name, importer::Activation value);
    void type(std::string_view name, std::string_view value);
    void line(std::string text);
    // The type of a matrix with rows of `columns`: an element type, or Quantized<..> of the
    // templates.
    void weight(std::string_view name, const WeightFormat& format, int64_t columns,
                std::string_view what);
    // An optional operand: `flag`, and the element type (float when absent).
    void operand(std::string_view flag, std::string_view type_name,
                 const std::optional<DType>& dtype);
    void view(std::string_view prefix, const View& view);

    // The next parameter. A pointer type ends in '*'; an integer is "i64".
    void arg(std::string_view type, std::string_view name);
    // Of host kernels without args_struct, whose items are rows [kOut] of `out`: the epilogue
    // follows each row. Arguments `other[..]` are its operands (codegen/lower/epilogue.h).
    void epilogue_each_row() { epilogue_each_row_ = true; }

    // A file of the templates that this kernel does not use: what is not there need not be parsed.
    void leave_out(std::string file) { left_out_.insert(std::move(file)); }

    // A GPU kernel that may begin before the launches in front have ended. It waits for them before
    // the call.
    void overlap() { overlaps_ = true; }
    // A block of a GPU kernel may take all registers of a unit.
    void take_registers() { alone_ = true; }
    // A GPU kernel calls `ahead` with the same arguments, before that wait.
    void begin_with(std::string ahead) { ahead_ = std::move(ahead); }
    // It normalises its input first: its name says so where its kind's does.
    void normalises() { normalises_ = true; }

    // Comment lines: what is computed, on what shapes, of which types.
    void note(std::string text) { notes_.push_back(std::move(text)); }

    // `args_struct` non-empty: arguments are fields of args_struct<Config> a, and the call is
    // call<Config>(a, begin, end, scratch); else they are passed in order, then begin, end.
    Kernel finish(planner::KernelKind kind, const std::vector<std::string>& fused,
                  std::string_view file, std::string_view call, std::string_view args_struct,
                  const Launch& launch) const;

    // A GPU kernel for `device`, the same way: call<Config>(a), or call<Config>(arguments in
    // order).
    Kernel finish_gpu(planner::KernelKind kind, const std::vector<std::string>& fused,
                      std::string_view file, std::string_view call, std::string_view args_struct,
                      const Launch& launch, std::string_view device) const;

private:
    struct Argument {
        std::string type, name;
        std::string value(size_t i) const;  // of a host kernel's word `i`
    };
    std::string config() const;
    std::string row_calls(std::string_view call) const;
    std::string body(std::string_view call, std::string_view args_struct) const;
    std::string gpu_body(std::string_view call, std::string_view args_struct, int threads) const;
    Kernel complete(planner::KernelKind kind, const std::vector<std::string>& fused,
                    const FlattenedTemplate& files, std::string stub, const Launch& launch,
                    const std::string& launched, std::string_view device) const;
    std::vector<std::string> config_;
    std::vector<Argument> args_;
    std::vector<std::string> notes_;
    std::set<std::string> left_out_;
    bool epilogue_each_row_ = false, has_quantized_ = false, overlaps_ = false, alone_ = false,
         normalises_ = false;
    std::string ahead_;
};

// The part of a Config that a norm is; its epsilon is a "float" or a "double". Without a prefix it
// is the norm of the kernel's input.
void write_norm(StubWriter& w, const std::optional<NormSpec>& norm, std::string_view epsilon_type,
                std::string_view prefix = "");
// A parameter, where there is a dtype: a pointer to such elements.
void optional_arg(StubWriter& w, const std::optional<DType>& dtype, std::string_view name);
// The part of a Config that every kernel over the KV cache has.
void write_slab(StubWriter& w, const SlabSpec& slab, int64_t first_head);
// The parameters behind `kv`: blocks of the slab, and the block table.
void write_block_table(StubWriter& w);

// "36 items", "12 items a token".
std::string describe_items(const Extent& items);
// "12", "1 per token", "(1 per token) / 64, rounded up".
std::string describe_extent(const Extent& extent);

}  // namespace cleave::codegen
