#include "tools/serve/transcriptions.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/audio/sound_stream.h"
#include "engine/data/image/image.h"
#include "engine/data/image/line_shape.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "engine/train/recognition/long_recording.h"
#include "engine/train/recognition/recognizer_stream.h"
#include "kernels/base/cpu/printable.h"
#include "tools/serve/messages/form.h"

namespace rondo::serve {
namespace {

// What a request asks for, beside its file.
struct Form {
  std::string_view file;
  std::string name;  // of the file
  std::string format = "json", language;
  bool streams = false, wants_words = false, wants_segments = false;
  std::vector<std::string> hot_words;
};

bool truth_of(const FormPart& part) {
  if (part.content == "true" || part.content == "True" || part.content == "1") return true;
  if (part.content == "false" || part.content == "False" || part.content == "0") return false;
  throw HttpError(400,
                  str(part.name, " is ", quoted_start(part.content), ", expected true or false"),
                  part.name);
}

std::string one_of(const FormPart& part, std::initializer_list<const char*> words) {
  std::string all;
  for (const char* word : words) {
    if (part.content == word) return word;
    all += (all.empty() ? "" : ", ") + std::string(word);
  }
  throw HttpError(400,
                  str(part.name, " is ", quoted_start(part.content), ", expected one of ", all),
                  part.name);
}

void require_model(const FormPart& part, const ServedModel& served) {
  if (part.content == served.name()) return;
  throw HttpError(404,
                  str("there is no model ", quoted_start(part.content), ", expected '",
                      served.name(), "' (rondo serve --name gives it another name)"),
                  "model", "model_not_found");
}

// Fields that are not named here change nothing: OpenAI's language, prompt, temperature and others
// are for models that take them.
Form form_of(const HttpRequest& request, const ServedModel& served,
             std::initializer_list<const char*> formats) {
  Form form;
  bool has_file = false;
  for (const FormPart& part : parse_form(request.content_type, request.body)) {
    if (part.name == "file") {
      if (has_file) throw HttpError(400, "the form has two files, expected one", "file");
      has_file = true;
      form.file = part.content;
      form.name = part.file_name.value_or("");
    } else if (part.name == "model") {
      require_model(part, served);
    } else if (part.name == "response_format") {
      form.format = one_of(part, formats);
    } else if (part.name == "stream") {
      form.streams = truth_of(part);
    } else if (part.name == "language") {
      form.language = part.content;
    } else if (part.name == "timestamp_granularities[]") {
      (one_of(part, {"word", "segment"}) == "word" ? form.wants_words : form.wants_segments) = true;
    } else if (part.name == "hot_words[]") {
      form.hot_words.emplace_back(part.content);
    }
  }
  if (!has_file) throw HttpError(400, "the form has no part 'file', expected one", "file");
  if (form.file.empty()) throw HttpError(400, "the file is empty", "file");
  if (form.name.empty()) form.name = "the file";
  return form;
}

const char* plural_of(InputKind kind) {
  return kind == InputKind::image ? "images of lines (POST /v1/images/transcriptions)"
                                  : "recordings (POST /v1/audio/transcriptions)";
}

void require_reads(const ServedModel& served, InputKind wanted) {
  if (served.reads() != wanted)
    throw HttpError(400, str("the model ", served.name(), " reads ", plural_of(served.reads())),
                    "model");
}

Waveform decode(const Form& form, const ServedModel& served) {
  const double most = served.options().most_seconds;
  const auto fail_long = [&] {
    throw HttpError(
        413, str(form.name, ": is longer than the ", most, " seconds of --most-seconds"), "file");
  };
  Waveform audio;
  audio.sample_rate = served.features().rate;
  const auto most_samples = static_cast<int64_t>(most * audio.sample_rate);
  SoundStream sound(std::as_bytes(std::span(form.file)), form.name, audio.sample_rate);
  if (sound.samples() > most_samples) fail_long();
  while (sound.append(audio.samples))
    if (static_cast<int64_t>(audio.samples.size()) > most_samples) fail_long();
  return audio;
}

// The search for the request's hot words, for as long as it lasts.
class OwnDecoder {
 public:
  OwnDecoder(Recognizer& model, const ServedModel& served, const std::vector<std::string>& words)
      : model_(words.empty() ? nullptr : &model) {
    if (!model_) return;
    if (const Decoder* usual = model.decoder()) usual_ = *usual;
    model.set_decoder(served.decoder_for(words));
  }
  ~OwnDecoder() {
    if (model_) model_->set_decoder(std::move(usual_));
  }
  OwnDecoder(const OwnDecoder&) = delete;
  OwnDecoder& operator=(const OwnDecoder&) = delete;

