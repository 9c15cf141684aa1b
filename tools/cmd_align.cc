// rondo align: when the words of a given text are said.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "engine/data/features/endings.h"
#include "engine/data/image/image.h"
#include "engine/data/manifest.h"
#include "engine/decode/transcript/text_alignment.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "engine/decode/transcript/utterances.h"
#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/report/progress.h"
#include "engine/text/unicode.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/long_recording.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/text_options.h"
#include "tools/recognition/aligned_output.h"
#include "tools/recognition/alignment_picture.h"
#include "tools/recognition/decoding.h"
#include "tools/recognition/each_input.h"
#include "tools/recognition/outputs.h"
#include "tools/recognition/predictions.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

struct AlignOptions {
  std::string model, input, text, format = "text", out;
  OutputsOptions outputs;
  std::string lexicon, unspellable = "error";
  SpellingOptions spelling;
  TextOptions rules;
  TextAlignmentOptions alignment;
  std::string confidence = "mean";
  double frame_ms = 0, piece_seconds = PieceOptions{}.seconds;
  PictureOptions picture;
  std::string split, recording;
  UtteranceOptions utterances;
  double least_score = -1e9;
  bool by_lines = false;  // of the text, one subtitle each
  int threads = 0, channel = -1;
  DeviceChoice device;
};

// What has outputs, of a recording or as they were stored.
class Source {
 public:
  virtual ~Source() = default;
  virtual const Vocabulary& vocabulary() const = 0;
  virtual InputKind reads() const = 0;
  // *seconds: of the recording, or of all frames.
  virtual std::vector<float> outputs(const ModelInput& input, double* seconds) = 0;
  virtual double frame_seconds() const = 0;
  virtual TextRules rules() const { return {}; }
  // Of a recording; none where there is none.
  virtual Waveform recording(const ModelInput&) { return {}; }
};

class ModelSource final : public Source {
 public:
  explicit ModelSource(const AlignOptions& o)
      : options_(o), model_(o.model, resolve(o.device), o.threads) {
    for (const std::string& w : model_.warnings()) warn(w);
    if (model_.description().config.task != Task::ctc)
      fail_input(model_.file(), ": is not a ctc model: it writes no text");
    if (reads() == InputKind::image)
      fail_input(model_.file(), ": reads images of text lines; alignment is for what is said");
  }
  const Vocabulary& vocabulary() const override { return model_.vocabulary(); }
  InputKind reads() const override { return input_kind(model_.description().config.features.type); }
  double frame_seconds() const override { return model_.frame_seconds(); }
  TextRules rules() const override { return model_.description().config.text; }
  Waveform recording(const ModelInput& input) override {
    if (input.kind != InputKind::recording || input.file.path == "-") return {};
    return read_audio(input, model_.description().config.features.rate);
  }
  std::vector<float> outputs(const ModelInput& input, double* seconds) override {
    if (input.kind != InputKind::recording) {
      InputExtent extent;
      Transcript t = model_.transcribe(read_features(input, model_, ImageFileReader(), &extent));
      *seconds = static_cast<double>(t.frames) * frame_seconds();
      return std::move(t.logits);
    }
    Waveform audio = read_audio(input, model_.description().config.features.rate);
    *seconds = audio.seconds();
    PieceOptions pieces;
    pieces.seconds = options_.piece_seconds > 0 ? options_.piece_seconds : audio.seconds() + 1;
    return long_outputs(model_, std::move(audio), pieces);
  }

 private:
  const AlignOptions& options_;
  Recognizer model_;
};

class StoredSource final : public Source {
 public:
  explicit StoredSource(const AlignOptions& o)
      : options_(o), vocabulary_(open_vocabulary(o.model, o.outputs)) {}
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  InputKind reads() const override { return InputKind::features; }
  double frame_seconds() const override {
    return options_.frame_ms > 0 ? options_.frame_ms / 1000 : 1;
  }
  std::vector<float> outputs(const ModelInput& input, double* seconds) override {
    Matrix scores = read_logits(input, options_.outputs, vocabulary_, options_.model);
    *seconds = static_cast<double>(scores.frames) * frame_seconds();
    return std::move(scores.data);
  }

