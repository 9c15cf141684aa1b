// Where this process stands among the ranks of a job, as its launcher says.
//
// Read in this order: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (rondo launch, and
// launchers that use these names); OMPI_COMM_WORLD_* (Open MPI's mpirun); PMIX_RANK (others that
// speak PMIx; the size is Slurm's); SLURM_* (srun). What two of the first three say must agree.
// Slurm's variables are a fallback: another launcher inside a Slurm step inherits those of the
// step, and they mean that launcher, not its ranks. They count only within a step (SLURM_STEP_ID);
// a batch script has them too, and is not a rank. In a heterogeneous job (SLURM_HET_SIZE above 1)
// SLURM_PROCID, SLURM_NTASKS and SLURM_JOB_NODELIST are about all components, as Slurm documents.
//
// torchrun sets the variables of the first kind, and TORCHELASTIC_RUN_ID. Its ranks on one machine
// meet in a directory; on several at the port after MASTER_PORT, where its agent has that one
// (TORCHELASTIC_USE_AGENT_STORE). Each of its restarts is an attempt of its own.
//
// Where the ranks meet: MASTER_ADDR and MASTER_PORT, or of Slurm its first node and a port made
// from the job's number; a job token (RONDO_TOKEN) lets them in. Ranks of mpirun that are all on
// this machine need neither: they meet in a directory that only their user can read.
//
// Pure functions. InputError for what is incomplete, no number, out of range or in conflict.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace rondo {

// Looks up a variable; nullptr when it is not set.
using Environment = std::function<const char*(const char* name)>;

struct RankPlace {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_size = 1;
  std::string master_address;  // empty: all ranks are on this machine and share meeting_directory
  uint16_t master_port = 0;
  bool master_serves = true;      // rank 0 serves the store; false: the launcher does
  std::string meeting_directory;  // a name, unique to the job
  std::string token;
  std::string attempt = "1";  // a new one for every restart
  // Ranks come and go while the run goes on: rank and world_size are those it began with, where
  // local_rank is the place of this process among them; `attempt` is its own.
  bool elastic = false;
  bool joins = false;  // the run has begun before
};

// Nothing when nobody started this process as one of several ranks.
std::optional<RankPlace> find_place(const Environment& environment);

// InputError unless a job token is there and, where other machines can try to guess it, has at
// least 16 characters. `meeting`: where the ranks meet, for messages.
void require_job_token(const std::string& token, const std::string& meeting, bool other_machines);

// Which of the `visible` GPUs is that of a rank: the one of its number among the ranks of its
// machine; where its launcher shows it a single one, its own (Slurm's --gpus-per-task=1, a wrapper
// that sets CUDA_VISIBLE_DEVICES by rank), the first. rondo launch and torchrun show all ranks the
// same. InputError: there are fewer than ranks.
int gpu_of_rank(int local_rank, int local_size, int visible, const Environment& environment);

// "host:29400" or, of an IPv6 address, "[::1]:29400". InputError names `what` it is of.
std::pair<std::string, uint16_t> split_address(const std::string& what, const std::string& text);

// "gpu[07-09,12],login" -> "gpu07", "rack[0-1]-n[04,06]-ib" -> "rack0-n04-ib": the first host of
// Slurm's notation. InputError when it is none.
std::string first_host(const std::string& nodelist);

// "2(x3),1" -> 2 for nodes 0 to 2, 1 for node 3: Slurm's notation for tasks per node. InputError
// when it is none, or about fewer nodes.
int tasks_of_node(const std::string& tasks_per_node, int64_t node);

}  // namespace rondo