 private:
  Recognizer* model_;
  std::optional<Decoder> usual_;
};

// A model whose tokens know no words has those in their place.
std::span<const TimedText::Token> words_of(const Transcript& t) {
  return t.words.empty() ? t.characters : t.words;
}

Json words_json(const Transcript& t) {
  Json list = Json::array();
  for (const TimedText::Token& word : words_of(t))
    list.push_back(Json::object({{"word", word.text},
                                 {"start", milliseconds(word.begin)},
                                 {"end", milliseconds(word.end)}}));
  return list;
}

// As subtitles divide the text. Of OpenAI's members those are left out that only Whisper has:
// tokens, compression_ratio and no_speech_prob.
Json segments_json(const Transcript& t, double seconds) {
  Json list = Json::array();
  int64_t id = 0;
  for (const Subtitle& subtitle : subtitles_of(t, seconds, {.linger = 0})) {
    std::string text;
    for (const std::string& line : subtitle.lines) text += (text.empty() ? "" : " ") + line;
    double log_sum = 0;
    int count = 0;
    for (const TimedText::Token& token : t.characters) {
      if (token.begin < subtitle.begin - 1e-9 || token.begin >= subtitle.end) continue;
      log_sum += std::log(std::max(token.probability, 1e-30));
      ++count;
    }
    list.push_back(Json::object({{"id", id++},
                                 {"start", milliseconds(subtitle.begin)},
                                 {"end", milliseconds(subtitle.end)},
                                 {"text", text},
                                 {"avg_logprob", log_sum / std::max(count, 1)}}));
  }
  return list;
}

Json verbose_json(const Form& form, const Transcript& t, double seconds) {
  Json reply = Json::object({{"task", "transcribe"},
                             {"language", form.language},
                             {"duration", milliseconds(seconds)},
                             {"text", t.text}});
  if (form.wants_words) reply["words"] = words_json(t);
  if (form.wants_segments || !form.wants_words) reply["segments"] = segments_json(t, seconds);
  return reply;
}

HttpReply plain_reply(const char* type, std::string text) {
  return {200, std::string(type) + "; charset=utf-8", std::move(text)};
}

HttpReply reply_in(const Form& form, const Transcript& t, double seconds) {
  if (form.format == "text") return plain_reply("text/plain", t.text + "\n");
  if (form.format == "srt")
    return plain_reply("application/x-subrip", to_srt(subtitles_of(t, seconds, {})));
  if (form.format == "vtt") return plain_reply("text/vtt", to_vtt(subtitles_of(t, seconds, {})));
  const Json reply =
      form.format == "json" ? Json::object({{"text", t.text}}) : verbose_json(form, t, seconds);
  return json_reply(reply.dump_replacing());
}

// A long one goes through the model piece by piece.
Transcript recognise(const ServedModel& served, Recognizer& model, Waveform audio) {
  const PieceOptions pieces{.seconds = served.options().piece};
  const bool is_long = pieces.seconds > 0 && audio.seconds() > 2 * pieces.seconds;
  return is_long ? model.decode(long_outputs(model, std::move(audio), pieces))
                 : model.transcribe(audio);
}

// Text as it becomes final, where the model can say so before the end; together it is the text of
// a request without events.
void tell_events(const ServedModel& served, Recognizer& model, Waveform audio,
                 const Listener& listener) {
  const auto tell_delta = [&](const std::string& text) {
    return text.empty() ||
           listener(Json::object({{"type", "transcript.text.delta"}, {"delta", text}}));
  };
  std::string text;
  if (served.why_no_stream().empty()) {
    RecognizerStream stream(model, 1.0, {.endpoint = {0, 0}, .decoder = {}});
    const auto piece = static_cast<size_t>(audio.sample_rate);
    for (std::span<const float> rest = audio.samples; !rest.empty();
         rest = rest.subspan(std::min(piece, rest.size())))
      if (!tell_delta(stream.accept(rest.first(std::min(piece, rest.size()))))) return;
    const StreamedTranscript last = stream.finish();
    if (!tell_delta(last.text.substr(last.told))) return;
    text = last.text;
  } else {
    text = recognise(served, model, std::move(audio)).text;
    if (!tell_delta(text)) return;
  }
  listener(Json::object({{"type", "transcript.text.done"}, {"text", text}}));
}

}  // namespace

std::optional<HttpReply> transcribe_sound(const ServedModel& served, Recognizer& model,
                                          const HttpRequest& request, const Listener& listener) {
  require_reads(served, InputKind::recording);
  const Form form = form_of(request, served, {"json", "text", "srt", "verbose_json", "vtt"});
  if (form.streams && form.format != "json" && form.format != "text")
    throw HttpError(400, str("stream=true goes with response_format json, it is ", form.format),
                    "response_format");
  Waveform audio = decode(form, served);
  const OwnDecoder own(model, served, form.hot_words);
  if (form.streams) {
    tell_events(served, model, std::move(audio), listener);
    return std::nullopt;
  }
  const double seconds = audio.seconds();
  const Transcript t = recognise(served, model, std::move(audio));
  return reply_in(form, t, seconds);
}

HttpReply transcribe_image(const ServedModel& served, Recognizer& model,
                           const HttpRequest& request) {
  require_reads(served, InputKind::image);
  const Form form = form_of(request, served, {"json", "text"});
  const GreyImage image = decode_image(std::as_bytes(std::span(form.file)), form.name);
  served.features().require_line(image.info(), form.name);
  const OwnDecoder own(model, served, form.hot_words);
  const Transcript t = model.transcribe(model.features(image, form.name));
  if (form.format == "text") return plain_reply("text/plain", t.text + "\n");
  return json_reply(Json::object({{"text", t.text}}).dump_replacing());
}

}  // namespace rondo::serve
