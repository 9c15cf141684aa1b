#include "kernels/simt/instrument/source_line.h"

#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include "kernels/base/error.h"

extern "C" const char __executable_start;  // from the linker

namespace rondo::simt {
namespace {

uintptr_t load_bias() {
  uintptr_t bias = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {  // the program comes first
        *static_cast<uintptr_t*>(out) = info->dlpi_addr;
        return 1;
      },
      &bias);
  return bias;
}

std::string first_line_of_a_kernel(std::FILE* lines) {
  std::array<char, 4096> buffer;
  std::string first;
  while (std::fgets(buffer.data(), buffer.size(), lines)) {
    std::string line(buffer.data());
    line.erase(line.find_last_not_of(" \n") + 1);
    if (const size_t note = line.find(" (discriminator"); note != std::string::npos)
      line.erase(note);
    if (line.empty() || line[0] == '?') continue;
    line = std::filesystem::path(line).lexically_normal().string();
    if (first.empty()) first = line;
    const bool of_the_tools = line.find("/simt/vocabulary_sim.h") != std::string::npos ||
                              line.find("/include/") != std::string::npos;
    if (!of_the_tools) return line;
  }
  return first;
}

}  // namespace

uint32_t to_site(const void* return_address) {
  return static_cast<uint32_t>(static_cast<const char*>(return_address) - &__executable_start);
}

std::string source_line(uint32_t site) {
  const uintptr_t address =
      reinterpret_cast<uintptr_t>(&__executable_start) + site - 1 - load_bias();
  std::array<char, 4096> program;
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
  std::array<char, 32> hexadecimal;
  std::snprintf(hexadecimal.data(), hexadecimal.size(), "0x%zx", address);
  if (length > 0) {
    const std::string command =
        str("addr2line -i -e '", std::string_view(program.data(), static_cast<size_t>(length)),
            "' ", hexadecimal.data(), " 2>/dev/null");
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> lines(popen(command.c_str(), "r"),
                                                                pclose);
    if (lines) {
      if (std::string line = first_line_of_a_kernel(lines.get()); !line.empty()) return line;
    }
  }
  return hexadecimal.data();
}

}  // namespace rondo::simt
