// Transcripts with times, as other programs read them.
//
//   CTM       a line for each word: utterance, channel 1, begin, duration, word, probability (NIST)
//   TextGrid  Praat's long text format, with the tiers "words" and "tokens"
//   SRT, VTT  subtitles: SubRip's, and WebVTT of the W3C
//
// Where a transcript has no words, its tokens stand for them. Times are in seconds. Thread safety:
// pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode/transcript/transcript.h"

namespace rondo {

// Of white space in the utterance's name and the words, which CTM has no place for, comes "_".
std::string to_ctm(const Transcript& transcript, std::string_view utterance);

// `seconds`: the recording's length; the last token's end counts if that is later.
std::string to_text_grid(const Transcript& transcript, double seconds);

struct SubtitleOptions {
  int longest_line = 42;  // characters
  int lines = 2;
  double longest = 7;   // seconds that one is shown
  double pause = 0.7;   // between words that end one
  double linger = 0.5;  // seconds that one is shown on, unless the next one comes
};

// Texts that are shown together.
struct Subtitle {
  double begin = 0, end = 0;
  std::vector<std::string> lines;

  bool operator==(const Subtitle&) const = default;
};

// A subtitle ends behind a word with . ! ? at its end, before a pause, where it would be too long,
// and with the recording, of so many `seconds`.
std::vector<Subtitle> subtitles_of(const Transcript& transcript, double seconds,
                                   const SubtitleOptions& options);
// One for each line that is not empty: `line_ends` says how many of the words have ended with each.
// A line without words is shown between those around it. Of a line, '\n' begins another one.
std::vector<Subtitle> subtitles_of_lines(std::span<const TimedText::Token> words,
                                         std::span<const int32_t> line_ends,
                                         std::span<const std::string> lines, double seconds,
                                         const SubtitleOptions& options);
std::string to_srt(const std::vector<Subtitle>& subtitles);
// With the heading "WEBVTT".
std::string to_vtt(const std::vector<Subtitle>& subtitles);

// The texts of a file in either format, without markup, whose lines '\n' separates. Throws
// InputError that begins with `name` for what has no subtitles.
std::vector<std::string> texts_of_subtitles(std::string_view content, const std::string& name);

}  // namespace rondo
