#include "tests/simt/vocabulary.h"

#include "kernels/simt/divide_fast.h"
#include "kernels/simt/grid_sync.h"

namespace rondo::RONDO_GPU {
namespace {

constexpr unsigned all_lanes = 0xffffffffu;

__device__ float warp_sum(float v) {
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(all_lanes, v, d);
  return v;
}

struct SumShared {
  float parts[32];
};

__global__ void row_sums_kernel(float* y, const float* x, int n) {
  auto& s = shared<SumShared>();
  const unsigned t = threadIdx.x;
  float v = 0;
  for (int i = static_cast<int>(t); i < n; i += static_cast<int>(blockDim.x)) {
    v += x[static_cast<int>(blockIdx.x) * n + i];
  }
  v = warp_sum(v);
  if (t % 32 == 0) s.parts[t / 32] = v;
  __syncthreads();
  if (t < 32) {
    v = warp_sum(t < blockDim.x / 32 ? s.parts[t] : 0.0f);
    if (t == 0) y[blockIdx.x] = v;
  }
}

__global__ void warp_kernel(int* out) {
  const int l = static_cast<int>(threadIdx.x);
  const int v = 100 + l;
  int k = 0;
  const auto put = [&](int value) { out[32 * k++ + l] = value; };
  put(__shfl_sync(all_lanes, v, l + 1));
  put(__shfl_sync(all_lanes, v, 3, 8));
  put(__shfl_up_sync(all_lanes, v, 2));
  put(__shfl_down_sync(all_lanes, v, 5, 16));
  put(__shfl_xor_sync(all_lanes, v, 17));
  put(static_cast<int>(__ballot_sync(all_lanes, l % 3 == 0)));
  put(__any_sync(all_lanes, l == 7) + 2 * __all_sync(all_lanes, l < 31) +
      4 * __all_sync(all_lanes, l < 32));
  // The two halves of the warp meet apart.
  const unsigned half = l < 16 ? 0xffffu : 0xffff0000u;
  put(l < 16 ? __popc(__ballot_sync(half, l % 2)) : __popc(__ballot_sync(half, l % 4 == 0)));
  put(__ffs(l) + 100 * __clz(l));
  __syncwarp();
  const double d = __shfl_sync(all_lanes, 0.5 * l, 31 - l);
  put(static_cast<int>(2 * d));
}

__global__ void atomics_kernel(int* counts, float* sum) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(counts, 1);
  atomicMax(counts + 1, i);
  atomicMin(counts + 2, i + 1);
  atomicExch(counts + 3, 7);
  atomicCAS(counts + 4, 0, 9);
  atomicAdd(sum, 0.5f);
}

__global__ void early_exit_kernel(int* count, int live) {
  if (static_cast<int>(threadIdx.x) >= live) return;
  __syncthreads();
  atomicAdd(count, 1);
  __syncthreads();
}

__global__ void rnn_kernel(float* h, const float* u, const float* x, int steps, int size) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int t = 0; t < steps; ++t) {
    float sum = x[t * size + row];
    for (int k = 0; k < size; ++k) sum += u[row * size + k] * h[t * size + k];
    h[(t + 1) * size + row] = tanhf(sum);
    grid_sync();
  }
}

struct ClusterShared {
  float value;
};

__device__ float sum_over_cluster(ClusterShared& s, unsigned blocks) {
  cluster_sync();
  float sum = 0;
  for (unsigned r = 0; r < blocks; ++r) sum += *map_shared(&s.value, r);
  cluster_sync();
  return sum;
}

__global__ void cluster_kernel(float* y) {
  auto& s = shared<ClusterShared>();
  if (threadIdx.x == 0) s.value = static_cast<float>((blockIdx.x + 1) * (cluster_rank() + 1));
  const float sum = sum_over_cluster(s, 4);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ void cooperative_cluster_kernel(float* y) {
  auto& s = shared<ClusterShared>();
  if (threadIdx.x == 0) s.value = static_cast<float>((blockIdx.x + 1) * (cluster_rank() + 1));
  const float sum = sum_over_cluster(s, 4);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
  grid_sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    float total = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) total += y[b];
    y[0] = total;
  }
}

struct SplitShared {
  float inbox[2][32];
};

struct StoresShared {
  float from[16];
};

