#include "tools/recognition/outputs.h"

#include <cmath>
#include <cstdlib>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// Of --blank.
std::optional<int32_t> blank_class(const OutputsOptions& o) {
  if (o.blank.empty()) return {};
  char* end = nullptr;
  const long value = std::strtol(o.blank.c_str(), &end, 10);
  if (*end != '\0' || value < 0 || value > INT32_MAX)
    throw WrongUsage("--blank is '" + o.blank + "', expected a class, 0 or more");
  return static_cast<int32_t>(value);
}

bool are_probabilities(const Matrix& scores) {
  for (int64_t t = 0; t < scores.frames; ++t) {
    double sum = 0;
    for (int32_t c = 0; c < scores.dim; ++c) {
      if (!(scores.row(t)[c] >= 0)) return false;
      sum += scores.row(t)[c];
    }
    if (!(std::abs(sum - 1) < 1e-2)) return false;
  }
  return scores.frames > 0;
}

// As logits: the search normalises them.
void make_logits(const std::string& kind, const std::string& name, Matrix& scores) {
  const bool probabilities = are_probabilities(scores);
  if (kind == "probabilities" && !probabilities)
    fail_input(name, ": is not of probabilities: a row has negative ones, or does not add up to 1");
  if (kind == "logits" || !probabilities) return;
  for (float& v : scores.data) v = std::log(v);
}

}  // namespace

void add_outputs_options(Command& command, OutputsOptions* o) {
  command
      .add_option("--blank", o->blank,
                  "the blank's class; else the token that is called <blank>, <pad> or the like")
      .type_name("INT");
  command.add_option("--word-border", o->border,
                     "the token between words, 'every' where each token is a word, 'none'; else "
                     "told from the tokens");
  command
      .add_option("--scores", o->scores,
                  "what the outputs are; logarithms of probabilities may be given as logits")
      .one_of({"auto", "logits", "probabilities"})
      .show_default();
}

Vocabulary open_vocabulary(const std::string& path, const OutputsOptions& o) {
  return Vocabulary::open(path, blank_class(o), o.border);
}

Matrix read_logits(const ModelInput& input, const OutputsOptions& o, const Vocabulary& vocabulary,
                   const std::string& vocabulary_name) {
  Matrix scores = read_scores(input);
  if (scores.dim != vocabulary.classes())
    fail_input(input.name, ": has ", scores.dim, " classes per frame, ", vocabulary_name, " names ",
               vocabulary.classes());
  make_logits(o.scores, input.name, scores);
  return scores;
}

}  // namespace rondo
