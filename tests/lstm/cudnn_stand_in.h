// A library of our own in cuDNN's place: it computes LSTMs by the references, on the simulated
// device, and holds callers to cuDNN's contracts: which descriptor goes where, what agrees with
// what, what lies where. Wrong arguments give CUDNN_STATUS_BAD_PARAM.
#pragma once

#include "bench/cases/peers/cudnn_library.h"

namespace rondo::test {

struct StandInCounts {
  int forwards = 0, backwards = 0, dynamic_builds = 0;
  int descriptors = 0;                              // that exist
  cudnnRNNAlgo_t algorithm = CUDNN_RNN_ALGO_COUNT;  // of the last descriptor
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnDataType_t type = CUDNN_DATA_INT8;
  cudnnStatus_t status_of_forward = CUDNN_STATUS_SUCCESS;  // to be returned
  cudnnStatus_t status_of_set = CUDNN_STATUS_SUCCESS;
};
StandInCounts& stand_in_counts();
Cudnn stand_in_cudnn();

}  // namespace rondo::test