 private:
  const AlignOptions& options_;
  Vocabulary vocabulary_;
};

constexpr uint64_t most_text = uint64_t{1} << 28;

// What is said in an input, and the file or line that says it.
struct GivenText {
  std::string text, where;
};

GivenText text_of(const AlignOptions& o, const ModelInput& input) {
  if (!o.text.empty()) return {read_text_file(o.text, most_text), o.text};
  if (!input.known.is_null()) {
    const Json* text = input.known.find("text");
    if (text == nullptr || !text->is_string())
      fail_input(input.name, ": its line in ", o.input, " has no \"text\"");
    return {text->get<std::string>(), input.name};
  }
  std::string beside = fs::path(input.file.path).replace_extension(".txt").string();
  const fs::path in_capitals = fs::path(input.file.path).replace_extension(".TXT");
  std::error_code ignored;
  if (!fs::exists(beside, ignored) && fs::exists(in_capitals, ignored))
    beside = in_capitals.string();
  return {read_text_file(beside, most_text), beside};
}

bool is_of_subtitles(const std::string& path) {
  return has_ending(path, ".srt") || has_ending(path, ".vtt");
}

std::vector<std::string> lines_of(const GivenText& given) {
  if (is_of_subtitles(given.where)) return texts_of_subtitles(given.text, given.where);
  const std::vector<std::string_view> lines = split_lines(given.text);
  return std::vector<std::string>(lines.begin(), lines.end());
}

// "12.3 to 14.5 s"
std::string stretch(double begin, double end, bool in_seconds) {
  char text[80];
  std::snprintf(text, sizeof text, in_seconds ? "%.1f to %.1f s" : "frames %.0f to %.0f", begin,
                end);
  return text;
}

// The first five of them.
template <class Place>
std::string stretches(const std::vector<Place>& all, bool in_seconds) {
  std::string some;
  for (size_t i = 0; i < std::min<size_t>(all.size(), 5); ++i)
    some += (i ? ", " : "") + stretch(all[i].begin, all[i].end, in_seconds);
  return some + (all.size() > 5 ? ", ..." : "");
}

class Aligner {
 public:
  Aligner(const AlignOptions& o, Source& source)
      : options_(o),
        source_(source),
        speller_(source.vocabulary(), spelling_of(o, source),
                 o.lexicon.empty() ? std::vector<Spelling>()
                                   : open_lexicon(o.lexicon, source.vocabulary())) {}

  Aligned align(const ModelInput& input) {
    const GivenText given = text_of(options_, input);
    Aligned result;
    result.lines = lines_of(given);
    const SpelledText spelled = options_.by_lines ? speller_.spell(result.lines, given.where)
                                                  : speller_.spell(given.text, given.where);
    tell_left_out(spelled, given.where);
    std::vector<float> outputs = source_.outputs(input, &result.seconds);
    try {
      TextAlignmentOptions how = options_.alignment;
      how.confidence = confidence_of(options_.confidence);
      result.text = align_text(std::move(outputs), source_.vocabulary(), spelled, how,
                               source_.frame_seconds());
    } catch (const InputError& e) {
      fail_input(input.name, ": ", e.what());
    }
    judge(input.name, result);
    return result;
  }

