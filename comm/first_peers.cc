#include "comm/first_peers.h"

#include <algorithm>

namespace rondo {

std::vector<int> first_peers(int rank, int world_size) {
  std::vector<int> peers;
  if (world_size <= whole_mesh) {
    for (int r = 0; r < world_size; ++r) {
      if (r != rank) peers.push_back(r);
    }
    return peers;
  }
  for (int distance = 1; distance < world_size; distance *= 2) {
    peers.push_back((rank + distance) % world_size);
    peers.push_back((rank - distance + world_size) % world_size);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

bool is_whole_mesh(FirstPeers peers, int world_size) {
  for (int r = 0; r < world_size; ++r) {
    if (static_cast<int>(peers(r, world_size).size()) != world_size - 1) return false;
  }
  return true;
}

}  // namespace rondo
