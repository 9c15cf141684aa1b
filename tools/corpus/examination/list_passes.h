// What is kept while a list is gone through once, from its first entry to its last.
//
// Thread safety: one thread at a time, but for const members.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/text_rules.h"
#include "tools/corpus/examination/examine_sound.h"

namespace rondo::corpus {

// A number that is the same for every order of the list.
uint64_t draw(uint64_t seed, const std::string& what);

// Which recordings are decoded: all, so many that are drawn, or none.
class Drawn {
 public:
  static constexpr size_t most = 20'000;

  Drawn(const std::vector<ListedUtterance>& list, uint64_t seed, bool none);
  bool contains(const ListedUtterance& u) const;

 private:
  uint64_t number_of(const ListedUtterance& u) const;

  const uint64_t seed_;
  const bool none_;
  uint64_t limit_ = UINT64_MAX;
};

// Leaves out what was there before: one part of one file. (Regions of images are the pages' own.)
class Doubles {
 public:
  // The first `kept` of the list are used so far, and this one is going to join them.
  std::optional<Flaw> look_at(const ListedUtterance& u, const std::vector<ListedUtterance>& list,
                              size_t kept);

 private:
  std::unordered_map<uint64_t, size_t> first_;
};

// The replacements that no text has had a use for, by mistake mostly. They are looked for in the
// texts as they are read, for those of a folder are not all in memory before.
class UnusedReplacements {
 public:
  // The rules are borrowed.
  explicit UnusedReplacements(const TextRules& rules) : unused_(rules.replace), rules_(rules) {}

  // Texts as they were read. One that is not UTF-8 is none; who reads it says so.
  void look_at(const std::vector<std::optional<std::string>>& originals);
  const std::vector<TextReplacement>& unused() const { return unused_; }

 private:
  std::vector<TextReplacement> unused_;
  const TextRules& rules_;
};

// As many entries as take a tenth of a second or so: that often the progress is told.
class Pace {
 public:
  size_t entries() const { return entries_; }
  void took(std::chrono::steady_clock::duration time);

 private:
  size_t entries_ = 16;
};

}  // namespace rondo::corpus
