#include "tools/recognition/ensemble_option.h"

#include "engine/io/file.h"
#include "engine/train/model/model_file.h"
#include "kernels/base/hash.h"

namespace rondo {

CommandOption add_ensemble_option(Command& command, std::vector<std::string>* others) {
  return command
      .add_option("--with", *others,
                  "a further model: the text is what all together find most probable; may be "
                  "given several times")
      .one_word()
      .type_name("MODEL");
}

std::vector<std::string> files_of_models(const std::string& model,
                                         const std::vector<std::string>& others) {
  std::vector<std::string> files = files_of_model(model);
  for (const std::string& other : others) {
    for (std::string& file : files_of_model(other)) files.push_back(std::move(file));
  }
  return files;
}

uint64_t hash_of_models(const std::string& model, const std::vector<std::string>& others) {
  uint64_t hash = fnv1a_begin;
  for (const std::string& file : files_of_models(model, others)) {
    hash = fnv1a(read_text_file(file), hash);
  }
  return hash;
}

}  // namespace rondo
