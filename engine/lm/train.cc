#include "engine/lm/train.h"

#include <algorithm>
#include <filesystem>

#include "engine/data/features/endings.h"
#include "engine/io/file.h"
#include "engine/lm/arpa_writer.h"
#include "engine/lm/kneser_ney.h"
#include "engine/lm/model_image.h"
#include "engine/lm/sentences.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

void check_pruning(const LanguageModelTraining& t) {
  for (size_t i = 0; i < t.prune.size(); ++i) {
    const int64_t least = i == 0 ? 0 : t.prune[i - 1];
    if (t.prune[i] < least || (i == 0 && t.prune[i] != 0)) {
      fail_input("order ", i + 1, " is pruned at ", t.prune[i], ", expected ",
                 i == 0 ? "0: words are not pruned" : str("at least ", least, ", as below it"));
    }
  }
  if (t.prune.size() > static_cast<size_t>(t.order)) {
    fail_input(t.prune.size(), " orders are pruned of ", t.order);
  }
}

class Counter {
 public:
  Counter(lm::Vocabulary& vocabulary, lm::KneserNey& counts, LanguageModelReport& report)
      : vocabulary_(vocabulary), counts_(counts), report_(report) {}

  void read(const std::string& path, const lm::SentenceOptions& options) {
    lm::SentenceReader sentences(path, options);
    std::vector<std::string_view> tokens;
    std::vector<lm::Word> words;
    while (sentences.next(tokens)) {
      if (tokens.empty()) {
        ++report_.empty_lines;
        continue;
      }
      words.clear();
      for (const std::string_view token : tokens) {
        const lm::Word word = vocabulary_.add(token);
        if (word <= last_own) {
          sentences.lines().fail("the word '", token,
                                 "' is one of the model's own, expected none "
                                 "of <unk>, <s> and </s> in a text");
        }
        words.push_back(word);
      }
      counts_.add_sentence(words);
      ++report_.sentences;
      report_.tokens += words.size();
    }
    report_.dotless_i.add(sentences.dotless_i());
  }

  static constexpr lm::Word last_own = 2;  // <unk>, <s>, </s>

 private:
  lm::Vocabulary& vocabulary_;
  lm::KneserNey& counts_;
  LanguageModelReport& report_;
};

void write_model(const LanguageModelTraining& t, lm::KneserNey& counts,
                 const lm::Vocabulary& vocabulary) {
  const bool compressed = has_ending(t.out, ".arpa.gz");
  if (compressed || has_ending(t.out, ".arpa")) {
    replace_file(t.out, [&](FileWriter& file) {
      lm::ArpaWriter arpa(vocabulary, file, compressed);
      counts.estimate(vocabulary.size(), arpa);
      arpa.end();
    });
    return;
  }
  lm::NgramTable table(vocabulary);
  counts.estimate(vocabulary.size(), table);
  table.end();
  replace_file(t.out, [&](FileWriter& file) {
    lm::write_image(table, vocabulary, t.quantize,
                    [&](std::span<const std::byte> bytes) { file.write(bytes); });
  });
}

}  // namespace

LanguageModelReport train_language_model(const LanguageModelTraining& t) {
  check_pruning(t);
  LanguageModelReport report;
  lm::Vocabulary vocabulary;
  const lm::Word begin = vocabulary.add(lm::begin_text), end = vocabulary.add(lm::end_text);
  const std::string folder =
      t.temporary.empty() ? std::filesystem::temp_directory_path().string() : t.temporary;
  lm::KneserNey counts({t.order, t.prune, t.discount_fallback, t.memory, folder}, begin, end);
  Counter counter(vocabulary, counts, report);
  for (const std::string& text : t.texts) counter.read(text, {t.rules, t.characters});
  if (report.sentences == 0) {
    fail_input(t.texts.empty() ? "no texts" : t.texts.front(), ": has no sentences to learn from");
  }
  write_model(t, counts, vocabulary);
  report.words = vocabulary.size();
  for (const lm::OrderEstimate& e : counts.orders()) {
    report.orders.push_back({e.found, e.kept, e.discounts, e.fell_back});
  }
  report.spilled_bytes = counts.spilled_bytes();
  return report;
}

}  // namespace rondo
