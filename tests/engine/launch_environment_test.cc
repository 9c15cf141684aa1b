// engine/parallel/launch_environment.h, on environments as launchers leave them.
#include "engine/parallel/launch_environment.h"

#include <catch2/catch.hpp>
#include <map>

#include "kernels/base/error.h"

using namespace rondo;
using Catch::Matchers::Contains;
using Variables = std::map<std::string, std::string>;

namespace {

std::optional<RankPlace> place(const Variables& variables, const RankFlags& flags = {}) {
  return find_place(flags, [&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string refusal(const Variables& variables, const RankFlags& flags = {}) {
  try {
    place(variables, flags);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

// mpirun -np 3 on one machine (Open MPI 4.1), rank 2.
const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"OMPI_COMM_WORLD_NODE_RANK", "2"},
                            {"OMPI_UNIVERSE_SIZE", "4"},
                            {"PMIX_RANK", "2"},
                            {"PMIX_NAMESPACE", "1427439617"},
                            {"OMPI_MCA_ess_base_jobid", "1427439617"}};

// srun -N 2 -n 4 within sbatch, task 3.
const Variables slurm = {{"SLURM_JOB_ID", "8213377"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NODELIST", "gpu[07,11]"},
                         {"SLURM_NODELIST", "gpu[07,11]"},
                         {"SLURM_NTASKS", "4"},
                         {"SLURM_NNODES", "2"},
                         {"SLURM_PROCID", "3"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"RONDO_TOKEN", "secret"}};

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

}  // namespace

TEST_CASE("a process that nobody launched stands alone", "[launch]") {
  CHECK_FALSE(place({}));
  CHECK_FALSE(place({{"PATH", "/bin"}, {"RANK", ""}}));
  CHECK_FALSE(place({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  // A batch script under Slurm is no rank, though it has the variables of one.
  Variables script = slurm;
  script.erase("SLURM_STEP_ID");
  CHECK_FALSE(place(with(script, {{"SLURM_PROCID", "0"}})));
}

TEST_CASE("RANK and its like", "[launch]") {
  const Variables v = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_PORT", "29500"},
                       {"MASTER_ADDR", "10.0.0.7"},
                       {"RONDO_TOKEN", "t"}};
  const RankPlace p = place(v).value();
  CHECK(p.rank == 5);
  CHECK(p.world_size == 8);
  CHECK(p.local_rank == 1);
  CHECK(p.local_size == 4);
  CHECK(p.master_address == "10.0.0.7");
  CHECK(p.master_port == 29500);
  CHECK(p.master_serves);
  CHECK(p.token == "t");
  CHECK(p.attempt == "1");
  const RankPlace served =
      place(with(v, {{"RONDO_STORE_IS_SERVED", "1"}, {"RONDO_ATTEMPT", "3"}})).value();
  CHECK_FALSE(served.master_serves);
  CHECK(served.attempt == "3");
}

TEST_CASE("Open MPI on one machine", "[launch]") {
  const RankPlace p = place(open_mpi).value();
  CHECK(p.rank == 2);
  CHECK(p.world_size == 3);
  CHECK(p.local_size == 3);
  CHECK(p.master_address.empty());
  CHECK(p.meeting_directory == "1427439617");
  // On several machines they cannot share a directory.
  CHECK_THAT(refusal(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})),
             Contains("MASTER_ADDR and MASTER_PORT"));
  const RankPlace q =
      place(
          with(open_mpi, {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4000"}, {"RONDO_TOKEN", "x"}}))
          .value();
  CHECK(q.master_address == "node1");
  CHECK(q.meeting_directory.empty());
}

TEST_CASE("Slurm's srun", "[launch]") {
  const RankPlace p = place(slurm).value();
  CHECK(p.rank == 3);
  CHECK(p.world_size == 4);
  CHECK(p.local_rank == 1);
  CHECK(p.master_address == "gpu07");
  CHECK(p.master_port == 23377);
  CHECK(p.token == "secret");
  // PMIx under srun: the rank is PMIx's, the size is Slurm's.
  Variables pmix = with(slurm, {{"PMIX_RANK", "3"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  CHECK(place(pmix).value().world_size == 4);
  // Another launcher within a step: what Slurm says is about that launcher.
  const RankPlace inner = place(with(slurm, {{"RANK", "6"},
                                             {"WORLD_SIZE", "8"},
                                             {"MASTER_ADDR", "gpu07"},
                                             {"MASTER_PORT", "5000"}}))
                              .value();
  CHECK(inner.rank == 6);
  CHECK(inner.world_size == 8);
  CHECK(inner.master_port == 5000);
  Variables no_token = slurm;
  no_token.erase("RONDO_TOKEN");
  CHECK_THAT(refusal(no_token), Contains("gpu07:23377") && Contains("RONDO_TOKEN"));
}

TEST_CASE("flags come first", "[launch]") {
  const RankPlace p = place({{"RONDO_TOKEN", "t"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
                            {1, 2, "10.1.1.1:7000"})
                          .value();
  CHECK(p.rank == 1);
  CHECK(p.world_size == 2);
  CHECK(p.master_address == "10.1.1.1");
  CHECK(p.master_port == 7000);
}

TEST_CASE("what is incomplete, wrong or in conflict is refused in one sentence", "[launch]") {
  CHECK_THAT(refusal({{"RANK", "1"}}), Contains("RANK is 1, but nothing says how many ranks"));
  CHECK_THAT(refusal({{"WORLD_SIZE", "2"}}), Contains("nothing says which rank"));
  CHECK_THAT(refusal({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
             Contains("RANK is 2, but WORLD_SIZE is 2"));
  CHECK_THAT(refusal({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), Contains("RANK is '-1', expected"));
  CHECK_THAT(refusal({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}), Contains("RANK is '1x', expected"));
  CHECK_THAT(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), Contains("set MASTER_ADDR"));
  CHECK_THAT(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}),
             Contains("MASTER_PORT is not"));
  CHECK_THAT(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
             Contains("MASTER_PORT is '70000', expected a number from 1 to 65535"));
  CHECK_THAT(refusal(with(open_mpi, {{"RANK", "1"}})),
             Contains("RANK is 1, but OMPI_COMM_WORLD_RANK is 2"));
  CHECK_THAT(refusal(with(open_mpi, {{"PMIX_RANK", "0"}})),
             Contains("OMPI_COMM_WORLD_RANK is 2, but PMIX_RANK is 0"));
  CHECK_THAT(refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, {0, 2, ""}),
             Contains("--rank is 0, but RANK is 1"));
  CHECK_THAT(refusal({}, {0, 2, "nowhere"}), Contains("--master is 'nowhere', expected HOST:PORT"));
}

TEST_CASE("the first host of a list of nodes", "[launch]") {
  CHECK(first_host("gpu07") == "gpu07");
  CHECK(first_host("gpu[07-09,12]") == "gpu07");
  CHECK(first_host("gpu[3]") == "gpu3");
  CHECK(first_host("login,gpu[1-2]") == "login");
  CHECK(first_host("rack1-[007-008],x") == "rack1-007");
  CHECK_THROWS_WITH(first_host(""), Contains("not a list of nodes"));
  CHECK_THROWS_WITH(first_host("gpu[7"), Contains("not a list of nodes"));
}
