#include "tools/corpus/examination/list_passes.h"

#include <algorithm>
#include <bit>

#include "engine/data/features/random.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo::corpus {

uint64_t draw(uint64_t seed, const std::string& what) {
  return data::combine64(seed, data::hash_name(what));
}

Drawn::Drawn(const std::vector<ListedUtterance>& list, uint64_t seed, bool none)
    : seed_(seed), none_(none) {
  if (none_ || list.size() <= most) return;
  std::vector<uint64_t> all;
  all.reserve(list.size());
  for (const ListedUtterance& u : list) all.push_back(number_of(u));
  const auto last = all.begin() + static_cast<ptrdiff_t>(most - 1);
  std::nth_element(all.begin(), last, all.end());
  limit_ = *last;
}

bool Drawn::contains(const ListedUtterance& u) const { return !none_ && number_of(u) <= limit_; }

uint64_t Drawn::number_of(const ListedUtterance& u) const {
  return draw(seed_, str(u.file.name(), " ", u.offset));
}

std::optional<Flaw> Doubles::look_at(const ListedUtterance& u,
                                     const std::vector<ListedUtterance>& list, size_t kept) {
  if (u.kind == InputKind::image) return std::nullopt;
  uint64_t part = data::hash_name(u.file.name());
  for (const double seconds : {u.offset, u.duration})
    part = data::combine64(part, std::bit_cast<uint64_t>(seconds));
  part = data::combine64(part, static_cast<uint64_t>(u.channel));
  const auto [at, is_new] = first_.try_emplace(part, kept);
  if (is_new) return std::nullopt;
  const ListedUtterance& first = list.at(at->second);
  if (first.file.path != u.file.path) return std::nullopt;
  const std::string before = first.where.empty() ? first.file.name() : first.where;
  if (first.text == u.text)
    return Flaw{Finding::doubled, str(u.file.name(), ": is the same as ", before)};
  return Flaw{Finding::doubled_otherwise, str(u.file.name(), ": has the text '", u.text,
                                              "' here and '", first.text, "' in ", before)};
}

void UnusedReplacements::look_at(const std::vector<std::optional<std::string>>& originals) {
  if (unused_.empty()) return;
  std::vector<std::string> texts;
  for (const std::optional<std::string>& text : originals) {
    try {
      if (text) texts.push_back(normalize_transcript(*text));
    } catch (const InputError&) {
      continue;
    }
  }
  const std::vector<TextReplacement> never = never_found(rules_.replace, texts);
  std::erase_if(unused_, [&](const TextReplacement& r) {
    return std::find(never.begin(), never.end(), r) == never.end();
  });
}

void Pace::took(std::chrono::steady_clock::duration time) {
  constexpr std::chrono::milliseconds short_time{50}, long_time{200};
  constexpr size_t most = 8192;
  if (time < short_time) entries_ = std::min(2 * entries_, most);
  if (time > long_time) entries_ = std::max<size_t>(entries_ / 4, 2);
}

}  // namespace rondo::corpus
