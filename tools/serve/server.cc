#include "tools/serve/server.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "engine/io/json.h"
#include "kernels/base/cpu/printable.h"
#include "tools/serve/messages/access.h"
#include "tools/serve/page.h"
#include "tools/serve/run_log.h"
#include "tools/serve/transcriptions.h"

namespace rondo::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* sound_path = "/v1/audio/transcriptions";
constexpr const char* image_path = "/v1/images/transcriptions";
constexpr const char* stream_path = "/v1/stream";
constexpr const char* models_path = "/v1/models";

bool is_post_path(const std::string& path) { return path == sound_path || path == image_path; }

HttpError busy(const char* what) { return {503, str("the server has no place for ", what)}; }

void require_method(const HttpHead& head, const char* method) {
  if (head.method == method) return;
  HttpError error(405, str(head.path, " is asked for by ", head.method, ", expected ", method));
  error.allow = method;
  throw error;
}

Json model_json(const ServedModel& m) {
  const bool reads_sound = m.reads() == InputKind::recording;
  Json model = Json::object({{"id", m.name()},
                             {"object", "model"},
                             {"created", m.created()},
                             {"owned_by", "rondo"},
                             {"reads", reads_sound ? "recordings" : "images"}});
  if (reads_sound) model["rate"] = m.features().rate;
  model["streams"] = m.why_no_stream().empty();
  if (!m.why_no_stream().empty()) model["why_no_stream"] = m.why_no_stream();
  return model;
}

Outgoing refusal(const HttpError& e) { return {.reply = reply_of(e), .is_last = true}; }

std::string event_of(const Json& event) { return "data: " + event.dump_replacing() + "\n\n"; }

}  // namespace

Server::Server(ServerOptions options, const ServedModel* model)
    : options_(std::move(options)),
      model_(model),
      requests_(options_.threads + options_.queue),
      streams_(options_.streams) {
  if (!model_) return;
  workers_ = std::make_unique<Workers>(options_.threads, *model_);
  if (!model_->why_no_stream().empty()) return;
  for (int i = 0; i < options_.threads; ++i)
    stream_workers_.push_back(std::make_unique<TalkWorker>(*model_));
}

std::optional<HttpReply> Server::answer(const HttpHead& head, std::shared_ptr<void>* place) {
  try {
    return answer_or_throw(head, place);
  } catch (const HttpError& e) {
    return reply_of(e);
  }
}

// A browser's page cannot send the token with a stream's head; its first message has it then.
void Server::require_access(const HttpHead& head) const {
  require_own_site(head, !options_.token.empty());
  const bool is_open = head.path == "/" || head.path == "/health";
  const bool may_come_later = head.upgrades && head.authorization.empty();
  if (!is_open && !may_come_later) require_token(options_.token, bearer_token(head.authorization));
}

void Server::require_stream(const HttpHead& head) const {
  if (!head.upgrades)
    throw HttpError(400, str(stream_path, " is a WebSocket, expected a request that becomes one"));
  if (!model_) throw HttpError(404, "there is no model, a run alone is watched");
  if (!model_->why_no_stream().empty()) throw HttpError(400, model_->why_no_stream());
}

