// out = the rows that a descriptor describes, zeros behind them: what a tensor map does for a load that is out of bounds.
//
// The descriptor is made on the host and passed by value, 128 bytes that are nobody's to read but the kernel's, as a
// CUtensorMap is. One block a row of out; 16 bytes a thread. out (rows, width) bf16, contiguous; width is a multiple of 8.
#include "bf16.cuh"

struct alignas(64) Descriptor {
    const bf16* base;
    unsigned long long packed;  // bytes from row to row << 32 | rows
    unsigned long long reserved[14];
};
static_assert(sizeof(Descriptor) == 128, "as large as a CUtensorMap");

extern "C" __global__ void load_rows(const __grid_constant__ Descriptor from, bf16* out, i64 width) {
    const i64 row = blockIdx.x;
    const bool described = row < i64(from.packed & 0xffffffffull);
    const bf16* source = from.base + row * i64(from.packed >> 32) / 2;
    for (i64 at = threadIdx.x * 8; at < width; at += blockDim.x * 8) {
        const Bf16x8 zeros = {};
        store8(out + row * width + at, described ? load8(source + at) : zeros);
    }
}
