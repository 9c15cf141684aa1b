#include "engine/data/audio/foreign_sound.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"
#include "engine/data/features/run_program.h"
#include "engine/io/descriptor.h"
#include "engine/io/file.h"
#include "kernels/base/cpu/printable.h"

namespace rondo::data {
namespace {

constexpr const char* program = "ffmpeg";
// A damaged file can say that it is days long.
constexpr size_t most_bytes = size_t{4} << 30;

std::string converting(const FilePart& file) {
  if (!file.is_whole()) return "convert it to WAV or FLAC";
  std::filesystem::path wav = file.path;
  wav.replace_extension(".wav");
  if (wav == file.path) wav.replace_extension(".new.wav");
  return str("convert it: ffmpeg -i ", word_for_shell(file.path), " ",
             word_for_shell(wav.string()));
}

[[noreturn]] void fail(const std::string& message) {
  throw SoundError(SoundFault::foreign, message);
}

// The last two lines: ffmpeg ends with the cause, and with what became of it.
std::string cause_in(std::string text) {
  const auto trim = [&] {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  };
  std::string cause;
  for (int lines = 0; lines < 2; ++lines) {
    trim();
    if (text.empty()) break;
    const size_t begin = text.rfind('\n') + 1;
    cause = text.substr(begin) + (cause.empty() ? "" : "; " + cause);
    text.resize(begin);
  }
  return printable_start(cause, 300);
}

// `input` as ffmpeg is told of it, `bytes` it has; `standard_input`: a descriptor, or -1.
std::string decode(const std::string& input, int standard_input, uint64_t bytes,
                   const std::string& name, std::string_view format, const std::string& advice) {
  if (!is_on_path(program))
    fail(str(name, ": is ", format, ", which is decoded by ffmpeg, and ffmpeg is not on PATH; ",
             "install it (apt-get install ffmpeg), or ", advice));
  ProgramOptions o;
  constexpr uint64_t megabyte = 1 << 20;
  o.limit = std::chrono::seconds(60 + 10 * (bytes / megabyte));
  o.standard_input = standard_input;
  o.most_output = most_bytes;
  ProgramOutput output;
  try {
    output = run_program(
        program,
        {"-nostdin", "-hide_banner", "-loglevel", "error", "-protocol_whitelist", "file,pipe", "-i",
         input, "-map", "0:a:0", "-vn", "-f", "wav", "-acodec", "pcm_f32le", "pipe:1"},
        o);
  } catch (const InputError& e) {
    fail(str(name, ": is ", format, ", and ", e.what()));
  }
  if (output.status != 0 || output.out.empty()) {
    const std::string cause = cause_in(output.err);
    fail(str(name, ": is ", format, ", and ffmpeg cannot decode it: ",
             cause.empty() ? str("it ended with status ", output.status) : cause));
  }
  return std::move(output.out);
}

std::string decode_from_memory(std::span<const std::byte> bytes, const std::string& name,
                               std::string_view format, const std::string& advice) {
  // A file without a name: some formats have to be read to and fro.
  const Descriptor file(::memfd_create("sound", MFD_CLOEXEC));
  if (file.get() < 0) fail_input(name, ": no memory for it: ", std::strerror(errno));
  write_all(file.get(), bytes, name);
  if (::lseek(file.get(), 0, SEEK_SET) != 0) fail_input(name, ": ", std::strerror(errno));
  return decode("file:/proc/self/fd/0", file.get(), bytes.size(), name, format, advice);
}

}  // namespace

std::string decode_foreign_sound(const FilePart& file, std::string_view format) {
  const std::string advice = converting(file);
  if (!file.is_whole()) {
    const std::string content = read_regular_file(file);
    return decode_from_memory(std::as_bytes(std::span(content)), file.name(), format, advice);
  }
  // The name may begin with "-", or look like the address of something on a network.
  const std::string input = "file:" + std::filesystem::absolute(file.path).string();
  return decode(input, -1, regular_file_size(file), file.name(), format, advice);
}

std::string decode_foreign_sound(std::span<const std::byte> bytes, const std::string& name,
                                 std::string_view format) {
  return decode_from_memory(bytes, name, format, "convert it to WAV or FLAC");
}

}  // namespace rondo::data
