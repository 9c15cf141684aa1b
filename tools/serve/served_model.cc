#include "tools/serve/served_model.h"

#include <sys/stat.h>

#include <utility>

#include "engine/text/text_rules.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "kernels/base/error.h"

namespace rondo::serve {

ServedModel::ServedModel(ServedModelOptions options, Model model, std::vector<Model> others,
                         std::optional<Decoder> decoder, Decoder hot_word_decoder)
    : options_(std::move(options)),
      model_(std::move(model)),
      others_(std::move(others)),
      decoder_(std::move(decoder)),
      hot_word_decoder_(std::move(hot_word_decoder)) {
  if (reads() == InputKind::features)
    fail_input(model_.file(),
               ": was trained on ready features; 'rondo serve' takes a model of recordings or "
               "images of lines");
  struct stat status {};
  if (::stat(model_.file().c_str(), &status) == 0) created_ = status.st_mtime;
  const std::unique_ptr<Recognizer> first = recognizer();
  try {
    const RecognizerStream stream(*first, options_.chunk_seconds);
  } catch (const InputError& e) {
    why_no_stream_ = e.what();
  }
}

InputKind ServedModel::reads() const { return input_kind(features().type); }

std::unique_ptr<Recognizer> ServedModel::recognizer() const {
  auto recognizer = std::make_unique<Recognizer>(model_, 1, others_);
  recognizer->set_decoder(decoder_);
  return recognizer;
}

std::optional<Decoder> ServedModel::decoder_for(const std::vector<std::string>& phrases) const {
  if (phrases.empty()) return decoder_;
  std::vector<HotWord> hot;
  const TextRules& rules = model_.description().config.text;
  for (const std::string& phrase : phrases) {
    const std::string changed = apply_rules(rules, phrase);
    hot.push_back({changed.empty() ? phrase : changed, options_.hot_word_weight});
  }
  return hot_word_decoder_.with_hot_words(hot);
}

}  // namespace rondo::serve
