/* Conversions between f32 and narrower floats: every f16, and f32 with every exponent and every kind of rounding. */
#include "check.cuh"
#include <math.h>
#include <vector>

__global__ void narrow(const float *x, uint16_t *f16, uint16_t *bf16, uint32_t *f16x2, uint32_t *bf16x2, int n) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    f16[i] = nn_f32_to_f16(x[i]);
    bf16[i] = nn_f32_to_bf16(x[i]);
    f16x2[i] = nn_f32x2_to_f16x2(x[i], x[n - 1 - i]);
    bf16x2[i] = nn_f32x2_to_bf16x2(x[i], x[n - 1 - i]);
  }
}

__global__ void widen(float *f16, float *bf16, float2 *f16x2, float2 *bf16x2) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  f16[i] = nn_f16_to_f32((uint16_t)i);
  bf16[i] = nn_bf16_to_f32((uint16_t)i);
  f16x2[i] = nn_f16x2_to_f32x2(i | (i ^ 0x5a5au) << 16);
  bf16x2[i] = nn_bf16x2_to_f32x2(i | (i ^ 0x5a5au) << 16);
}

__global__ void to_e4m3(const float *x, uint8_t *y, int n) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    y[i] = nn_f32_to_e4m3(x[i]);
  }
}

__global__ void of_e4m3(float *y, float2 *two) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = nn_e4m3_to_f32((uint8_t)i);
  two[i] = nn_f16x2_to_f32x2(nn_e4m3x2_to_f16x2((uint16_t)(i | (i ^ 0x5au) << 8)));
}

__global__ void approximate(const float *x, float *exp2, int n) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    exp2[i] = nn_exp2_approx(x[i]);
  }
}

__global__ void to_tf32(const float *x, uint32_t *y, int n) {
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    y[i] = nn_f32_to_tf32(x[i]);
  }
}

static float from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}

/* A 16-bit float with `exponent` bits of exponent; infinity as the power of two after the greatest number. */
static double value_of(uint16_t bits, int exponent) {
  const int mantissa = 15 - exponent, e = bits >> mantissa & ((1 << exponent) - 1), m = bits & ((1 << mantissa) - 1);
  const int bias = (1 << (exponent - 1)) - 1;
  const double a =
      e ? ldexp((double)(m + (1 << mantissa)), e - bias - mantissa) : ldexp((double)m, 1 - bias - mantissa);
  return bits & 0x8000 ? -a : a;
}

/* The nearest 16-bit float, of two equally near the one with an even last bit, by bisection. Beyond the greatest number
 * the next power of two stands for infinity (IEEE 754, 4.3.1). */
static uint16_t nearest(float x, int exponent) {
  if (isnan(x)) {
    return 0x7fff;
  }
  const double a = fabs((double)x);
  uint16_t low = 0, high = (uint16_t)(((1 << exponent) - 1) << (15 - exponent));
  if (a >= value_of(high, exponent)) {
    low = high;
  }
  while (high - low > 1) {
    const uint16_t middle = (uint16_t)((low + high) / 2);
    *(value_of(middle, exponent) <= a ? &low : &high) = middle;
  }
  const double below = a - value_of(low, exponent), above = value_of(high, exponent) - a;
  const uint16_t y = below < above || (below == above && low % 2 == 0) || low == high ? low : high;
  return (uint16_t)(y | (signbit(x) ? 0x8000 : 0));
}