__global__ void cluster_stores_kernel(float* y, int size) {
  auto& s = shared<StoresShared>();
  cluster_sync();  // everybody is there
  const unsigned mine = cluster_rank();
  if (threadIdx.x < static_cast<unsigned>(size)) {
    map_shared(s.from, threadIdx.x)[mine] = static_cast<float>((blockIdx.x + 1) * (mine + 1));
  }
  cluster_sync();
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += s.from[r];
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// Numbers travel around the cluster, one block further in each round, through two inboxes by turns.
__global__ void split_barrier_kernel(float* y, int rounds) {
  auto& s = shared<SplitShared>();
  const unsigned t = threadIdx.x, to = (cluster_rank() + 1) % 4;
  s.inbox[0][t] = static_cast<float>(100 * blockIdx.x + t);
  cluster_sync();
  float passed = 0;
  for (int round = 0; round < rounds; ++round) {
    map_shared(s.inbox[(round + 1) % 2], to)[t] = s.inbox[round % 2][t] + 1;
    cluster_arrive();
    passed += static_cast<float>(round);  // what needs no other block
    cluster_wait();
  }
  y[blockIdx.x * 32 + t] = s.inbox[rounds % 2][31 - t] + passed;
}

__global__ void __launch_bounds__(384, 1) trade_registers_kernel(float* y, const float* x) {
  const unsigned i = threadIdx.x;
  if (i < 128) {
    give_registers<88>();
    y[i] = x[i] * x[i];
    return;
  }
  take_registers<208>();
  float kept[64];  // more than the givers have left, beside all else
  RONDO_UNROLL_ALL
  for (unsigned k = 0; k < 64; ++k) kept[k] = x[i % 64 + k];
  __syncwarp();
  float sum = x[i] * x[i];
  RONDO_UNROLL_ALL
  for (unsigned k = 0; k < 64; ++k) sum += kept[k];
  y[i] = sum;
}

struct AsyncShared {
  alignas(16) float tile[3][128];
};

__global__ void async_kernel(float* y, const float* x, int valid) {
  auto& s = shared<AsyncShared>();
  const int t = static_cast<int>(threadIdx.x);
  if (t < 32) {  // 16 bytes each; elements from `valid` on become zero and are not read
    const int left = valid - 4 * t;
    const unsigned bytes = left >= 4 ? 16u : left > 0 ? 4u * static_cast<unsigned>(left) : 0u;
    cp_async<16>(s.tile[0] + 4 * t, bytes ? x + 4 * t : x, bytes);
  }
  cp_async_commit();
  if (t < 64) cp_async<8>(s.tile[1] + 2 * t, x + 128 + 2 * t);
  cp_async_commit();
  cp_async<4>(s.tile[2] + t, x + 256 + t);
  cp_async_commit();
  cp_async_wait<2>();
  __syncthreads();
  y[t] = s.tile[0][127 - t];
  cp_async_wait<0>();
  __syncthreads();
  y[128 + t] = s.tile[1][127 - t];
  y[256 + t] = s.tile[2][127 - t];
}

struct PassShared {
  alignas(16) uint32_t inbox[2][4][8][4];  // from each block
  MBarrier delivered[2], read;
};

// The first warp receives and sends; the second takes what has come, and says when it has. Blocks
// send to all: who has everyone's words of a round knows that all have read those of the round
// before, whose place the next ones take.
__global__ void pass_around_kernel(uint32_t* y, int rounds) {
  if (!RONDO_SM90) return;
  auto& s = shared<PassShared>();
  const unsigned t = threadIdx.x, rank = cluster_rank();
  if (t == 0) {
    for (MBarrier& b : s.delivered) mbarrier_init(&b, 1);
    mbarrier_init(&s.read, 32);
  }
  cluster_sync();
  Words<16> mine = {};
  for (unsigned i = 0; i < 4; ++i) mine.w[i] = 100 * blockIdx.x + 4 * (t % 8) + i;
  for (int round = 0; round < rounds; ++round) {
    const int buffer = round % 2;
    if (t == 0) mbarrier_arrive_expecting(&s.delivered[buffer], sizeof s.inbox[0]);
    for (unsigned to = 0; to < 4 && t < 8; ++to) {
      store_async(s.inbox[buffer][rank][t], mine, &s.delivered[buffer], to);
    }
    mbarrier_wait_for_stores(&s.delivered[buffer], static_cast<uint32_t>(round / 2));
    mine = load_words<16>(s.inbox[buffer][(rank + 3) % 4][t % 8]);
    for (uint32_t& w : mine.w) ++w;
    if (t < 32) {
      mbarrier_wait(&s.read, static_cast<uint32_t>(round));
    } else {
      mbarrier_arrive(&s.read);
    }
    __syncwarp();  // no lane sends before all have read
  }
  if (t >= 32 && t < 40) {
    for (unsigned i = 0; i < 4; ++i) y[blockIdx.x * 32 + 4 * (t % 8) + i] = mine.w[i];
  }
}

__device__ uint32_t pair(const bf16* p) {
  return static_cast<uint32_t>(p[0].bits) | static_cast<uint32_t>(p[1].bits) << 16;
}

__global__ void mma_kernel(float* c, const bf16* a, const bf16* b) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, q = lane % 4;
  const uint32_t fa[4] = {pair(a + g * 16 + 2 * q), pair(a + (g + 8) * 16 + 2 * q),
                          pair(a + g * 16 + 2 * q + 8), pair(a + (g + 8) * 16 + 2 * q + 8)};
  const uint32_t fb[2] = {pair(b + g * 16 + 2 * q), pair(b + g * 16 + 2 * q + 8)};
  float fc[4] = {1, 1, 1, 1};
  mma_m16n8k16(fc, fa, fb);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = fc[i] - 1;
}

