#include "tools/recognition/outputs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

#include "engine/data/features/endings.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

// Of --blank.
std::optional<int32_t> blank_class(const OutputsOptions& o) {
  if (o.blank.empty()) return {};
  if (o.blank == "last") return Vocabulary::last_blank;
  if (o.blank == "first") return Vocabulary::first_blank;
  char* end = nullptr;
  const long value = std::strtol(o.blank.c_str(), &end, 10);
  if (*end != '\0' || value < 0 || value > INT32_MAX)
    throw WrongUsage("--blank is '" + o.blank +
                     "', expected a class, 0 or more, 'first' or 'last'");
  return static_cast<int32_t>(value);
}

bool sums_to_one(double sum) {
  constexpr double most_off = 0.03 + 1e-6;  // floats round as well
  return std::abs(sum - 1) <= most_off;
}

// The first class that has less than a probability; none: frame.size().
size_t first_negative(std::span<const float> frame) {
  constexpr float rounding = 1e-6F;
  size_t c = 0;
  while (c < frame.size() && frame[c] >= -rounding) ++c;
  return c;
}

// Other programs round them, and cut off small ones.
bool is_of_probabilities(std::span<const float> frame) {
  return first_negative(frame) == frame.size() &&
         sums_to_one(std::accumulate(frame.begin(), frame.end(), 0.0));
}

// Why a frame is none of probabilities.
std::string fault_of(std::span<const float> frame) {
  const size_t c = first_negative(frame);
  if (c < frame.size()) return str("class ", c, " has ", frame[c]);
  return str("the sum is ", std::accumulate(frame.begin(), frame.end(), 0.0));
}

// As logits: the search normalises them.
void take_logarithms(std::span<float> frame) {
  for (float& v : frame) v = std::log(std::max(v, 0.0F));
}

// Throws InputError for what is no score. -infinity is the logarithm of 0.
void check_frame(std::span<const float> frame, int64_t number, const std::string& name) {
  const auto fail_class = [&](size_t c, const char* what) {
    fail_input(name, ": frame ", number, ", class ", c, ": is ", what);
  };
  bool any = false;
  for (size_t c = 0; c < frame.size(); ++c) {
    if (std::isnan(frame[c])) fail_class(c, "no number");
    if (frame[c] == std::numeric_limits<float>::infinity()) fail_class(c, "infinite");
    any |= std::isfinite(frame[c]);
  }
  if (!any) fail_input(name, ": frame ", number, ": every class is -inf, so that none is possible");
}

std::span<const float> frame_of(const Matrix& scores, int64_t t) {
  return {scores.row(t), static_cast<size_t>(scores.dim)};
}

// Refuses logarithms to another base, or with another sign, than a search takes.
void require_natural_logarithms(const std::string& name, const Matrix& scores) {
  const auto are_all = [&](double factor) {
    for (int64_t t = 0; t < scores.frames; ++t) {
      double sum = 0;
      for (const float v : frame_of(scores, t)) sum += std::exp(factor * v);
      if (!sums_to_one(sum)) return false;
    }
    return true;
  };
  if (are_all(1)) return;
  constexpr std::pair<double, const char*> others[] = {
      {-1, "minus the natural logarithms"},
      {std::numbers::ln10, "the logarithms to base 10"},
      {-std::numbers::ln10, "minus the logarithms to base 10"},
      {std::numbers::ln2, "the logarithms to base 2"}};
  for (const auto& [factor, what] : others)
    if (are_all(factor))
      fail_input(name, ": holds ", what,
                 " of probabilities, expected natural logarithms, probabilities or logits "
                 "(--scores logits takes the values as they are)");
}

