#include "engine/lm/vocabulary.h"

#include "kernels/base/error.h"

namespace rondo::lm {

Vocabulary::Vocabulary() : table_(64, 0) { add(unknown_text); }

void Vocabulary::insert(Word word) {
  uint64_t slot = view().first_slot(text(word));
  while (table_[slot] != 0) slot = (slot + 1) & (table_.size() - 1);
  table_[slot] = word + 1;
}

Word Vocabulary::add(std::string_view text) {
  const Word known = find(text);
  if (known != no_word) return known;
  if (ends_.size() >= no_word - 1) fail_input("there are more than ", no_word - 1, " words");
  const Word word = size();
  texts_ += text;
  ends_.push_back(texts_.size());
  if (ends_.size() * 2 > table_.size()) {
    table_.assign(table_.size() * 2, 0);
    for (Word w = 0; w < word; ++w) insert(w);
  }
  insert(word);
  return word;
}

}  // namespace rondo::lm