__global__ void mma_tf32_kernel(float* c, const float* a, const float* b) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, q = lane % 4;
  const uint32_t fa[4] = {__float_as_uint(a[g * 8 + q]), __float_as_uint(a[(g + 8) * 8 + q]),
                          __float_as_uint(a[g * 8 + q + 4]),
                          __float_as_uint(a[(g + 8) * 8 + q + 4])};
  const uint32_t fb[2] = {__float_as_uint(b[g * 8 + q]), __float_as_uint(b[g * 8 + q + 4])};
  float fc[4] = {1, 1, 1, 1};
  mma_m16n8k8_tf32(fc, fa, fb);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = fc[i] - 1;
}

__global__ void divide_kernel(float* y, const float* a, const float* b, int n) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < n) y[i] = divide_fast(a[i], b[i]);
}

__global__ void relay_kernel(uint32_t* flags, int* y) {
  const unsigned b = blockIdx.x;
  if (threadIdx.x != 0) return;
  if (b > 0) poll_until([&] { return load_acquire(flags + b - 1) != 0; });
  y[b] = b == 0 ? 0 : y[b - 1] + 1;
  __threadfence();
  store_release(flags + b, 1);
}

// Eight words to a block, which are zero until they are there.
__global__ void pass_words_kernel(uint32_t* words, uint32_t* y) {
  const unsigned b = blockIdx.x;
  if (threadIdx.x != 0) return;
  uint32_t got[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto poll = [&](auto bytes, int first) {
    constexpr int n = decltype(bytes)::value / 4;
    Words<4 * n> w;
    poll_until([&] {
      w = load_relaxed<4 * n>(words + (b - 1) * 8 + first);
      bool all = true;
      for (int i = 0; i < n; ++i) all = all && w.w[i] != 0;
      return all;
    });
    for (int i = 0; i < n; ++i) got[first + i] = w.w[i];
  };
  if (b > 0) {
    poll(std::integral_constant<int, 16>(), 0);
    poll(std::integral_constant<int, 8>(), 4);
    poll(std::integral_constant<int, 4>(), 6);
    poll(std::integral_constant<int, 4>(), 7);
  }
  uint32_t sum = 0;
  for (uint32_t& v : got) sum += ++v;
  store_relaxed(words + b * 8, Words<4>{{got[0]}});
  store_relaxed(words + b * 8 + 1, Words<4>{{got[1]}});
  store_relaxed(words + b * 8 + 2, Words<8>{{got[2], got[3]}});
  store_relaxed(words + b * 8 + 4, Words<16>{{got[4], got[5], got[6], got[7]}});
  y[b] = sum;
}

__global__ void round_trip_kernel(float* y, const float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = to_float(to<bf16>(x[i]));
}

struct LargeShared {
  int values[50 * 1024];
};

__global__ void large_shared_kernel(int* y) {
  auto& s = shared<LargeShared>();
  const int t = static_cast<int>(threadIdx.x);
  s.values[50 * 1024 - 1 - t] = t;
  __syncthreads();
  y[t] = s.values[50 * 1024 - 1 - t];
}

__global__ void empty_kernel() {}

}  // namespace

