// rondo transcribe: recordings in, text out.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"
#include "engine/data/features/npy.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/io/output_file.h"
#include "engine/report/charts.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/path_words.h"

namespace rondo {
namespace {

struct TranscribeOptions {
  std::string model, format = "text", out, picture;
  std::vector<std::string> files;
  int threads = 0;
  bool stream = false;
  double chunk_ms = 500;
  DeviceChoice device;
};

Waveform read_audio(const std::string& path, int32_t rate) {
  if (path != "-") return SndfileReader().read(path, rate);
  // An endless stream would take all memory.
  constexpr size_t most = size_t{1} << 30, piece = size_t{1} << 20;
  std::string bytes;
  for (size_t n = 1; n > 0 && bytes.size() <= most;) {
    const size_t before = bytes.size();
    bytes.resize(before + piece);
    n = std::fread(bytes.data() + before, 1, piece, stdin);
    bytes.resize(before + n);
  }
  if (bytes.size() > most) {
    fail_input("standard input holds more than ", most,
               " bytes; give so long a recording as a file, or use --stream");
  }
  return decode_audio(std::as_bytes(std::span(bytes)), "standard input", rate);
}

// Tenths of a millisecond: 0.81 rather than 0.8099999999999999.
double rounded(double seconds) { return std::round(seconds * 1e4) / 1e4; }

Json tokens_json(const std::vector<Transcript::Token>& tokens) {
  Json list = Json::array();
  for (const auto& t : tokens) {
    list.push_back(Json::object({{"text", t.text},
                                 {"begin", rounded(t.begin)},
                                 {"end", rounded(t.end)},
                                 {"probability", t.probability}}));
  }
  return list;
}

std::string npy_path(const TranscribeOptions& o, const std::string& file) {
  const std::filesystem::path name =
      file == "-" ? std::filesystem::path("stdin") : std::filesystem::path(file).filename();
  return (std::filesystem::path(o.out) / name).replace_extension(".npy").string();
}

// Files of one name in several folders, or of one stem, would replace each other's logits.
void check_names(const TranscribeOptions& o) {
  std::map<std::string, std::string> taken;
  for (const std::string& file : o.files) {
    const auto [other, is_new] = taken.emplace(npy_path(o, file), file);
    if (is_new || other->second == file) continue;
    fail_input("the logits of '", other->second, "' and of '", file, "' would both go to '",
               other->first, "'; give them different names, or use several --out folders");
  }
}

// Pictures and logits go to files of their own.
void require_apart(const TranscribeOptions& o) {
  const OutputFile picture(o.picture, "--picture");
  std::vector<OutputFile> outputs{picture};
  if (o.format == "npy") {
    for (const std::string& file : o.files) {
      outputs.emplace_back(npy_path(o, file), "--out");
      outputs.back().require_not(picture);
    }
  }
  const std::vector<std::string> model = files_of_model(o.model);
  for (const OutputFile& output : outputs) {
    for (const std::string& file : o.files) {
      if (file != "-") output.require_not(file, "the recording");
    }
    for (const std::string& file : model) output.require_not(file, "a file of the model");
  }
}

// How the model's outputs align with what it wrote.
void draw(const TranscribeOptions& o, const Recognizer& model, const Transcript& t,
          const Waveform& audio) {
  if (t.frames == 0) fail_input(o.files.front(), ": is shorter than a frame: nothing to draw");
  std::vector<float> posteriors(t.logits.size());
  for (int64_t f = 0; f < t.frames; ++f) {
    const float* row = &t.logits[static_cast<size_t>(f * t.classes)];
    const float largest = *std::max_element(row, row + t.classes);
    float sum = 0;
    for (int64_t c = 0; c < t.classes; ++c) sum += std::exp(row[c] - largest);
    for (int64_t c = 0; c < t.classes; ++c) {
      posteriors[static_cast<size_t>(f * t.classes + c)] = std::exp(row[c] - largest) / sum;
    }
  }
  AlignmentPicture p;
  p.title = t.text;
  p.posteriors = posteriors;
  p.frames = static_cast<int32_t>(t.frames);
  p.classes = static_cast<int32_t>(t.classes);
  p.frame_seconds = model.frame_seconds();
  p.waveform = audio.samples;
  for (const auto& c : t.characters) {
    const auto symbol =
        std::find(model.alphabet().symbols().begin(), model.alphabet().symbols().end(), c.text);
    p.labels.push_back({c.text,
                        static_cast<int32_t>(symbol - model.alphabet().symbols().begin()) + 1,
                        static_cast<int32_t>(std::lround(c.begin / p.frame_seconds)),
                        static_cast<int32_t>(std::lround(c.end / p.frame_seconds))});
  }
  replace_text_file(o.picture, alignment_svg(p));
}

void write_result(const TranscribeOptions& o, const std::string& file, const Transcript& t,
                  double seconds) {
  if (o.format == "jsonl") {
    const Json line = Json::object({{"audio_filepath", file},
                                    {"duration", seconds},
                                    {"text", t.text},
                                    {"words", tokens_json(t.words)},
                                    {"characters", tokens_json(t.characters)}});
    std::printf("%s\n", line.dump_replacing().c_str());
  } else if (o.format == "npy") {
    const int64_t shape[] = {t.frames, t.classes};
    const std::string path = npy_path(o, file);
    replace_text_file(path, data::make_npy(shape, t.logits));
    std::printf("%s\n", path.c_str());
  } else if (o.files.size() == 1) {
    std::printf("%s\n", t.text.c_str());
  } else {
    std::printf("%s\t%s\n", file.c_str(), t.text.c_str());
  }
  std::fflush(stdout);
}

// Raw 16-bit samples from standard input, as they come; nothing at its end.
std::vector<float> read_samples(size_t most, bool first) {
  std::vector<int16_t> raw(most);
  const size_t n = std::fread(raw.data(), sizeof(int16_t), most, stdin);
  if (std::ferror(stdin)) fail_input("standard input: cannot be read");
  const std::string_view begin(reinterpret_cast<const char*>(raw.data()), n * sizeof(int16_t));
  for (const char* format : {"RIFF", "fLaC", "OggS"}) {
    if (first && begin.starts_with(format)) {
      fail_input("standard input: is a recording with a header (", format,
                 "); with --stream it is raw samples, 16 bits, one channel, at the model's rate");
    }
  }
  std::vector<float> samples;
  for (size_t i = 0; i < n; ++i) samples.push_back(static_cast<float>(raw[i]) / 32768);
  return samples;
}

// Text is printed as it becomes final, when that is all there is to print.
void stream_one(const TranscribeOptions& o, Recognizer& model, RecognizerStream& stream,
                const std::string& file) {
  const int rate = model.description().config.features.rate;
  const auto step = std::max<size_t>(static_cast<size_t>(o.chunk_ms / 1000 * rate), 1);
  const bool show = o.format == "text" && o.files.size() == 1;
  std::string shown;
  const auto feed = [&](std::span<const float> samples) {
    const std::string text = stream.accept(samples);
    if (!show || text.empty()) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    shown += text;
  };
  Waveform audio;
  audio.sample_rate = rate;
  if (file == "-") {
    for (bool first = true;; first = false) {
      const std::vector<float> samples = read_samples(step, first);
      if (samples.empty()) break;
      feed(samples);
      if (o.format == "jsonl" || !o.picture.empty()) {
        audio.samples.insert(audio.samples.end(), samples.begin(), samples.end());
      }
    }
  } else {
    audio = read_audio(file, rate);
    for (size_t at = 0; at < audio.samples.size(); at += step) {
      feed(std::span(audio.samples).subspan(at, std::min(step, audio.samples.size() - at)));
    }
  }
  const Transcript t = stream.finish();
  if (show) {
    std::printf("%s\n", t.text.c_str() + shown.size());
    std::fflush(stdout);
  } else {
    write_result(o, file, t, audio.seconds());
  }
  if (!o.picture.empty()) draw(o, model, t, audio);
}

void require_fitting(const TranscribeOptions& o) {
  if (o.format == "npy" && o.out.empty()) {
    throw WrongUsage("--format npy needs --out FOLDER");
  }
  if (o.format != "npy" && !o.out.empty()) {
    throw WrongUsage("--out is for --format npy; text and jsonl go to standard output");
  }
  if (!o.picture.empty() && o.files.size() != 1) {
    throw WrongUsage("--picture takes a single recording");
  }
}

int run_transcribe(const TranscribeOptions& o) {
  require_fitting(o);
  require_model_first("rondo transcribe", o.model, o.files.front());
  if (o.format == "npy") check_names(o);
  require_apart(o);
  Recognizer model(o.model, resolve(o.device), o.threads);
  for (const std::string& w : model.warnings()) std::fprintf(stderr, "warning: %s\n", w.c_str());
  std::unique_ptr<RecognizerStream> stream;
  if (o.stream) stream = std::make_unique<RecognizerStream>(model, o.chunk_ms / 1000);
  if (!o.out.empty()) make_directories(o.out);
  int failures = 0;
  for (const std::string& file : o.files) {
    try {
      if (stream) {
        stream_one(o, model, *stream, file);
        continue;
      }
      const Waveform audio = read_audio(file, model.description().config.features.rate);
      const Transcript t = model.transcribe(audio);
      write_result(o, file, t, audio.seconds());
      if (!o.picture.empty()) draw(o, model, t, audio);
    } catch (const InputError& e) {
      // The others may be fine.
      std::fprintf(stderr, "rondo: %s\n", e.what());
      ++failures;
    }
  }
  return failures ? 1 : 0;
}

}  // namespace

void add_transcribe(Command& program) {
  Command& command = program.add_command("transcribe", "Write what is said in recordings");
  auto o = std::make_shared<TranscribeOptions>();
  command.add_option("model", o->model, "checkpoint directory or model file")
      .required()
      .check(check_file_name);
  command.add_option("files", o->files, "WAV, FLAC or Ogg recordings; '-': standard input")
      .required()
      .check(check_file_name);
  command
      .add_option("--format", o->format,
                  "text; jsonl, with times and probabilities; npy, the logits for other decoders")
      .one_of({"text", "jsonl", "npy"})
      .show_default();
  command.add_option("--out", o->out, "folder for --format npy");
  command.add_option("--picture", o->picture, "draw the alignment of one recording as SVG");
  command.add_flag("--stream", o->stream,
                   "write text while it is heard, chunk by chunk; '-' is then raw samples: 16 "
                   "bits, one channel, at the model's rate");
  command.add_option("--chunk-ms", o->chunk_ms, "with --stream: milliseconds of sound at a time")
      .range(1.0, 3600000.0)
      .type_name("FLOAT")
      .show_default();
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  add_device_option(command, &o->device);
  command.footer(
      "\nExample:  rondo transcribe run recording.wav --format jsonl\n"
      "          arecord -t raw -f S16_LE -r 16000 | rondo transcribe run - --stream\n");
  command.action([o] { return run_transcribe(*o); });
}

}  // namespace rondo