 private:
  // A text that is not what is said is aligned all the same: this is where people hear of it.
  void judge(const std::string& name, const Aligned& result) const {
    constexpr double doubtful = -50;
    const bool in_seconds = source_.frame_seconds() < 1;
    const AlignedText::Fit fit = result.text.fit(0, result.seconds);
    const std::string worst = str("fits worst at ", stretch(fit.begin, fit.end, in_seconds),
                                  ", with a score of ", std::llround(fit.score));
    if (options_.split.empty() && fit.score < options_.least_score)
      fail_input(name, ": the text ", worst, ", and --min-score is ", options_.least_score);
    if (fit.score < doubtful) {
      const auto places = result.text.misfits(0, result.seconds, doubtful);
      std::string all;
      if (places.size() > 1)
        all = str("; of ", places.size(), " places: ", stretches(places, in_seconds));
      warn(str(name, ": the text may not be what is said there: it ", worst,
               " (0 is perfect; -20 has about three wrong letters)", all));
    }
    if (!options_.alignment.find_gaps || result.text.unwritten.empty()) return;
    warn(str(name, ": said and not in the text: ", stretches(result.text.unwritten, in_seconds)));
  }
  static SpellingOptions spelling_of(const AlignOptions& o, const Source& source) {
    SpellingOptions s = o.spelling;
    s.rules = both(source.rules(), o.rules.rules());
    s.unspellable = o.unspellable == "skip"       ? UnspellableText::skip
                    : o.unspellable == "wildcard" ? UnspellableText::wildcard
                                                  : UnspellableText::error;
    return s;
  }
  static void tell_left_out(const SpelledText& t, const std::string& where) {
    if (t.left_out.empty()) return;
    std::string some;
    for (size_t i = 0; i < std::min<size_t>(t.left_out.size(), 5); ++i)
      some += (i ? ", '" : "'") + t.left_out[i].word + "'";
    warn(str(where, ": ", counted(static_cast<int64_t>(t.left_out.size()), "word"),
             " with nothing that the model could say: ", some,
             t.left_out.size() > 5 ? ", ..." : ""));
  }

  const AlignOptions& options_;
  Source& source_;
  TextSpeller speller_;
};

// An option that would change nothing: probably one is missing that it goes with.
void require_effect(const Command& command, const AlignOptions& o) {
  const auto require = [&](std::initializer_list<const char*> options, bool has_effect,
                           const char* with) {
    for (const char* option : options)
      if (command.has(option) && !has_effect) throw WrongUsage(str(option, " goes with ", with));
  };
  require({"--longest", "--pause", "--margin"}, !o.split.empty(), "--split");
  require({"--picture-from", "--picture-to"}, o.picture.asked(), "--picture");
  const bool has_wildcards =
      !o.spelling.gap_word.empty() || o.spelling.open_ends || o.unspellable == "wildcard";
  require({"--wildcard-cost"}, has_wildcards, "--gap, --open-ends or --unknown wildcard");
  const bool has_lines =
      o.format == "text" || o.format == "jsonl" || o.format == "srt" || o.format == "vtt";
  if (o.by_lines && !has_lines)
    throw WrongUsage("--format " + o.format + " has words, and the text is to be in lines");
  if (o.by_lines && !o.split.empty() && o.format == "text")
    throw WrongUsage("--split cuts at pauses, not at lines");
}

void require_fitting(const AlignOptions& o, bool model) {
  const bool in_seconds = model || o.frame_ms > 0;
  if (!in_seconds && (o.format != "text" && o.format != "jsonl"))
    throw WrongUsage("--format " + o.format + " has seconds: --frame-ms says how long a frame is");
  if (!in_seconds && !o.split.empty())
    throw WrongUsage("--split has seconds: --frame-ms says how long a frame is");
  if (model && o.frame_ms > 0)
    throw WrongUsage("--frame-ms is for stored outputs; a model knows its own");
  if (!model && !o.split.empty() && o.recording.empty())
    throw WrongUsage("--split of stored outputs needs --recording, the file that they are of");
  if (model && !o.recording.empty()) throw WrongUsage("--recording is for stored outputs");
  if (o.input == "-" && (o.text.empty() || !o.split.empty()))
    throw WrongUsage("standard input needs a file with its text, and cannot be split");
}

