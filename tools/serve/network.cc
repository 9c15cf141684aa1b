#include "tools/serve/network.h"

#include <arpa/inet.h>
#include <libwebsockets.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/io/descriptor.h"
#include "engine/io/signals.h"
#include "kernels/base/error.h"

namespace rondo::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t piece_bytes = 16384;             // written at a time
constexpr size_t most_message = size_t{1} << 18;  // bytes of a text message of a stream
constexpr size_t most_unfetched = 10000;          // pieces of a reply
constexpr int64_t most_discarded = 64 << 20;      // bytes of a request that is refused
constexpr auto longest_stop = std::chrono::seconds(10);
constexpr auto look_again = 100 * LWS_US_PER_MS;  // whether to stop

// A connection, and the request on it.
struct Peer {
  std::shared_ptr<Client> client;
  HttpRequest request;
  std::shared_ptr<void> place;
  bool reads_body = false, discards_body = false;
  bool waits = false;   // for what a worker makes of it
  bool closes = false;  // behind the reply

  std::deque<Outgoing> pieces;
  HttpReply reply;  // that is being written
  size_t written = 0;
  bool has_reply = false, has_head = false, is_whole = false;

  std::shared_ptr<Talk> talk;
  std::string message;  // of text, as far as it is there
};

// Headers, and what is written behind them, with the room that libwebsockets wants before it.
class Writing {
 public:
  explicit Writing(size_t bytes) : buffer_(LWS_PRE + bytes) {}
  unsigned char* start() { return buffer_.data() + LWS_PRE; }
  unsigned char* end() { return buffer_.data() + buffer_.size(); }

 private:
  std::vector<unsigned char> buffer_;
};

std::string header_of(lws* wsi, lws_token_indexes token) {
  const int length = lws_hdr_total_length(wsi, token);
  if (length <= 0) return {};
  std::string text(static_cast<size_t>(length) + 1, '\0');
  const int copied = lws_hdr_copy(wsi, text.data(), length + 1, token);
  text.resize(static_cast<size_t>(std::max(copied, 0)));
  return text;
}

std::string query_of(lws* wsi) {
  std::string all;
  char fragment[256];
  for (int i = 0;; ++i) {
    const int n = lws_hdr_copy_fragment(wsi, fragment, sizeof fragment, WSI_TOKEN_HTTP_URI_ARGS, i);
    if (n < 0) return all;
    all += (all.empty() ? "" : "&") + std::string(fragment, static_cast<size_t>(n));
  }
}

HttpHead head_of(lws* wsi) {
  constexpr std::pair<lws_token_indexes, const char*> methods[] = {
      {WSI_TOKEN_GET_URI, "GET"},      {WSI_TOKEN_POST_URI, "POST"},
      {WSI_TOKEN_PUT_URI, "PUT"},      {WSI_TOKEN_OPTIONS_URI, "OPTIONS"},
      {WSI_TOKEN_HEAD_URI, "HEAD"},    {WSI_TOKEN_PATCH_URI, "PATCH"},
      {WSI_TOKEN_DELETE_URI, "DELETE"}};
  HttpHead head;
  for (const auto& [token, name] : methods) {
    if (lws_hdr_total_length(wsi, token) == 0) continue;
    head.method = name;
    head.path = header_of(wsi, token);
  }
  head.query = query_of(wsi);
  head.host = header_of(wsi, WSI_TOKEN_HOST);
  head.origin = header_of(wsi, WSI_TOKEN_ORIGIN);
  head.authorization = header_of(wsi, WSI_TOKEN_HTTP_AUTHORIZATION);
  head.content_type = header_of(wsi, WSI_TOKEN_HTTP_CONTENT_TYPE);
  const std::string length = header_of(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH);
  const bool is_number = !length.empty() && length.size() < 18 &&
                         length.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) head.content_length = std::stoll(length);
  head.upgrades = ::strcasecmp(header_of(wsi, WSI_TOKEN_UPGRADE).c_str(), "websocket") == 0;
  return head;
}

// What libwebsockets said last of a failure.
std::string last_said;
void note(int, const char* line) { last_said = line; }