static void test_narrow() {
  std::vector<float> values = {0.0f,     -0.0f,     INFINITY, -INFINITY, NAN,
                               65504.0f, 65519.99f, 65520.0f, 0x1p-24f,  0x1p-25f};
  uint64_t state = 1;
  for (uint32_t exponent = 0; exponent < 256; exponent++) {
    for (uint32_t sign = 0; sign < 2; sign++) {
      const uint32_t u = sign << 31 | exponent << 23;
      for (int cut : {13, 16}) { /* bits that f16, bf16 drop: exact, below, at and above a tie, even and odd */
        for (uint32_t kept = 0; kept < 4; kept++) {
          for (uint32_t rest : {0u, 1u, (1u << cut) / 2 - 1, (1u << cut) / 2, (1u << cut) / 2 + 1, (1u << cut) - 1}) {
            values.push_back(from_bits(u | ((random_bits(&state) & 0x70) << 16 | kept << cut | rest)));
          }
        }
      }
      for (int i = 0; i < 64; i++) {
        values.push_back(from_bits(u | (random_bits(&state) & 0x7fffff)));
      }
    }
  }
  const int n = (int)values.size();
  array<float> x(n);
  array<uint16_t> f16(n), bf16(n);
  array<uint32_t> f16x2(n), bf16x2(n);
  memcpy(x.host, values.data(), values.size() * 4);
  launch(narrow, (unsigned)(n + 255) / 256, 256, 0, x.to_device(), f16.device, bf16.device, f16x2.device, bf16x2.device,
         n);
  f16.from_device(), bf16.from_device(), f16x2.from_device(), bf16x2.from_device();
  for (int i = 0; i < n; i++) {
    const uint16_t h = nearest(x[i], 5), b = nearest(x[i], 8);
    CHECK(f16[i] == h, "f16 of %a is %04x, not %04x", x[i], h, f16[i]);
    CHECK(bf16[i] == b, "bf16 of %a is %04x, not %04x", x[i], b, bf16[i]);
    CHECK(f16x2[i] == (f16[i] | (uint32_t)f16[n - 1 - i] << 16), "pair of f16 %08x", f16x2[i]);
    CHECK(bf16x2[i] == (bf16[i] | (uint32_t)bf16[n - 1 - i] << 16), "pair of bf16 %08x", bf16x2[i]);
  }
}

static bool same(float a, float b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, 4) == 0; }

static void test_widen() {
  array<float> f16(65536), bf16(65536);
  array<float2> f16x2(65536), bf16x2(65536);
  launch(widen, 256, 256, 0, f16.device, bf16.device, f16x2.device, bf16x2.device);
  f16.from_device(), bf16.from_device(), f16x2.from_device(), bf16x2.from_device();
  for (uint32_t i = 0; i < 65536; i++) {
    const bool special = (i & 0x7c00) == 0x7c00;
    const float h = special ? (i & 0x3ff ? NAN : i & 0x8000 ? -INFINITY : INFINITY) : (float)value_of((uint16_t)i, 5);
    CHECK(same(f16[i], h), "f16 %04x is %a, not %a", i, h, f16[i]);
    CHECK(same(bf16[i], from_bits(i << 16)), "bf16 %04x became %a", i, bf16[i]);
    CHECK(same(f16x2[i].x, f16[i]) && same(f16x2[i].y, f16[i ^ 0x5a5a]), "pair of f16 %04x", i);
    CHECK(same(bf16x2[i].x, bf16[i]) && same(bf16x2[i].y, bf16[i ^ 0x5a5a]), "pair of bf16 %04x", i);
  }
}

/* The distance of y from the exact value, in units of the last place of the exact value's f32. */
static double units(float y, double exact) {
  const float rounded = (float)exact;
  return fabs((double)y - exact) / (nextafterf(fabsf(rounded), INFINITY) - (double)fabsf(rounded));
}

static void test_approximations() {
  const int n = 1 << 16;
  array<float> x(n), exp2_of(n);
  uint64_t state = 3;
  for (int i = 0; i < n; i++) {
    x[i] = i % 2 ? ldexpf((float)(int32_t)random_bits(&state), -24) : from_bits(random_bits(&state));
  }
  const float edges[] = {0.0f, -0.0f, 1.0f, -126.0f, -126.5f, -150.0f, 127.9f, 128.0f, INFINITY, -INFINITY, NAN};
  memcpy(x.host, edges, sizeof edges);
  launch(approximate, n / 256, 256, 0, x.to_device(), exp2_of.device, n);
  exp2_of.from_device();
  for (int i = 0; i < n; i++) {
    const double power = exp2((double)x[i]);
    if (isnan(x[i])) {
      CHECK(isnan(exp2_of[i]), "of NaN: %a", exp2_of[i]);
    } else if (power < 0x1p-126) {
      CHECK(exp2_of[i] == 0 || (exp2_of[i] == 0x1p-126f && power > 0x1p-126 * (1 - 0x1p-22)), "2^%a is %a", x[i],
            exp2_of[i]);
    } else if (power > 0x1.fffffcp127) {
      CHECK(exp2_of[i] >= 0x1.fffff8p127f, "2^%a is %a", x[i], exp2_of[i]);
    } else {
      CHECK(units(exp2_of[i], power) <= 2.5, "2^%a is %a, not %a", x[i], power, exp2_of[i]);
    }
  }
}

