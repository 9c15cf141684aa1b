#include "engine/lm/language_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "engine/io/file.h"
#include "engine/lm/kenlm/kenlm_model.h"
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

bool is_kenlm(std::string_view begin) { return begin.starts_with(lm::kenlm_magic); }

}  // namespace

struct LanguageModel::Model {
  std::string name;
  FileBytes file;
  std::vector<std::byte> memory;
  std::optional<lm::KenlmModel> kenlm;  // or else the image
  lm::ImageView image;
  std::vector<Level> levels;
  State states = 0, begin = 0;
  Word words = 0, end = 0;

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
  if (is_kenlm({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    kenlm.emplace(bytes, name);
    begin = kenlm->begin_sentence();
    end = kenlm->word(lm::end_text);
    words = kenlm->words();
    states = kenlm->states();
    return;
  }
  image = lm::view_image(bytes, name);
  states = static_cast<State>(image.header.states);
  words = static_cast<Word>(image.header.words);
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
  if (begin >= states) fail_damaged();
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
  if (next >= states || !std::isfinite(total)) fail_damaged();
  length = static_cast<int32_t>(level - levels_begin) + 1;
  return total;
}

LanguageModel LanguageModel::open(const std::string& path) {
  const auto model = std::make_shared<Model>();
  model->name = path;
  char start[lm::kenlm_magic.size()] = {};
  std::error_code ignored;
  // A pipe can be read once, so it is ARPA's.
  if (std::filesystem::is_regular_file(path, ignored)) {
    std::ifstream(path, std::ios::binary).read(start, sizeof start);
  }
  const std::string_view begin(start, sizeof start);
  if (is_image(begin) || is_kenlm(begin)) {
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
  if (is_image(content) || is_kenlm(content)) {
    const auto bytes = std::as_bytes(std::span(content));
    model->memory.assign(bytes.begin(), bytes.end());
  } else {
    LineReader lines(content, name);
    model->read_arpa(lines);
  }
  model->view(model->memory);
  return LanguageModel(model);
}

int32_t LanguageModel::order() const {
  return model_->kenlm ? model_->kenlm->order() : static_cast<int32_t>(model_->levels.size());
}

LanguageModel::Word LanguageModel::words() const { return model_->words; }

uint64_t LanguageModel::ngrams(int32_t order) const {
  RONDO_CHECK(order >= 1 && order <= this->order(), "order is ", order);
  if (model_->kenlm) return model_->kenlm->ngrams(order);
  return model_->levels[static_cast<size_t>(order - 1)].arcs.count;
}

LanguageModel::State LanguageModel::states() const { return model_->states; }

uint64_t LanguageModel::bytes() const {
  return model_->kenlm ? model_->kenlm->bytes() : model_->image.bytes.size();
}

int32_t LanguageModel::quantized_bits() const {
  return model_->kenlm ? model_->kenlm->quantized_bits()
                       : static_cast<int32_t>(model_->image.header.quantized_bits);
}

LanguageModel::Word LanguageModel::word(std::string_view text) const {
  if (model_->kenlm) return model_->kenlm->word(text);
  const lm::Word found = model_->image.vocabulary.find(text);
  return found == lm::no_word ? unknown : found;
}

std::string_view LanguageModel::text(Word word) const {
  RONDO_CHECK(word < words(), "word ", word, " of ", words());
  return model_->kenlm ? model_->kenlm->text(word) : model_->image.vocabulary.text(word);
}

LanguageModel::State LanguageModel::begin_sentence() const { return model_->begin; }

double LanguageModel::score(State state, Word word, State& next, int32_t& length) const {
  RONDO_CHECK(state < states() && word < words(), "state ", state, " of ", states(), ", word ",
              word, " of ", words());
  if (model_->kenlm) return model_->kenlm->score(state, word, next, length);
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