void row_sums(const Context& context, float* y, const float* x, int rows, int n) {
  launch(context,
         {.kernel = "row_sums",
          .grid = {static_cast<unsigned>(rows)},
          .block = {128},
          .shared_bytes = sizeof(SumShared)},
         row_sums_kernel, y, x, n);
}
void warp_operations(const Context& context, int* out) {
  launch(context, {.kernel = "warp_operations", .block = {32}}, warp_kernel, out);
}
void atomics(const Context& context, int* counts, float* sum, int blocks, int threads) {
  launch(context,
         {.kernel = "atomics",
          .grid = {static_cast<unsigned>(blocks)},
          .block = {static_cast<unsigned>(threads)}},
         atomics_kernel, counts, sum);
}
void early_exit(const Context& context, int* count, int live) {
  launch(context, {.kernel = "early_exit", .block = {96}}, early_exit_kernel, count, live);
}
void persistent_rnn(const Context& context, float* h, const float* u, const float* x, int steps) {
  launch(context, {.kernel = "persistent_rnn", .grid = {4}, .block = {16}, .cooperative = true},
         rnn_kernel, h, u, x, steps, 64);
}
void cluster_sums(const Context& context, float* y, int clusters) {
  launch(context,
         {.kernel = "cluster_sums",
          .grid = {4 * static_cast<unsigned>(clusters)},
          .block = {32},
          .shared_bytes = sizeof(ClusterShared),
          .cluster = 4},
         cluster_kernel, y);
}
void cooperative_clusters(const Context& context, float* y, int clusters) {
  launch(context,
         {.kernel = "cooperative_clusters",
          .grid = {4 * static_cast<unsigned>(clusters)},
          .block = {32},
          .shared_bytes = sizeof(ClusterShared),
          .cluster = 4,
          .cooperative = true},
         cooperative_cluster_kernel, y);
}
void split_barrier(const Context& context, float* y, int clusters, int rounds) {
  launch(context,
         {.kernel = "split_barrier",
          .grid = {4 * static_cast<unsigned>(clusters)},
          .block = {32},
          .shared_bytes = sizeof(SplitShared),
          .cluster = 4},
         split_barrier_kernel, y, rounds);
}
void cluster_stores(const Context& context, float* y, int clusters, int size) {
  launch(context,
         {.kernel = "cluster_stores",
          .grid = {static_cast<unsigned>(size * clusters)},
          .block = {32},
          .shared_bytes = sizeof(StoresShared),
          .cluster = static_cast<unsigned>(size)},
         cluster_stores_kernel, y, size);
}
void trade_registers(const Context& context, float* y, const float* x) {
  launch(context, {.kernel = "trade_registers", .block = {384}}, trade_registers_kernel, y, x);
}
void pass_around(const Context& context, uint32_t* y, int clusters, int rounds) {
  launch(context,
         {.kernel = "pass_around",
          .grid = {4 * static_cast<unsigned>(clusters)},
          .block = {64},
          .shared_bytes = sizeof(PassShared),
          .cluster = 4},
         pass_around_kernel, y, rounds);
}
void async_reverse(const Context& context, float* y, const float* x, int valid) {
  launch(context, {.kernel = "async_reverse", .block = {128}, .shared_bytes = sizeof(AsyncShared)},
         async_kernel, y, x, valid);
}
void mma(const Context& context, float* c, const bf16* a, const bf16* b) {
  launch(context, {.kernel = "mma", .block = {32}}, mma_kernel, c, a, b);
}
void mma_tf32(const Context& context, float* c, const float* a, const float* b) {
  launch(context, {.kernel = "mma_tf32", .block = {32}}, mma_tf32_kernel, c, a, b);
}
void divide(const Context& context, float* y, const float* a, const float* b, int n) {
  launch(context, {.kernel = "divide", .block = {64}}, divide_kernel, y, a, b, n);
}
void relay(const Context& context, uint32_t* flags, int* y, int blocks) {
  launch(context,
         {.kernel = "relay",
          .grid = {static_cast<unsigned>(blocks)},
          .block = {32},
          .cooperative = true},
         relay_kernel, flags, y);
}
void pass_words(const Context& context, uint32_t* words, uint32_t* y, int blocks) {
  launch(context,
         {.kernel = "pass_words",
          .grid = {static_cast<unsigned>(blocks)},
          .block = {32},
          .cooperative = true},
         pass_words_kernel, words, y);
}
void round_trip(const Context& context, float* y, const float* x, int n) {
  launch(context, {.kernel = "round_trip", .grid = {blocks_for(n, 64)}, .block = {64}},
         round_trip_kernel, y, x, n);
}
void large_shared(const Context& context, int* y) {
  launch(context, {.kernel = "large_shared", .block = {64}, .shared_bytes = sizeof(LargeShared)},
         large_shared_kernel, y);
}
void too_many_threads(const Context& context) {
  launch(context, {.kernel = "too_many_threads", .block = {1025}}, empty_kernel);
}
void too_much_shared(const Context& context) {
  launch(context, {.kernel = "too_much_shared", .shared_bytes = 227 * 1024 + 1}, empty_kernel);
}
void nothing_to_launch(const Context& context) {
  launch(context, {.kernel = "nothing_to_launch", .grid = {0}}, empty_kernel);
}

}  // namespace rondo::RONDO_GPU
