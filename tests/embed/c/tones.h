// A corpus that a program can make by itself: each letter is a tone of 0.15 seconds.
#pragma once

#include <math.h>
#include <rondo/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  tone_rate = 8000,
  tone_samples = tone_rate * 15 / 100,
  most_letters = 16,
  room = (most_letters + 2) * tone_samples
};

static uint32_t tone_random(uint32_t* seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

// Words of a, b, c and d; as many letters as `text`, which has room for most_letters + 1, holds in
// the end. Returns how many samples `sound`, with `room`, got.
static size_t make_tones(uint32_t seed, char* text, float* sound) {
  size_t letters = 4 + tone_random(&seed) % 6, n = 0;
  for (size_t i = 0; i < letters; ++i) {
    const int gap = i > 1 && i + 1 < letters && text[i - 1] != ' ' && tone_random(&seed) % 4 == 0;
    char letter = (char)('a' + tone_random(&seed) % 4);
    if (i > 0 && letter == text[i - 1]) letter = letter == 'd' ? 'a' : (char)(letter + 1);
    text[i] = gap ? ' ' : letter;
  }
  text[letters] = 0;
  for (size_t i = 0; i < letters + 2; ++i) {
    const char letter = i == 0 || i > letters ? ' ' : text[i - 1];
    const double pitch = letter == ' ' ? 0 : 400.0 * (letter - 'a' + 1);
    for (int k = 0; k < tone_samples; ++k, ++n) {
      const double noise = (double)(tone_random(&seed) % 2000) / 1000.0 - 1;
      sound[n] = (float)(0.3 * sin(2 * 3.14159265358979 * pitch * k / tone_rate) + 0.01 * noise);
    }
  }
  return n;
}

static void put(FILE* f, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) fputc((int)(value >> (8 * i) & 255), f);
}

static inline void write_wav(const char* path, const float* sound, size_t n) {
  FILE* f = fopen(path, "wb");
  if (!f) exit(2);
  fputs("RIFF", f), put(f, (uint32_t)(36 + 2 * n), 4), fputs("WAVEfmt ", f), put(f, 16, 4);
  put(f, 1, 2), put(f, 1, 2), put(f, tone_rate, 4), put(f, 2 * tone_rate, 4), put(f, 2, 2);
  put(f, 16, 2), fputs("data", f), put(f, (uint32_t)(2 * n), 4);
  for (size_t i = 0; i < n; ++i) put(f, (uint32_t)(int32_t)lrintf(sound[i] * 32767) & 65535, 2);
  if (fclose(f) != 0) exit(2);
}

static rondo_input samples_of(const float* sound, size_t n) {
  return (rondo_input){RONDO_SAMPLES, tone_rate, sound, (int64_t)n, 1, 0, 0};
}
