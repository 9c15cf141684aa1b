// rondo transcribe and rondo predict: what a trained model says of recordings and features.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "engine/data/image/image.h"
#include "engine/data/image/line_shape.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/io/output_file.h"
#include "engine/train/model/open_data.h"
#include "engine/train/recognition/long_recording.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/path_words.h"
#include "tools/ranks/corpus_ranks.h"
#include "tools/recognition/alignment_picture.h"
#include "tools/recognition/decoding.h"
#include "tools/recognition/divided_inputs.h"
#include "tools/recognition/each_input.h"
#include "tools/recognition/ensemble_option.h"
#include "tools/recognition/page_output.h"
#include "tools/recognition/predictions.h"
#include "tools/recognition/streaming.h"

namespace rondo {
namespace {

struct PredictOptions {
  std::string command;  // "transcribe" or "predict"
  std::string model, format, out;
  PictureOptions picture;
  std::vector<std::string> files, others;
  int threads = 0, channel = -1;
  bool stream = false, json = false;
  double chunk_ms = 500, piece = PieceOptions{}.seconds;
  EndpointOptions endpoint;
  DecodingOptions decoding;
  std::string search_on = "cpu";
  DeviceChoice device;

  bool search_on_device() const { return search_on == "device"; }
};

PredictionStyle style_of(const PredictOptions& o, const std::vector<ModelInput>& inputs) {
  PredictionStyle style;
  style.format = prediction_format(o.format);
  style.folder = o.out;
  // A folder of one recording is written as a folder of two.
  style.named = is_of_pages(style.format)
                    ? count_pages(inputs) != 1
                    : inputs.size() != 1 || inputs.front().name != o.files.front();
  return style;
}

// Pictures and outputs go to files of their own.
void require_apart(const PredictOptions& o, const PredictionStyle& style,
                   const std::vector<ModelInput>& inputs) {
  const OutputFile picture(o.picture.path, "--picture");
  std::vector<OutputFile> outputs{picture};
  require_fitting_names(style, inputs);
  if (!style.folder.empty()) {
    for (const ModelInput& input : inputs) {
      outputs.emplace_back(output_path(style, input), "--out");
      outputs.back().require_not(picture);
    }
  }
  const std::vector<std::string> models = files_of_models(o.model, o.others);
  for (const OutputFile& output : outputs) {
    for (const ModelInput& input : inputs) {
      if (input.file.path != "-") {
        output.require_not(input.file.path, name_of(input.kind));
      }
      if (input.page) output.require_not(input.page->path, "the page");
    }
    for (const std::string& file : models) output.require_not(file, "a file of the model");
  }
}

// Says where a recording reaches less far up than the model hears.
void tell_narrow(Speaker& speaker, const InputExtent& extent) {
  if (!extent.narrow.empty()) speaker.say({Said::narrow, extent.narrow});
}

// One recording at a time, as streams and pictures want it. How many failed.
int transcribe_each(const PredictOptions& o, Recognizer& model, const PredictionStyle& style,
                    const std::vector<ModelInput>& inputs) {
  std::optional<StreamWriter> stream;
  if (o.stream) {
    const bool is_whole = o.picture.asked() || style.format == PredictionFormat::npy;
    stream.emplace(model, style, o.chunk_ms / 1000, o.endpoint, is_whole);
  }
  Speaker speaker;
  struct Heard {
    Waveform audio = {};  // of a stream for a picture alone
    double seconds = 0;
    Prediction prediction = {};
  };
  InputWork<Heard> work;
  work.most = 1;
  work.read = [&](const ModelInput& input, Heard& heard) {
    const int32_t rate = model.description().config.features.rate;
    InputExtent extent;
    if (stream) {
      heard.audio.sample_rate = rate;
      const auto step = std::max<size_t>(static_cast<size_t>(o.chunk_ms / 1000 * rate), 1);
      HeardSamples sound(input, rate);
      std::vector<float>& kept = heard.audio.samples;
      heard.prediction.transcript = stream->hear(input, [&] {
        const std::span<const float> samples = sound.next(step);
        if (o.picture.asked()) kept.insert(kept.end(), samples.begin(), samples.end());
        return samples;
      });
      heard.seconds = sound.seconds();
      extent.narrow = sound.narrow();
    } else {
      heard.audio = read_audio(input, rate, &extent);
      heard.seconds = extent.seconds;
      heard.prediction.transcript = model.transcribe(heard.audio);
    }
    tell_narrow(speaker, extent);
  };
  work.write = [&](const ModelInput& input, Heard& heard) {
    if (!stream || stream->writes_whole())
      write_prediction(style, Task::ctc, input, heard.prediction, {.seconds = heard.seconds});
    if (o.picture.asked()) {
      draw_alignment(o.picture, o.files.front(), heard.prediction.transcript, model.vocabulary(),
                     model.frame_seconds(), heard.audio);
    }
  };
  ThreadPool alone(1);
  return for_each_input(inputs, alone, work);
}

// From columns of the scaled line to pixels from the left edge of the image, or from the top of one
// that is written downwards.
void place(Transcript& t, const InputExtent& extent, const LineConfig& line) {
  const ImageInfo size = turned(extent.image, line.direction);
  const double scale = size.width / static_cast<double>(extent.frames - line.frames(0));
  const auto pixel = [&](double column) {
    return std::clamp((column - line.padding) * scale, 0.0, static_cast<double>(size.width));
  };
  const auto place_in = [&](TimedText& text) {
    for (auto* tokens : {&text.words, &text.characters}) {
      for (TimedText::Token& token : *tokens) {
        token.begin = pixel(token.begin);
        token.end = pixel(token.end);
        if (line.direction != LineDirection::leftwards) continue;
        token.begin = std::exchange(token.end, size.width - token.begin);
        token.begin = size.width - token.begin;
      }
    }
  };
  place_in(t);
  for (Transcript::Alternative& a : t.alternatives) place_in(a);
}

void tell_warning(const InputExtent& extent) {
  if (!extent.warning.empty()) warn(extent.warning);
}

// One line, with its picture. How many failed.
int transcribe_line(const PredictOptions& o, Recognizer& model, const PredictionStyle& style,
                    const std::vector<ModelInput>& inputs) {
  const ImageFileReader images;
  const ModelInput& input = inputs.front();
  return !attempt([&] {
    require_kind(input, model, InputKind::image);
    const LineConfig& line = model.description().config.features;
    InputExtent extent;
    GreyImage image;
    Matrix features = read_features(input, model, images, &extent, &image);
    tell_warning(extent);
    Prediction p;
    p.transcript = model.transcribe(std::move(features));
    draw_line_alignment(o.picture, input.name, p.transcript, model.vocabulary(),
                        model.frame_seconds(), line, shaped(line, std::move(image)));
    place(p.transcript, extent, line);
    PageOutput page(style, inputs, images, line.direction);
    std::fputs(is_of_pages(style.format)
                   ? page.take(&p.transcript).c_str()
                   : told_prediction(style, Task::ctc, input, p, extent).c_str(),
               stdout);
  });
}

struct LoadedInput {
  Matrix features = {};
  Waveform long_audio = {};  // in place of features
  InputExtent extent = {};
  Prediction prediction = {};  // of features
  int64_t frames = 0;
};

// A recording of several pieces is kept as it is, and goes through the model piece by piece.
void load(const ModelInput& input, LoadedInput& loaded, const Recognizer& model,
          const ImageReader& images, double piece_seconds) {
  const Config& config = model.description().config;
  const bool may_be_long = piece_seconds > 0 && config.task == Task::ctc &&
                           input.kind == InputKind::recording &&
                           input_kind(config.features.type) == InputKind::recording;
  if (may_be_long) {
    Waveform audio = read_audio(input, config.features.rate, &loaded.extent);
    if (audio.seconds() > 2 * piece_seconds) {
      loaded.long_audio = std::move(audio);
    } else {
      loaded.features = model.features(audio);
    }
  } else {
    loaded.features = read_features(input, model, images, &loaded.extent);
  }
  loaded.frames = loaded.features.frames;
}

// Several inputs at once, in their order.
void predict_groups(const PredictOptions& o, int threads, Recognizer& model,
                    const PredictionStyle& style, const std::vector<ModelInput>& inputs,
                    const SayOfInput& say) {
  ThreadPool pool(cpu_threads(threads, "--threads"));
  const Task task = model.description().config.task;
  const LineConfig& line = model.description().config.features;
  const ImageFileReader images;
  const bool is_page = is_of_pages(style.format);
  PageOutput pages(style, inputs, images, line.direction);
  InputWork<LoadedInput> work;
  work.read = [&](const ModelInput& input, LoadedInput& loaded) {
    load(input, loaded, model, images, o.piece);
  };
  // As many recordings are in memory as one batch takes, and one per thread.
  work.enough = [](const std::vector<LoadedInput>& group) {
    constexpr int64_t enough_frames = 16000;
    int64_t frames = 0;
    for (const LoadedInput& g : group) frames += g.frames;
    return frames >= enough_frames;
  };
  // Those that are long have no features yet, and get an empty prediction here.
  work.together = [&](std::span<LoadedInput* const> group) {
    std::vector<Matrix> features;
    for (LoadedInput* g : group) features.push_back(std::move(g->features));
    std::vector<Prediction> predictions = model.predict(std::move(features));
    for (size_t i = 0; i < group.size(); ++i) group[i]->prediction = std::move(predictions[i]);
  };
  work.write = [&](const ModelInput& input, LoadedInput& loaded) {
    const InputExtent& extent = loaded.extent;
    Prediction p = std::move(loaded.prediction);
    if (!extent.warning.empty()) say(input, {Said::warning, extent.warning});
    if (!extent.narrow.empty()) say(input, {Said::narrow, extent.narrow});
    if (!loaded.long_audio.samples.empty()) {
      const PieceOptions pieces{.seconds = o.piece};
      p.transcript = model.decode(long_outputs(model, std::move(loaded.long_audio), pieces));
    }
    if (input.kind == InputKind::image) place(p.transcript, extent, line);
    say(input, {Said::output, is_page ? pages.take(&p.transcript)
                                      : told_prediction(style, task, input, p, extent)});
  };
  // The page is written all the same, without this line.
  if (is_page) {
    work.left_out = [&](const ModelInput& input) {
      say(input, {Said::output, pages.take(nullptr)});
    };
  }
  work.tell = [&](const ModelInput& input, const std::string& why) {
    say(input, {Said::error, why});
  };
  for_each_input(inputs, pool, work);
}

void require_fitting(const PredictOptions& o) {
  PredictionStyle style;
  style.format = prediction_format(o.format);
  style.folder = o.out;
  require_fitting_output(style, o.format);
  if (o.search_on_device() && !o.decoding.searches())
    throw WrongUsage("--search-on device takes a search: --beam 100, say");
  if (o.stream && !o.others.empty())
    throw WrongUsage("--stream takes a model by itself, without --with");
  if (o.search_on_device() && o.stream)
    throw WrongUsage("--stream searches while it hears, which is on the CPU");
  if (o.picture.asked() && o.files.size() != 1) {
    throw WrongUsage("--picture takes a single recording or line");
  }
  if (std::count(o.files.begin(), o.files.end(), "-") > 1) {
    throw WrongUsage("standard input, '-', can be read once");
  }
}

// A model and what it is to read, on every rank the same.
struct PredictSubject {
  std::unique_ptr<Recognizer> model;
  std::vector<ModelInput> inputs;
  PredictionStyle style;
  InputKind kind = InputKind::recording;
};

// What several ranks cannot divide.
void require_divisible(const PredictOptions& o) {
  const char* what = o.stream                                              ? "--stream"
                     : o.picture.asked()                                   ? "--picture"
                     : std::count(o.files.begin(), o.files.end(), "-") > 0 ? "standard input, '-',"
                                                                           : nullptr;
  if (what) fail_input(what, " cannot be divided among several ranks; expected a single one");
}

void require_fitting_kind(const PredictOptions& o, const PredictSubject& s) {
  const std::string& file = s.model->file();
  if (s.kind == InputKind::image && is_timed(s.style.format))
    fail_input(file, ": reads images, and --format ", o.format, " has seconds");
  if (s.kind != InputKind::image && is_of_pages(s.style.format))
    fail_input(file, ": reads no images, and --format ", o.format, " is of pages");
  const bool reads_ready = s.kind == InputKind::features;
  if ((o.stream && s.kind != InputKind::recording) || (o.picture.asked() && reads_ready)) {
    fail_input(file, ": was trained on ", reads_ready ? "ready features" : "images", "; ",
               o.stream ? "--stream takes recordings" : "--picture takes recordings and images");
  }
}

void open(const PredictOptions& o, const CorpusRanks& ranks, PredictSubject& s) {
  if (ranks.ranks().size() > 1) require_divisible(o);
  s.model = std::make_unique<Recognizer>(o.model, ranks.device(o.device), ranks.threads(o.threads),
                                         o.others);
  Recognizer& model = *s.model;
  for (const std::string& w : model.warnings()) warn(w);
  const Config& config = model.description().config;
  if (o.command == "transcribe" && config.task != Task::ctc) {
    fail_input(model.file(),
               ": is not a ctc model: it writes no text; 'rondo predict' tells what it ", "says");
  }
  model.set_decoder(make_decoder(o.decoding, model.vocabulary(), config.text),
                    o.search_on_device());
  model.set_confidence(confidence_of(o.decoding.confidence));
  s.kind = input_kind(config.features.type);
  s.inputs = inputs_of(o.files, s.kind);
  for (ModelInput& input : s.inputs) {
    if (input.segment.channel < 0) input.segment.channel = o.channel;
  }
  if (o.picture.asked() && s.inputs.size() != 1) {
    fail_input(o.files.front(), ": holds ", s.inputs.size(),
               " inputs, --picture takes one recording or line");
  }
  s.style = style_of(o, s.inputs);
  require_fitting_kind(o, s);
  require_fitting_output(s.style, o.format);
  require_apart(o, s.style, s.inputs);
  make_output_folders(s.style, s.inputs);
}

// What the results depend on.
std::string given_to(const PredictOptions& o, const std::vector<ModelInput>& inputs) {
  uint64_t hash = fnv1a_begin;
  for (const ModelInput& input : inputs) hash = fnv1a(input.name + '\n', hash);
  return str(o.command, ' ', hash, ' ', hash_of_models(o.model, o.others), ' ', o.format, ' ',
             o.channel, ' ', o.piece, ' ', o.search_on, ' ', given_of(o.decoding));
}

// How it ended, for scripts. To standard error, because texts are on standard output.
void tell_summary(const PredictOptions& o, const PredictSubject& s, int failures, double seconds) {
  const Json j = Json::object({{"command", o.command},
                               {"model", s.model->file()},
                               {"inputs", static_cast<int64_t>(s.inputs.size())},
                               {"failed", failures},
                               {"seconds", seconds}});
  std::fprintf(stderr, "%s\n", j.dump_replacing().c_str());
}

int run_predict(const PredictOptions& o) {
  const auto begin = std::chrono::steady_clock::now();
  require_fitting(o);
  require_model_first("rondo " + o.command, o.model, o.files.front());
  const CorpusRanks ranks("rondo " + o.command);
  PredictSubject s;
  int failures = 0;
  ranks.run([&] {
    ranks.together([&] { open(o, ranks, s); });
    if (o.stream || o.picture.asked()) {
      const bool is_line = s.kind == InputKind::image;
      failures = is_line ? transcribe_line(o, *s.model, s.style, s.inputs)
                         : transcribe_each(o, *s.model, s.style, s.inputs);
      return;
    }
    ranks.require_same([&] { return given_to(o, s.inputs); });
    failures =
        read_divided(ranks.ranks(), CorpusRanks::patience(), s.inputs,
                     [&](const std::vector<ModelInput>& inputs, const SayOfInput& say) {
                       predict_groups(o, ranks.threads(o.threads), *s.model, s.style, inputs, say);
                     });
  });
  if (o.json && ranks.ranks().first()) {
    std::fflush(stdout);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    tell_summary(o, s, failures, passed.count());
  }
  return failures ? 1 : 0;
}

void add_common_options(Command& command, PredictOptions* o) {
  command.add_option("model", o->model, "checkpoint directory or model file")
      .required()
      .check(check_file_name);
  add_ensemble_option(command, &o->others).check(check_file_name);
  command
      .add_option("files", o->files,
                  "recordings, images of text lines, pages of lines (PAGE-XML, ALTO) or ready "
                  "features (.npy, .safetensors), "
                  "whichever the model reads, folders of them, manifests (.jsonl); '-': standard "
                  "input")
      .required()
      .check(check_file_name);
  const bool writes = o->command == "transcribe";
  CommandOption format = command.add_option(
      "--format", o->format,
      writes ? "text [the default]; jsonl, with all that is known [with --nbest]; ctm and "
               "textgrid, words with their times; srt "
               "and vtt, subtitles; hocr, alto and page, of pages and images of lines; npy, the "
               "network's outputs"
             : "text [the default]; jsonl, with all that is known; npy, the network's outputs");
  if (writes) {
    format.one_of(
        {"text", "jsonl", "ctm", "textgrid", "srt", "vtt", "hocr", "alto", "page", "npy"});
  } else {
    format.one_of({"text", "jsonl", "npy"});
  }
  command.add_option(
      "--out", o->out,
      "folder for formats that are files: npy, textgrid, srt, vtt, hocr, alto, page");
  command
      .add_option("--channel", o->channel,
                  "of recordings that have several, from 0; else their mean")
      .range(0, 255)
      .type_name("INT");
  command.add_flag("--json", o->json, "at the end a line of JSON on standard error, for scripts");
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  add_device_option(command, &o->device);
}

}  // namespace

void add_transcribe(Command& program) {
  Command& command = program.add_command(
      "transcribe", "Write what is said in recordings, or stands in images of lines");
  auto o = std::make_shared<PredictOptions>();
  o->command = "transcribe";
  add_common_options(command, o.get());
  add_decoding_options(command, &o->decoding, true);
  command
      .add_option("--search-on", o->search_on,
                  "where the search of --beam runs: the CPU, or the model's device, for many "
                  "recordings at once")
      .one_of({"cpu", "device"})
      .show_default();
  add_picture_options(command, &o->picture);
  command.add_flag("--stream", o->stream,
                   "write text while it is heard, chunk by chunk; '-' is then raw samples: 16 "
                   "bits, one channel, at the model's rate");
  command
      .add_option("--piece", o->piece,
                  "seconds of a long recording that the model is given at a time; 0: all")
      .range(0.0, 86400.0)
      .type_name("FLOAT")
      .show_default();
  command.add_option("--chunk-ms", o->chunk_ms, "with --stream: milliseconds of sound at a time")
      .range(1.0, 3600000.0)
      .type_name("FLOAT")
      .show_default();
  add_endpoint_options(command, &o->endpoint, "with --stream: ");
  command.footer(
      "\nExample:  rondo transcribe run recording.wav --format jsonl\n"
      "          rondo transcribe run folder > transcripts.tsv\n"
      "          rondo transcribe run talk.wav --format srt > talk.srt\n"
      "          rondo transcribe run folder --lm 3gram.lm --hot-words names.txt\n"
      "          rondo transcribe lines line.png\n"
      "          rondo transcribe lines pages --format page --out read\n"
      "          arecord -t raw -f S16_LE -r 16000 | rondo transcribe run - --stream\n");
  command.action([o, &command] {
    require_stream(command, o->stream, {"--chunk-ms", "--end-silence", "--longest"});
    o->format = format_of(o->decoding, o->format);
    return run_predict(*o);
  });
}

void add_predict(Command& program) {
  Command& command = program.add_command(
      "predict", "What a model of any task says: text, a class and its probability, or numbers");
  auto o = std::make_shared<PredictOptions>();
  o->command = "predict";
  add_common_options(command, o.get());
  command.footer("\nExample:  rondo predict run test.jsonl --format jsonl\n");
  command.action([o] {
    o->format = format_of(o->decoding, o->format);
    return run_predict(*o);
  });
}

}  // namespace rondo
