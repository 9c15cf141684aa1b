#include "comm/nccl/nccl_library.h"

#include "kernels/base/cuda_library.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int oldest_version = NCCL_VERSION(2, 18, 0);

bool bind_all(void* l, Nccl& f) {
  return find_function(l, "ncclGetVersion", f.get_version) &&
         find_function(l, "ncclGetErrorString", f.get_error_string) &&
         find_function(l, "ncclGetLastError", f.get_last_error) &&
         find_function(l, "ncclGetUniqueId", f.get_unique_id) &&
         find_function(l, "ncclCommInitRankConfig", f.comm_init_rank_config) &&
         find_function(l, "ncclCommFinalize", f.comm_finalize) &&
         find_function(l, "ncclCommDestroy", f.comm_destroy) &&
         find_function(l, "ncclCommAbort", f.comm_abort) &&
         find_function(l, "ncclCommGetAsyncError", f.comm_get_async_error) &&
         find_function(l, "ncclGroupStart", f.group_start) &&
         find_function(l, "ncclGroupEnd", f.group_end) && find_function(l, "ncclSend", f.send) &&
         find_function(l, "ncclRecv", f.recv) && find_function(l, "ncclAllReduce", f.all_reduce) &&
         find_function(l, "ncclBroadcast", f.broadcast) &&
         find_function(l, "ncclAllGather", f.all_gather) &&
         find_function(l, "ncclReduceScatter", f.reduce_scatter);
}

// What is wrong with the library; empty: nothing.
std::string open(const std::string& file, void* opened, Nccl& library) {
  library.name = file;
  int version = 0;
  if (!bind_all(opened, library)) return str(file, " lacks functions of NCCL 2.18");
  if (library.get_version(&version) != ncclSuccess) return str(file, " does not tell its version");
  if (version < oldest_version) {
    return str(file, " is NCCL ", version / 10000, ".", version / 100 % 100, ", expected 2.18");
  }
  return "";
}

struct Search {
  Nccl library;
  bool found = false;
  std::string why;

  Search() {
    std::string file;
    void* opened = open_cuda_library("libnccl.so.2", "RONDO_NCCL", &file);
    why = opened ? open(file, opened, library)
                 : str("NCCL was not found (tried ", file,
                       "); install it or set RONDO_NCCL to its file");
    found = why.empty();
  }
};

}  // namespace

const Nccl* find_nccl(std::string* why) {
  static const Search search;
  if (!search.found && why) *why = search.why;
  return search.found ? &search.library : nullptr;
}

}  // namespace rondo
