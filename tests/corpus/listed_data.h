// A folder of data as people have them, in the making, and what prepare makes of it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/data/audio/audio.h"
#include "engine/data/features/files.h"
#include "engine/data/image/image.h"
#include "engine/data/manifest.h"
#include "kernels/base/error.h"
#include "tests/data/temporary_folder.h"
#include "tools/corpus/examination/list_corpus.h"

namespace rondo::test {

class ListedData {
 public:
  std::string path(const std::string& name) const { return folder_.path(str("data/", name)); }
  std::string out() const { return folder_.path("out"); }

  void text(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    data::write_whole_file(path(name), content);
  }
  // Something is heard: a constant would be silence.
  void recording(const std::string& name, double seconds = 1) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::vector<float> samples(static_cast<size_t>(8000 * seconds), -0.1f);
    for (size_t i = 7; i < samples.size(); i += 8) samples[i] = 0.1f;
    write_wav(path(name), {8000, samples});
  }

  // An upright stroke every 20 pixels; none: blank paper.
  void line(const std::string& name, int32_t width = 200, bool strokes = true) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    GreyImage image(width, 40);
    for (int32_t y = 0; y < image.height; ++y)
      for (int32_t x = 0; x < width; ++x) image.row(y)[x] = strokes && x % 20 < 4 ? 0 : 255;
    data::write_whole_file(path(name), make_png(image));
  }

  DataSummary prepare(const std::vector<corpus::ListedUtterance>& list,
                      PrepareListOptions o = {}) const {
    o.kind = "test";
    o.out = out();
    const SndfileReader audio;
    const ImageFileReader images;
    return prepare_list(list, {&audio, &images}, o);
  }
  std::vector<ManifestEntry> manifest(const std::string& split) const {
    return read_manifest(str(out(), "/", split, ".jsonl")).entries;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace rondo::test
