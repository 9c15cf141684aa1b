#include "tools/recognition/aligned_output.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>
#include <utility>

#include "engine/decode/transcript/transcript_formats.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

// A line for each word, or for each line: begin, end, probability, text.
void write_words(const PredictionStyle& style, const ModelInput& input,
                 std::span<const TimedText::Token> words, bool in_seconds) {
  for (const TimedText::Token& w : words) {
    if (style.named) std::printf("%s\t", input.name.c_str());
    std::printf("%.*f\t%.*f\t%.4f\t%s\n", in_seconds ? 3 : 0, w.begin, in_seconds ? 3 : 0, w.end,
                w.probability, w.text.c_str());
  }
  std::fflush(stdout);
}

// The lines of the text as if they were words: their times, and the mean of their words'
// probabilities.
std::vector<TimedText::Token> timed_lines(const Aligned& result) {
  const auto& words = result.text.transcript.words;
  std::vector<TimedText::Token> lines;
  size_t first = 0;
  for (size_t i = 0; i < result.lines.size(); ++i) {
    const auto end = static_cast<size_t>(result.text.line_ends[i]);
    TimedText::Token line;
    for (const std::string& word : split_words(result.lines[i]))
      line.text += (line.text.empty() ? "" : " ") + word;
    line.begin = end > first ? words[first].begin : first > 0 ? words[first - 1].end : 0;
    line.end = end > first          ? words[end - 1].end
               : end < words.size() ? words[end].begin
                                    : result.seconds;
    for (size_t w = first; w < end; ++w)
      line.probability += words[w].probability / static_cast<double>(end - first);
    first = end;
    if (!line.text.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

void UtteranceManifest::add(const ModelInput& input, const Aligned& result) {
  const auto& words = result.text.transcript.words;
  for (const Utterance& u :
       split_into_utterances(result.text, result.seconds, options_.utterances)) {
    ++found_;
    seconds_found_ += u.end - u.begin;
    if (u.score < options_.least_score) continue;
    ManifestEntry e;
    e.path_as_written = path_of(input);
    e.offset = rounded(input.segment.offset + u.begin);
    e.duration = rounded(u.end - u.begin);
    if (input.segment.channel >= 0) e.channel = input.segment.channel;
    if (!input.file.is_whole()) {
      e.first_byte = input.file.first;
      e.byte_count = input.file.size;
    }
    std::string text;
    for (int32_t w = u.first_word; w < u.end_word; ++w)
      text += (text.empty() ? "" : " ") + words[static_cast<size_t>(w)].text;
    e.text = text;
    if (const Json* speaker = input.known.find("speaker"); speaker && speaker->is_string())
      e.speaker = speaker->get<std::string>();
    e.extra =
        Json::object({{"score", rounded(u.score)}, {"probability", rounded(u.probability)}}).dump();
    kept_seconds_ += u.end - u.begin;
    entries_.push_back(std::move(e));
  }
}

void UtteranceManifest::write() const {
  if (entries_.empty())
    fail_input(options_.file, ": is not written: none of ", found_, " utterances has a score of ",
               options_.least_score, " or more");
  write_manifest(options_.file, entries_);
  std::fprintf(stderr, "%s: %zu of %zu utterances, %.1f of %.1f minutes\n", options_.file.c_str(),
               entries_.size(), found_, kept_seconds_ / 60, seconds_found_ / 60);
}

// Paths in a manifest are relative to its folder.
std::string UtteranceManifest::path_of(const ModelInput& input) const {
  const fs::path recording = options_.recording.empty() ? input.file.path : options_.recording;
  if (recording.is_absolute()) return recording.string();
  const fs::path folder = fs::absolute(options_.file).parent_path();
  return fs::absolute(recording)
      .lexically_normal()
      .lexically_relative(folder.lexically_normal())
      .string();
}

void write_aligned(const PredictionStyle& style, const ModelInput& input, Aligned result,
                   bool by_lines, bool in_seconds) {
  if (style.format == PredictionFormat::text) {
    write_words(style, input, by_lines ? timed_lines(result) : result.text.transcript.words,
                in_seconds);
    return;
  }
  if (style.format == PredictionFormat::srt || style.format == PredictionFormat::vtt) {
    if (by_lines)
      return write_subtitles(style, input,
                             subtitles_of_lines(result.text.transcript.words, result.text.line_ends,
                                                result.lines, result.seconds, {}));
    result.text.transcript.words = result.text.shown_words();
  }
  const std::vector<TimedText::Token> lines =
      by_lines ? timed_lines(result) : std::vector<TimedText::Token>();
  Prediction p;
  p.transcript = std::move(result.text.transcript);
  if (style.format != PredictionFormat::jsonl) {
    write_prediction(style, Task::ctc, input, p, {.seconds = result.seconds, .image = {}});
    return;
  }
  Json line = prediction_json(Task::ctc, input, p, {.seconds = result.seconds, .image = {}});
  if (in_seconds) line["score"] = rounded(result.text.score(0, result.seconds));
  Json unwritten = Json::array();
  for (const auto& s : result.text.unwritten)
    unwritten.push_back(Json::object({{"begin", rounded(s.begin)}, {"end", rounded(s.end)}}));
  if (unwritten.size() > 0) line["unwritten"] = std::move(unwritten);
  if (by_lines) line["lines"] = tokens_json(lines);
  std::printf("%s\n", line.dump_replacing().c_str());
  std::fflush(stdout);
}

}  // namespace rondo
