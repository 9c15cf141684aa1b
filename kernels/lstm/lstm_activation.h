// sigmoid and tanh for the cells of the LSTM's time loops, where they are a third of the work at
// H = 128. Half the instructions of kernels/base/cpu/simd.h's: 2^n comes from the rounding
// constant's own bits, the argument is clamped instead of treated by cases, and sigmoid's error is
// bounded against 1, not against itself. To be included inside a namespace that has vf, vi and
// their functions of kernels/base/cpu/simd.h, whatever vf is (kernels/lstm/lstm_int8_ref.cc has
// floats).

// x * log2(e) * scale = n + fraction, |fraction| <= 1/2. `shifted` holds n in its low bits.
struct Power {
  vf fraction;
  vi exponent;  // n << 23
};
[[gnu::always_inline]] inline Power split(vf x, float scale, float limit) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = max(broadcast(-limit), min(broadcast(limit), x));  // in this order NaN stays NaN
  const vf shifted = x * (scale * 1.44269504088896341f) + magic;
  const vf n = shifted - magic;
  return {x * (scale * 1.44269504088896341f) - n, bits_of(shifted) << 23};
}

// Within 2^-23 of the true value; NaN stays NaN.
[[gnu::always_inline]] inline vf cell_sigmoid(vf x) {
  const Power p = split(x, -1.0f, 87.0f);
  // 2^fraction, minimax, relative error 7.5e-8.
  vf e = p.fraction * 1.327647187e-3f + 9.675541334e-3f;
  e = e * p.fraction + 5.550713274e-2f;
  e = e * p.fraction + 2.402211972e-1f;
  e = e * p.fraction + 6.931469671e-1f;
  e = e * p.fraction + 1.000000072f;
  return 1.0f / (1.0f + float_of(bits_of(e) + p.exponent));
}

// From expm1(2 x) = q as q / (q + 2), which keeps the relative error at a few ulp near 0; NaN
// stays NaN.
[[gnu::always_inline]] inline vf cell_tanh(vf x) {
  const Power p = split(x, 2.0f, 20.0f);
  // (2^fraction - 1) / fraction, minimax, relative error 1.1e-8.
  vf e = p.fraction * 1.540351265e-4f + 1.339073548e-3f;
  e = e * p.fraction + 9.618237494e-3f;
  e = e * p.fraction + 5.550357434e-2f;
  e = e * p.fraction + 2.402264979e-1f;
  e = e * p.fraction + 6.931471879e-1f;
  e = e * p.fraction;
  const vf power = float_of(p.exponent + 0x3f800000);
  const vf q = e * power + (power - 1.0f);
  return q / (q + 2.0f);
}
