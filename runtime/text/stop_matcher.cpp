// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

void StopMatcher::Pattern::push(char byte) {
    while (matched > 0 && text[matched] != byte) matched = shorter[matched];
    if (text[matched] == byte) ++matched;
}

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
    for (const std::string& stop : stops) {
        if (stop.empty() || valid_prefix(stop) != stop.size())
            throw UserError("a stop text is {}; give one or more characters of UTF-8",
                            stop.empty() ? "empty" : "not UTF-8");
        // shorter[n] is what the automaton has matched of stop[1, n).
        Pattern pattern{stop, {0, 0}};
        for (size_t n = 1; n < stop.size(); ++n) {
            pattern.push(stop[n]);
            pattern.shorter.push_back(pattern.matched);
        }
        pattern.matched = 0;
        patterns_.push_back(std::move(pattern));
    }
}

std::string StopMatcher::push(std::string_view piece) {
    if (found_) return "";
    std::string text = std::exchange(waiting_, "");
    size_t longest = text.size();
    for (const char byte : piece) {
        text.push_back(byte);
        longest = 0;
        for (size_t i = 0; i < patterns_.size(); ++i) {
            Pattern& pattern = patterns_[i];
            pattern.push(byte);
            if (pattern.matched == pattern.text.size() &&
                (!found_ || pattern.text.size() > patterns_[*found_].text.size()))
                found_ = i;
            longest = std::max(longest, pattern.matched);
        }
        if (!found_) continue;
        text.resize(text.size() - patterns_[*found_].text.size());
        return text;
    }
    waiting_ = text.substr(text.size() - longest);
    text.resize(text.size() - longest);
    return text;
}

std::string StopMatcher::finish() { return std::exchange(waiting_, ""); }

}  // namespace cleave::runtime
