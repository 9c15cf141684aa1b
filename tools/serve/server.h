// What the server does with each request, whatever network it comes from.
//
// Functions are called by the network's thread, and return soon: what computes goes to workers, of
// which there are two kinds, so that a long recording does not hold streams up.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/messages/http_message.h"
#include "tools/serve/outbox.h"
#include "tools/serve/served_model.h"
#include "tools/serve/talk.h"
#include "tools/serve/workers.h"

namespace rondo::serve {

struct ServerOptions {
  std::string token;       // empty: none is wanted
  std::string run;         // a folder to watch; empty: there is none
  int threads = 1;         // that compute at a time, of each kind of workers
  int queue = 16;          // requests that may wait, beside those
  int streams = 32;        // that may be open
  int64_t most_bytes = 0;  // of a request
  double patience = 60;    // seconds that a request may wait
};

class Server {
 public:
  // `model`: none where a run alone is watched.
  Server(ServerOptions options, const ServedModel* model);

  // What can be said to the head of a request; nothing: its body is wanted, and *place is held for
  // it, or it may become a stream.
  std::optional<HttpReply> answer(const HttpHead& head, std::shared_ptr<void>* place);
  // A request whose body is there.
  void start(HttpRequest request, std::shared_ptr<void> place, std::shared_ptr<Client> client);
  std::shared_ptr<Talk> open_stream(const HttpHead& head, std::shared_ptr<void> place,
                                    std::shared_ptr<Client> client);

  const ServerOptions& options() const { return options_; }
  // From now on every request is refused.
  void stop() { stops_ = true; }

 private:
  std::optional<HttpReply> answer_or_throw(const HttpHead& head, std::shared_ptr<void>* place);
  void require_access(const HttpHead& head) const;
  void require_stream(const HttpHead& head) const;
  HttpReply models(const std::string& path) const;
  // What ends the reply.
  Outgoing do_request(Recognizer& model, const HttpRequest& request, Client& client) const;

  const ServerOptions options_;
  const ServedModel* model_;
  Places requests_, streams_;
  bool stops_ = false;
  std::unique_ptr<Workers> workers_;
  std::vector<std::unique_ptr<TalkWorker>> stream_workers_;
};

}  // namespace rondo::serve
