// What an utterance was read from, as pages of rondo eval --report embed it: small images and the
// beginnings of recordings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/report/evaluation_report.h"

namespace rondo {

struct WorstMedia {
  std::string png, wav;  // files of these formats; empty: there is none
  std::string note;      // what is not there of it; may be empty
};

// Of these utterances of the data, in their order. Images are at most 96 pixels high. A recording
// ends after 15 seconds, is mono, and has the model's rate but at most 16 kHz, so that one takes
// at most 480 kB. Features have neither. Throws InputError.
std::vector<WorstMedia> media_of(std::span<const int64_t> utterances, const ManifestDataset& data,
                                 const MediaReaders& readers, int32_t rate);

void add_media(const WorstMedia& media, report::AlignedUtterance& utterance);

}  // namespace rondo
