#include "engine/lm/language_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/io/file.h"
#include "engine/lm/model_image.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// One of ImageView's kinds of records, ready to be read.
struct Records {
  const std::byte* at = nullptr;
  const std::byte* table = nullptr;
  uint64_t count = 0, bits = 0;
  uint32_t width[3] = {0, 0, 0};

  uint32_t first(uint64_t i) const { return lm::read_bits(at, i * bits, width[0]); }
  float weight(uint64_t i) const {
    const uint32_t code = lm::read_bits(at, i * bits + width[0], width[1]);
    if (!table) return std::bit_cast<float>(code);
    return lm::VocabularyView::at<float>(table, code);
  }
  uint32_t last(uint64_t i) const {
    return lm::read_bits(at, i * bits + width[0] + width[1], width[2]);
  }
};

struct Level {
  uint32_t first_state = 0, end_state = 0;
  Records contexts, arcs;
};

void read_into_table(LineReader& lines, lm::Vocabulary& vocabulary, lm::NgramTable& table) {
  lm::read_arpa(lines, vocabulary, table);
  try {
    table.end();
  } catch (const InputError& e) {
    fail_input(lines.name(), ": ", e.what());
  }
}

bool is_image(std::string_view begin) {
  return begin.starts_with(std::string_view(lm::image_magic, sizeof lm::image_magic));
}

}  // namespace

struct LanguageModel::Model {
  std::string name;
  FileBytes file;
  std::vector<std::byte> memory;
  lm::ImageView image;
  std::vector<Level> levels;
  State begin = 0;
  Word end = 0;

  void read_arpa(LineReader& lines);
  void view(std::span<const std::byte> bytes);
  double score(State state, Word word, State& next, int32_t& length) const;
  [[noreturn]] void fail_damaged() const {
    fail_input(name, ": is damaged: its states lead nowhere, though its checksum is right");
  }
};

void LanguageModel::Model::read_arpa(LineReader& lines) {
  lm::Vocabulary vocabulary;
  lm::NgramTable table(vocabulary);
  read_into_table(lines, vocabulary, table);
  lm::write_image(table, vocabulary, 0, [&](std::span<const std::byte> bytes) {
    if (memory.empty()) {
      lm::ImageHeader header;
      std::memcpy(&header, bytes.data(), sizeof header);
      memory.reserve(header.bytes);
    }
    memory.insert(memory.end(), bytes.begin(), bytes.end());
  });
}

void LanguageModel::Model::view(std::span<const std::byte> bytes) {
  image = lm::view_image(bytes, name);
  const auto records = [&](const lm::RecordLayout& r) {
    return Records{bytes.data() + r.at,
                   r.table_at != 0 ? bytes.data() + r.table_at : nullptr,
                   r.count,
                   r.record_bits(),
                   {r.width[0], r.width[1], r.width[2]}};
  };
  for (const lm::LevelLayout& l : image.levels) {
    levels.push_back({static_cast<uint32_t>(l.first_state),
                      static_cast<uint32_t>(l.first_state + l.contexts.count - 1),
                      records(l.contexts), records(l.arcs)});
  }
  const Word start = image.vocabulary.find(lm::begin_text);
  end = image.vocabulary.find(lm::end_text);
  if (start == lm::no_word || end == lm::no_word) fail_damaged();
  begin = levels.front().arcs.last(start);
  if (begin >= image.header.states) fail_damaged();
}

// What is read of the records is checked where it leads, so that no file makes this read beyond
// the image, go in circles or return what is no number: an arc's state is one that there is, and
// contexts back off to shorter ones.
double LanguageModel::Model::score(State state, Word word, State& next, int32_t& length) const {
  const Level* levels_begin = levels.data();
  const Level* level = levels_begin;
  while (state >= level->end_state) ++level;
  double total = 0;
  uint64_t arc;
  while (true) {
    const Records& arcs = level->arcs;
    if (state == 0) {
      arc = word;
      break;
    }
    const uint64_t context = state - level->first_state;
    uint64_t low = level->contexts.first(context);
    uint64_t high = level->contexts.first(context + 1);
    if (low > high || high > arcs.count) fail_damaged();
    const uint64_t end_of_arcs = high;
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (arcs.first(middle) < word) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (low < end_of_arcs && arcs.first(low) == word) {
      arc = low;
      break;
    }
    total += level->contexts.weight(context);
    const State shorter = level->contexts.last(context);
    if (shorter >= level->first_state) fail_damaged();
    state = shorter;
    while (state < level->first_state) --level;
  }
  next = level->arcs.last(arc);
  total += level->arcs.weight(arc);
  if (next >= image.header.states || !std::isfinite(total)) fail_damaged();
  length = static_cast<int32_t>(level - levels_begin) + 1;
  return total;
}

