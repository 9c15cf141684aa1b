#include "engine/text/unwritable.h"

#include <algorithm>
#include <sstream>

#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {

void Unwritable::add(std::string_view reference) {
  ++all_;
  const std::string normal = normalize_transcript(reference);
  const std::vector<UnknownText> unknown = alphabet_->encode(normal).unknown;
  if (unknown.empty()) return;
  ++utterances_;
  for (const UnknownText& u : unknown) {
    characters_ += u.count;
    const auto known = std::find_if(kinds_.begin(), kinds_.end(),
                                    [&](const UnknownText& k) { return k.what == u.what; });
    if (known == kinds_.end()) {
      kinds_.push_back(u);
    } else {
      known->count += u.count;
    }
  }
  std::istringstream words(normal);
  for (std::string word; std::getline(words, word, ' ');) {
    if (!alphabet_->encode(word).unknown.empty()) ++words_;
  }
}

std::vector<UnknownText> Unwritable::kinds() const {
  std::vector<UnknownText> sorted = kinds_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const UnknownText& a, const UnknownText& b) { return a.count > b.count; });
  return sorted;
}

std::string Unwritable::sentence(std::string_view noun) const {
  std::string_view what = alphabet_->units();
  if (characters_ == 1) what.remove_suffix(1);  // the s
  return str(utterances_, " of ", all_, " ", noun, all_ == 1 ? "" : "s",
             utterances_ == 1 ? " holds " : " hold ", characters_, " ", what,
             " this model cannot write: ", describe(kinds()));
}

}  // namespace rondo
