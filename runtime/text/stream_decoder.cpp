// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/stream_decoder.h"

#include "runtime/text/utf8.h"

namespace cleave::runtime {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), state_(tokenizer.begin_decode()) {}

void StreamDecoder::prime(std::span<const int32_t> ids) {
    // The bytes of a character that the prompt leaves incomplete stay: it appears once complete.
    for (const int32_t id : ids) push(id);
}

std::string StreamDecoder::push(int32_t id) {
    tokenizer_->append_token(id, skip_special_, state_, pending_);
    const size_t ready = pending_.size() - incomplete_tail(pending_);
    std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, ready));
    pending_.erase(0, ready);
    return text;
}

std::string StreamDecoder::finish() {
    std::string text = replace_invalid_utf8(pending_);
    pending_.clear();
    state_ = tokenizer_->begin_decode();
    return text;
}

}  // namespace cleave::runtime
