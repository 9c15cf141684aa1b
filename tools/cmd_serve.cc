// rondo serve: a model for other programs of this machine, and for a browser.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "engine/io/file.h"
#include "engine/io/signals.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/command.h"
#include "tools/command_line/device_option.h"
#include "tools/command_line/path_words.h"
#include "tools/recognition/decoding.h"
#include "tools/recognition/ensemble_option.h"
#include "tools/recognition/streaming.h"
#include "tools/serve/messages/access.h"
#include "tools/serve/network.h"
#include "tools/serve/served_model.h"
#include "tools/serve/server.h"

namespace rondo {
namespace {

constexpr const char* token_variable = "RONDO_TOKEN";

struct ServeOptions {
  std::string model;
  std::vector<std::string> others;
  DecodingOptions decoding;
  serve::ServedModelOptions served;
  serve::ServerOptions server;
  std::string address = "127.0.0.1", token_file;
  int port = 8080, threads = 0;
  double chunk_ms = 80;
  int most_mb = 25;
  DeviceChoice device;
};

// One word; whoever copies a token may copy a line feed with it.
std::string token_of(const std::string& text, const std::string& where) {
  const std::string token = text.substr(0, text.find_last_not_of("\r\n") + 1);
  if (token.empty() ||
      token.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/=") !=
          std::string::npos)
    fail_input(where, ": holds no token, expected a word of letters, digits and -._~+/=");
  return token;
}

std::string read_token(const std::string& file) {
  constexpr uint64_t most_bytes = 4096;
  if (!file.empty()) return token_of(read_text_file(file, most_bytes), file);
  const char* given = std::getenv(token_variable);
  return given && *given ? token_of(given, token_variable) : std::string();
}

void require_fitting(ServeOptions& o) {
  if (o.model.empty() && o.server.run.empty())
    throw WrongUsage("there is nothing to serve, expected a model, --run RUN, or both");
  if (o.model.empty() && !o.others.empty()) throw WrongUsage("--with goes with a model");
  if (o.address == "localhost") o.address = "127.0.0.1";
  o.server.token = read_token(o.token_file);
  if (o.server.token.empty() && !serve::is_loopback(o.address))
    throw WrongUsage(str("--address ", o.address, " lets other machines in, which takes a token: ",
                         "--token-file FILE, or ", token_variable));
  if (!o.server.run.empty() && !std::filesystem::is_directory(o.server.run))
    fail_input(o.server.run, ": is no folder, expected that of a run");
}

// As clients call it unless told otherwise.
std::string name_of(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  const std::filesystem::path named = whole.has_filename() ? whole : whole.parent_path();
  return named.extension() == ".safetensors" ? named.stem().string() : named.filename().string();
}

Model open_model(const std::string& path, DeviceId device) {
  Model model(path, device);
  for (const std::string& warning : model.warnings()) warn(warning);
  return model;
}

serve::ServedModel open(const ServeOptions& o) {
  constexpr int usual_beam = 100;
  const DeviceId device = resolve(o.device);
  Model model = open_model(o.model, device);
  std::vector<Model> others;
  for (const std::string& other : o.others) others.push_back(open_model(other, device));
  const Config& config = model.description().config;
  if (config.task != Task::ctc)
    fail_input(model.file(), ": is not a ctc model: it writes no text; 'rondo serve' takes one");
  std::optional<Decoder> decoder = make_decoder(o.decoding, model.vocabulary(), config.text);
  DecodingOptions searching = o.decoding;
  if (!decoder) searching.beam = usual_beam;
  Decoder hot_word_decoder =
      decoder ? *decoder : make_decoder(searching, model.vocabulary(), config.text).value();
  serve::ServedModelOptions served = o.served;
  if (served.name.empty()) served.name = name_of(o.model);
  served.hot_word_weight = o.decoding.hot_word_weight;
  served.chunk_seconds = o.chunk_ms / 1000;
  return {std::move(served), std::move(model), std::move(others), std::move(decoder),
          std::move(hot_word_decoder)};
}

int run_serve(ServeOptions o) {
  require_fitting(o);
  serve::require_network();
  if (!o.model.empty()) require_model(o.model);
  o.server.threads = cpu_threads(o.threads, "--threads");
  o.server.most_bytes = int64_t{o.most_mb} << 20;
  std::optional<serve::ServedModel> model;
  if (!o.model.empty()) model.emplace(open(o));
  serve::Server server(o.server, model ? &*model : nullptr);
  serve::Network network(server, {.address = o.address, .port = o.port});
  heed_stops();
  std::fprintf(stderr, "listening on %s\n", network.url().c_str());
  // What still computes would hold the end up, and there is nothing to save.
  if (!network.run()) std::_Exit(128 + stop_signal());
  return 128 + stop_signal();
}

void add_limits(Command& command, ServeOptions* o) {
  command
      .add_option("--threads", o->threads,
                  "recordings that are computed at once, and threads for streams; 0: one per CPU")
      .range(0, 1024)
      .type_name("INT");
  command
      .add_option("--queue", o->server.queue,
                  "requests that may wait beside those; others are refused (503)")
      .range(0, 10000)
      .type_name("INT")
      .show_default();
  command.add_option("--streams", o->server.streams, "streams that may be open at once")
      .range(0, 10000)
      .type_name("INT")
      .show_default();
  command.add_option("--most-mb", o->most_mb, "of a request, in MiB")
      .range(1, 4096)
      .type_name("INT")
      .show_default();
  command.add_option("--most-seconds", o->served.most_seconds, "that a recording may last")
      .range(1.0, 86400.0)
      .type_name("FLOAT")
      .show_default();
  command
      .add_option("--timeout", o->server.patience,
                  "seconds that a client may take for a request, that a request may wait, and that "
                  "a stream may say nothing")
      .range(0.1, 86400.0)
      .type_name("FLOAT")
      .show_default();
}

}  // namespace

void add_serve(Command& program) {
  Command& command = program.add_command(
      "serve", "Serve a model by HTTP and WebSocket, to programs of this machine and to a browser");
  auto o = std::make_shared<ServeOptions>();
  command
      .add_option("model", o->model,
                  "checkpoint directory or model file; may be missing with --run")
      .check(check_file_name);
  add_ensemble_option(command, &o->others).check(check_file_name);
  command.add_option("--run", o->server.run, "folder of a training run, for the page to show")
      .check(check_file_name)
      .type_name("RUN");
  command.add_option("--name", o->served.name, "of the model for clients; as its folder is called")
      .type_name("NAME");
  command
      .add_option("--address", o->address,
                  "to listen on; another than this machine's own takes a token")
      .type_name("ADDRESS")
      .show_default();
  command.add_option("--port", o->port, "to listen on; 0: one that is free")
      .range(0, 65535)
      .type_name("INT")
      .show_default();
  command
      .add_option("--token-file", o->token_file,
                  "file with a token that clients must have; else the environment's RONDO_TOKEN")
      .check(check_file_name)
      .type_name("FILE");
  add_limits(command, o.get());
  command
      .add_option("--piece", o->served.piece,
                  "seconds of a long recording that the model is given at a time; 0: all")
      .range(0.0, 86400.0)
      .type_name("FLOAT")
      .show_default();
  command.add_option("--chunk-ms", o->chunk_ms, "of streams: milliseconds computed at a time")
      .range(1.0, 60000.0)
      .type_name("FLOAT")
      .show_default();
  add_endpoint_options(command, &o->served.endpoint, "of streams: ");
  add_decoding_options(command, &o->decoding, false);
  add_device_option(command, &o->device);
  command.footer(
      "\nExample:  rondo serve run\n"
      "          curl -F file=@talk.wav http://127.0.0.1:8080/v1/audio/transcriptions\n"
      "          rondo serve --run run   # and look at http://127.0.0.1:8080\n");
  command.action([o] { return run_serve(*o); });
}

}  // namespace rondo
