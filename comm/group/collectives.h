// Collective algorithms over a Link. They run in the calling thread and return when this rank's
// part is done; every rank of the group calls the same one with the same sizes. They throw
// CommError. The group around them (process_group.h) makes them asynchronous.
//
// Algorithms: the bandwidth-optimal ring (P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", JPDC 69, 2009), one inside the other where ranks share
// machines; recursive doubling for a few numbers (R. Thakur, R. Rabenseifner, W. Gropp,
// "Optimization of collective communication operations in MPICH", IJHPCA 19, 2005).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "comm/group/link.h"
#include "comm/group/process_group.h"
#include "kernels/base/tensor.h"

namespace rondo {

// Elements [begin, end) of n belong to chunk c of `chunks`: sizes differ by at most one.
struct ChunkRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
ChunkRange chunk_range(int64_t n, int chunks, int chunk);

// How many messages of a ring are under way at once, and how many fit into its staging memory.
constexpr int64_t ring_messages_ahead = 3;
constexpr int64_t ring_staging_messages = 2 * ring_messages_ahead;

// Those below take `staging`: scratch memory, aligned for the element type, of at least
// ring_staging_messages elements. Messages are at most that part of it; with chunks longer than
// that, the sum of one piece overlaps the transfer of the next ones. Wire::bf16 is for f32 alone,
// its messages are 512 KiB at most.

// data (any shape, f32 or f64) += the other ranks' data. Chunk c is summed in the order of ranks
// c, c+1, ..., c-1 and then copied, so the result is deterministic and the same, bit for bit, on
// every rank. Rank r sends every chunk twice but chunk r+1 and chunk r+2 once each: together the
// ranks send exactly 2(N-1) times the tensor. Two ranks with a short tensor send it to each other
// whole, which is as much, and add: the same bits in half the rounds.
void ring_all_reduce(Link& link, const TensorView& data, std::span<std::byte> staging,
                     Wire wire = Wire::exact);

// How the ranks of a group lie on machines.
struct Machines {
  // Ranks of the group in ascending order: those of this rank's machine; and of each machine, in
  // the order of its lowest rank, the one that has this rank's place among its own. Both hold this
  // rank.
  std::vector<int> neighbours, counterparts;
  int place = 0, machine = 0;  // this rank is neighbours[place] and counterparts[machine]
};
// `machine_of`: by rank of the group. Nothing where hierarchical_all_reduce has no use for it:
// there is one machine, or one rank each, or machines have different numbers of ranks.
std::optional<Machines> machines_of(const std::vector<int>& machine_of, int rank);

// data (f32 or f64) += the other ranks' data, by rings inside each machine and between machines: of
// L places on each of M machines, place p sums chunk p of L over its machine, then, with its
// counterparts, over the machines, and passes it on to its neighbours. Together a machine's ranks
// send 2(M-1)/M of the tensor to other machines, as the ring does, but a number waits for
// 2(L-1) messages within a machine and 2(M-1) between machines, instead of 2(LM-1). Chunk p is
// summed over places p+1, p+2, ..., p of each machine; chunk m of M of that over machines m, m+1,
// ..., m-1: the same bits on every rank. Wire::bf16 rounds between machines alone.
void hierarchical_all_reduce(Link& link, const Machines& machines, const TensorView& data,
                             std::span<std::byte> staging, Wire wire = Wire::exact);

// A few numbers, votes and counts of up to some 2000 ranks say: so many f64 are summed by
// doubling_all_reduce(), which the sums of gradients, f32, never are.
constexpr int64_t most_doubled = 2048;
// Whether the staging memory suffices for so many ranks; else they go by the ring.
bool fits_doubling(const TensorView& data, int ranks, size_t staging_bytes);

// data (f64) += the other ranks' data, in floor(log2 N) rounds, and two more unless N is a power of
// two; each rank sends the whole array once in each. Let p be the greatest power of two up to N.
// Rank r < N - p first adds the data of rank p + r; then sums of 1, 2, 4 ... neighbours are added
// in pairs: ((x0 + x1) + (x2 + x3)) + ... over p ranks. So the result is deterministic, and as
// additions commute the same, bit for bit, on every rank; ranks from p on get it from rank r - p.
void doubling_all_reduce(Link& link, const TensorView& data, std::span<std::byte> staging);

// Chunk r of rank r becomes the sum over all ranks, in the order of ranks r+1, r+2, ..., r. The
// other chunks are left as partial sums. Rank r sends every chunk but its own, once.
void ring_reduce_scatter(Link& link, const TensorView& data, std::span<std::byte> staging,
                         Wire wire = Wire::exact);

// Chunk r becomes rank r's, on all ranks; any dtype. Rank r sends every chunk but r+1, once.
void ring_all_gather(Link& link, const TensorView& data, std::span<std::byte> staging);

// Overwrites the data of all ranks but `root` with that of `root`: a binomial tree.
void tree_broadcast(Link& link, std::span<std::byte> data, int root);

// Returns after every rank has entered: ceil(log2 N) rounds (dissemination).
void dissemination_barrier(Link& link);

}  // namespace rondo