void make_logits(const std::string& kind, const std::string& name, Matrix& scores) {
  int64_t probable = 0, other = -1;  // frames of probabilities; the first that is none
  for (int64_t t = 0; t < scores.frames; ++t) {
    const std::span<const float> frame = frame_of(scores, t);
    check_frame(frame, t, name);
    if (kind == "logits") continue;
    if (is_of_probabilities(frame))
      ++probable;
    else if (other < 0)
      other = t;
  }
  if (kind == "logits") return;
  if (other < 0) return take_logarithms(scores.data);
  if (kind == "probabilities" || 2 * probable > scores.frames)
    fail_input(name, ": frame ", other,
               " is not of probabilities: ", fault_of(frame_of(scores, other)),
               kind == "probabilities" ? std::string()
                                       : str("; ", probable, " of ", scores.frames,
                                             " frames are (--scores logits takes all as logits)"));
  require_natural_logarithms(name, scores);
}

// Of outputs that have another number of classes than the vocabulary: the usual causes.
std::string cause_of(int64_t classes, const OutputsOptions& o, const Vocabulary& vocabulary,
                     const std::string& vocabulary_name) {
  const int64_t more = classes - vocabulary.classes();
  std::string cause;
  if (more > 0) {
    std::error_code ignored;
    const auto folder = std::filesystem::path(vocabulary_name).parent_path();
    if (std::filesystem::exists(folder / "added_tokens.json", ignored))
      cause = str("; added_tokens.json beside it names more: give the folder, ",
                  folder.empty() ? "." : folder.string());
    cause += "; what no token is for is never written with --ignore-unnamed";
    if (more == 1 && o.blank.empty())
      cause += str("; or is the blank, taken to be class ", vocabulary.blank(),
                   ", before or behind the tokens (--blank first, --blank last)?");
  } else if (more == -1 && o.blank == "last") {
    cause = str("; --blank last puts a blank behind them, or is it class ", classes - 1,
                " (--blank ", classes - 1, ")?");
  } else {
    cause = "; is it the vocabulary of another model, or has a special token no class?";
  }
  return cause;
}

void require_classes(int64_t classes, const std::string& name, const OutputsOptions& o,
                     const Vocabulary& vocabulary, const std::string& vocabulary_name) {
  if (classes == vocabulary.classes()) return;
  constexpr int64_t most_classes = 10'000'000;
  if (classes > vocabulary.classes() && classes <= most_classes && o.ignores_unnamed) return;
  fail_input(name, ": has ", classes, " classes per frame, ", vocabulary_name, " names ",
             vocabulary.classes(), cause_of(classes, o, vocabulary, vocabulary_name));
}

}  // namespace

void add_outputs_options(Command& command, OutputsOptions* o) {
  command
      .add_option("--blank", o->blank,
                  "the blank's class; 'first' or 'last' if it is before or behind the tokens; else "
                  "the token that is called <blank>, <pad> or the like")
      .type_name("CLASS");
  command.add_flag("--ignore-unnamed", o->ignores_unnamed,
                   "classes behind those that the vocabulary names are never written");
  command.add_option("--word-border", o->border,
                     "the token between words, 'every' where each token is a word, 'none'; else "
                     "told from the tokens");
  command
      .add_option("--scores", o->scores,
                  "what the outputs are; logarithms of probabilities may be given as logits")
      .one_of({"auto", "logits", "probabilities"})
      .show_default();
}

OutputsStream::OutputsStream(const OutputsOptions& o, const Vocabulary& vocabulary,
                             std::string vocabulary_name)
    : options_(o),
      kind_(o.scores),
      vocabulary_(vocabulary),
      vocabulary_name_(std::move(vocabulary_name)),
      frame_(static_cast<size_t>(vocabulary.classes())) {}

// So many bytes, fewer only at the end of the stream.
std::string OutputsStream::read(size_t bytes) {
  std::string found = std::move(held_);
  held_.clear();
  const size_t before = found.size();
  if (before < bytes) {
    found.resize(bytes);
    found.resize(before + std::fread(found.data() + before, 1, bytes - before, stdin));
    if (std::ferror(stdin)) fail_input(name, ": cannot be read");
  }
  held_ = found.substr(std::min(bytes, found.size()));
  found.resize(std::min(bytes, found.size()));
  return found;
}