// libwebsockets does not say why it cannot listen.
void require_free(const std::string& address, int port) {
  const bool is_v6 = address.find(':') != std::string::npos;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  v4.sin_family = AF_INET;
  v6.sin6_family = AF_INET6;
  v4.sin_port = v6.sin6_port = htons(static_cast<uint16_t>(port));
  void* const to = is_v6 ? static_cast<void*>(&v6.sin6_addr) : &v4.sin_addr;
  if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, address.c_str(), to) != 1)
    fail_input("--address ", address, ": is no address, expected one like 127.0.0.1 or ::1");
  const Descriptor probe(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* name =
      is_v6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  if (::bind(probe.get(), name, is_v6 ? sizeof v6 : sizeof v4) == 0) return;
  const bool is_taken = errno == EADDRINUSE;
  fail_input("port ", port, " of ", address, " cannot be listened on: ", std::strerror(errno),
             is_taken ? "; --port names another, 0 takes a free one" : "");
}

}  // namespace

void require_network() {}

struct Network::State {
  State(Server& server_, const NetworkOptions& options_);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // What libwebsockets calls.
  static int on_event(lws* wsi, lws_callback_reasons reason, void*, void* in, size_t length) {
    auto* state = static_cast<State*>(lws_context_user(lws_get_context(wsi)));
    return state->on(wsi, reason, static_cast<const char*>(in), length);
  }
  int on(lws* wsi, lws_callback_reasons reason, const char* in, size_t length);
  void deliver();
  void stop_streams();
  bool has_unwritten() const;

  int begin_request(lws* wsi);
  int take_body(lws* wsi, const char* in, size_t length);
  int end_body(lws* wsi);
  int write_reply(lws* wsi);
  int write_now(lws* wsi, Peer& peer);
  int write_message(lws* wsi);
  int confirm_upgrade(lws* wsi);
  int begin_stream(lws* wsi);
  int take_message(lws* wsi, const char* in, size_t length);
  int time_is_up(lws* wsi);
  void forget(lws* wsi);
  void reply(lws* wsi, Peer& peer, HttpReply reply);
  void renew(lws* wsi, Peer& peer);
  void wait_for(lws* wsi) { lws_set_timer_usecs(wsi, patience_us); }

  Server& server;
  const NetworkOptions options;
  const lws_usec_t patience_us;
  std::shared_ptr<Outbox> outbox;
  lws_protocols protocols[2] = {};
  lws_context* context = nullptr;
  int port = 0;
  uint64_t last_number = 0;
  std::unordered_map<lws*, Peer> peers;
  std::unordered_map<uint64_t, lws*> by_number;
  lws_sorted_usec_list_t alarm = {};  // look_again
};

Network::State::State(Server& server_, const NetworkOptions& options_)
    : server(server_),
      options(options_),
      patience_us(static_cast<lws_usec_t>(server_.options().patience * LWS_US_PER_SEC)) {
  require_free(options.address, options.port);
  lws_set_log_level(LLL_ERR, note);
  protocols[0].name = "rondo";
  protocols[0].callback = on_event;
  protocols[0].rx_buffer_size = piece_bytes;
  const ServerOptions& o = server.options();
  const int most = o.threads + o.queue + o.streams + 64;
  const bool is_any = options.address == "0.0.0.0" || options.address == "::";
  const bool is_v6 = options.address.find(':') != std::string::npos;
  lws_context_creation_info info{};
  info.port = options.port;
  info.iface = is_any ? nullptr : options.address.c_str();
  info.protocols = protocols;
  info.user = this;
  info.gid = static_cast<gid_t>(-1);
  info.uid = static_cast<uid_t>(-1);
  info.fd_limit_per_thread = static_cast<unsigned>(most);
  info.max_http_header_pool = static_cast<uint16_t>(std::min(most, 1000));
  info.max_http_header_data = 8192;
  info.timeout_secs = static_cast<unsigned>(std::clamp(o.patience, 1.0, 3600.0));
  info.keepalive_timeout = 60;
  info.pt_serv_buf_size = piece_bytes;
  info.options = LWS_SERVER_OPTION_FAIL_UPON_UNABLE_TO_BIND;
  if (!is_v6) info.options |= LWS_SERVER_OPTION_DISABLE_IPV6;
  outbox = std::make_shared<Outbox>([this] { lws_cancel_service(context); });
  context = lws_create_context(&info);
  lws_vhost* const vhost = context ? lws_get_vhost_by_name(context, "default") : nullptr;
  if (!vhost)
    fail_input("port ", options.port, " of ", options.address, " cannot be listened on: ",
               last_said.empty() ? "libwebsockets says nothing of it" : last_said);
  port = lws_get_vhost_listen_port(vhost);
}

Network::State::~State() {
  outbox->close();
  if (context) lws_context_destroy(context);
}

