#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/c/handles.h"

namespace rondo::c {
namespace {

rondo_stream_options usual_stream() {
  const EndpointOptions usual;
  rondo_stream_options o{};
  o.size = sizeof o;
  o.chunk_seconds = 0.2;
  o.end_silence = usual.silence;
  o.longest = usual.longest;
  return o;
}

StreamOptions options_of(const rondo_stream_options& o) {
  if (!(o.chunk_seconds > 0 && o.chunk_seconds <= 60))
    fail_input("rondo_stream_options: chunks of ", o.chunk_seconds,
               " seconds, expected more than 0, at most 60");
  if (!(o.end_silence >= 0) || !(o.longest >= 0))
    fail_input("rondo_stream_options: end_silence ", o.end_silence, " and longest ", o.longest,
               ", expected 0 or more seconds");
  StreamOptions options;
  options.endpoint = {o.end_silence, o.longest};
  if (o.decoder) options.decoder = o.decoder->decoder;
  return options;
}

std::unique_ptr<rondo_result> result_of(StreamedTranscript&& t, double frame_seconds) {
  const double begin = t.begin, end = t.end;
  auto r = c::result_of(static_cast<Transcript&&>(t), frame_seconds);
  r->begin = begin;
  r->end = end;
  return r;
}

void keep_ended(rondo_stream& s) {
  for (const StreamedTranscript& t : s.stream.ended())
    s.ended.push_back(result_of(StreamedTranscript(t), s.frame_seconds));
}

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

void rondo_stream_options_init(rondo_stream_options* options, size_t size) {
  write_options(options, size, usual_stream());
}

rondo_status rondo_stream_new(rondo_state* state, const rondo_stream_options* options,
                              rondo_stream** stream) {
  return making<rondo_stream>(stream, [&] {
    require_given(state, "state");
    const auto o = read_options(options, usual_stream(), "rondo_stream_options");
    return std::make_unique<rondo_stream>(state->recognizer, o.chunk_seconds, options_of(o));
  });
}

void rondo_stream_free(rondo_stream* stream) { delete stream; }

rondo_status rondo_stream_accept(rondo_stream* stream, const float* samples, size_t count,
                                 const char** text) {
  return rondo_streams_accept(&stream, &samples, &count, 1, text);
}

rondo_status rondo_streams_accept(rondo_stream* const* streams, const float* const* samples,
                                  const size_t* counts, size_t count, const char** texts) {
  if (texts) std::fill_n(texts, count, "");
  return guarded([&] {
    if (count == 0) return;
    require_given(streams, "streams");
    require_given(samples, "samples");
    require_given(counts, "counts");
    std::vector<RecognizerStream::Sound> sounds;
    for (size_t i = 0; i < count; ++i) {
      require_given(streams[i], "stream");
      if (counts[i] > 0) require_given(samples[i], "samples");
      sounds.push_back({&streams[i]->stream, {samples[i], counts[i]}});
    }
    std::vector<std::string> told = RecognizerStream::accept(sounds);
    for (size_t i = 0; i < count; ++i) {
      streams[i]->text = std::move(told[i]);
      keep_ended(*streams[i]);
      if (texts) texts[i] = streams[i]->text.c_str();
    }
  });
}

rondo_status rondo_stream_partial(rondo_stream* stream, const char** stable, const char** text) {
  if (stable) *stable = "";
  if (text) *text = "";
  return guarded([&] {
    require_given(stream, "stream");
    stream->partial = stream->stream.partial();
    if (stable) *stable = stream->partial.stable.c_str();
    if (text) *text = stream->partial.text.c_str();
  });
}

rondo_status rondo_stream_next(rondo_stream* stream, rondo_result** result) {
  if (result) *result = nullptr;
  return guarded([&] {
    require_given(stream, "stream");
    require_given(result, "result");
    if (stream->ended.empty()) return;
    *result = stream->ended.front().release();
    stream->ended.pop_front();
  });
}

rondo_status rondo_stream_finish(rondo_stream* stream) {
  return guarded([&] {
    require_given(stream, "stream");
    StreamedTranscript last = stream->stream.finish();
    keep_ended(*stream);
    if (!last.text.empty())
      stream->ended.push_back(result_of(std::move(last), stream->frame_seconds));
  });
}

rondo_status rondo_stream_reset(rondo_stream* stream) {
  return guarded([&] {
    require_given(stream, "stream");
    stream->stream.finish();
    stream->ended.clear();
    stream->text.clear();
    stream->partial = {};
  });
}