LanguageModel LanguageModel::open(const std::string& path) {
  const auto model = std::make_shared<Model>();
  model->name = path;
  char start[sizeof lm::image_magic] = {};
  std::error_code ignored;
  // A pipe can be read once, so it is ARPA's.
  if (std::filesystem::is_regular_file(path, ignored)) {
    std::ifstream(path, std::ios::binary).read(start, sizeof start);
  }
  if (std::string_view(start, sizeof start) == "mmap lm ") {
    fail_input(path, ": is of KenLM's own form, expected an ARPA file or what rondo lm wrote");
  }
  if (is_image({start, sizeof start})) {
    model->file = FileBytes(path, FileBytes::Mode::map);
    model->view(model->file.bytes());
  } else {
    LineReader lines(path);
    model->read_arpa(lines);
    model->view(model->memory);
  }
  return LanguageModel(model);
}

LanguageModel LanguageModel::parse(std::string_view content, const std::string& name) {
  const auto model = std::make_shared<Model>();
  model->name = name;
  if (is_image(content)) {
    const auto bytes = std::as_bytes(std::span(content));
    model->memory.assign(bytes.begin(), bytes.end());
  } else {
    LineReader lines(content, name);
    model->read_arpa(lines);
  }
  model->view(model->memory);
  return LanguageModel(model);
}

int32_t LanguageModel::order() const { return static_cast<int32_t>(model_->levels.size()); }

LanguageModel::Word LanguageModel::words() const {
  return static_cast<Word>(model_->image.header.words);
}

uint64_t LanguageModel::ngrams(int32_t order) const {
  RONDO_CHECK(order >= 1 && order <= this->order(), "order is ", order);
  return model_->levels[static_cast<size_t>(order - 1)].arcs.count;
}

LanguageModel::State LanguageModel::states() const {
  return static_cast<State>(model_->image.header.states);
}

uint64_t LanguageModel::bytes() const { return model_->image.bytes.size(); }

int32_t LanguageModel::quantized_bits() const {
  return static_cast<int32_t>(model_->image.header.quantized_bits);
}

LanguageModel::Word LanguageModel::word(std::string_view text) const {
  const lm::Word found = model_->image.vocabulary.find(text);
  return found == lm::no_word ? unknown : found;
}

std::string_view LanguageModel::text(Word word) const {
  RONDO_CHECK(word < words(), "word ", word, " of ", words());
  return model_->image.vocabulary.text(word);
}

LanguageModel::State LanguageModel::begin_sentence() const { return model_->begin; }

double LanguageModel::score(State state, Word word, State& next, int32_t& length) const {
  RONDO_CHECK(state < states() && word < words(), "state ", state, " of ", states(), ", word ",
              word, " of ", words());
  return model_->score(state, word, next, length);
}

double LanguageModel::score(State state, Word word, State& next) const {
  int32_t length;
  return score(state, word, next, length);
}

double LanguageModel::end_score(State state) const {
  State next;
  return score(state, model_->end, next);
}

void build_language_model(const std::string& arpa, const std::string& out, int32_t quantize) {
  lm::Vocabulary vocabulary;
  lm::NgramTable table(vocabulary);
  LineReader lines(arpa);
  read_into_table(lines, vocabulary, table);
  replace_file(out, [&](FileWriter& file) {
    lm::write_image(table, vocabulary, quantize,
                    [&](std::span<const std::byte> bytes) { file.write(bytes); });
  });
}

}  // namespace rondo