// What belongs to a single recording is not given to several.
void require_one(const AlignOptions& o, const PredictionStyle& style) {
  if (!style.named) return;
  if (!o.text.empty())
    throw WrongUsage(
        "a text goes with one recording; those of a folder have theirs beside them, "
        "those of a manifest in its lines");
  if (!o.recording.empty()) throw WrongUsage("--recording goes with one file of outputs");
  if (o.picture.asked()) throw WrongUsage("--picture takes a single recording");
}

// No output is written over an input or over another one.
void require_apart(const AlignOptions& o, const PredictionStyle& style,
                   const std::vector<ModelInput>& inputs) {
  require_folder_of(o.split);
  std::vector<OutputFile> outputs{OutputFile(o.split, "--split"),
                                  OutputFile(o.picture.path, "--picture")};
  outputs.front().require_not(outputs.back());
  require_fitting_names(style, inputs);
  if (!o.out.empty()) {
    for (const ModelInput& input : inputs) outputs.emplace_back(output_path(style, input), "--out");
  }
  for (const OutputFile& output : outputs) {
    output.require_not(o.input, "the input");
    output.require_not(o.text, "the text");
    for (const ModelInput& input : inputs) {
      if (input.file.path != "-") output.require_not(input.file.path, "an input");
    }
  }
}

int run_align(const AlignOptions& o) {
  const bool model = is_own_model(o.model);
  require_fitting(o, model);
  std::unique_ptr<Source> source;
  if (model) {
    source = std::make_unique<ModelSource>(o);
  } else {
    source = std::make_unique<StoredSource>(o);
  }
  std::vector<ModelInput> inputs = inputs_of({o.input}, source->reads());
  for (ModelInput& input : inputs) {
    if (input.segment.channel < 0) input.segment.channel = o.channel;
  }
  PredictionStyle style;
  style.format = prediction_format(o.format);
  style.folder = o.out;
  style.named = inputs.size() != 1 || inputs.front().name != o.input;
  require_one(o, style);
  require_fitting_output(style, o.format);
  require_apart(o, style, inputs);
  make_output_folders(style, inputs);
  const bool shows = o.split.empty() || o.format != "text";
  Aligner aligner(o, *source);
  UtteranceManifest manifest({o.split, o.recording, o.utterances, o.least_score});
  InputWork<Aligned> work;
  work.most = 1;
  work.read = [&](const ModelInput& input, Aligned& result) { result = aligner.align(input); };
  work.write = [&](const ModelInput& input, Aligned& result) {
    if (!o.split.empty()) manifest.add(input, result);
    if (o.picture.asked()) {
      draw_alignment(o.picture, input.name, result.text.transcript, source->vocabulary(),
                     source->frame_seconds(), source->recording(input));
    }
    if (shows) write_aligned(style, input, std::move(result), o.by_lines, model || o.frame_ms > 0);
  };
  ThreadPool alone(1);
  const int failures = for_each_input(inputs, alone, work);
  if (!o.split.empty() && failures < static_cast<int>(inputs.size())) manifest.write();
  return failures > 0 ? 1 : 0;
}

void add_text_options(Command& command, AlignOptions* o) {
  command
      .add_option("--lexicon", o->lexicon,
                  "spellings of words, a line each: the word and its tokens; of several the one "
                  "that fits best is taken")
      .type_name("FILE");
  command
      .add_option("--unknown", o->unspellable,
                  "characters that no token stands for: an error; left out; or anything may be "
                  "said in their place")
      .one_of({"error", "skip", "wildcard"})
      .show_default();
  command.add_option("--gap", o->spelling.gap_word,
                     "a word that stands for what is said and not in the text, or for nothing, "
                     "such as '*'; 'auto': find such places, of half a second and longer");
  command.add_flag("--open-ends", o->spelling.open_ends,
                   "more may be said before the text and behind it");
  command
      .add_option("--wildcard-cost", o->alignment.wildcard_cost,
                  "of each frame of a wildcard, beside the model's best class")
      .range(0.0, 100.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--label-priors", o->alignment.label_priors,
                  "weight of the classes' frequencies, which are divided out; 0.3 makes peaky "
                  "outputs less so")
      .range(0.0, 10.0)
      .type_name("FLOAT")
      .show_default();
  add_text_options(command, &o->rules);
  command.add_flag("--uppercase", o->spelling.uppercase, "words are said in upper case");
}

