// out = silu(gate) * up, where a row of gate_up holds gate in its first half and up in its second.
//
// 16 bytes a thread; blockIdx.y is the row.
//
// gate_up (rows, 2 * width) bf16, contiguous; out (rows, width) bf16, contiguous. width is a multiple of 8.
#include "bf16.cuh"

extern "C" __global__ void silu_and_mul(bf16* out, const bf16* gate_up, i64 width) {
    const i64 at = (i64(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
    if (at >= width) return;
    const bf16* row = gate_up + blockIdx.y * 2 * width;

    float gate[8], up[8];
    unpack(load8(row + at), gate);
    unpack(load8(row + width + at), up);
#pragma unroll
    for (int i = 0; i < 8; ++i) up[i] *= gate[i] / (1.0f + __expf(-gate[i]));
    store8(out + blockIdx.y * width + at, pack(up));
}
