// rondo decode: texts out of the outputs of any CTC model.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "engine/decode/transcript/transcript.h"
#include "engine/io/file.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/recognition/decoding.h"
#include "tools/recognition/each_input.h"
#include "tools/recognition/outputs.h"
#include "tools/recognition/predictions.h"
#include "tools/recognition/streaming.h"

namespace rondo {
namespace {

// For the ends of a stream's utterances, where nobody says how long a frame is.
constexpr double usual_frame_ms = 40;

struct DecodeOptions {
  std::string vocabulary, format, out;
  OutputsOptions outputs;
  std::vector<std::string> files;
  int threads = 0;
  double frame_ms = 0;
  bool stream = false;
  EndpointOptions endpoint;
  DecodingOptions decoding;
};

Prediction decode_one(const DecodeOptions& o, const Vocabulary& vocabulary, const Decoder* decoder,
                      const ModelInput& input) {
  Matrix scores = read_logits(input, o.outputs, vocabulary, o.vocabulary);
  Prediction p;
  p.transcript =
      transcript_of(std::move(scores.data), vocabulary, decoder,
                    o.frame_ms > 0 ? o.frame_ms / 1000 : 1, confidence_of(o.decoding.confidence));
  return p;
}

// Writes what cannot change any more, while the outputs arrive.
int decode_stream(const DecodeOptions& o) {
  if (o.files != std::vector<std::string>{"-"})
    throw WrongUsage("--stream reads standard input, '-', and nothing else");
  if (o.format != "text") throw WrongUsage("--stream writes --format text alone");
  if (!o.decoding.searches()) throw WrongUsage("--stream searches: --beam is at least 1");
  constexpr size_t frames_at_once = 8;  // between two looks at what is final
  const Vocabulary vocabulary = open_vocabulary(o.vocabulary, o.outputs);
  const std::optional<Decoder> decoder = make_decoder(o.decoding, vocabulary);
  const double frame_ms = o.frame_ms > 0 ? o.frame_ms : usual_frame_ms;
  TranscriptStream stream(vocabulary, &*decoder, frame_ms / 1000,
                          confidence_of(o.decoding.confidence), o.endpoint);
  OutputsStream outputs(o.outputs, vocabulary, o.vocabulary);
  const auto classes = static_cast<size_t>(vocabulary.classes());
  std::vector<float> frames;
  bool has_text = false;
  const auto show = [&](const std::string& text) {
    if (text.empty()) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    has_text = true;
  };
  for (bool is_over = false; !is_over;) {
    const float* frame = outputs.next();
    is_over = frame == nullptr;
    if (frame) frames.insert(frames.end(), frame, frame + classes);
    if (!is_over && frames.size() < frames_at_once * classes) continue;
    show(stream.accept(frames.data(), static_cast<int32_t>(frames.size() / classes)));
    frames.clear();
  }
  const StreamedTranscript last = stream.finish();
  if (!has_text || !last.text.empty()) show(last.text.substr(last.told) + "\n");
  return 0;
}

int run_decode(const DecodeOptions& o) {
  if (o.stream) return decode_stream(o);
  if (o.frame_ms == 0 && o.format != "text" && o.format != "jsonl")
    throw WrongUsage("--format " + o.format + " has seconds: --frame-ms says how long a frame is");
  const Vocabulary vocabulary = open_vocabulary(o.vocabulary, o.outputs);
  const std::optional<Decoder> decoder = make_decoder(o.decoding, vocabulary);
  const std::vector<ModelInput> inputs = inputs_of(o.files, InputKind::features);
  PredictionStyle style;
  style.format = prediction_format(o.format);
  style.folder = o.out;
  style.named = inputs.size() != 1 || inputs.front().name != o.files.front();
  require_fitting_output(style, o.format);
  require_fitting_names(style, inputs);
  make_output_folders(style, inputs);
  ThreadPool pool(cpu_threads(o.threads, "--threads"));
  InputWork<Prediction> work;
  work.read = [&](const ModelInput& input, Prediction& found) {
    found = decode_one(o, vocabulary, decoder ? &*decoder : nullptr, input);
    found.transcript.logits = {};
  };
  work.write = [&](const ModelInput& input, Prediction& found) {
    const double seconds = static_cast<double>(found.transcript.frames) * o.frame_ms / 1000;
    // Only bytes can be none.
    if (vocabulary.has_bytes() && found.transcript.text.find("\ufffd") != std::string::npos)
      warn(input.name + ": bytes that make no character are written as U+FFFD");
    write_prediction(style, Task::ctc, input, found, {.seconds = seconds, .image = {}});
  };
  return for_each_input(inputs, pool, work) > 0 ? 1 : 0;
}

}  // namespace

void add_decode(Command& program) {
  Command& command =
      program.add_command("decode", "Write the texts in the outputs of any CTC model");
  auto o = std::make_shared<DecodeOptions>();
  command
      .add_option("vocabulary", o->vocabulary,
                  "what the classes are: tokens one a line, with their class, score or count or "
                  "without; a JSON list; a JSON object from tokens to classes; or the folder of a "
                  "model of Hugging Face")
      .required()
      .check(check_file_name);
  command
      .add_option("files", o->files,
                  "outputs [frames, classes]: .npy, .safetensors, folders of .npy files, manifests "
                  "of features; '-': standard input")
      .required()
      .check(check_file_name);
  add_outputs_options(command, &o->outputs);
  o->decoding.default_beam = 100;
  add_decoding_options(command, &o->decoding, true);
  command
      .add_option("--frame-ms", o->frame_ms,
                  "milliseconds between two frames, for times in seconds; 0: times are frames, and "
                  "40 milliseconds for the ends that --stream finds")
      .range(0.0, 100000.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--format", o->format,
                  "text [the default]; jsonl, with words, times and probabilities [with --nbest]; "
                  "ctm and textgrid, words with their times; srt and vtt, subtitles")
      .one_of({"text", "jsonl", "ctm", "textgrid", "srt", "vtt"});
  command.add_option("--out", o->out, "folder for a file of each input: textgrid, srt, vtt")
      .type_name("FOLDER");
  command.add_flag(
      "--stream", o->stream,
      "write text while the outputs arrive on standard input, '-': 32-bit floats, frame "
      "by frame, or a .npy file");
  add_endpoint_options(command, &o->endpoint, "with --stream: ");
  command.add_option("--threads", o->threads, "CPU threads; 0: one per CPU")
      .range(0, 4096)
      .type_name("INT");
  command.footer(
      "\nExample:  rondo decode vocab.json logits.npy --frame-ms 20 --format jsonl\n"
      "          rondo decode tokens.txt outputs --lm 4gram.lm --hot-words names.txt\n"
      "          network | rondo decode tokens.txt - --stream\n");
  command.action([o, &command] {
    require_stream(command, o->stream, {"--end-silence", "--longest"});
    use_language_model_of(o->vocabulary, command, &o->decoding);
    o->format = format_of(o->decoding, o->format);
    return run_decode(*o);
  });
}

}  // namespace rondo
