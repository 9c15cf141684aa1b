// kernels/base/cpu/cgroup.h: limits of control groups, in file trees as Linux shows them.
#include "kernels/base/cpu/cgroup.h"

#include <stdlib.h>

#include <fstream>
#include <string>

#include "tests/catch.h"

using namespace rondo;
namespace fs = std::filesystem;

namespace {

// A machine's root, in a folder that goes with it.
class Machine {
 public:
  Machine(const std::string& mountinfo, const std::string& cgroup) {
    std::string pattern = (fs::temp_directory_path() / "rondo-cgroup-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
    write("proc/self/mountinfo", mountinfo);
    write("proc/self/cgroup", cgroup);
  }
  ~Machine() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  Machine& write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return *this;
  }
  std::optional<double> cpus() const { return cgroup_cpus(root_); }
  std::optional<double> memory() const { return cgroup_memory(root_); }

 private:
  fs::path root_;
};

const std::string v2 =
    "24 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string v1 =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 master:2 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
const std::string v1_groups =
    "5:cpuset:/\n4:cpu,cpuacct:/slurm/job_7/step_0\n3:memory:/slurm/job_7\n";

}  // namespace

TEST_CASE("version 2: the least quota of the process's group and those above it") {
  Machine m(v2, "0::/job.slice/quota.scope\n");
  const std::string at = "sys/fs/cgroup/";
  CHECK(!m.cpus());
  m.write(at + "job.slice/quota.scope/cpu.max", "max 100000\n");
  CHECK(!m.cpus());
  m.write(at + "job.slice/cpu.max", "300000 100000\n");
  CHECK(m.cpus() == 3);
  m.write(at + "job.slice/quota.scope/cpu.max", "150000 100000\n");
  CHECK(m.cpus() == 1.5);
  m.write(at + "job.slice/quota.scope/cpu.max", "400000 100000\n");
  CHECK(m.cpus() == 3);
  m.write(at + "cpu.max", "50000 100000\n");  // of a container
  CHECK(m.cpus() == 0.5);
  m.write(at + "other.slice/cpu.max", "1000 100000\n");
  m.write(at + "job.slice/quota.scope/below/cpu.max", "1000 100000\n");
  CHECK(m.cpus() == 0.5);
}

TEST_CASE("version 1: quota and period at the controller's own mount") {
  Machine m(v1, v1_groups);
  const std::string at = "sys/fs/cgroup/cpu,cpuacct/slurm/";
  m.write(at + "job_7/step_0/cpu.cfs_quota_us", "-1\n");
  m.write(at + "job_7/step_0/cpu.cfs_period_us", "100000\n");
  CHECK(!m.cpus());
  m.write(at + "job_7/cpu.cfs_quota_us", "100000\n");
  CHECK(!m.cpus());  // of no known period
  m.write(at + "job_7/cpu.cfs_period_us", "50000\n");
  CHECK(m.cpus() == 2);
  m.write("sys/fs/cgroup/cpuset/slurm/job_7/cpu.cfs_quota_us", "1\n");
  CHECK(m.cpus() == 2);
}

TEST_CASE("both versions: the one that has the quota counts") {
  Machine m(v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            v1_groups + "0::/user.slice\n");
  m.write("sys/fs/cgroup/unified/user.slice/cgroup.controllers", "");
  CHECK(!m.cpus());
  m.write("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/step_0/cpu.cfs_quota_us", "200000\n");
  m.write("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/step_0/cpu.cfs_period_us", "100000\n");
  CHECK(m.cpus() == 2);
  m.write("sys/fs/cgroup/unified/user.slice/cpu.max", "100000 100000\n");
  CHECK(m.cpus() == 1);
}

TEST_CASE("containers: the group's path may begin above what is mounted, or lead out of it") {
  const auto mounted = [](const std::string& top) {
    return "31 23 0:28 " + top + " /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  };
  struct Case {
    std::string mountinfo, group, folder;
  };
  const Case cases[] = {
      {mounted("/"), "/", ""},                                  // a namespace of its own
      {mounted("/"), "/inner", "inner/"},                       //
      {mounted("/"), "/../sibling", ""},                        // moved out of its namespace
      {mounted("/docker/abc"), "/docker/abc", ""},              // without a namespace
      {mounted("/docker/abc"), "/docker/abc/inner", "inner/"},  //
      {mounted("/docker/abc"), "/docker/abcdef", ""},           // another one
      {mounted("/.."), "/../sibling", "sibling/"},              // mounted by the namespace above
      {mounted("/.."), "/", ""},                                //
  };
  for (const Case& c : cases) {
    CAPTURE(c.mountinfo, c.group);
    Machine m(c.mountinfo, "0::" + c.group + "\n");
    m.write("cpu.max", "1 100\n").write("sys/fs/sibling/cpu.max", "1 100\n");
    m.write("sys/fs/cgroup/" + c.folder + "cpu.max", "250000 100000\n");
    CHECK(m.cpus() == 2.5);
  }
}

TEST_CASE("other places of the mount, and one that mountinfo does not name") {
  Machine blank("31 23 0:28 / /run/control\\040groups\\134 rw - cgroup2 none rw\n", "0::/a:b c\n");
  blank.write("run/control groups\\/a:b c/cpu.max", "700000 100000\n");
  CHECK(blank.cpus() == 7);
  Machine hidden("", "0::/job\n");
  hidden.write("sys/fs/cgroup/job/cpu.max", "700000 100000\n");
  CHECK(hidden.cpus() == 7);
}

TEST_CASE("files that say nothing sensible are no limit") {
  for (const char* text :
       {"", "\n", "max\n", "100000\n", "x y\n", "100000 0\n", "0 100000\n", "-1 100000\n",
        "nan 100000\n", "100000 100000 1\n", "100000x 100000\n", "1e999 1\n"}) {
    CAPTURE(text);
    Machine m(v2, "0::/a\n");
    m.write("sys/fs/cgroup/a/cpu.max", text);
    CHECK(!m.cpus());
  }
  for (const char* text : {"", "0", "0:", "0::", "::\n\n", "no colon\n", "-::/a"}) {
    CAPTURE(text);
    Machine m("31\n31 23 0:28 / - cgroup2\n - \n" + v2, text);
    m.write("sys/fs/cgroup/cpu.max", "100000 100000\n");
    CHECK(m.cpus() == 1);
  }
}

TEST_CASE("memory: the least limit of either version") {
  Machine two(v2, "0::/a/b\n");
  CHECK(!two.memory());
  two.write("sys/fs/cgroup/a/b/memory.max", "max\n")
      .write("sys/fs/cgroup/a/memory.max", "8589934592\n");
  CHECK(two.memory() == 8589934592.0);
  Machine one(v1, v1_groups);
  one.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK(!one.memory());
  one.write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "1073741824\n");
  CHECK(one.memory() == 1073741824.0);
}
