// NCCL, looked for when the first group of GPUs wants it: the program starts without it. Only in
// builds whose toolkit has its header.
#pragma once

#include <nccl.h>

#include <string>

namespace rondo {

// The functions that are used. Tests put their own here.
struct Nccl {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  std::string name;  // the file it came from
};

// nullptr when there is none, with what was looked for in *why; 2.19 is the oldest that will do.
// Looks, once per process, at RONDO_NCCL (a file) and where CudaLibrary looks. The library
// stays open.
const Nccl* find_nccl(std::string* why = nullptr);

}  // namespace rondo
