// The transport over MPI, with ranks in as many processes as mpirun starts of this program:
//
//   mpirun -np 4 mpi_test      (in an environment in which RONDO_MEETING names an empty directory)
//
// Process 0 runs the tests, the others do what it tells them (remote_ranks.h). A single process has
// all ranks as threads.
#include "comm/mpi/mpi_transport.h"

#include <cstdlib>

#include "comm/mpi/exchange.h"
#include "tests/catch.h"
#include "tests/comm/remote_ranks.h"
#include "tests/comm/socket_ranks.h"

// What Open MPI keeps to the end of the process.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libmpi\nleak:libopen-\nleak:libpmix\nleak:libevent\nleak:libhwloc\nleak:mca_";
}

namespace rondo {
namespace {

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

// Of this process, until its end.
struct Mpi {
  Mpi() {
    mpi_transport::start_mpi();
    const char* const given = std::getenv("RONDO_MEETING");
    directory = given ? given : own.directory;
    ranks = std::make_unique<RemoteRanks>(
        process, processes, directory, [this](int r, int n, uint64_t world) {
          const auto store = make_file_store(directory);
          TcpOptions o = rank_options(r, n, *store);
          o.rendezvous_id = str("world-", world);
          o.grace = std::chrono::seconds(20);  // nobody is stopped here
          MpiOptions m;
          m.grace = o.grace;
          m.finalizes = false;
          m.processes = processes;
          m.world = world;
          return make_mpi_transport(make_tcp_transport(o), m);
        });
  }
  ~Mpi() {
    ranks.reset();
    mpi_transport::finalize_mpi();
  }

  const int process = number_of("OMPI_COMM_WORLD_RANK", 0);
  const int processes = number_of("OMPI_COMM_WORLD_SIZE", 1);
  Meeting own;
  std::string directory;
  std::unique_ptr<RemoteRanks> ranks;
};

Mpi& mpi() {
  static Mpi mpi;
  return mpi;
}

TEST_CASE("MPI keeps the transport's promises", "[mpi]") {
  if (mpi().process > 0) return mpi().ranks->serve();
  check_transport_contract([](int ranks) { return mpi().ranks->make_world(ranks); });
}

}  // namespace
}  // namespace rondo
