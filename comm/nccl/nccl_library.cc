#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include "kernels/base/error.h"
#include "kernels/base/library_candidates.h"

namespace rondo {
namespace {

constexpr int oldest_version = NCCL_VERSION(2, 18, 0);

template <class Function>
bool bind(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool bind_all(void* l, Nccl& f) {
  return bind(l, "ncclGetVersion", f.get_version) &&
         bind(l, "ncclGetErrorString", f.get_error_string) &&
         bind(l, "ncclGetLastError", f.get_last_error) &&
         bind(l, "ncclGetUniqueId", f.get_unique_id) &&
         bind(l, "ncclCommInitRankConfig", f.comm_init_rank_config) &&
         bind(l, "ncclCommFinalize", f.comm_finalize) &&
         bind(l, "ncclCommDestroy", f.comm_destroy) && bind(l, "ncclCommAbort", f.comm_abort) &&
         bind(l, "ncclCommGetAsyncError", f.comm_get_async_error) &&
         bind(l, "ncclGroupStart", f.group_start) && bind(l, "ncclGroupEnd", f.group_end) &&
         bind(l, "ncclSend", f.send) && bind(l, "ncclRecv", f.recv) &&
         bind(l, "ncclAllReduce", f.all_reduce) && bind(l, "ncclBroadcast", f.broadcast) &&
         bind(l, "ncclAllGather", f.all_gather) && bind(l, "ncclReduceScatter", f.reduce_scatter);
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
    std::string tried;
    for (const std::string& file : library_candidates("libnccl.so.2", "RONDO_NCCL")) {
      void* opened = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (opened == nullptr) {
        tried += str(tried.empty() ? "" : ", ", file);
        continue;
      }
      why = open(file, opened, library);
      found = why.empty();
      if (found) return;
      dlclose(opened);
    }
    if (why.empty()) {
      why = str("NCCL was not found (tried ", tried, "); install it or set RONDO_NCCL to its file");
    }
  }
};

}  // namespace

const Nccl* find_nccl(std::string* why) {
  static const Search search;
  if (!search.found && why) *why = search.why;
  return search.found ? &search.library : nullptr;
}

}  // namespace rondo
