/* HMAC-SHA256 (FIPS 180-4, RFC 2104): by it ranks show each other that they know the job's token, without sending it.
 */
#ifndef NN_COMM_HMAC_H
#define NN_COMM_HMAC_H

#include <stddef.h>
#include <stdint.h>

enum { NN_HMAC_BYTES = 32 };

typedef struct nn_hmac {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64], outer[64];
} nn_hmac;

void nn_hmac_begin(nn_hmac *h, const char *key);
void nn_hmac_add(nn_hmac *h, const void *data, size_t bytes);
void nn_hmac_end(nn_hmac *h, uint8_t out[NN_HMAC_BYTES]);

/* Whether they are equal; the time that this takes does not say where they differ. */
int32_t nn_hmac_equal(const uint8_t a[NN_HMAC_BYTES], const uint8_t b[NN_HMAC_BYTES]);

#endif
