// Which ranks are connected with each other from the start. A world of up to `whole_mesh` ranks is
// a whole mesh. In larger ones a rank begins with those that are 1, 2, 4, ... ranks before and
// after it, round in a circle: what rings, recursive doubling, trees and barriers need, and so many
// ways that word of an end reaches everybody in a few hops. Others are connected when they first
// exchange a message.
//
// Pure functions. Thread safety: any thread.
#pragma once

#include <vector>

namespace rondo {

constexpr int whole_mesh = 64;

// The ranks, ascending, with which this one is connected from the start. Symmetric: if a is among
// b's, then b is among a's; and every rank can be reached from every other one.
using FirstPeers = std::vector<int> (*)(int rank, int world_size);
std::vector<int> first_peers(int rank, int world_size);

// Whether every rank has all the others among its first peers.
bool is_whole_mesh(FirstPeers peers, int world_size);

}  // namespace rondo
