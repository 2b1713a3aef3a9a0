#include "hmac.h"

#include <string.h>

enum { BLOCK = 64 };

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void mix(nn_hmac *h) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++) {
    const uint8_t *b = h->block + 4 * i;
    w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
  }
  for (int i = 16; i < 64; i++) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
  }
  memcpy(s, h->state, sizeof s);
  for (int i = 0; i < 64; i++) {
    const uint32_t a = s[0], e = s[4];
    const uint32_t t =
        s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + constants[i] + w[i];
    const uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t;
    s[0] = t + u;
  }
  for (int i = 0; i < 8; i++) {
    h->state[i] += s[i];
  }
}

static void start(nn_hmac *h) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(h->state, first, sizeof first);
  h->bytes = 0;
}

void nn_hmac_add(nn_hmac *h, const void *data, size_t bytes) {
  for (const uint8_t *at = data; bytes > 0; at++, bytes--) {
    h->block[h->bytes++ % BLOCK] = *at;
    if (h->bytes % BLOCK == 0) {
      mix(h);
    }
  }
}

static void finish(nn_hmac *h, uint8_t out[NN_HMAC_BYTES]) {
  const uint64_t bits = 8 * h->bytes;
  nn_hmac_add(h, "\x80", 1);
  while (h->bytes % BLOCK != BLOCK - 8) {
    nn_hmac_add(h, "", 1);
  }
  for (int i = 7; i >= 0; i--) {
    nn_hmac_add(h, &(uint8_t){(uint8_t)(bits >> (8 * i))}, 1);
  }
  for (int i = 0; i < NN_HMAC_BYTES; i++) {
    out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
  }
}

void nn_hmac_begin(nn_hmac *h, const char *key) {
  uint8_t padded[BLOCK] = {0}, inner[BLOCK];
  const size_t length = strlen(key);
  if (length > BLOCK) {
    start(h);
    nn_hmac_add(h, key, length);
    finish(h, padded);
  } else {
    memcpy(padded, key, length);
  }
  for (int i = 0; i < BLOCK; i++) {
    inner[i] = padded[i] ^ 0x36;
    h->outer[i] = padded[i] ^ 0x5c;
  }
  start(h);
  nn_hmac_add(h, inner, BLOCK);
}

void nn_hmac_end(nn_hmac *h, uint8_t out[NN_HMAC_BYTES]) {
  uint8_t inner[NN_HMAC_BYTES];
  finish(h, inner);
  start(h);
  nn_hmac_add(h, h->outer, BLOCK);
  nn_hmac_add(h, inner, sizeof inner);
  finish(h, out);
}

int32_t nn_hmac_equal(const uint8_t a[NN_HMAC_BYTES], const uint8_t b[NN_HMAC_BYTES]) {
  uint8_t different = 0;
  for (int i = 0; i < NN_HMAC_BYTES; i++) {
    different |= a[i] ^ b[i];
  }
  return different == 0;
}
