#include "comm/shared/inbox.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

#include "comm/socket.h"

namespace rondo::shared_transport {
namespace {

struct InboxHead {
  Digest secret;
  Bell bell;
};
constexpr size_t page = 4096;
static_assert(sizeof(InboxHead) <= page && sizeof(StreamHead) <= page);
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string link_text(const char* path) {
  char text[64];
  const ssize_t n = ::readlink(path, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string();
}

}  // namespace

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, Deadline deadline) {
  const auto left =
      std::min<CommClock::duration>(deadline - CommClock::now(), std::chrono::hours(1));
  if (left <= CommClock::duration::zero()) return;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  // Woken, changed, interrupted or late: the caller looks for itself.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::ring() {
  leader_rings.fetch_add(1);
  switch (static_cast<Leader>(leader.load())) {
    case Leader::awake:
      return;  // looks again before it sleeps or leaves
    case Leader::asleep:
      return futex_wake(leader_rings);
    default:
      pump_rings.fetch_add(1);
      if (pump_asleep.load() != 0) futex_wake(pump_rings);
  }
}

void Bell::ring_leader() {
  leader_rings.fetch_add(1);
  if (static_cast<Leader>(leader.load()) == Leader::asleep) futex_wake(leader_rings);
}

std::span<std::byte> Stream::room() const {
  const uint64_t written = head_->written.load(std::memory_order_relaxed);
  const uint64_t used = written - head_->read.load();
  RONDO_CHECK(used <= capacity_, "a reader's impossible position");
  const uint64_t at = written % capacity_;
  return {bytes_ + at, std::min(capacity_ - used, capacity_ - at)};
}

void Stream::wrote(size_t n) const {
  head_->written.store(head_->written.load(std::memory_order_relaxed) + n);
}

std::span<const std::byte> Stream::arrived() const {
  const uint64_t read = head_->read.load(std::memory_order_relaxed);
  const uint64_t there = head_->written.load() - read;
  RONDO_CHECK(there <= capacity_, "a writer's impossible position");
  const uint64_t at = read % capacity_;
  return {bytes_ + at, std::min(there, capacity_ - at)};
}

void Stream::took(size_t n) const {
  head_->read.store(head_->read.load(std::memory_order_relaxed) + n);
}

std::string place_of_process() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string processes = link_text("/proc/self/ns/pid"),
                    net = link_text("/proc/self/ns/net");
  if (boot.empty() || processes.empty() || net.empty()) return {};
  return boot + " " + processes + " " + net;
}

size_t Inbox::bytes_of(int streams, uint64_t stream_bytes) {
  return page + static_cast<size_t>(streams) * (page + stream_bytes);
}

Inbox::Inbox(int streams, uint64_t stream_bytes) : Inbox() {
  const std::string place = place_of_process();
  if (place.empty() || place.size() >= sizeof(card_.place)) throw Error("/proc cannot be read");
  card_.pid = ::getpid();
  card_.user = ::geteuid();
  card_.streams = streams;
  card_.stream_bytes = stream_bytes;
  std::copy(place.begin(), place.end(), card_.place);
  const std::string secret = random_bytes(card_.secret.size());
  std::memcpy(card_.secret.data(), secret.data(), secret.size());
  const size_t needed = bytes_of(streams, stream_bytes);
  rlimit limit{};  // of files, this one too; beyond it the process would end
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < needed) {
    throw Error(str("no ", needed, " bytes of memory to share: a limit on files (ulimit -f) of ",
                    limit.rlim_cur, " bytes"));
  }
  Socket file(::memfd_create("rondo inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto size = static_cast<off_t>(needed);
  // All of it now: memory that is not there later would end the process.
  const int error = file ? ::posix_fallocate(file.fd(), 0, size) : errno;
  if (error != 0 || ::fcntl(file.fd(), F_ADD_SEALS, seals) != 0) {
    throw Error(
        str("no ", size, " bytes of memory to share: ", std::strerror(error ? error : errno)));
  }
  map(file.fd());
  reinterpret_cast<InboxHead*>(memory_)->secret = card_.secret;
  card_.file = ::dup(file.fd());
  if (card_.file >= 0) ::fcntl(card_.file, F_SETFD, FD_CLOEXEC);
}

Inbox::Inbox(const Card& card) : Inbox() {
  card_ = card;
  const std::string place = place_of_process();
  card_.file = -1;  // not ours to close
  if (card.version != Card::this_version || card.file < 0 || card.streams < 1 ||
      card.streams > Card::most_streams) {
    throw Error("it shares no memory");
  }
  if (place.empty() || card.place[sizeof(card.place) - 1] != 0 || place != card.place) {
    throw Error("it is on another machine, or in another container");
  }
  if (card.user != ::geteuid()) throw Error("it belongs to another user");
  const std::string path = str("/proc/", card.pid, "/fd/", card.file);
  const Socket file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw Error(str(path, ": ", std::strerror(errno)));
  struct stat s {};
  const bool usable = ::fstat(file.fd(), &s) == 0 && S_ISREG(s.st_mode) &&
                      static_cast<size_t>(s.st_size) == bytes_of(card.streams, card.stream_bytes) &&
                      ::fcntl(file.fd(), F_GET_SEALS) == seals;
  if (!usable) throw Error(str(path, ": not the memory that it told of"));
  map(file.fd());
  if (!equal_digests(reinterpret_cast<InboxHead*>(memory_)->secret, card.secret)) {
    throw Error(str(path, ": not the memory that it told of"));
  }
}

void Inbox::map(int file) {
  bytes_ = bytes_of(card_.streams, card_.stream_bytes);
  void* const at = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) throw Error(str("mmap: ", std::strerror(errno)));
  memory_ = static_cast<std::byte*>(at);
}

Inbox::Inbox(Inbox&& other) noexcept { *this = std::move(other); }

Inbox& Inbox::operator=(Inbox&& other) noexcept {
  std::swap(card_, other.card_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Inbox::~Inbox() {
  close_file();
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

void Inbox::close_file() {
  if (card_.file >= 0) ::close(card_.file);
  card_.file = -1;
}

Bell& Inbox::bell() const { return reinterpret_cast<InboxHead*>(memory_)->bell; }

Stream Inbox::stream(int number) const {
  RONDO_CHECK(number >= 0 && number < card_.streams, "stream ", number, " of ", card_.streams);
  std::byte* const at = memory_ + bytes_of(number, card_.stream_bytes);
  return Stream(reinterpret_cast<StreamHead*>(at), at + page, card_.stream_bytes);
}

}  // namespace rondo::shared_transport
