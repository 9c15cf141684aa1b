#include "comm/nccl/nccl_library.h"

#include "kernels/base/error.h"
#include "kernels/base/gpu/cuda_library.h"

namespace rondo {
namespace {

constexpr int oldest_version = NCCL_VERSION(2, 19, 1);

struct Search {
  Nccl functions;
  CudaLibrary library{"NCCL 2.19", "libnccl.so.2", "RONDO_NCCL"};

  Search() {
    functions.name = library.file();
    library.find("ncclGetVersion", functions.get_version);
    library.find("ncclGetErrorString", functions.get_error_string);
    library.find("ncclGetLastError", functions.get_last_error);
    library.find("ncclGetUniqueId", functions.get_unique_id);
    library.find("ncclCommInitRankConfig", functions.comm_init_rank_config);
    library.find("ncclCommFinalize", functions.comm_finalize);
    library.find("ncclCommDestroy", functions.comm_destroy);
    library.find("ncclCommAbort", functions.comm_abort);
    library.find("ncclCommGetAsyncError", functions.comm_get_async_error);
    library.find("ncclGroupStart", functions.group_start);
    library.find("ncclGroupEnd", functions.group_end);
    library.find("ncclSend", functions.send);
    library.find("ncclRecv", functions.recv);
    library.find("ncclAllReduce", functions.all_reduce);
    library.find("ncclBroadcast", functions.broadcast);
    library.find("ncclAllGather", functions.all_gather);
    library.find("ncclReduceScatter", functions.reduce_scatter);
    if (library.usable()) require_version();
  }

  void require_version() {
    int version = 0;
    if (functions.get_version(&version) != ncclSuccess) {
      library.refuse(library.file() + " does not tell its version");
    } else if (version < oldest_version) {
      library.refuse(str(library.file(), " is NCCL ", version / 10000, ".", version / 100 % 100,
                         ", expected 2.19"));
    }
  }
};

}  // namespace

const Nccl* find_nccl(std::string* why) {
  static const Search search;
  return search.library.usable(why) ? &search.functions : nullptr;
}

}  // namespace rondo
