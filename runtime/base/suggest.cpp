// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/suggest.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace cleave {
namespace {

std::string letters_and_digits(const std::string& text) {
    std::string out;
    for (const char c : text)
        if (std::isalnum(static_cast<unsigned char>(c)))
            out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

// Levenshtein's distance with exchanges of neighbours (Damerau 1964, the restricted form).
size_t distance(const std::string& a, const std::string& b) {
    std::vector<size_t> before, last(b.size() + 1), now(b.size() + 1);
    std::iota(last.begin(), last.end(), 0);
    for (size_t i = 1; i <= a.size(); ++i) {
        now[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = std::min(now[j], before[j - 2] + 1);
        }
        before = last;
        last = now;
    }
    return last[b.size()];
}

}  // namespace

std::string nearest_word(const std::string& text, const std::vector<std::string>& words) {
    const std::string plain = letters_and_digits(text);
    const std::string* nearest = nullptr;
    size_t least = plain.size() / 3 + 1;  // a third of the letters wrong is another word
    for (const std::string& word : words) {
        const size_t d = distance(plain, letters_and_digits(word));
        if (d < least) {
            least = d;
            nearest = &word;
        }
    }
    return nearest ? *nearest : "";
}

std::string did_you_mean(const std::string& text, const std::vector<std::string>& words) {
    const std::string nearest = nearest_word(text, words);
    return nearest.empty() ? "" : " (did you mean " + nearest + "?)";
}

}  // namespace cleave
