// Sound that the program ffmpeg decodes, of which a script stands in its place.
#include "engine/data/audio/foreign_sound.h"

#include <signal.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"
#include "engine/data/features/run_program.h"
#include "kernels/base/error.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace rondo;
using Catch::Matchers::Contains;
using data::decode_foreign_sound;
namespace fs = std::filesystem;

namespace {

// The folder with a script as ffmpeg, which is the working directory and first on PATH.
class StandIn {
 public:
  StandIn() : path_(std::getenv("PATH")), directory_(fs::current_path()) {
    ::setenv("PATH", (folder.path("") + ":" + path_).c_str(), 1);
    fs::current_path(folder.path(""));
  }
  ~StandIn() {
    ::setenv("PATH", path_.c_str(), 1);
    fs::current_path(directory_);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  void does(const std::string& commands, const std::string& name = "ffmpeg") const {
    fs::permissions(folder.write(name, "#!/bin/sh\nprintf '%s\\n' \"$@\" > arguments\n" + commands),
                    fs::perms::owner_all);
  }
  // Behind -i.
  std::string input() const {
    const std::string all = data::read_regular_file(folder.path("arguments"));
    const size_t begin = all.find("\n-i\n") + 4;
    return all.substr(begin, all.find('\n', begin) - begin);
  }

  const TemporaryFolder folder;

 private:
  const std::string path_;
  const fs::path directory_;
};

const std::string mp4 = std::string(3, '\0') + "\x20" + "ftypM4A and what a phone has recorded";

void fails(const std::string& name, const std::string& why) {
  try {
    decode_foreign_sound(FilePart{name}, "MPEG-4");
    FAIL_CHECK("nothing is wrong with " << name);
  } catch (const SoundError& e) {
    CHECK(e.fault == SoundFault::foreign);
    CHECK_THAT(std::string(e.what()), Contains(name + ": is MPEG-4, ") && Contains(why));
  }
}

}  // namespace

TEST_CASE("ffmpeg gets the file by a name that is neither an option nor an address", "[foreign]") {
  const StandIn ffmpeg;
  ffmpeg.does("while [ \"$1\" != -i ]; do shift; done; exec cat \"${2#file:}\"\n");
  for (const char* name : {"-y.m4a", "two words.m4a", "http:x.m4a", "it's.m4a", "$HOME;ls.m4a"}) {
    INFO(name);
    ffmpeg.folder.write(name, mp4);
    CHECK(decode_foreign_sound(FilePart{name}, "MPEG-4") == mp4);
    CHECK(ffmpeg.input() == "file:" + (fs::current_path() / name).string());
  }
  // Bytes, and a part of a file, have no name: standard input is a file that can be read to and
  // fro.
  CHECK(decode_foreign_sound(std::as_bytes(std::span(mp4)), "in.tar:a", "MPEG-4") == mp4);
  CHECK(ffmpeg.input() == "file:/proc/self/fd/0");
  const std::string tar = ffmpeg.folder.write("in.tar", "before" + mp4 + "behind");
  CHECK(decode_foreign_sound(FilePart{tar, 6, mp4.size()}, "MPEG-4") == mp4);
  CHECK(ffmpeg.input() == "file:/proc/self/fd/0");
}

TEST_CASE("what ffmpeg decodes is a recording, and what is none names the file", "[foreign]") {
  const StandIn ffmpeg;
  const std::string name = ffmpeg.folder.write("a.m4a", mp4);
  write_wav(ffmpeg.folder.path("answer"), {8000, std::vector<float>(4000, 0.25f)});
  ffmpeg.does("exec cat answer\n");
  const SndfileReader reader;
  CHECK(reader.info(FilePart{name}).sample_rate == 8000);
  CHECK(reader.read(FilePart{name}, 8000).samples.size() == 4000);
  ffmpeg.does("echo no sound at all\n");
  CHECK_THROWS_WITH(reader.read(FilePart{name}, 8000), Contains("a.m4a: "));
  ffmpeg.does("exec head -c 30 answer\n");
  CHECK_THROWS_WITH(reader.read(FilePart{name}, 8000), Contains("a.m4a: "));
}

TEST_CASE("what ffmpeg cannot decode is an error with the cause", "[foreign]") {
  const StandIn ffmpeg;
  ffmpeg.folder.write("a.m4a", mp4);
  const auto says = [&](const std::string& commands, const std::string& why) {
    INFO(commands);
    ffmpeg.does(commands);
    fails("a.m4a", why);
  };
  const std::string cannot = "and ffmpeg cannot decode it: ";
  says("echo one >&2; echo moov atom not found >&2; echo Invalid data >&2; exit 1\n",
       cannot + "moov atom not found; Invalid data");
  says("exit 3\n", cannot + "it ended with status 3");
  // Half of it is no recording.
  says("echo half of a sound; exit 1\n", cannot + "it ended with status 1");
  says("echo half of a sound; kill -9 $$\n", cannot + "it ended with status 137");
  says("exit 0\n", cannot + "it ended with status 0");
  says("echo no stream >&2; exit 0\n", cannot + "no stream");
  fs::remove("ffmpeg");
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", ffmpeg.folder.path("").c_str(), 1);
  fails("a.m4a",
        "ffmpeg is not on PATH; install it (apt-get install ffmpeg), or convert it: "
        "ffmpeg -i a.m4a a.wav");
  ffmpeg.folder.write("-y 1.m4a", mp4);
  fails("-y 1.m4a", "convert it: ffmpeg -i './-y 1.m4a' './-y 1.wav'");
  ::setenv("PATH", path.c_str(), 1);
}

TEST_CASE("a program that prints without end, or nothing for ever, is ended", "[foreign][slow]") {
  const StandIn programs;
  const auto is_gone = [&] {
    const std::string pid = data::read_regular_file(programs.folder.path("pid"));
    return ::kill(static_cast<pid_t>(std::stol(pid)), 0) != 0 && errno == ESRCH;
  };
  ProgramOptions o{.limit = std::chrono::minutes(5)};
  o.most_output = 100000;
  programs.does("echo $$ > pid; exec yes\n", "endless");
  CHECK_THROWS_WITH(run_program("endless", {}, o), Contains("endless: printed more than 100000"));
  CHECK(is_gone());
  programs.does("head -c 100000 /dev/zero\n", "enough");
  CHECK(run_program("enough", {}, o).out.size() == 100000);
  programs.does("echo $$ > pid; exec sleep 600\n", "silent");
  fs::remove("pid");
  o.limit = std::chrono::seconds(2);
  CHECK_THROWS_WITH(run_program("silent", {}, o), Contains("silent: was not done after 2 s"));
  CHECK((!fs::exists("pid") || is_gone()));  // a machine may be too slow for the first line
}
