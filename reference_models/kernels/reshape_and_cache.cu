// Writes each row's new key and value to the cache slot that slot_mapping names; a negative slot (padding) writes nothing.
//
// One block a row, 16 bytes a thread. A slot is `width` = kv_heads * head_dim numbers, contiguous in both caches.
//
// key, value (rows, width) bf16, rows key_stride and value_stride apart; key_cache, value_cache (slots, width) bf16;
// slot_mapping (rows,) int32.
#include "bf16.cuh"

extern "C" __global__ void reshape_and_cache(const bf16* key, const bf16* value, bf16* key_cache, bf16* value_cache,
                                             const int* slot_mapping, i64 width, i64 key_stride, i64 value_stride) {
    const i64 row = blockIdx.x;
    const i64 slot = slot_mapping[row];
    if (slot < 0) return;

    for (i64 at = threadIdx.x * 8; at < width; at += blockDim.x * 8) {
        store8(key_cache + slot * width + at, load8(key + row * key_stride + at));
        store8(value_cache + slot * width + at, load8(value + row * value_stride + at));
    }
}