std::optional<HttpReply> Server::answer_or_throw(const HttpHead& head,
                                                 std::shared_ptr<void>* place) {
  if (stops_) throw HttpError(503, "the server is being stopped");
  require_access(head);
  const std::string& path = head.path;
  if (path == stream_path) {
    require_method(head, "GET");
    require_stream(head);
    *place = streams_.take();
    if (!*place) throw busy("another stream");
    return std::nullopt;
  }
  if (head.upgrades) throw HttpError(404, str(quoted_start(path), " is no WebSocket"));
  if (is_post_path(path)) {
    require_method(head, "POST");
    if (!model_) throw HttpError(404, "there is no model, a run alone is watched");
    if (head.content_length < 0)
      throw HttpError(411, "the request does not say how long it is, expected Content-Length");
    if (head.content_length > options_.most_bytes)
      throw HttpError(413, str("the request has ", head.content_length, " bytes, expected at most ",
                               options_.most_bytes, " (--most-mb)"));
    *place = requests_.take();
    if (!*place) throw busy("another request");
    return std::nullopt;
  }
  const bool is_models = path == models_path || path.starts_with(std::string(models_path) + "/");
  if (path != "/" && path != "/health" && path != "/v1/run" && !is_models)
    throw HttpError(404, str("there is no ", quoted_start(path)));
  require_method(head, "GET");
  if (path == "/") return HttpReply{200, "text/html; charset=utf-8", std::string(page())};
  if (path == "/health") return json_reply(Json::object({{"status", "ok"}}).dump());
  if (is_models) return models(path);
  if (options_.run.empty()) throw HttpError(404, "no run is watched (rondo serve --run)");
  return run_log_reply(options_.run, query_value(head.query, "from"));
}

HttpReply Server::models(const std::string& path) const {
  if (path == models_path) {
    Json list = Json::array();
    if (model_) list.push_back(model_json(*model_));
    return json_reply(
        Json::object({{"object", "list"}, {"data", std::move(list)}}).dump_replacing());
  }
  const std::string name = path.substr(std::string(models_path).size() + 1);
  if (!model_ || name != model_->name())
    throw HttpError(404, str("there is no model ", quoted_start(name)), "model", "model_not_found");
  return json_reply(model_json(*model_).dump_replacing());
}

// The place is free before the client can know that his request is done, and make another.
void Server::start(HttpRequest request, std::shared_ptr<void> place,
                   std::shared_ptr<Client> client) {
  workers_->add(
      [this, client = std::move(client), place = std::move(place), came = Clock::now(),
       request = std::make_shared<HttpRequest>(std::move(request))](Recognizer& model) mutable {
        if (client->is_gone()) return;
        const std::chrono::duration<double> waited = Clock::now() - came;
        const bool is_late = waited.count() > options_.patience;
        Outgoing end = is_late ? refusal(HttpError(503, "the request has waited too long"))
                               : do_request(model, *request, *client);
        place.reset();
        client->send(std::move(end));
      });
}

Outgoing Server::do_request(Recognizer& model, const HttpRequest& request, Client& client) const {
  bool has_begun = false;  // a reply of events
  const auto listener = [&](const Json& event) {
    Outgoing piece;
    if (!std::exchange(has_begun, true)) {
      piece.reply = HttpReply{200, "text/event-stream", event_of(event)};
    } else {
      piece.text = event_of(event);
    }
    client.send(std::move(piece));
    return !client.is_gone();
  };
  const auto failed = [&](const HttpError& e) {
    return has_begun ? Outgoing{.text = "data: " + error_text(e) + "\n\n", .is_last = true}
                     : refusal(e);
  };
  try {
    if (request.path == image_path)
      return {.reply = transcribe_image(*model_, model, request), .is_last = true};
    auto reply = transcribe_sound(*model_, model, request, listener);
    if (!reply) return {.text = "data: [DONE]\n\n", .is_last = true};
    return {.reply = std::move(reply), .is_last = true};
  } catch (const HttpError& e) {
    return failed(e);
  } catch (const InputError& e) {
    return failed(HttpError(400, e.what()));
  } catch (const std::bad_alloc&) {
    return failed(HttpError(503, "out of memory"));
  } catch (const std::exception& e) {
    return failed(HttpError(500, std::string("internal error: ") + e.what()));
  }
}

std::shared_ptr<Talk> Server::open_stream(const HttpHead& head, std::shared_ptr<void> place,
                                          std::shared_ptr<Client> client) {
  TalkWorker& worker =
      **std::min_element(stream_workers_.begin(), stream_workers_.end(),
                         [](const auto& a, const auto& b) { return a->talks() < b->talks(); });
  // What the head had was looked at.
  const std::string token = head.authorization.empty() ? options_.token : std::string();
  return std::make_shared<Talk>(worker, *model_, token, std::move(client), std::move(place));
}

}  // namespace rondo::serve
