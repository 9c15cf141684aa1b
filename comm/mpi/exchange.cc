#include "comm/mpi/exchange.h"

// The C interface alone: that for C++ has left the standard, and is another library.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "kernels/base/error.h"

namespace rondo::mpi_transport {
namespace {

constexpr size_t slot_bytes = sizeof(ChunkHead) + chunk_bytes;

// Of all transports of this process.
std::mutex& mpi_lock() {
  static std::mutex mutex;
  return mutex;
}

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return str("error ", code);
  return std::string(text, static_cast<size_t>(length));
}

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw Error(str(what, ": ", text_of(code)));
}

struct OutgoingChunk final : Exchange::Outgoing {
  std::span<std::byte> body() override { return std::span(memory).subspan(sizeof(ChunkHead)); }
  std::vector<std::byte> memory = std::vector<std::byte>(slot_bytes);
  MPI_Request request = MPI_REQUEST_NULL;
};

// Chunks under way live at least until they have left.
std::set<Exchange::OutgoingPtr>& under_way() {
  static auto* const chunks = new std::set<Exchange::OutgoingPtr>;
  return *chunks;
}

}  // namespace

std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string name(text, static_cast<size_t>(length));
  return name.substr(0, name.find_first_of(",\n"));
}

void start_mpi() {
  const std::lock_guard lock(mpi_lock());
  int started = 0, ended = 0, provided = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (ended) fail_input("MPI has ended in this process, and cannot be started again");
  if (started) {
    MPI_Query_thread(&provided);
  } else if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    fail_input("MPI cannot be started");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    fail_input("this MPI library cannot be called by several threads (MPI_THREAD_SERIALIZED)");
  }
}

void finalize_mpi() {
  const std::lock_guard lock(mpi_lock());
  MPI_Finalize();
}

class Exchange::Impl {
 public:
  Impl(int rank, int processes, uint64_t world)
      : rank_(rank), processes_(processes), world_(world) {
    const std::lock_guard lock(mpi_lock());
    if (processes == 0) {
      check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    }
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    requests_.fill(MPI_REQUEST_NULL);
    for (size_t i = 0; i < slots; ++i) {
      memory_[i].resize(slot_bytes);
      post(i);
    }
  }

  ~Impl() {
    const std::lock_guard lock(mpi_lock());
    for (MPI_Request& r : requests_) {
      if (r == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&r);
      MPI_Wait(&r, MPI_STATUS_IGNORE);
    }
    if (processes_ == 0 && !forgotten) MPI_Comm_free(&comm_);
  }

  int count(int (*of)(MPI_Comm, int*)) const {
    const std::lock_guard lock(mpi_lock());
    int n = 0;
    check(of(comm_, &n), "MPI_Comm");
    return n;
  }

  std::vector<Chunk> poll() {
    std::vector<Chunk> come;
    std::array<int, slots> which;
    int n = 0;
    const std::lock_guard lock(mpi_lock());
    check(MPI_Testsome(static_cast<int>(slots), requests_.data(), &n, which.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    for (int i = 0; i < (n == MPI_UNDEFINED ? 0 : n); ++i) {
      const auto slot = static_cast<size_t>(which[static_cast<size_t>(i)]);
      Chunk c;
      c.slot = static_cast<int>(slot);
      std::memcpy(&c.head, memory_[slot].data(), sizeof c.head);
      if (c.head.world != world_ || c.head.size > chunk_bytes) {
        post(slot);  // of a world that was here before
        continue;
      }
      c.bytes = std::span<const std::byte>(memory_[slot]).subspan(sizeof c.head, c.head.size);
      come.push_back(c);
    }
    return come;
  }

  void give_back(const Chunk& chunk) {
    const std::lock_guard lock(mpi_lock());
    post(static_cast<size_t>(chunk.slot));
  }

  void drain() {
    std::unique_lock lock(mpi_lock());
    MPI_Request all = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(comm_, &all), "MPI_Ibarrier");
    for (int together = 0; !together;) {
      check(MPI_Test(&all, &together, MPI_STATUS_IGNORE), "MPI_Test");
      lock.unlock();
      for (const Chunk& c : poll()) give_back(c);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.lock();
    }
  }

  void send(int to, const OutgoingPtr& chunk, ChunkHead head) {
    auto& own = static_cast<OutgoingChunk&>(*chunk);
    head.world = world_;
    head.from = static_cast<uint32_t>(rank_);
    std::memcpy(own.memory.data(), &head, sizeof head);
    const std::lock_guard lock(mpi_lock());
    check(MPI_Isend(own.memory.data(), static_cast<int>(sizeof head + head.size), MPI_BYTE,
                    processes_ == 0 ? to : to % processes_, tag_of(to), comm_, &own.request),
          "MPI_Isend");
    under_way().insert(chunk);
  }

  bool forgotten = false;

 private:
  static constexpr size_t slots = 16;

  // Ranks of one process are told apart.
  int tag_of(int rank) const { return processes_ == 0 ? 0 : rank; }

  void post(size_t slot) {
    check(MPI_Irecv(memory_[slot].data(), static_cast<int>(slot_bytes), MPI_BYTE, MPI_ANY_SOURCE,
                    tag_of(rank_), comm_, &requests_[slot]),
          "MPI_Irecv");
  }

  const int rank_;
  const int processes_;
  const uint64_t world_;
  MPI_Comm comm_ = MPI_COMM_WORLD;
  std::array<std::vector<std::byte>, slots> memory_;
  std::array<MPI_Request, slots> requests_;
};

Exchange::Exchange(int rank, int processes, uint64_t world)
    : impl_(std::make_unique<Impl>(rank, processes, world)) {}
Exchange::~Exchange() = default;

void Exchange::drain() { impl_->drain(); }

void Exchange::forget() { impl_->forgotten = true; }
int Exchange::size() const { return impl_->count(MPI_Comm_size); }
int Exchange::own_number() const { return impl_->count(MPI_Comm_rank); }
std::vector<Chunk> Exchange::poll() { return impl_->poll(); }
void Exchange::give_back(const Chunk& chunk) { impl_->give_back(chunk); }
Exchange::OutgoingPtr Exchange::make_outgoing() { return std::make_shared<OutgoingChunk>(); }
void Exchange::send(int to, const OutgoingPtr& chunk, const ChunkHead& head) {
  impl_->send(to, chunk, head);
}

bool Exchange::has_left(const OutgoingPtr& chunk) {
  auto& own = static_cast<OutgoingChunk&>(*chunk);
  const std::lock_guard lock(mpi_lock());
  if (own.request == MPI_REQUEST_NULL) return true;
  int done = 0;
  check(MPI_Test(&own.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  if (done) under_way().erase(chunk);
  return done != 0;
}

}  // namespace rondo::mpi_transport