void add_split_options(Command& command, AlignOptions* o) {
  command
      .add_option("--split", o->split,
                  "cut at pauses into utterances to train on, and write their manifest")
      .type_name("FILE");
  command.add_option("--longest", o->utterances.longest, "seconds of one, at most")
      .range(0.1, 86400.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--pause", o->utterances.pause,
                  "seconds between words; shorter ones are cut only where nothing else is left")
      .range(0.0, 3600.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--margin", o->utterances.margin,
                  "seconds of a pause that an utterance keeps at either end, at most")
      .range(0.0, 3600.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--min-score", o->least_score,
                  "refuse texts that fit worse, with --split leave out utterances that do; 0 is a "
                  "text that the model would write by itself, -20 has about three wrong letters "
                  "within a second")
      .range(-1e9, 0.0)
      .type_name("FLOAT");
  command
      .add_option("--recording", o->recording,
                  "with stored outputs: the recording that they are of")
      .type_name("FILE");
}

}  // namespace

void add_align(Command& program) {
  Command& command = program.add_command(
      "align", "Find when each word of a text is said in a recording, or in any model's outputs");
  auto o = std::make_shared<AlignOptions>();
  command
      .add_option(
          "model", o->model,
          "checkpoint directory or model file; or, for stored outputs, what the classes are, "
          "as for rondo decode")
      .required()
      .check(check_file_name);
  command
      .add_option("input", o->input,
                  "recording, or outputs [frames, classes] (.npy, .safetensors); or a manifest "
                  "with texts, or a folder with a .txt file beside each; '-': standard input")
      .required()
      .check(check_file_name);
  command.add_option("text", o->text,
                     "file with the text, also .srt or .vtt, whose subtitles get new times; else "
                     "the one beside the recording, NAME.txt");
  command
      .add_option("--format", o->format,
                  "text: begin, end, probability and word; jsonl, also with tokens; ctm; "
                  "textgrid; srt and vtt, subtitles")
      .one_of({"text", "jsonl", "ctm", "textgrid", "srt", "vtt"})
      .show_default();
  command.add_flag(
      "--lines", o->by_lines,
      "times of the text's lines: text, jsonl, and in srt and vtt a subtitle for each");
  command.add_option("--out", o->out, "folder for a file of each recording").type_name("FOLDER");
  add_confidence_option(command, &o->confidence, false);
  add_text_options(command, o.get());
  add_split_options(command, o.get());
  add_picture_options(command, &o->picture);
  add_outputs_options(command, &o->outputs);
  command
      .add_option("--frame-ms", o->frame_ms,
                  "of stored outputs: milliseconds between two frames, for times in seconds; 0: "
                  "times are frames")
      .range(0.0, 100000.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--piece", o->piece_seconds,
                  "seconds of a long recording that a model is given at a time; 0: all")
      .range(0.0, 86400.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--channel", o->channel,
                  "of recordings that have several, from 0; else their mean")
      .range(0, 255)
      .type_name("INT");
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  add_device_option(command, &o->device);
  command.footer(
      "\nExample:  rondo align run talk.wav talk.txt --format srt > talk.srt\n"
      "          rondo align run talk.wav talk.txt --split corpus/talk.jsonl --min-score -10\n"
      "          rondo align vocab.json logits.npy talk.txt --frame-ms 20 --format ctm\n");
  command.action([o, &command] {
    if (is_of_subtitles(o->text)) o->by_lines = true;
    require_effect(command, *o);
    o->alignment.find_gaps = o->spelling.gap_word == "auto";
    if (o->alignment.find_gaps) o->spelling.gap_word.clear();
    return run_align(*o);
  });
}

}  // namespace rondo
