// rondo convert: models of other programs, and for them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "engine/data/features/endings.h"
#include "engine/io/file.h"
#include "engine/io/output_file.h"
#include "engine/train/model/kraken_model.h"
#include "engine/train/model/tesseract_model.h"
#include "kernels/base/error.h"
#include "tools/command.h"

namespace rondo {
namespace {

struct ConvertOptions {
  std::string model, out;
};

bool is_tesseracts(const std::string& path) { return has_ending(path, ".traineddata"); }

// The file, where it is one of kraken's.
std::optional<SafetensorsFile> open_krakens(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  if (has_ending(path, ".mlmodel")) {
    fail_input(path,
               ": is a model in kraken's older format, which is not read; kraken writes it in "
               "the newer one: ketos convert -o model.safetensors ",
               path);
  }
  SafetensorsFile file{std::filesystem::path(path)};
  if (!is_kraken_model(file)) return std::nullopt;
  return file;
}

void save(const std::string& path, const ForeignModel& model) {
  std::vector<TensorToWrite> tensors;
  for (const ForeignModel::Tensor& t : model.tensors) {
    const auto bytes = std::as_bytes(std::span(t.values));
    tensors.push_back(
        {t.name, DType::f32, t.shape, nullptr, [bytes](uint64_t offset, std::span<std::byte> into) {
           std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
         }});
  }
  save_model(path, tensors, model.description);
}

int run_convert(const ConvertOptions& o) {
  const OutputFile out(o.out, "the result");
  for (const std::string& file : files_of_model(o.model)) out.require_not(file, "the model");
  std::vector<std::string> warnings;
  const char* to = "kraken's";
  std::vector<std::string> remarks;
  if (is_tesseracts(o.model)) {
    const FileBytes file(o.model, FileBytes::Mode::map);
    const ForeignModel model = read_tesseract_model(file.bytes(), o.model);
    save(o.out, model);
    remarks = model.remarks;
    to = "rondo's";
  } else if (const auto kraken = open_krakens(o.model)) {
    const ForeignModel model = read_kraken_model(*kraken);
    save(o.out, model);
    remarks = model.remarks;
    to = "rondo's";
  } else {
    remarks = write_kraken_model(o.out, open_model(o.model, &warnings));
  }
  for (const std::string& w : warnings) warn(w);
  for (const std::string& r : remarks) warn(o.model + ": " + r);
  std::printf("%s: a model in %s format\n", o.out.c_str(), to);
  return 0;
}

}  // namespace

void add_convert(Command& program) {
  Command& command = program.add_command(
      "convert", "Models of kraken and Tesseract for rondo, and of rondo for kraken");
  auto o = std::make_shared<ConvertOptions>();
  command
      .add_option("model", o->model,
                  "a model of kraken 7 (.safetensors) or of Tesseract 4 or 5 (.traineddata), or a "
                  "checkpoint directory or model file of rondo, for lines of text")
      .required()
      .check(check_file_name);
  command
      .add_option("out", o->out,
                  "the file to write: rondo's model of the others', kraken's model of rondo's")
      .required()
      .check(check_file_name);
  command.footer(
      "\nExample:  rondo convert kraken.safetensors model.safetensors\n"
      "          rondo convert deu.traineddata model.safetensors\n"
      "          rondo convert run for-kraken.safetensors\n");
  command.action([o] { return run_convert(*o); });
}

}  // namespace rondo