int Network::State::on(lws* wsi, lws_callback_reasons reason, const char* in, size_t length) {
  switch (reason) {
    case LWS_CALLBACK_HTTP:
      return begin_request(wsi);
    case LWS_CALLBACK_HTTP_BODY:
      return take_body(wsi, in, length);
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
      return end_body(wsi);
    case LWS_CALLBACK_HTTP_WRITEABLE:
      return write_reply(wsi);
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
      return confirm_upgrade(wsi);
    case LWS_CALLBACK_ESTABLISHED:
      return begin_stream(wsi);
    case LWS_CALLBACK_RECEIVE:
      return take_message(wsi, in, length);
    case LWS_CALLBACK_SERVER_WRITEABLE:
      return write_message(wsi);
    case LWS_CALLBACK_TIMER:
      return time_is_up(wsi);
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
      deliver();
      return 0;
    case LWS_CALLBACK_CLOSED:
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_WSI_DESTROY:
      forget(wsi);
      return 0;
    default:
      return 0;
  }
}

// What the workers have made since.
void Network::State::deliver() {
  for (auto& [number, piece] : outbox->take()) {
    const auto at = by_number.find(number);
    if (at == by_number.end()) continue;
    Peer& peer = peers.at(at->second);
    const bool is_room = !piece.reply && piece.text.empty() && !piece.is_last;
    if (is_room) {
      lws_rx_flow_control(at->second, 1);
      wait_for(at->second);
      continue;
    }
    peer.pieces.push_back(std::move(piece));
    if (peer.pieces.size() > most_unfetched) {
      lws_set_timeout(at->second, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
    } else {
      lws_callback_on_writable(at->second);
    }
  }
}

// Another request on a connection that may have had some.
void Network::State::renew(lws* wsi, Peer& peer) {
  if (peer.client) by_number.erase(peer.client->number());
  peer = {};
  peer.client = std::make_shared<Client>(outbox, ++last_number);
  by_number[last_number] = wsi;
}

void Network::State::reply(lws* wsi, Peer& peer, HttpReply reply) {
  peer.pieces.push_back({.reply = std::move(reply), .is_last = true});
  lws_callback_on_writable(wsi);
}

int Network::State::begin_request(lws* wsi) {
  Peer& peer = peers[wsi];
  renew(wsi, peer);
  static_cast<HttpHead&>(peer.request) = head_of(wsi);
  const HttpHead& head = peer.request;
  std::optional<HttpReply> answer = server.answer(head, &peer.place);
  wait_for(wsi);
  const bool has_body = head.content_length > 0 || head.method == "POST";
  if (!answer) {
    peer.reads_body = true;
    if (head.content_length > 0) return 0;
    peer.reads_body = false;
    answer = reply_of(HttpError(400, "the request has no body"));
  } else if (has_body && head.content_length > 0 && head.content_length <= most_discarded) {
    // Clients read no reply before they have sent everything.
    peer.reads_body = peer.discards_body = true;
    peer.pieces.push_back({.reply = std::move(answer), .is_last = true});
    return 0;
  }
  peer.closes = has_body || head.method == "HEAD";
  if (!has_body) {
    reply(wsi, peer, std::move(*answer));
    return 0;
  }
  peer.pieces.push_back({.reply = std::move(answer), .is_last = true});
  return write_now(wsi, peer);
}

int Network::State::take_body(lws* wsi, const char* in, size_t length) {
  const auto at = peers.find(wsi);
  if (at == peers.end() || !at->second.reads_body) return -1;
  Peer& peer = at->second;
  if (!peer.discards_body) peer.request.body.append(in, length);
  // The head was looked at; this is for what does not keep to it.
  const auto most = static_cast<size_t>(server.options().most_bytes);
  return peer.request.body.size() > most ? -1 : 0;
}

int Network::State::end_body(lws* wsi) {
  const auto at = peers.find(wsi);
  if (at == peers.end()) return -1;
  Peer& peer = at->second;
  if (!std::exchange(peer.reads_body, false)) return 0;
  lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
  if (peer.discards_body) {
    lws_callback_on_writable(wsi);
    return 0;
  }
  peer.waits = true;
  server.start(std::move(peer.request), std::move(peer.place), peer.client);
  return 0;
}

namespace {

bool write_head(lws* wsi, const HttpReply& reply, bool is_whole) {
  Writing head(4096);
  unsigned char* at = head.start();
  const auto add = [&](const char* name, const std::string& value) {
    return lws_add_http_header_by_name(wsi, reinterpret_cast<const unsigned char*>(name),
                                       reinterpret_cast<const unsigned char*>(value.data()),
                                       static_cast<int>(value.size()), &at, head.end()) == 0;
  };
  const lws_filepos_t length = is_whole ? reply.body.size() : LWS_ILLEGAL_HTTP_CONTENT_LEN;
  bool ok = lws_add_http_common_headers(wsi, static_cast<unsigned>(reply.status),
                                        reply.type.c_str(), length, &at, head.end()) == 0;
  ok = ok && add("cache-control:", "no-store") && add("x-content-type-options:", "nosniff");
  if (reply.retry_after > 0) ok = ok && add("retry-after:", std::to_string(reply.retry_after));
  if (!reply.allow.empty()) ok = ok && add("allow:", reply.allow);
  if (reply.type.starts_with("text/html"))
    ok = ok && add("content-security-policy:",
                   "default-src 'none'; script-src 'unsafe-inline' blob:; style-src "
                   "'unsafe-inline'; connect-src 'self' ws: wss:; img-src data:; "
                   "frame-ancestors 'none'; base-uri 'none'; form-action 'none'");
  return ok && lws_finalize_write_http_header(wsi, head.start(), &at, head.end()) == 0;
}

bool write_body(lws* wsi, std::string_view bytes, bool is_end) {
  Writing body(bytes.size());
  std::memcpy(body.start(), bytes.data(), bytes.size());
  return lws_write(wsi, body.start(), bytes.size(),
                   is_end ? LWS_WRITE_HTTP_FINAL : LWS_WRITE_HTTP) >= 0;
}

}  // namespace

// As much of the reply as the connection takes at a time.
int Network::State::write_reply(lws* wsi) {
  const auto found = peers.find(wsi);
  if (found == peers.end()) return 0;
  Peer& peer = found->second;
  if (peer.reads_body) return 0;
  const bool needs_piece = !peer.has_reply || peer.written == peer.reply.body.size();
  if (needs_piece) {
    if (peer.pieces.empty()) return 0;
    Outgoing piece = std::move(peer.pieces.front());
    peer.pieces.pop_front();
    peer.is_whole = piece.is_last;
    peer.written = 0;
    if (piece.reply) {
      peer.has_reply = true;
      peer.reply = std::move(*piece.reply);
    } else {
      peer.reply.body = std::move(piece.text);
    }
  }
  wait_for(wsi);
  if (!std::exchange(peer.has_head, true)) {
    if (!write_head(wsi, peer.reply, peer.is_whole)) return -1;
    if (!peer.reply.body.empty()) {
      lws_callback_on_writable(wsi);
      return 0;
    }
  }
  const auto rest = std::string_view(peer.reply.body).substr(peer.written);
  const size_t n = std::min(rest.size(), piece_bytes);
  peer.written += n;
  const bool is_end = peer.is_whole && peer.written == peer.reply.body.size();
  if (!write_body(wsi, rest.substr(0, n), is_end)) return -1;
  if (!is_end) {
    lws_callback_on_writable(wsi);
    return 0;
  }
  const bool closes = peer.closes;
  by_number.erase(peer.client->number());
  peers.erase(found);
  return closes || lws_http_transaction_completed(wsi) ? -1 : 0;
}

// A short reply before the body is there, which is not read.
int Network::State::write_now(lws* wsi, Peer& peer) {
  const HttpReply reply = std::move(*peer.pieces.front().reply);
  peer.pieces.clear();
  if (write_head(wsi, reply, true)) write_body(wsi, reply.body, true);
  return -1;
}

int Network::State::confirm_upgrade(lws* wsi) {
  Peer& peer = peers[wsi];
  renew(wsi, peer);
  static_cast<HttpHead&>(peer.request) = head_of(wsi);
  std::optional<HttpReply> answer = server.answer(peer.request, &peer.place);
  if (!answer) return 0;
  peer.pieces.push_back({.reply = std::move(answer), .is_last = true});
  return write_now(wsi, peer);
}

int Network::State::begin_stream(lws* wsi) {
  const auto at = peers.find(wsi);
  if (at == peers.end() || !at->second.place) return -1;
  Peer& peer = at->second;
  peer.talk = server.open_stream(peer.request, std::move(peer.place), peer.client);
  wait_for(wsi);
  return 0;
}

int Network::State::take_message(lws* wsi, const char* in, size_t length) {
  const auto at = peers.find(wsi);
  if (at == peers.end() || !at->second.talk) return -1;
  Peer& peer = at->second;
  wait_for(wsi);
  if (lws_frame_is_binary(wsi)) {
    if (length > 0) peer.talk->receive(false, std::string(in, length));
  } else {
    peer.message.append(in, length);
    if (peer.message.size() > most_message) {
      const std::string why = str("a message has more than ", most_message, " bytes");
      peer.client->send(
          {.text = error_text(HttpError(413, why)), .is_last = true, .is_error = true});
      peer.message.clear();
      peer.talk->leave();
      lws_rx_flow_control(wsi, 0);
    } else if (lws_is_final_fragment(wsi) && lws_remaining_packet_payload(wsi) == 0) {
      peer.talk->receive(true, std::exchange(peer.message, {}));
    }
  }
  if (peer.talk->is_full()) lws_rx_flow_control(wsi, 0);
  return 0;
}

int Network::State::write_message(lws* wsi) {
  const auto at = peers.find(wsi);
  if (at == peers.end() || at->second.pieces.empty()) return 0;
  Peer& peer = at->second;
  const Outgoing piece = std::move(peer.pieces.front());
  peer.pieces.pop_front();
  Writing message(piece.text.size());
  std::memcpy(message.start(), piece.text.data(), piece.text.size());
  if (lws_write(wsi, message.start(), piece.text.size(), LWS_WRITE_TEXT) < 0) return -1;
  if (piece.is_last) {
    lws_close_reason(wsi,
                     piece.is_error ? LWS_CLOSE_STATUS_POLICY_VIOLATION : LWS_CLOSE_STATUS_NORMAL,
                     nullptr, 0);
    return -1;
  }
  if (!peer.pieces.empty()) lws_callback_on_writable(wsi);
  return 0;
}

int Network::State::time_is_up(lws* wsi) {
  const auto at = peers.find(wsi);
  if (at == peers.end()) return 0;
  Peer& peer = at->second;
  const bool is_served =
      peer.waits && peer.pieces.empty() && peer.written == peer.reply.body.size();
  if (is_served || (peer.talk && peer.talk->is_full())) {
    wait_for(wsi);  // it is the server that takes its time
    return 0;
  }
  if (!peer.talk) return -1;
  const std::string why =
      str("nothing has come for ", server.options().patience, " seconds, the stream is ended");
  peer.talk->leave();
  peer.pieces.clear();
  peer.pieces.push_back(
      {.text = error_text(HttpError(408, why)), .is_last = true, .is_error = true});
  lws_callback_on_writable(wsi);
  return 0;
}

void Network::State::forget(lws* wsi) {
  const auto at = peers.find(wsi);
  if (at == peers.end()) return;
  Peer peer = std::move(at->second);
  peers.erase(at);
  if (peer.client) {
    peer.client->leave();
    by_number.erase(peer.client->number());
  }
  if (peer.talk) peer.talk->leave();
}

void Network::State::stop_streams() {
  const std::string text = error_text(HttpError(503, "the server is being stopped"));
  for (auto& [wsi, peer] : peers) {
    if (!peer.talk) continue;
    peer.talk->leave();
    peer.pieces.push_back({.text = text, .is_last = true, .is_error = true});
    lws_callback_on_writable(wsi);
  }
}

bool Network::State::has_unwritten() const {
  return std::any_of(peers.begin(), peers.end(), [](const auto& entry) {
    return entry.second.waits || !entry.second.pieces.empty();
  });
}

Network::Network(Server& server, const NetworkOptions& options)
    : state_(std::make_unique<State>(server, options)) {}
Network::~Network() = default;

std::string Network::url() const {
  const std::string& address = state_->options.address;
  const bool is_v6 = address.find(':') != std::string::npos;
  return str("http://", is_v6 ? "[" + address + "]" : address, ":", state_->port);
}

// A signal may come to any thread, so the flag is looked at now and then.
bool Network::run() {
  State& s = *state_;
  std::optional<Clock::time_point> since;
  const auto schedule = [&] {
    lws_sul_schedule(
        s.context, 0, &s.alarm, [](lws_sorted_usec_list_t*) {}, look_again);
  };
  while (true) {
    schedule();
    if (lws_service(s.context, 0) < 0) fail_input("libwebsockets has failed: ", last_said);
    if (!stop_requested()) continue;
    if (!since) {
      since = Clock::now();
      s.server.stop();
      s.stop_streams();
    }
    if (!s.has_unwritten()) return true;
    if (Clock::now() - *since > longest_stop) return false;
  }
}

}  // namespace rondo::serve
