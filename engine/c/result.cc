#include "engine/c/handles.h"

namespace rondo::c {
namespace {

std::vector<rondo_piece> pieces_of(const std::vector<TimedText::Token>& tokens) {
  std::vector<rondo_piece> pieces;
  for (const TimedText::Token& t : tokens)
    pieces.push_back({t.text.c_str(), t.begin, t.end, t.probability});
  return pieces;
}

void take(rondo_result& r, TimedText&& text) {
  r.text = std::move(text.text);
  r.words = std::move(text.words);
  r.characters = std::move(text.characters);
  r.word_pieces = pieces_of(r.words);
  r.character_pieces = pieces_of(r.characters);
}

}  // namespace

std::unique_ptr<rondo_result> result_of(Transcript&& t, double frame_seconds) {
  auto r = std::make_unique<rondo_result>();
  for (Transcript::Alternative& a : t.alternatives) {
    auto one = std::make_unique<rondo_result>();
    one->score = a.score;
    take(*one, std::move(a));
    one->end = static_cast<double>(t.frames) * frame_seconds;
    r->alternatives.push_back(std::move(one));
  }
  if (!r->alternatives.empty()) r->score = r->alternatives.front()->score;
  take(*r, std::move(t));
  r->outputs = std::move(t.logits);
  r->rows = t.frames;
  r->columns = t.classes;
  r->end = static_cast<double>(t.frames) * frame_seconds;
  return r;
}

std::unique_ptr<rondo_result> result_of(Prediction&& p, double frame_seconds) {
  if (p.values.empty()) return result_of(std::move(p.transcript), frame_seconds);
  auto r = std::make_unique<rondo_result>();
  r->class_index = p.class_index;
  if (p.class_index >= 0) {
    const auto index = static_cast<size_t>(p.class_index);
    r->probability = p.probabilities[index];
    r->text = class_text(p.classes, p.class_index);
  }
  r->outputs = std::move(p.values);
  r->rows = 1;
  r->columns = static_cast<int64_t>(r->outputs.size());
  return r;
}

}  // namespace rondo::c

void rondo_result_free(rondo_result* result) { delete result; }

const char* rondo_result_text(const rondo_result* result) {
  return result ? result->text.c_str() : "";
}

static const rondo_piece* pieces(const std::vector<rondo_piece>* of, size_t* count) {
  const size_t n = of ? of->size() : 0;
  if (count) *count = n;
  return n > 0 ? of->data() : nullptr;
}

const rondo_piece* rondo_result_words(const rondo_result* result, size_t* count) {
  return pieces(result ? &result->word_pieces : nullptr, count);
}
const rondo_piece* rondo_result_characters(const rondo_result* result, size_t* count) {
  return pieces(result ? &result->character_pieces : nullptr, count);
}

void rondo_result_times(const rondo_result* result, double* begin, double* end) {
  if (begin) *begin = result ? result->begin : 0;
  if (end) *end = result ? result->end : 0;
}

double rondo_result_score(const rondo_result* result) { return result ? result->score : 0; }

size_t rondo_result_alternatives(const rondo_result* result) {
  return result ? result->alternatives.size() : 0;
}
const rondo_result* rondo_result_alternative(const rondo_result* result, size_t index) {
  if (index >= rondo_result_alternatives(result)) return nullptr;
  return result->alternatives[index].get();
}

rondo_matrix rondo_result_outputs(const rondo_result* result) {
  if (!result || result->outputs.empty()) return {};
  return {result->outputs.data(), result->rows, result->columns, 0, 0};
}

int32_t rondo_result_class(const rondo_result* result, double* probability) {
  if (probability) *probability = result ? result->probability : 0;
  return result ? result->class_index : -1;
}
