// Inputs whose sums are known exactly, and how many bytes a ring sends for them.
#pragma once

#include <vector>

#include "comm/group/collectives.h"
#include "kernels/base/tensor.h"

namespace rondo {

inline TensorView view(std::vector<float>& v) {
  return TensorView(v.data(), DType::f32, {static_cast<int64_t>(v.size())});
}
inline TensorView view(std::vector<double>& v) {
  return TensorView(v.data(), DType::f64, {static_cast<int64_t>(v.size())});
}

// A small integer of rank and position, so that every order of summation is exact.
template <class T>
std::vector<T> input(int rank, size_t n) {
  std::vector<T> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<T>(rank * 7 + static_cast<int>(i % 101) + 1);
  return v;
}

template <class T>
std::vector<T> expected_sum(int ranks, size_t n) {
  std::vector<T> sum(n);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> v = input<T>(r, n);
    for (size_t i = 0; i < n; ++i) sum[i] += v[i];
  }
  return sum;
}

// What the algorithm promises: all chunks twice, but chunks r+1 and r+2 (the first is its own sum,
// the second ends here) once.
inline size_t promised_bytes(int rank, int ranks, size_t n, size_t element) {
  if (ranks == 1) return 0;
  int64_t elements = 2 * static_cast<int64_t>(n);
  for (int once : {rank + 1, rank + 2}) {
    elements -= chunk_range(static_cast<int64_t>(n), ranks, once % ranks).size();
  }
  return static_cast<size_t>(elements) * element;
}

// Of doubling_all_reduce(): the whole array in each round, and once to or from a rank that has no
// partner in the rounds.
inline size_t doubled_bytes(int rank, int ranks, size_t n) {
  int power = 1, rounds = 0;
  for (; 2 * power <= ranks; power *= 2) ++rounds;
  const int times = rank >= power ? 1 : rounds + (rank + power < ranks ? 1 : 0);
  return static_cast<size_t>(times) * n * sizeof(double);
}

// And the order of its sums: pairs of neighbours, of pairs, and so on, after each rank without a
// partner was added to one that has.
inline double doubled_sum(std::vector<double> of_rank) {
  size_t power = 1;
  while (2 * power <= of_rank.size()) power *= 2;
  for (size_t r = power; r < of_rank.size(); ++r) of_rank[r - power] += of_rank[r];
  of_rank.resize(power);
  while (of_rank.size() > 1) {
    std::vector<double> pairs(of_rank.size() / 2);
    for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = of_rank[2 * i] + of_rank[2 * i + 1];
    of_rank = pairs;
  }
  return of_rank[0];
}

}  // namespace rondo
