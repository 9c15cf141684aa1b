// TensorBoard event files: scalars and text, without TensorFlow or protobuf.
//
// A file is a sequence of TFRecords (little-endian length, masked CRC-32C of the length, the bytes,
// masked CRC-32C of the bytes), each one serialised Event message
// (tensorflow/core/util/event.proto; the few fields used are encoded by hand). Flushed after each
// event.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace rondo {

// Move-only; one thread at a time. InputError if the disk refuses.
class TensorBoardWriter {
 public:
  // Creates `directory` and a new events file in it, named after time, host and process;
  // TensorBoard reads files by their names, so the time is later than that of any file which is
  // there already. `clock` gives seconds since the epoch; the default is the system's.
  explicit TensorBoardWriter(const std::filesystem::path& directory,
                             std::function<double()> clock = {});
  TensorBoardWriter(TensorBoardWriter&& other) noexcept;
  TensorBoardWriter& operator=(TensorBoardWriter&&) = delete;
  ~TensorBoardWriter();

  // A run begins here, or goes on here, with this step: of earlier files of the directory
  // TensorBoard shows no event of this step or a later one any more (SessionLog START).
  void session_start(int64_t step);
  // `tag` groups by its first part: "loss/train". Values that are not finite are kept.
  void scalar(std::string_view tag, int64_t step, float value);
  // Markdown, in TensorBoard's Text tab. Must be UTF-8.
  void text(std::string_view tag, int64_t step, std::string_view markdown);

  const std::filesystem::path& path() const { return path_; }
  // The directory had event files before.
  bool continues() const { return continues_; }

 private:
  void write_event(int64_t step, std::string_view field);

  std::function<double()> clock_;
  std::filesystem::path path_;
  bool continues_ = false;
  int fd_ = -1;
};

}  // namespace rondo