static void test_tf32() {
  const int n = 1 << 14;
  array<float> x(n);
  array<uint32_t> y(n);
  uint64_t state = 4;
  for (int i = 0; i < n; i++) { /* half of them near a tie */
    const uint32_t u = random_bits(&state) & 0xff7fffff;
    x[i] = from_bits(i % 2 ? u : (u & ~0x1fffu) + 0x0fff + (uint32_t)i % 3);
  }
  launch(to_tf32, n / 256, 256, 0, x.to_device(), y.device, n);
  y.from_device();
  for (int i = 0; i < n; i++) {
    int e;
    frexp((double)x[i], &e);
    const double spacing = ldexp(1.0, e < -125 ? -136 : e - 11);
    const double rounded = round((double)x[i] / spacing) * spacing; /* round(): ties away from zero */
    CHECK((double)from_bits(y[i]) == rounded && (y[i] & 0x1fff) == 0, "tf32 of %a is %a, not %08x", x[i], rounded,
          y[i]);
  }
}

static double e4m3_value(uint8_t size) {
  const int e = size >> 3, m = size & 7;
  return e ? ldexp((double)(m + 8), e - 10) : ldexp((double)m, -9);
}

/* Each number that e4m3 has, what lies half-way to the next one, their neighbours, and what is far away. */
static void test_e4m3() {
  std::vector<float> values = {INFINITY, NAN, 0x1p-149f, 449.0f, 0x1p127f};
  for (uint32_t size = 0; size < 0x7f; size++) {
    const float x = (float)e4m3_value((uint8_t)size), middle = (float)((x + e4m3_value((uint8_t)(size + 1))) / 2);
    for (float y : {x, middle}) {
      values.insert(values.end(), {y, nextafterf(y, 0.0f), nextafterf(y, 1e9f)});
    }
  }
  const int half = (int)values.size(), n = 2 * half;
  array<float> x(n), widened(256);
  array<uint8_t> code(n);
  array<float2> two(256);
  for (int i = 0; i < half; i++) {
    x[i] = values[(size_t)i];
    x[half + i] = -x[i];
  }
  launch(to_e4m3, (unsigned)(n + 255) / 256, 256, 0, x.to_device(), code.device, n);
  launch(of_e4m3, 1, 256, 0, widened.device, two.device);
  code.from_device(), widened.from_device(), two.from_device();
  for (int i = 0; i < n; i++) {
    uint8_t nearest = 0;
    for (uint8_t size = 1; size < 0x7f; size++) {
      const double here = fabs(e4m3_value(size) - fabs((double)x[i])),
                   best = fabs(e4m3_value(nearest) - fabs((double)x[i]));
      nearest = here < best || (here == best && size % 2 == 0) ? size : nearest;
    }
    nearest = isinf(x[i]) ? 0x7e : nearest;
    const uint8_t expected = isnan(x[i]) ? 0x7f : (uint8_t)(nearest | (signbit(x[i]) ? 0x80 : 0));
    CHECK(code[i] == expected, "e4m3 of %a is %02x, not %02x", x[i], expected, code[i]);
  }
  for (uint32_t i = 0; i < 256; i++) {
    const float y = (i & 0x7f) == 0x7f ? NAN : (float)((i & 0x80 ? -1 : 1) * e4m3_value((uint8_t)(i & 0x7f)));
    CHECK(same(widened[i], y), "e4m3 %02x is %a, not %a", i, y, widened[i]);
    CHECK(same(two[i].x, widened[i]) && same(two[i].y, widened[i ^ 0x5a]), "pair of e4m3 %02x", i);
  }
}

int main() {
  test_narrow();
  test_e4m3();
  test_widen();
  test_approximations();
  if (device_arch() >= 80) {
    test_tf32();
  }
  puts("convert: passed");
}
