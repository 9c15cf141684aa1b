// engine/parallel/launch_environment.h, on environments as launchers leave them.
#include "engine/parallel/launch_environment.h"

#include <map>

#include "kernels/base/error.h"
#include "tests/catch.h"

using namespace rondo;
using Catch::Matchers::Contains;
using Variables = std::map<std::string, std::string>;

namespace {

const std::string token = "0123456789abcdef";

std::optional<RankPlace> place(const Variables& variables) {
  return find_place([&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string refusal(const Variables& variables) {
  try {
    place(variables);
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
                         {"RONDO_TOKEN", token}};

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
                       {"RONDO_TOKEN", token}};
  const RankPlace p = place(v).value();
  CHECK(p.rank == 5);
  CHECK(p.world_size == 8);
  CHECK(p.local_rank == 1);
  CHECK(p.local_size == 4);
  CHECK(p.master_address == "10.0.0.7");
  CHECK(p.master_port == 29500);
  CHECK(p.master_serves);
  CHECK(p.token == token);
  CHECK(p.attempt == "1");
  const RankPlace served =
      place(with(v, {{"RONDO_STORE_IS_SERVED", "1"}, {"RONDO_ATTEMPT", "3"}})).value();
  CHECK_FALSE(served.master_serves);
  CHECK(served.attempt == "3");
}

TEST_CASE("a token that can be guessed is refused where other machines can try", "[launch]") {
  CHECK_NOTHROW(require_job_token(token, "10.0.0.1:5", true));
  CHECK_NOTHROW(require_job_token("short", "10.0.0.1:5", false));
  for (const char* inside : {"127.0.0.1:5", "localhost:5", "::1:5"})
    CHECK_NOTHROW(require_job_token("short", inside, true));
  CHECK_THROWS_WITH(require_job_token("short", "node1:5", true),
                    Contains("RONDO_TOKEN has 5 characters") && Contains("at least 16"));
  CHECK_THROWS_WITH(require_job_token("", "127.0.0.1:5", false), Contains("need a job token"));
}

TEST_CASE("addresses with a port", "[launch]") {
  using Address = std::pair<std::string, uint16_t>;
  CHECK(split_address("--master", "10.0.0.1:29400") == Address{"10.0.0.1", 29400});
  CHECK(split_address("--master", "node-1.cluster:1") == Address{"node-1.cluster", 1});
  CHECK(split_address("--master", "[::1]:29400") == Address{"::1", 29400});
  for (const char* wrong : {"host", ":5", "::1:5", "[::1]5", "[]:5", "[::1:5", ""}) {
    INFO(wrong);
    CHECK_THROWS_WITH(split_address("--master", wrong),
                      Contains("expected HOST:PORT, of an IPv6 address [HOST]:PORT"));
  }
  for (const char* wrong : {"h:", "h:0", "h:65536", "h:x", "[::1]:"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(split_address("--master", wrong), Contains("--master's port is '"));
  }
}

TEST_CASE("torchrun", "[launch]") {
  const Variables v = {{"RANK", "1"},
                       {"WORLD_SIZE", "2"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "localhost"},
                       {"MASTER_PORT", "29400"},
                       {"TORCHELASTIC_RUN_ID", "a1-b2"},
                       {"TORCHELASTIC_RESTART_COUNT", "0"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  // On one machine they need neither a port nor a secret.
  const RankPlace p = place(v).value();
  CHECK(p.master_address.empty());
  CHECK(p.meeting_directory == "torchrun_a1_b2_29400");
  CHECK(p.local_rank == 1);
  const std::string first = p.attempt;
  CHECK(place(with(v, {{"TORCHELASTIC_RESTART_COUNT", "2"}})).value().attempt != first);
  // On several, the agent has the port that it names.
  const Variables several = with(v, {{"WORLD_SIZE", "4"}, {"RONDO_TOKEN", token}});
  const RankPlace q = place(several).value();
  CHECK(q.master_address == "localhost");
  CHECK(q.master_port == 29401);
  CHECK(q.master_serves);
  CHECK(q.attempt != first);  // machines have come, which is no restart to torchrun
  CHECK(place(with(several, {{"MASTER_PORT", "65535"}})).value().master_port == 65534);
  CHECK(place(with(several, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).value().master_port ==
        29400);
  CHECK_THAT(refusal(with(several, {{"RONDO_TOKEN", ""}})),
             Contains("the ranks that meet at localhost:29401 need a job token"));
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
      place(with(open_mpi,
                 {{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4000"}, {"RONDO_TOKEN", token}}))
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
  CHECK(p.token == token);
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
}

TEST_CASE("the first host of a list of nodes", "[launch]") {
  CHECK(first_host("gpu07") == "gpu07");
  CHECK(first_host("gpu[07-09,12]") == "gpu07");
  CHECK(first_host("gpu[3]") == "gpu3");
  CHECK(first_host("login,gpu[1-2]") == "login");
  CHECK(first_host("rack1-[007-008],x") == "rack1-007");
  CHECK(first_host("a[1-3,7],b-x[01-02]") == "a1");
  CHECK(first_host("b-x[01-02],a[1-3,7]") == "b-x01");
  CHECK(first_host("machine2-[3-5]-vm1") == "machine2-3-vm1");
  CHECK(first_host("rack[0-1]_blade[2-3]") == "rack0_blade2");
  CHECK(first_host("n[1,3]-ib[0].cluster.example,z") == "n1-ib0.cluster.example");
  // As clusters have printed them.
  CHECK(first_host("c457-[011-012]") == "c457-011");
  CHECK(first_host("c427-032,c429-002") == "c427-032");
  CHECK(first_host("gnode[10,20,25,37]") == "gnode10");
  CHECK(first_host("nid[00001,00011-00012]") == "nid00001");
  CHECK(first_host("ml-16-node-[001-002,004],ml-17-node-[001-003]") == "ml-16-node-001");
  CHECK(first_host("nodeA,nodeB[001,003],nodeC") == "nodeA");
  for (const char* bad :
       {"", ",a", "gpu[7", "gpu[]", "gpu7]", "gpu[a-b]", "gpu[1-[2]]", "gpu[-2]", "gpu 1"}) {
    CHECK_THROWS_WITH(first_host(bad),
                      Contains(std::string("'") + bad + "' is not a list of nodes"));
  }
}

TEST_CASE("tasks of a node in Slurm's notation", "[launch]") {
  CHECK(tasks_of_node("4", 0) == 4);
  CHECK(tasks_of_node("2(x3),1", 0) == 2);
  CHECK(tasks_of_node("2(x3),1", 2) == 2);
  CHECK(tasks_of_node("2(x3),1", 3) == 1);
  CHECK(tasks_of_node("1(x4)", 3) == 1);
  CHECK(tasks_of_node("3,2(x2),8", 2) == 2);
  CHECK_THROWS_WITH(tasks_of_node("2(x3),1", 4), Contains("SLURM_NODEID is 4, but '2(x3),1' is"));
  for (const char* bad : {"", "x", "2(3)", "2(x", "2(x3", "0", "2,,1", "-1", "2(x0)", "2;1"}) {
    CHECK_THROWS_WITH(tasks_of_node(bad, 1000), Contains("not Slurm's number of tasks per node"));
  }
}

// What people printed in public reports, their names left out.
TEST_CASE("recorded Slurm environment: a task of srun", "[launch]") {
  // srun -N1 -n4, a report of 2013: task 1.
  const Variables one_node = {{"SLURMD_NODENAME", "t-cn0117"},
                              {"SLURM_CPUS_ON_NODE", "4"},
                              {"SLURM_GTIDS", "0,1,2,3"},
                              {"SLURM_JOBID", "901593"},
                              {"SLURM_JOB_CPUS_PER_NODE", "4"},
                              {"SLURM_JOB_ID", "901593"},
                              {"SLURM_JOB_NODELIST", "t-cn0117"},
                              {"SLURM_JOB_NUM_NODES", "1"},
                              {"SLURM_LOCALID", "1"},
                              {"SLURM_NNODES", "1"},
                              {"SLURM_NODEID", "0"},
                              {"SLURM_NODELIST", "t-cn0117"},
                              {"SLURM_NPROCS", "4"},
                              {"SLURM_NTASKS", "4"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_STEPID", "0"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_LAUNCHER_PORT", "33360"},
                              {"SLURM_STEP_NODELIST", "t-cn0117"},
                              {"SLURM_STEP_NUM_NODES", "1"},
                              {"SLURM_STEP_NUM_TASKS", "4"},
                              {"SLURM_STEP_TASKS_PER_NODE", "4"},
                              {"SLURM_TASKS_PER_NODE", "4"}};
  const RankPlace p = place(with(one_node, {{"RONDO_TOKEN", token}})).value();
  CHECK(p.rank == 1);
  CHECK(p.world_size == 4);
  CHECK(p.local_rank == 1);
  CHECK(p.local_size == 4);
  CHECK(p.master_address == "t-cn0117");
  CHECK(p.master_port == 21593);
}

TEST_CASE("recorded Slurm environments of processes that are alone", "[launch]") {
  // A shell of salloc (an interactive step) with room for 8 tasks, 2026: this process is alone.
  CHECK_FALSE(place({{"SLURM_JOB_ID", "1731344"},
                     {"SLURM_JOB_NODELIST", "GPU71E4"},
                     {"SLURM_LOCALID", "0"},
                     {"SLURM_MPI_TYPE", "pmix"},
                     {"SLURM_NNODES", "1"},
                     {"SLURM_NODEID", "0"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_STEP_ID", "4294967290"},
                     {"SLURM_STEP_NODELIST", "GPU71E4"},
                     {"SLURM_STEP_NUM_NODES", "1"},
                     {"SLURM_STEP_NUM_TASKS", "1"},
                     {"SLURM_STEP_TASKS_PER_NODE", "1"},
                     {"SLURM_TASKS_PER_NODE", "8"}}));

  // A batch script of four nodes: no step, no rank.
  CHECK_FALSE(place({{"SLURM_NODELIST", "gnode[10,20,25,37]"},
                     {"SLURMD_NODENAME", "gnode10"},
                     {"SLURM_NTASKS_PER_NODE", "4"},
                     {"SLURM_NNODES", "4"},
                     {"SLURM_JOBID", "200505"},
                     {"SLURM_NTASKS", "4"},
                     {"SLURM_TASKS_PER_NODE", "1(x4)"},
                     {"SLURM_JOB_ID", "200505"},
                     {"SLURM_NODEID", "0"},
                     {"SLURM_NPROCS", "4"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_JOB_NODELIST", "gnode[10,20,25,37]"},
                     {"SLURM_LOCALID", "0"},
                     {"SLURM_GTIDS", "0"}}));
}

TEST_CASE("recorded environment of mpirun within Slurm", "[launch]") {
  // Open MPI's mpirun in an allocation of two nodes, rank 3: Slurm speaks of mpirun's daemon.
  const Variables daemon = {{"SLURM_JOB_NODELIST", "node[1-2]"},
                            {"SLURM_NNODES", "1"},
                            {"SLURM_NODELIST", "node[1-2]"},
                            {"SLURM_TASKS_PER_NODE", "1"},
                            {"SLURM_NPROCS", "1"},
                            {"SLURM_STEP_NODELIST", "node1"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1"},
                            {"SLURM_NODEID", "0"},
                            {"SLURM_PROCID", "0"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_STEP_ID", "0"},
                            {"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"MASTER_ADDR", "node2"},
                            {"MASTER_PORT", "4000"}};
  const RankPlace p = place(with(daemon, {{"RONDO_TOKEN", token}})).value();
  CHECK(p.rank == 3);
  CHECK(p.world_size == 4);
  CHECK(p.local_size == 2);
  CHECK(p.master_address == "node2");
}

TEST_CASE("heterogeneous jobs and sparse environments of Slurm", "[launch]") {
  // srun --het-group=0,1 over nid00001 and nid[00011-00012], as Slurm's documentation shows it; the
  // second component's own view of the step beside it.
  const Variables het = {{"SLURM_JOB_ID", "11751"},
                         {"SLURM_HET_SIZE", "2"},
                         {"SLURM_JOB_ID_HET_GROUP_0", "11751"},
                         {"SLURM_JOB_ID_HET_GROUP_1", "11752"},
                         {"SLURM_JOB_NODELIST_HET_GROUP_0", "nid00001"},
                         {"SLURM_JOB_NODELIST_HET_GROUP_1", "nid[00011-00012]"},
                         {"SLURM_JOB_NODELIST", "nid[00001,00011-00012]"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NODELIST", "nid[00011-00012]"},
                         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "3"},
                         {"SLURM_NPROCS", "3"},
                         {"SLURM_PROCID", "2"},
                         {"SLURM_LOCALID", "0"},
                         {"RONDO_TOKEN", token}};
  RankPlace p = place(het).value();
  CHECK(p.rank == 2);
  CHECK(p.world_size == 3);
  CHECK(p.master_address == "nid00001");
  CHECK(p.master_port == 21751);

  const Variables sparse = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "3"}, {"SLURM_JOB_NODELIST", "a[1-3,7],b-x[01-02]"},
      {"SLURM_NTASKS", "6"}, {"SLURM_PROCID", "5"},  {"RONDO_TOKEN", token}};
  p = place(sparse).value();
  CHECK(p.rank == 5);
  CHECK(p.world_size == 6);
  CHECK(p.local_size == 1);
  CHECK(p.master_address == "a1");
  Variables old = sparse;
  old.erase("SLURM_NTASKS");
  CHECK_THAT(refusal(old), Contains("SLURM_PROCID is 5, but nothing says how many ranks"));
  CHECK(place(with(old, {{"SLURM_NPROCS", "6"}})).value().world_size == 6);
  CHECK_THAT(refusal(with(sparse, {{"SLURM_NTASKS", "5"}})),
             Contains("SLURM_PROCID is 5, but SLURM_NTASKS is 5"));
  CHECK_THAT(refusal(with(sparse, {{"SLURM_STEP_TASKS_PER_NODE", "3(x2)"},
                                   {"SLURM_NODEID", "1"},
                                   {"SLURM_LOCALID", "3"}})),
             Contains("SLURM_LOCALID is 3, but SLURM_STEP_TASKS_PER_NODE is 3"));
  CHECK_THAT(refusal(with(sparse, {{"SLURM_STEP_TASKS_PER_NODE", "3(x"}, {"SLURM_NODEID", "1"}})),
             Contains("'3(x' is not Slurm's number of tasks per node"));
  CHECK_THAT(refusal(with(sparse, {{"SLURM_JOB_NODELIST", "a[1-"}})),
             Contains("'a[1-' is not a list of nodes"));
  CHECK_THAT(refusal(with(sparse, {{"PMIX_RANK", "5"}, {"RANK", "4"}, {"WORLD_SIZE", "6"}})),
             Contains("RANK is 4, but PMIX_RANK is 5"));
}

TEST_CASE("a rank's GPU", "[launch]") {
  const auto gpu = [](const Variables& v, int local_rank, int ranks, int visible) {
    return gpu_of_rank(local_rank, ranks, visible, [&](const char* name) -> const char* {
      const auto it = v.find(name);
      return it == v.end() ? nullptr : it->second.c_str();
    });
  };
  // All are shown to all.
  for (int r = 0; r < 4; ++r) CHECK(gpu({}, r, 4, 4) == r);
  CHECK(gpu({{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}, {"SLURM_GPUS_ON_NODE", "4"}}, 3, 4, 4) == 3);
  CHECK(gpu({}, 1, 2, 8) == 1);
  // srun --ntasks-per-node=4 --gpus-per-task=1: each task sees its own as number 0.
  Variables task = slurm;
  task.insert_or_assign("SLURM_GPUS_PER_TASK", std::string("1"));
  task.insert_or_assign("CUDA_VISIBLE_DEVICES", std::string("0"));
  for (int r = 0; r < 4; ++r) CHECK(gpu(task, r, 4, 1) == 0);
  task.erase("CUDA_VISIBLE_DEVICES");
  CHECK(gpu(task, 3, 4, 1) == 0);
  // mpirun with a script that shows each rank its own.
  CHECK(gpu({{"CUDA_VISIBLE_DEVICES", "2"}}, 2, 4, 1) == 0);
  CHECK(gpu({{"CUDA_VISIBLE_DEVICES", "GPU-5a1b"}}, 2, 4, 1) == 0);
  // One is shown to all: they would share it.
  for (const char* launcher : {"RONDO_STORE_IS_SERVED", "TORCHELASTIC_RUN_ID"}) {
    CHECK_THROWS_WITH(gpu({{"CUDA_VISIBLE_DEVICES", "2"}, {launcher, "1"}}, 1, 2, 1),
                      Contains("there is 1 that they see (CUDA_VISIBLE_DEVICES is 2)"));
  }
  CHECK_THROWS_WITH(gpu({}, 1, 2, 1), Contains("2 ranks on this machine"));
  CHECK_THROWS_WITH(gpu({{"CUDA_VISIBLE_DEVICES", "0,1"}}, 2, 3, 2), Contains("there are 2"));
  CHECK_THROWS_WITH(gpu({{"CUDA_VISIBLE_DEVICES", "0,1"}}, 0, 3, 2), Contains("there are 2"));
}
