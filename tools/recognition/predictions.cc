#include "tools/recognition/predictions.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "engine/data/features/npy.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "engine/io/file.h"
#include "engine/train/model/model_file.h"
#include "engine/train/recognition/evaluation.h"
#include "kernels/base/error.h"
#include "tools/command_line/command_line.h"

namespace rondo {
namespace {

// Tenths of a millisecond: 0.81 rather than 0.8099999999999999.
double rounded(double seconds) { return std::round(seconds * 1e4) / 1e4; }

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

double probability_of(const Prediction& p) {
  return p.probabilities.at(static_cast<size_t>(p.class_index));
}

// What is known of the input. Its text is what should have been written, beside what was.
Json line_of(const ModelInput& input, const InputExtent& extent) {
  Json line = Json::object({});
  if (input.known.is_null()) {
    line[field_of(input.kind)] = input.file.path;
    if (!input.key.empty()) line["features_key"] = input.key;
  } else {
    for (const auto& [name, value] : input.known.members()) {
      line[name == "text" ? "reference" : name] = value;
    }
  }
  const bool is_audio = input.kind == InputKind::recording;
  if (is_audio && !line.contains("duration")) line["duration"] = extent.seconds;
  if (input.kind == InputKind::image) {
    line["width"] = extent.image.width;
    line["height"] = extent.image.height;
  }
  return line;
}

std::string plain_text(Task task, const Prediction& p) {
  if (task == Task::ctc) return p.transcript.text;
  if (task == Task::classify)
    return str(class_text(p.classes, p.class_index), "\t", number_text(probability_of(p)));
  std::string text;
  for (float v : p.values) text += (text.empty() ? "" : " ") + number_text(v);
  return text;
}

// What tells it from others, as a file may be called.
std::string stem_of(const ModelInput& input) {
  const std::string& path = input.page ? input.page->path : input.file.path;
  std::string name = std::filesystem::path(path).stem().string();
  if (input.file.path == "-") name = "stdin";
  if (!input.file.is_whole()) name = input.name;  // the archive's says little
  if (!input.key.empty()) name += "-" + input.key;
  if (input.segment.offset > 0) name += "-" + number_text(input.segment.offset);
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

const char* extension_of(PredictionFormat format) {
  switch (format) {
    case PredictionFormat::npy:
      return ".npy";
    case PredictionFormat::text_grid:
      return ".TextGrid";
    case PredictionFormat::srt:
      return ".srt";
    case PredictionFormat::vtt:
      return ".vtt";
    case PredictionFormat::hocr:
      return ".hocr";
    case PredictionFormat::alto:
    case PredictionFormat::page:
      return ".xml";
    default:
      return "";
  }
}

std::string timed_text(PredictionFormat format, const ModelInput& input, const Transcript& t,
                       double seconds) {
  if (format == PredictionFormat::ctm) return to_ctm(t, stem_of(input));
  if (format == PredictionFormat::text_grid) return to_text_grid(t, seconds);
  const std::vector<Subtitle> subtitles = subtitles_of(t, seconds, {});
  return format == PredictionFormat::srt ? to_srt(subtitles) : to_vtt(subtitles);
}

}  // namespace

bool is_timed(PredictionFormat format) {
  return format == PredictionFormat::ctm || format == PredictionFormat::text_grid ||
         format == PredictionFormat::srt || format == PredictionFormat::vtt;
}

bool is_of_pages(PredictionFormat format) {
  return format == PredictionFormat::hocr || format == PredictionFormat::alto ||
         format == PredictionFormat::page;
}

bool are_of_one_page(const ModelInput& a, const ModelInput& b) {
  if (a.page || b.page) return a.page == b.page;
  return !a.region.is_whole() && !b.region.is_whole() && a.file.name() == b.file.name();
}

PredictionFormat prediction_format(const std::string& name) {
  const char* names[] = {"text", "jsonl", "npy",  "ctm",  "textgrid",
                         "srt",  "vtt",   "hocr", "alto", "page"};
  const auto at = std::find(std::begin(names), std::end(names), name);
  RONDO_CHECK(at != std::end(names), "format ", name);
  return static_cast<PredictionFormat>(at - std::begin(names));
}

Json tokens_json(std::span<const TimedText::Token> tokens) {
  Json list = Json::array();
  for (const auto& t : tokens) {
    list.push_back(Json::object({{"text", t.text},
                                 {"begin", rounded(t.begin)},
                                 {"end", rounded(t.end)},
                                 {"probability", t.probability}}));
  }
  return list;
}

Json prediction_json(Task task, const ModelInput& input, const Prediction& p,
                     const InputExtent& extent) {
  Json line = line_of(input, extent);
  switch (task) {
    case Task::ctc:
      if (extent.begin) {
        line["begin"] = rounded(*extent.begin);
        line["end"] = rounded(*extent.begin + extent.seconds);
      }
      line["text"] = p.transcript.text;
      line["words"] = tokens_json(p.transcript.words);
      line["characters"] = tokens_json(p.transcript.characters);
      if (!p.transcript.alternatives.empty()) {
        Json all = Json::array();
        for (const auto& a : p.transcript.alternatives) {
          all.push_back(Json::object({{"text", a.text},
                                      {"words", tokens_json(a.words)},
                                      {"score", a.score},
                                      {"log_probability", a.log_probability},
                                      {"lm_log10", a.lm_log10}}));
        }
        line["alternatives"] = std::move(all);
      }
      break;
    case Task::classify:
      line["class"] = class_json(p.classes, p.class_index);
      line["probability"] = probability_of(p);
      line["probabilities"] = p.probabilities;
      if (!p.classes.empty())  // of these
        line["classes"] = std::vector<std::string>(p.classes.begin(), p.classes.end());
      break;
    case Task::regress:
      line["values"] = p.values;
      break;
  }
  return line;
}

void require_fitting_output(const PredictionStyle& style, const std::string& format) {
  const bool has_files = *extension_of(style.format) != '\0';
  if (!has_files && !style.folder.empty())
    throw WrongUsage("--out is for formats that are files; " + format + " goes to standard output");
  if (!has_files || !style.folder.empty()) return;
  if (style.format == PredictionFormat::npy || style.named)
    throw WrongUsage("--format " + format +
                     (style.named && style.format != PredictionFormat::npy
                          ? " of several inputs needs --out FOLDER"
                          : " needs --out FOLDER"));
}

namespace {

void require_utf8_names(const std::vector<ModelInput>& inputs) {
  for (const ModelInput& input : inputs) {
    try {
      static_cast<void>(Json(input.name).dump());
    } catch (const JsonError&) {
      fail_input("'", input.name,
                 "': is a name that is not UTF-8, which JSON has to be; rename the ",
                 "file, or use --format text, which writes names as they are");
    }
  }
}

}  // namespace

void require_fitting_names(const PredictionStyle& style, const std::vector<ModelInput>& inputs) {
  if (style.format == PredictionFormat::jsonl) require_utf8_names(inputs);
  if (style.folder.empty()) return;
  std::map<std::string, const ModelInput*> taken;
  for (const ModelInput& input : inputs) {
    const auto [other, is_new] = taken.emplace(output_path(style, input), &input);
    if (is_new || other->second->name == input.name) continue;
    if (is_of_pages(style.format) && are_of_one_page(*other->second, input)) continue;
    fail_input("the outputs for '", other->second->name, "' and for '", input.name,
               "' would both go to '", other->first,
               "'; give them different names, or use several --out folders");
  }
}

std::string output_path(const PredictionStyle& style, const ModelInput& input) {
  const std::string name = stem_of(input) + extension_of(style.format);
  return (std::filesystem::path(style.folder) / input.below / name).lexically_normal().string();
}

void make_output_folders(const PredictionStyle& style, const std::vector<ModelInput>& inputs) {
  if (style.folder.empty()) return;
  make_directories(style.folder);
  std::set<std::string> made;
  for (const ModelInput& input : inputs)
    if (made.insert(input.below).second)
      make_directories(std::filesystem::path(style.folder) / input.below);
}

namespace {

// For standard output: the text, or the name of the file that it was written into.
std::string told_document(const PredictionStyle& style, const ModelInput& input,
                          const std::string& text) {
  if (style.folder.empty() || style.format == PredictionFormat::ctm) return text;
  replace_text_file(output_path(style, input), text);
  return output_path(style, input) + "\n";
}

void write_out(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

void write_subtitles(const PredictionStyle& style, const ModelInput& input,
                     const std::vector<Subtitle>& subtitles) {
  const bool srt = style.format == PredictionFormat::srt;
  write_out(told_document(style, input, srt ? to_srt(subtitles) : to_vtt(subtitles)));
}

std::string told_prediction(const PredictionStyle& style, Task task, const ModelInput& input,
                            const Prediction& p, const InputExtent& extent) {
  std::string line;
  switch (style.format) {
    case PredictionFormat::text:
      line = (style.named ? input.name + "\t" : "") + plain_text(task, p);
      break;
    case PredictionFormat::jsonl:
      line = prediction_json(task, input, p, extent).dump_replacing();
      break;
    case PredictionFormat::npy: {
      const bool frames = task == Task::ctc;
      const std::vector<float>& values = frames ? p.transcript.logits : p.values;
      const int64_t shape[] = {p.transcript.frames, p.transcript.classes};
      const int64_t row[] = {static_cast<int64_t>(values.size())};
      line = output_path(style, input);
      replace_text_file(line, frames ? data::make_npy(shape, values) : data::make_npy(row, values));
      break;
    }
    default:
      return told_document(style, input,
                           timed_text(style.format, input, p.transcript, extent.seconds));
  }
  return line + "\n";
}

void write_prediction(const PredictionStyle& style, Task task, const ModelInput& input,
                      const Prediction& prediction, const InputExtent& extent) {
  write_out(told_prediction(style, task, input, prediction, extent));
}

}  // namespace rondo