// A .npy header says what follows; without one it is little-endian floats.
void OutputsStream::begin() {
  constexpr size_t fixed = 12;
  std::string start = read(fixed);
  if (!start.starts_with("\x93NUMPY")) {
    held_ = start + held_;
    return;
  }
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(start.at(i)));
  };
  size_t length = fixed;
  if (start.size() == fixed)
    length = start[6] == 1 ? 10 + byte(8) + 256 * byte(9)
                           : fixed + std::min<size_t>(byte(8) + 256 * byte(9) + 65536 * byte(10),
                                                      data::needed_npy_header_bytes);
  if (length < start.size()) {
    held_ = start.substr(length) + held_;
    start.resize(length);
  }
  start += read(length - start.size());
  header_ = data::parse_npy_header(std::as_bytes(std::span(start)), name);
  if (header_.fortran_order)
    fail_input(name, ": is in Fortran order, in which no frame is whole before the last is there");
  const int64_t columns = header_.shape.empty() ? 1 : header_.shape.back();
  require_classes(columns, name, options_, vocabulary_, vocabulary_name_);
  frame_.resize(static_cast<size_t>(columns));
  announced_ = header_.numel() / std::max<int64_t>(columns, 1);
  header_.shape = {columns};
  header_.data_offset = 0;
}

const float* OutputsStream::next() {
  if (frames_ == 0) begin();
  const size_t bytes = frame_.size() * static_cast<size_t>(header_.item_bytes);
  const std::string raw = read(bytes);
  if (raw.empty() && (announced_ < 0 || frames_ == announced_)) return nullptr;
  if (raw.size() < bytes || frames_ == announced_)
    fail_input(name, ": ",
               raw.size() < bytes
                   ? str("ends within frame ", frames_, ", expected ", bytes,
                         " bytes for each frame of ", frame_.size(), " classes, found ", raw.size())
                   : str("has more than the ", announced_, " frames that its header announces"));
  if (header_.shape.empty()) header_.shape = {static_cast<int64_t>(frame_.size())};
  frame_ = data::npy_floats(std::as_bytes(std::span(raw)), header_,
                            str(name, ": behind ", frames_, " frames"));
  check_frame(frame_, frames_, name);
  if (kind_ != "logits") {
    const bool is_probable = is_of_probabilities(frame_);
    if (kind_ == "auto") kind_ = is_probable ? "probabilities" : "logits";
    if (kind_ == "probabilities" && !is_probable)
      fail_input(name, ": frame ", frames_, " is not of probabilities: ", fault_of(frame_),
                 frames_ > 0 ? "; the frames before it were (--scores)" : "",
                 announced_ < 0 ? str("; a frame is taken to have ", frame_.size(), " classes, as ",
                                      vocabulary_name_, " names")
                                : "");
  }
  if (kind_ == "probabilities") take_logarithms(frame_);
  ++frames_;
  return frame_.data();
}

bool is_own_model(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return has_ending(path, ".safetensors");
  const std::filesystem::path folder(path);
  return !std::filesystem::exists(folder / "vocab.json", ignored) &&
         !std::filesystem::exists(folder / "tokenizer.json", ignored);
}

Vocabulary open_vocabulary(const std::string& path, const OutputsOptions& o) {
  return Vocabulary::open(path, blank_class(o), o.border);
}

namespace {

// Without those that no token is for.
void keep_named(int32_t classes, Matrix& scores) {
  Matrix kept(scores.frames, classes);
  for (int64_t t = 0; t < scores.frames; ++t) std::copy_n(scores.row(t), classes, kept.row(t));
  scores = std::move(kept);
}

}  // namespace

Matrix read_logits(const ModelInput& input, const OutputsOptions& o, const Vocabulary& vocabulary,
                   const std::string& vocabulary_name) {
  Matrix scores = read_scores(input);
  const bool ignores_some = o.ignores_unnamed && scores.dim > vocabulary.classes();
  require_classes(scores.dim, input.name, o, vocabulary, vocabulary_name);
  make_logits(o.scores, input.name, scores);
  if (ignores_some) keep_named(vocabulary.classes(), scores);
  return scores;
}

}  // namespace rondo
